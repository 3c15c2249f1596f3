// SPDX-License-Identifier: GPL-2.0

//! The handshake on an established TCP connection, which leads to a connection by SMC or to a fallback to TCP
//! (RFC 7609 section 3.5).
//!
//! `smc_proto::handshake` decides what to propose, accept or decline. A [`Session`] finds ports, creates link groups,
//! connections and buffers, and exchanges the messages.

mod client;
mod first_contact;
mod join;
mod path;
mod prefix;
mod progress;
mod server;
mod smcd;

use kernel::sync::{
    aref::ARef,
    Arc, //
};
use kernel_ext::{
    net::{
        memory,
        Charge,
        Sk,
        TcpSocket, //
    },
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    handshake::{
        Disposition,
        Failure,
        Fatal,
        NewLgr, //
    },
    id::PeerId,
    lgr::{
        LinkIdx,
        Role,
        TcpEnds,
        TerminateReason, //
    },
    llc::RkeyError,
    reason::Reason,
    time::Duration,
    wire::clc::SmcR, //
};

use crate::{
    carrier::Carrier,
    clc::{
        ClcChannel,
        ClcWatcher,
        PendingMessage, //
    },
    conn::{
        largest_rmbe,
        smallest_rmbe,
        Conn,
        ConnSock,
        MemCharges, //
    },
    groups,
    lgr::{
        ConnReservation,
        LgrParams,
        LgrTimeouts,
        LinkGroup,
        LinkRef, //
    },
    link::{
        Link,
        LinkConfig, //
    },
    local::{
        LocalSystem,
        LOCAL, //
    },
    namespace,
    turn::TurnWait, //
};
use path::ConnPath;
pub(crate) use progress::Progress;

/// How a handshake ended.
pub(crate) enum HandshakeResult {
    /// The connection is by SMC.
    Smc(Carrier),
    /// It goes on over TCP.
    Fallback(FallbackInfo),
    /// Client: the TCP connection is of no use, and another one without SMC is to be made, which goes on over TCP.
    Reconnect(FallbackInfo),
}

/// Why a connection goes over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FallbackInfo {
    pub(crate) reason: Reason,
    /// The diagnosis in the DECLINE of the peer, or 0.
    pub(crate) diagnosis: u32,
    /// What exactly was missing here, if it is known.
    pub(crate) cause: Option<Cause>,
    /// A DECLINE of the peer may still arrive, which crossed ours: it must not reach the application.
    pub(crate) may_cross: bool,
}

impl FallbackInfo {
    /// For a TCP connection that is protected by keys (TCP MD5, TCP-AO).
    pub(crate) fn keys() -> Self {
        Self {
            cause: Some(Cause::TcpKeys),
            ..Reason::Ipsec.into()
        }
    }

    /// For a connection that a rule denies SMC.
    pub(crate) fn denied() -> Self {
        Self {
            cause: Some(Cause::DeniedByRule),
            ..Reason::PeerNoSmc.into()
        }
    }

    /// For a TCP connection at whose start not both ends have offered SMC.
    /// Context: may sleep.
    pub(crate) fn not_offered(role: Role, sk: &Sk, tcp: &TcpSocket) -> Self {
        match namespace::of(sk).policy.denies_connection(role, tcp) {
            true => Self::denied(),
            false => Reason::PeerNoSmc.into(),
        }
    }

    /// For a client whose peer answers no SYN that offers SMC, as this attempt has shown, or one before.
    pub(crate) fn unanswered_syn() -> Self {
        Self {
            cause: Some(Cause::SynUnanswered),
            ..Reason::PeerNoSmc.into()
        }
    }

    /// For a client without any RDMA device that can be used.
    pub(crate) fn no_device(cause: Cause) -> Self {
        Self {
            cause: Some(cause),
            ..Reason::NoSmcDevice.into()
        }
    }
}

impl From<Reason> for FallbackInfo {
    fn from(reason: Reason) -> Self {
        Self {
            reason,
            diagnosis: 0,
            cause: None,
            may_cross: false,
        }
    }
}

/// Runs the handshake of the socket `sk` on the established connection `tcp`; a server tells of its `progress`.
/// Context: may sleep.
///
/// # Errors
///
/// If the TCP connection is lost as well: connect(2) fails with that errno, accept(2) never returns the connection.
pub(crate) fn run(
    role: Role,
    sk: &ARef<Sk>,
    tcp: &Arc<TcpSocket>,
    progress: Option<&Progress>,
) -> Result<HandshakeResult> {
    let Some(local) = LOCAL.get() else {
        return Ok(HandshakeResult::Fallback(Reason::Internal.into()));
    };
    let is_offered = match role {
        Role::Client => tcp.connected_syn_smc(),
        Role::Server => tcp.syn_smc(),
    };
    if !is_offered {
        let info = FallbackInfo::not_offered(role, sk, tcp);
        return Ok(HandshakeResult::Fallback(info));
    }
    let mut session = Session {
        local: &local,
        sk,
        tcp,
        clc: ClcChannel::new(tcp, progress.map(|progress| progress as &dyn ClcWatcher))?,
        progress,
    };
    let result = match role {
        Role::Client => client::connect(&mut session),
        Role::Server => server::accept(&mut session),
    };
    match result {
        Ok(conn) => Ok(HandshakeResult::Smc(conn)),
        Err(failure) => session.finish_failed(failure),
    }
}

/// A handshake under way.
struct Session<'a> {
    /// This host.
    local: &'a LocalSystem,
    /// The socket of the application.
    sk: &'a ARef<Sk>,
    /// The TCP connection below it.
    tcp: &'a Arc<TcpSocket>,
    /// The CLC messages on that.
    clc: ClcChannel<'a>,
    /// Of a server: what the handshakes of other connections are to know.
    progress: Option<&'a Progress>,
}

/// Fails if a rule denies the connection SMC. It has been offered if that was not known before, or the rules have
/// changed.
/// Context: may sleep.
fn check_policy(role: Role, sk: &Sk, tcp: &TcpSocket) -> Result<(), Failure> {
    match namespace::of(sk).policy.denies_connection(role, tcp) {
        true => Err(Failure::Declined(
            Reason::PeerNoSmc,
            Some(Cause::DeniedByRule),
        )),
        false => Ok(()),
    }
}

/// The addresses and the network namespace that decide which link groups a connection may join; `None` if the TCP
/// connection has ended.
fn tcp_ends(sk: &Sk, tcp: &TcpSocket) -> Option<TcpEnds> {
    let (local, peer) = (tcp.local().ok()?, tcp.peer().ok()?);
    Some(TcpEnds {
        namespace: sk.netns_cookie(),
        local: local.ip,
        peer: peer.ip,
        scope: peer.scope_id,
    })
}

impl Session<'_> {
    /// See [`tcp_ends`].
    ///
    /// # Errors
    ///
    /// [`Fatal::Reset`] if the TCP connection has ended.
    fn tcp_ends(&self) -> Result<TcpEnds, Failure> {
        tcp_ends(self.sk, self.tcp).ok_or(Fatal::Reset.into())
    }

    /// The peer id of this host, as this peer knows it; none if the TCP connection has ended.
    fn peer_id(&self) -> PeerId {
        let ends = self.tcp_ends();
        ends.map_or(PeerId::NONE, |ends| self.local.peer_id(&ends))
    }

    /// The traffic class of a link group that begins.
    fn traffic_class(&self) -> u8 {
        let of_socket = self.tcp.traffic_class().unwrap_or(0);
        let class = namespace::of(self.sk).config.traffic_class();
        class.byte(of_socket)
    }

    /// The parameters of a link group that begins with a port of the VLAN `vlan`.
    fn lgr_params(&self, new: &NewLgr, vlan: u16) -> Result<LgrParams, Failure> {
        Ok(LgrParams {
            role: new.role,
            version: new.version(),
            release: new.release,
            limits: new.limits,
            peer: new.peer,
            vlan,
            eid: new.eid,
            is_direct: new.is_direct,
            ends: self.tcp_ends()?,
            net_cookie: self.sk.netns_cookie(),
            times: LgrTimeouts::of(self.sk, new.role),
            buf_type: namespace::of(self.sk).config.buf_type(),
            link: LinkConfig {
                depth: namespace::depth(self.sk),
                traffic_class: self.traffic_class(),
            },
            net: self.tcp.netns_id(),
        })
    }

    /// Creates a link group, its first link, from the port of `path`, and the first connection, on which
    /// `first_contact` runs.
    /// Context: may sleep.
    fn create_lgr(
        &mut self,
        new: &NewLgr,
        path: &ConnPath<'_>,
        first_contact: impl FnOnce(&mut Self, &Arc<Conn>) -> Result<(), Failure>,
    ) -> Result<Arc<Conn>, Failure> {
        let port = &path.port;
        let params = self.lgr_params(new, port.vlan)?;
        let peer = params.ends.peer;
        groups::make_room(params.net, peer)?;
        let link = Link::new(port.device(), port.info, params.link).map_err(|e| {
            port.note_failure(e.error);
            groups::spare_queue_pair(port.device());
            Failure::Declined(internal(e.error), e.cause)
        })?;
        let at = LinkRef {
            idx: LinkIdx::FIRST,
            link: link.clone(),
        };
        let id = self.local.next_group_id();
        let group = LinkGroup::new(id, params, link, &groups::SCHEDULER).map_err(internal)?;
        // The peer may offer the group to another connection as soon as the link is active, so it has to be
        // in the list by then.
        let result = match groups::add(&group, peer) {
            // The removal of the device, if it began before the group was listed, did not find the group.
            Ok(()) if port.is_gone() => Err(Reason::NoSmcDevice.into()),
            Ok(()) => self.create_conn(group.reserve_conn().ok_or(Reason::Internal)?, at),
            Err(failure) => Err(failure),
        };
        let result = result.and_then(|conn| self.complete(conn, first_contact));
        match &result {
            Ok(_) => groups::fail_replaced_links(&group),
            // Later: that notifies the peer, and other handshakes wait for their turn now.
            Err(_) => group.terminate_soon(TerminateReason::LinkLost),
        }
        path.note(&result);
        result
    }

    /// Creates the connection of the socket in a group, with an RMBE.
    fn create_conn(&self, reservation: ConnReservation, at: LinkRef) -> Result<Arc<Conn>, Failure> {
        let sk = self.sk;
        let group = reservation.group();
        let want = match group.peer().replaces_rmbes {
            true => smallest_rmbe(sk),
            false => largest_rmbe(sk),
        };
        let namespace = namespace::of(sk);
        let stats = &namespace.stats.smcr.rmbs;
        let rmbe = group.rmbs.take(at.idx, &at.link, want, stats);
        if memory::is_short() || rmbe.is_err() {
            groups::relieve();
        }
        let rmbe = rmbe.map_err(|e| match e {
            e if e == ENOBUFS => Failure::Declined(Reason::Memory, Some(Cause::SocketMemory)),
            e if e == ENOSPC => {
                Failure::Declined(Reason::RegistrationFailed, Some(Cause::DeviceMrs))
            }
            e => internal(e).into(),
        })?;
        let charge = Charge::received_in_work(sk, rmbe.size().bytes())
            .map_err(|_| Failure::Declined(Reason::Memory, Some(Cause::CgroupMemory)))?;
        let owner = ConnSock {
            sk: sk.clone(),
            tcp: self.tcp.clone(),
            charges: MemCharges {
                rmbe: Some(charge),
                offered: None,
                sndbuf: None,
            },
        };
        Ok(Conn::new(reservation, at, rmbe, owner).map_err(internal)?)
    }

    /// Runs the `rest` of the handshake on a connection; then establishes it, or detaches it from the socket and the
    /// group.
    /// Context: may sleep.
    fn complete(
        &mut self,
        conn: Arc<Conn>,
        rest: impl FnOnce(&mut Self, &Arc<Conn>) -> Result<(), Failure>,
    ) -> Result<Arc<Conn>, Failure> {
        match rest(self, &conn) {
            Ok(()) => {
                conn.establish();
                Ok(conn)
            }
            Err(failure) => {
                conn.detach_sock();
                conn.give_up_claim();
                conn.group.leave(conn.token());
                if failure.actions().ends_group {
                    conn.group.terminate_soon(TerminateReason::OutOfSync);
                }
                Err(failure)
            }
        }
    }

    /// Our end of the connection and of its link, as ACCEPT and CONFIRM have it.
    fn endpoint(&self, conn: &Conn, at: &LinkRef) -> Result<SmcR, Reason> {
        let LinkRef { idx, link } = at;
        let port = link.port();
        let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
        let rtoken = rmbe.rmb().rtoken(*idx).ok_or(Reason::NoActiveLink)?;
        Ok(SmcR {
            peer_id: self.peer_id(),
            gid: port.gid,
            mac: port.mac,
            qp_num: link.qp_num(),
            rkey: rtoken.rkey,
            rmbe_index: rmbe.index(),
            token: conn.token(),
            rmbe_size: rmbe.size(),
            mtu: link.mtu(),
            rmb_addr: rtoken.addr,
            psn: link.psn(),
        })
    }

    /// Carries out what a failure means for the connection.
    fn finish_failed(&self, failure: Failure) -> Result<HandshakeResult> {
        if let Failure::Peer(error) = failure {
            self.clc.log_peer_error(error);
        }
        let failure = self.received_decline(failure);
        let actions = failure.actions();
        let diagnosis = match failure {
            Failure::PeerDeclined { diagnosis, .. } => diagnosis.0,
            _ => 0,
        };
        if let Some(reason) = actions.decline {
            self.clc
                .decline(reason, self.peer_id())
                .map_err(|failure| match failure {
                    // TCP has no connection any more.
                    Failure::Fatal(fatal) => errno(fatal),
                    _ => EPROTO,
                })?;
        }
        let info = |reason| FallbackInfo {
            reason,
            diagnosis,
            cause: failure.cause(),
            may_cross: actions.decline.is_some() && self.clc.is_confirmed(),
        };
        match actions.disposition {
            Disposition::Fallback(reason) => Ok(HandshakeResult::Fallback(info(reason))),
            Disposition::Reconnect(reason) => Ok(HandshakeResult::Reconnect(info(reason))),
            Disposition::Fail(fatal) => Err(errno(fatal)),
        }
    }

    /// If a DECLINE of the peer has arrived already it replaces the failure: no DECLINE of ours is needed then.
    fn received_decline(&self, failure: Failure) -> Failure {
        if failure.actions().decline.is_none() || !self.clc.is_confirmed() {
            return failure;
        }
        match self.clc.take_decline(Duration::ZERO) {
            Ok(PendingMessage::Decline(decline)) => Failure::from(&decline),
            _ => failure,
        }
    }
}

fn errno(fatal: Fatal) -> Error {
    match fatal {
        Fatal::Protocol => EPROTO,
        Fatal::TimedOut => ETIMEDOUT,
        Fatal::Reset | Fatal::Ended => ECONNRESET,
        Fatal::Interrupted => EINTR,
        Fatal::Tcp(errno) => Error::from_errno(-i32::from(errno)),
    }
}

/// The reason for a fallback after a failure of this host.
fn internal(e: Error) -> Reason {
    match e {
        e if e == ENOMEM => Reason::Memory,
        e if e == ENOLINK => Reason::NoActiveLink,
        _ => Reason::Internal,
    }
}

/// Makes sure that the peer can write into the connection's RMBE: registers the RMB with all links and sends its rkeys
/// (CONFIRM RKEY), unless another connection has done so.
/// Context: may sleep.
fn confirm_rkey(conn: &Conn, at: &LinkRef, wait: &TurnWait<'_>) -> Result<(), Reason> {
    let group = &conn.group;
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    let result = group.confirm_rkey(rmbe.rmb(), at, wait);
    if result.is_err_and(|why| why != RkeyError::NoTurn) {
        rmbe.rmb().retire();
        group.free_retired_rmbs();
    }
    result.map_err(|_| Reason::RegistrationFailed)
}
