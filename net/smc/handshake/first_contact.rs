// SPDX-License-Identifier: GPL-2.0

//! The first contact: both sides set up the first link of a group and confirm it over that link (RFC 7609 section
//! 3.5.1.7).

use core::cell::Cell;

use kernel::sync::Arc;
use kernel_ext::prelude::*;
use smc_proto::{
    handshake::{
        after_silence,
        Failure,
        Fatal,
        PeerInfo,
        CLC_WAIT, //
    },
    lgr::{
        rtoken::Rtoken,
        Role, //
    },
    llc::{
        first_contact::{
            wait_limit,
            Grace,
            PeerModule, //
        },
        FirstContactError, //
    },
    reason::Reason,
    time::{
        Duration,
        Instant, //
    },
    wire::clc::{
        ClcMessage,
        SmcR, //
    }, //
};

use super::{
    join,
    path::ConnPath, //
};
use crate::{
    clc::{
        ClcChannel,
        PendingMessage,
        TcpActivity, //
    },
    clock::now,
    conn::Conn,
    lgr::{
        LinkRef,
        PeerSystem, //
    },
    link::PeerQp,
    llc::LinkRx, //
};

/// Whether activity on the TCP connection ends the wait for the link. Until the first contact is over a server sends
/// data there only to decline, and closes it only if its process dies. A server, and a client that `has_answered`,
/// ignore the end of the stream (the client not the end of the connection): the peer may be done, with its last LLC
/// message still on its way.
fn is_over(clc: &ClcChannel<'_>, role: Role, has_answered: bool) -> bool {
    match clc.tcp_activity() {
        TcpActivity::None => false,
        TcpActivity::Data => true,
        TcpActivity::Eof => role == Role::Client && (!has_answered || clc.is_closed()),
    }
}

/// Saves what the peer sent of the first connection of a group: its RMBE, its first RMB, and its system.
pub(super) fn save_peer(conn: &Conn, end: &SmcR, info: Option<&PeerInfo>) -> Result<(), Reason> {
    let (group, at) = (&conn.group, conn.link_ref());
    if let Some(info) = info {
        group.set_peer(PeerSystem {
            os: info.os,
            hostname: info.hostname,
            takes_cdc_on_any_link: info.takes_cdc_on_any_link,
            takes_immediate: info.takes_immediate,
            replaces_rmbes: info.replaces_rmbes,
        });
    }
    let rtoken = Rtoken {
        rkey: end.rkey,
        addr: end.rmb_addr,
    };
    group
        .with_rtokens(|rtokens| rtokens.add(at.idx, rtoken))
        .map_err(|_| Reason::NoRtoken)?;
    join::save_peer_rmbe(conn, &at, end)
}

/// Connects the first link to that queue pair of the peer, and makes it ready to receive.
pub(super) fn ready_to_receive(conn: &Conn, peer: PeerQp) -> Result<(), Reason> {
    let LinkRef { idx, link } = conn.link_ref();
    LinkRx::new(&conn.group, idx)
        .and_then(|rx| link.ready_to_receive(peer, rx))
        .map_err(|_| Reason::LinkNotReady)
}

/// Registers the connection's RMB with the first link.
pub(super) fn register_rmb(conn: &Conn) -> Result<(), Reason> {
    let LinkRef { idx, link } = conn.link_ref();
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    rmbe.rmb()
        .register(idx, &link)
        .map_err(|_| Reason::RegistrationFailed)
}

/// Starts the LLC flow of the first contact. Returns the extra time for a peer that is slow over TCP as well.
pub(super) fn begin(clc: &ClcChannel<'_>, conn: &Conn) -> Grace {
    let (group, at) = (&conn.group, conn.link_ref());
    let peer = match group.peer().takes_cdc_on_any_link {
        true => PeerModule::Same(Grace::new(clc.round_trip())),
        false => PeerModule::Other,
    };
    group.begin_first_contact(group.local_end(at.idx, &at.link), peer);
    peer.grace()
}

/// Time after its answer on the link from which on a client suspects the path, if nothing has come of it.
const LATE: Duration = Duration::from_secs(1);

/// Waits until the link is confirmed in both directions. The client makes it ready to send when the server's request is
/// there. If no packets get through, other connections avoid the `path`.
/// Context: may sleep.
pub(super) fn finish(
    clc: &mut ClcChannel<'_>,
    conn: &Arc<Conn>,
    path: &ConnPath<'_>,
    grace: Grace,
) -> Result<(), Failure> {
    let group = &conn.group;
    let start = now();
    let (is_late, answered_at) = (Cell::new(false), Cell::new(None));
    let role = group.params.role;
    let prepare = || {
        if role == Role::Client {
            let link = conn.link_ref().link;
            link.ready_to_send().map_err(|_| Reason::LinkNotReady)?;
            register_rmb(conn)?;
        }
        Ok(())
    };
    let is_cancelled = |has_answered| {
        if has_answered && answered_at.get().is_none() {
            answered_at.set(Some(now()));
        }
        let is_due = |at: Instant| at.saturating_add(LATE).is_due(now());
        if answered_at.get().is_some_and(is_due) && !is_late.replace(true) {
            path.suspect();
        }
        is_over(clc, role, has_answered)
    };
    let result = clc.wake_on_tcp(|| group.await_first_contact(prepare, is_cancelled));
    match result {
        Ok(()) => {
            // The CLC messages had the rkey of the first RMB.
            if let Some(rmbe) = conn.rmbe() {
                rmbe.rmb().set_rkey_confirmed();
            }
            Ok(())
        }
        Err(FirstContactError::Failed(reason)) => Err(reason.into()),
        Err(FirstContactError::Undecided) => Err(Failure::Undecided),
        Err(FirstContactError::Silent) => {
            let end = start.saturating_add(wait_limit(role, grace));
            let failure = after_silent_link(clc, end.saturating_since(now()));
            // A C server that uses a dead link resets TCP when it gives the link up.
            let is_given_up = answered_at.get().is_some() && !group.peer().takes_cdc_on_any_link;
            match failure {
                Failure::Fatal(Fatal::Reset | Fatal::Ended) if is_given_up => {
                    Err(Failure::Undecided)
                }
                failure => Err(failure),
            }
        }
    }
}

/// The failure after a link that stays silent. Waits up to `left` for a DECLINE, which has the peer's reason.
fn after_silent_link(clc: &mut ClcChannel<'_>, left: Duration) -> Failure {
    let wait = match clc.tcp_activity() {
        // The rest of the message follows at once.
        TcpActivity::Data => left.max(LATE),
        TcpActivity::None | TcpActivity::Eof => left,
    };
    match clc.take_decline(wait) {
        Ok(PendingMessage::Decline(decline)) => after_silence(Some(&ClcMessage::Decline(decline))),
        Ok(PendingMessage::None) => after_silence(None),
        Ok(PendingMessage::Other) => match clc.receive(CLC_WAIT) {
            Ok(message) => after_silence(Some(&message)),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    }
}
