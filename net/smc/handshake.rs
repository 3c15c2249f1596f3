// SPDX-License-Identifier: GPL-2.0

//! From an established TCP connection to one over RDMA, or the reason why not (RFC 7609 section 3.5).
//!
//! What to offer, accept or decline is decided in `smc_proto::handshake`; here ports, link groups and
//! buffers are found, and messages exchanged.

mod client;
mod first;
mod join;
mod path;
mod server;
mod stream;

pub(crate) use client::connect;
pub(crate) use server::accept;

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::net::{
    memory,
    Charge,
    Purpose,
    Sk,
    TcpSocket, //
};
use smc_proto::{
    buffer::SizeClass,
    cause::Cause,
    handshake::{
        Failure,
        Fatal,
        Then, //
    },
    lgr::{
        rtoken::Rtoken,
        End, //
    },
    reason::Reason,
    time::Duration,
    wire::clc::SmcR, //
};

use crate::{
    clc::{
        Exchange,
        Heard, //
    },
    conn::{
        Charges,
        Conn,
        Owner, //
    },
    groups,
    ib::PortGid,
    lgr::{
        ConnReservation,
        LinkGroup,
        LinkRef,
        Terms,
        FIRST, //
    },
    link::Link,
    local::Local,
    namespace, //
};

/// How a handshake ended.
pub(crate) enum Outcome {
    /// The connection is over RDMA.
    Smc(Arc<Conn>),
    /// It goes on over TCP.
    Fallback(Why),
}

/// Why a connection goes over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) reason: Reason,
    /// What the peer said, or 0.
    pub(crate) diagnosis: u32,
    /// What exactly was missing here, if it is known.
    pub(crate) cause: Option<Cause>,
    /// A DECLINE of the peer may be on its way, which crosses ours: it is not the application's.
    pub(crate) may_cross: bool,
}

impl Why {
    /// The TCP connection is protected by keys.
    pub(crate) fn keys() -> Self {
        Self {
            cause: Some(Cause::TcpKeys),
            ..Reason::Ipsec.into()
        }
    }
}

impl From<Reason> for Why {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            diagnosis: 0,
            cause: None,
            may_cross: false,
        }
    }
}

/// Carries out what a failure means for the connection.
fn conclude(exchange: &Exchange<'_>, local: &Local, failure: Failure) -> Result<Outcome> {
    if let Failure::Peer(error) = failure {
        exchange.complain(error);
    }
    let failure = heed_decline(exchange, failure);
    let verdict = failure.verdict();
    let diagnosis = match failure {
        Failure::PeerDeclined { diagnosis, .. } => diagnosis.0,
        Failure::Declined(..) | Failure::Peer(_) | Failure::Fatal(_) => 0,
    };
    if let Some(reason) = verdict.decline {
        exchange
            .decline(reason, local.peer_id())
            .map_err(|_| EPROTO)?;
    }
    match verdict.then {
        Then::Fallback(reason) => Ok(Outcome::Fallback(Why {
            reason,
            diagnosis,
            cause: failure.cause(),
            may_cross: verdict.decline.is_some() && exchange.is_confirmed(),
        })),
        Then::Fail(fatal) => Err(errno(fatal)),
    }
}

/// A DECLINE of the peer that is here already speaks for both sides: the failure is that, then.
fn heed_decline(exchange: &Exchange<'_>, failure: Failure) -> Failure {
    if failure.verdict().decline.is_none() || !exchange.is_confirmed() {
        return failure;
    }
    match exchange.take_decline(Duration::ZERO) {
        Ok(Heard::Decline(decline)) => Failure::from(&decline),
        _ => failure,
    }
}

fn errno(fatal: Fatal) -> Error {
    match fatal {
        Fatal::Protocol => EPROTO,
        Fatal::TimedOut => ETIMEDOUT,
        Fatal::Reset => ECONNRESET,
        Fatal::Interrupted => EINTR,
        Fatal::Tcp(errno) => Error::from_errno(-i32::from(errno)),
    }
}

/// What fails here leads to TCP.
fn internal(e: Error) -> Reason {
    match e {
        e if e == ENOMEM => Reason::Memory,
        e if e == ENOLINK => Reason::NoActiveLink,
        _ => Reason::Internal,
    }
}

/// The socket of an application and the TCP connection below it.
type Ends<'a> = (&'a ARef<Sk>, &'a Arc<TcpSocket>);

/// Makes the connection of a socket in a group: takes an element to receive into.
fn make_conn(
    reservation: ConnReservation,
    at: LinkRef,
    (sk, tcp): Ends<'_>,
) -> Result<Arc<Conn>, Failure> {
    let want = SizeClass::for_bytes(sk.rcvbuf() / 2);
    let group = reservation.group();
    let namespace = namespace::of(sk);
    let stats = &namespace.stats.receive_buffers;
    let rmbe = group.rmbs.take(at.slot, &at.link, want, stats);
    if memory::is_short() || rmbe.is_err() {
        groups::relieve();
    }
    let rmbe = rmbe.map_err(|e| match e {
        e if e == ENOBUFS => Failure::Declined(Reason::Memory, Some(Cause::SocketMemory)),
        e => internal(e).into(),
    })?;
    let charge = Charge::new(sk, Purpose::Receive, rmbe.size().bytes())
        .map_err(|_| Failure::Declined(Reason::Memory, Some(Cause::CgroupMemory)))?;
    let owner = Owner {
        sk: sk.clone(),
        tcp: tcp.clone(),
        charges: Charges {
            rmbe: Some(charge),
            sndbuf: None,
        },
    };
    Ok(Conn::new(reservation, at, rmbe, owner).map_err(internal)?)
}

/// Makes sure that the peer can write into the connection's element: its region is registered and
/// announced. Nothing is to be done if another connection did it before. May sleep.
fn announce(conn: &Conn, at: &LinkRef) -> Result<(), Reason> {
    let group = &conn.group;
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    if group.announce(rmbe.rmb(), at).is_err() {
        group.rmbs.forget(rmbe.rmb());
        return Err(Reason::RegistrationFailed);
    }
    Ok(())
}

/// Our end, as the handshake says it.
fn endpoint(local: &Local, conn: &Conn, at: &LinkRef) -> Result<SmcR, Reason> {
    let LinkRef { slot, link } = at;
    let port = link.port();
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    let rtoken = rmbe.rmb().rtoken(*slot).ok_or(Reason::NoActiveLink)?;
    Ok(SmcR {
        peer_id: local.peer_id(),
        gid: port.gid,
        mac: port.mac,
        qp_num: link.qp_num(),
        rkey: rtoken.rkey,
        rmbe_index: rmbe.index(),
        token: conn.token(),
        rmbe_size: rmbe.size(),
        mtu: port.mtu,
        rmb_addr: rtoken.addr,
        psn: link.psn(),
    })
}

/// Learns the peer's end of the first connection of a group, and its first buffer.
fn learn(conn: &Conn, at: &LinkRef, peer: &SmcR) -> Result<(), Reason> {
    let rtoken = Rtoken {
        rkey: peer.rkey,
        addr: peer.rmb_addr,
    };
    let row = conn
        .group
        .with_rtokens(|rtokens| rtokens.add(at.slot, rtoken));
    row.map_err(|_| Reason::NoRtoken)?;
    join::learn(conn, at, peer)
}

/// Makes a link group and its first connection, on which `contact` runs the first contact.
fn begin_group(
    local: &Local,
    port: PortGid,
    terms: Terms,
    ends: Ends<'_>,
    contact: impl FnOnce(&Arc<Conn>) -> Result<(), Failure>,
) -> Result<Arc<Conn>, Failure> {
    let (_, tcp) = ends;
    let peer = tcp.peer().map_err(|_| Reason::Internal)?.ip;
    groups::make_room(peer)?;
    let link = Link::new(port.device(), port.facts, terms.depth).map_err(|e| {
        groups::spare_queue_pair(port.device());
        internal(e)
    })?;
    let id = local.next_group_id();
    let at = LinkRef {
        slot: FIRST,
        link: link.clone(),
    };
    let group = LinkGroup::new(id, terms, link, &groups::SCHEDULER).map_err(internal)?;
    // The peer may offer the group to another connection as soon as the link is active, so it has to be
    // in the list by then.
    let result = match groups::add(&group, peer) {
        // A device that went before that did not find the group.
        Ok(()) if port.is_gone() => Err(Reason::NoSmcDevice.into()),
        Ok(()) => make_conn(group.reserve_conn().ok_or(Reason::Internal)?, at, ends),
        Err(failure) => Err(failure),
    };
    let result = result.and_then(|conn| settle(conn, contact));
    match &result {
        Ok(_) => groups::fail_replaced_links(&group),
        // Not here: the peer is to hear of it, and others wait for their turn.
        Err(_) => group.terminate_soon(End::LinkLost),
    }
    result
}

/// Runs the rest of the handshake on a connection, and establishes or abandons it.
fn settle(
    conn: Arc<Conn>,
    rest: impl FnOnce(&Arc<Conn>) -> Result<(), Failure>,
) -> Result<Arc<Conn>, Failure> {
    match rest(&conn) {
        Ok(()) => {
            conn.establish();
            Ok(conn)
        }
        Err(failure) => {
            // The socket goes on without it.
            conn.detach();
            conn.give_up_claim();
            conn.group.leave(conn.token());
            if failure.verdict().ends_group {
                conn.group.terminate_soon(End::OutOfSync);
            }
            Err(failure)
        }
    }
}
