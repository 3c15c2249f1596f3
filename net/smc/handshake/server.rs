// SPDX-License-Identifier: GPL-2.0

//! The listening side (C functions `smc_listen_work`, `smc_listen_find_device`).

use kernel::sync::Arc;
use kernel_ext::{
    net::TcpSocket,
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    handshake::{
        select,
        server::{
            Chosen,
            ServerCaps, //
        },
        Failure,
        Fatal,
        OwnInfo,
        CLC_WAIT,
        CONFIRM_SOON,
        TURN_WAIT, //
    },
    id::Gid,
    lgr::{
        self,
        Role, //
    },
    link::Transport,
    reason::Reason,
    smcd::SmcdChoice,
    time::Instant,
    wire::{
        clc::ClcMessage,
        Version, //
    }, //
};

use super::{
    check_policy,
    confirm_rkey,
    first_contact,
    internal,
    join,
    path::{
        self,
        ConnPath, //
    },
    prefix,
    smcd,
    Session, //
};
use crate::{
    carrier::Carrier,
    clc::TcpActivity,
    clock::now,
    conn::Conn,
    groups::{
        self,
        LgrPendingRef,
        WaitResult, //
    },
    ib::{
        self,
        PortGid, //
    },
    lgr::ConnReservation,
    link::{
        PeerQp,
        Setup, //
    },
    namespace,
    turn::{
        Turn,
        TurnWait, //
    }, //
};

/// The handshake of a connection that a listener accepted.
/// Context: may sleep.
pub(super) fn accept(session: &mut Session<'_>) -> Result<Carrier, Failure> {
    match choose(session)? {
        Choice::SmcR(chosen) => accept_smcr(session, chosen).map(Carrier::SmcR),
        Choice::SmcD(chosen) => smcd::accept(session, chosen).map(Carrier::SmcD),
    }
}

/// The technology to use.
enum Choice {
    SmcR(Chosen),
    SmcD(SmcdChoice),
}

fn accept_smcr(session: &mut Session<'_>, chosen: Chosen) -> Result<Arc<Conn>, Failure> {
    let end = now().saturating_add(TURN_WAIT);
    let (chosen, port) = with_port(session.tcp, chosen)?;
    // One handshake at a time creates a link group with this peer. Other handshakes with it wait.
    let wanted = chosen.wanted(port.vlan, session.tcp_ends()?);
    let mut path = ConnPath::new(session, Role::Server, port, chosen.peer_gid());
    if let Some(reservation) = groups::find(&wanted, session.tcp.netns_id()) {
        return reuse(session, chosen, reservation, end);
    }
    path.check()?;
    let pending = groups::lgr_pending(&wanted).map_err(internal)?;
    let mut turn = match wait_turn(session, &pending, &wanted, end)? {
        WaitResult::Reserved(reservation) => return reuse(session, chosen, reservation, end),
        WaitResult::Turn(turn) => Some(turn),
    };
    // Another connection may have failed on it meanwhile.
    path.check()?;
    let new = chosen.new_lgr(path.port.path() == select::Route::Direct);
    session.create_lgr(&new, &path, |session, conn| {
        first_contact(session, conn, chosen, &path, &mut turn)
    })
}

/// Receives the PROPOSAL, and chooses SMC-D, or the candidate of SMC-R to try first.
fn choose(session: &mut Session<'_>) -> Result<Choice, Failure> {
    let tcp = session.tcp;
    let answer = session.clc.receive(CLC_WAIT)?;
    let ClcMessage::Proposal(proposal) = answer else {
        // A client without a port to offer declines at once.
        return Err(Failure::not_awaited(&answer));
    };
    check_policy(Role::Server, session.sk, tcp)?;
    if tcp.has_keys() {
        return Err(Failure::Declined(Reason::Ipsec, Some(Cause::TcpKeys)));
    }
    let has_ipsec = tcp.has_ipsec();
    let ueids = session.local.ueids.lock().clone();
    if let Some(chosen) = smcd::chosen(session.sk, &ueids, &proposal).filter(|_| !has_ipsec) {
        return Ok(Choice::SmcD(chosen));
    }
    let caps = ServerCaps {
        eids: &ueids,
        limits: namespace::of(session.sk).config.limits(),
        has_ipsec,
        has_interface: tcp.route_device().is_some(),
        iwarp: tcp.peer().ok().and_then(|peer| Gid::of_iwarp(peer.ip)),
    };
    caps.evaluate(&proposal, |offered| prefix::is_common(tcp, offered))
        .map(Choice::SmcR)
        .map_err(|reason| {
            let cause = caps.cause(&proposal, reason);
            Failure::Declined(reason, cause.or_else(|| smcd::cause(&proposal, reason)))
        })
}

/// Finds a port for the chosen candidate, or for the next one that has a port.
fn with_port(tcp: &TcpSocket, mut chosen: Chosen) -> Result<(Chosen, PortGid), Failure> {
    let mut missing = None;
    loop {
        let found = match (chosen.version(), chosen.transport()) {
            (Version::V1, _) => ib::find_roce_v1(tcp, None),
            (Version::V2, Transport::Roce) => ib::find_roce_v2(tcp, Some(chosen.peer_gid())),
            (Version::V2, Transport::Iwarp) => ib::find_iwarp(tcp),
        };
        let cause = match found {
            Ok(port) => return Ok((chosen, port)),
            Err(cause) => cause,
        };
        // What version 2 lacks says more: it comes first, and an administrator can do something about it.
        missing = match chosen.version() {
            Version::V1 => missing.or(Some(cause)),
            Version::V2 => Some(missing.map_or(cause, |missing: Cause| missing.nearer(cause))),
        };
        chosen = chosen
            .next_without_port()
            .map_err(|reason| Failure::Declined(reason, missing))?;
    }
}

/// Waits until `end` for the turn to create a link group, or for a place in one that another handshake creates.
fn wait_turn<'g>(
    session: &Session<'_>,
    pending: &'g LgrPendingRef,
    wanted: &lgr::LgrKey,
    end: Instant,
) -> Result<WaitResult<'g>, Failure> {
    let wanted = (wanted, session.tcp.netns_id());
    let entry = while_client_waits(session, end, |wait| pending.enter(wanted, wait))?;
    entry.ok_or(path::BUSY)
}

/// Calls `f`, which waits for other connections until `end`, or until the client has left.
///
/// # Errors
///
/// [`Fatal::Reset`] if it has.
fn while_client_waits<R>(
    session: &Session<'_>,
    end: Instant,
    f: impl FnOnce(&TurnWait<'_>) -> R,
) -> Result<R, Failure> {
    let clc = &session.clc;
    let has_left = || clc.tcp_activity() == TcpActivity::Eof;
    let wait = TurnWait {
        end,
        is_cancelled: &has_left,
    };
    let result = clc.wake_on_tcp(|| f(&wait));
    match has_left() {
        true => Err(Fatal::Reset.into()),
        false => Ok(result),
    }
}

/// The first contact on the new link. The next handshake gets its `turn` early if the client is slow to answer.
fn first_contact(
    session: &mut Session<'_>,
    conn: &Arc<Conn>,
    chosen: Chosen,
    path: &ConnPath<'_>,
    turn: &mut Option<Turn<'_>>,
) -> Result<(), Failure> {
    let (group, at, net) = (&conn.group, conn.link_ref(), session.tcp.netns());
    let (link, nonce) = (&at.link, chosen.nonce());
    let own = OwnInfo {
        hostname: session.local.hostname,
        listener: nonce.map(|_| link.listen(net, chosen.peer_gid())),
    };
    let new = chosen.new_lgr(group.params.is_direct);
    let (accepted, message) = chosen.accept(session.endpoint(conn, &at)?, Some((new, own)));
    if let Some(progress) = session.progress {
        progress.begin_first_contact(group);
    }
    session.clc.send(&ClcMessage::Accept(message))?;
    if !session.clc.wait_tcp_activity(CONFIRM_SOON) {
        drop(turn.take());
    }
    let confirmed = accepted.on_message(&session.clc.receive(CLC_WAIT)?)?;
    session.clc.set_confirmed();
    let client = confirmed.client();
    first_contact::save_peer(conn, client, confirmed.peer())?;
    first_contact::ready_to_receive(conn, peer_end(&chosen, PeerQp::of(client, confirmed.mtu())))?;
    link.connect_as_server(&Setup {
        net,
        nonce,
        peer_port: confirmed.listener(),
        is_cancelled: &|| session.clc.tcp_activity() != TcpActivity::None,
    })?;
    first_contact::register_rmb(conn)?;
    let grace = first_contact::begin(&session.clc, conn);
    // The first message may be overlooked: see `link::transport::iwarp::connect`.
    group.request_ack_later(link);
    first_contact::finish(&mut session.clc, conn, path, grace)
}

/// The client's end of the first link: the GID is that of the PROPOSAL.
fn peer_end(chosen: &Chosen, confirmed: PeerQp) -> PeerQp {
    PeerQp {
        gid: chosen.peer_gid(),
        mac: chosen.peer_mac(confirmed.mac),
        ..confirmed
    }
}

/// The connection joins a group that both sides have. It waits for others until `end`.
fn reuse(
    session: &mut Session<'_>,
    chosen: Chosen,
    mut reservation: ConnReservation,
    end: Instant,
) -> Result<Arc<Conn>, Failure> {
    let at = reservation.choose_link().ok_or(Reason::NoActiveLink)?;
    // A client with this module tests the link itself. It can also report that it has lost the group, which a test that
    // gets no answer cannot show.
    if !reservation.group().peer().takes_cdc_on_any_link {
        path::check_link(reservation.group(), &at, &session.clc)?;
        if let Some(progress) = session.progress {
            progress.expect_deaf_client();
        }
    }
    let conn = session.create_conn(reservation, at.clone())?;
    session.complete(conn, |session, conn| {
        while_client_waits(session, end, |wait| confirm_rkey(conn, &at, wait))??;
        let (accepted, message) = chosen.accept(session.endpoint(conn, &at)?, None);
        join::while_rmbe_is_known(conn, || {
            session.clc.send(&ClcMessage::Accept(message))?;
            let answer = session.clc.receive(CLC_WAIT)?;
            join::on_answer(conn, session.tcp, accepted, &answer)
        })
    })
}
