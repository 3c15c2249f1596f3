// SPDX-License-Identifier: GPL-2.0

//! The end of a first contact: the new link is tried from both sides (RFC 7609 section 3.5.1.7).

use core::cell::Cell;

use kernel::{
    prelude::*,
    sync::Arc, //
};
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
    llc::first::{
        patience,
        Error,
        Grace, //
    },
    reason::Reason,
    time::Duration,
    wire::clc::{
        Message,
        SmcR, //
    }, //
};

use super::{
    join,
    path::Path, //
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
        System, //
    },
    link::PeerEnd,
    llc::LinkRx, //
};

/// Whether the link is not awaited any more for what came over TCP instead. A server says and closes nothing
/// there before it has its answer, but to decline or because it dies; who has it, or `has_answered`, may have a
/// peer that has had all it wanted, and closes, when what it said last on the link is still on the way.
fn is_over(clc: &ClcChannel<'_>, role: Role, has_answered: bool) -> bool {
    match clc.tcp_activity() {
        TcpActivity::None => false,
        TcpActivity::Data => true,
        TcpActivity::Eof => role == Role::Client && (!has_answered || clc.is_closed()),
    }
}

/// Saves the peer's end of the first connection of a group, its first RMB, and what it says of itself.
pub(super) fn save_peer(conn: &Conn, end: &SmcR, info: Option<&PeerInfo>) -> Result<(), Reason> {
    let (group, at) = (&conn.group, conn.link_ref());
    if let Some(info) = info {
        group.set_peer(System {
            os: info.os,
            hostname: info.hostname,
            takes_any_link: info.takes_any_link,
        });
    }
    let rtoken = Rtoken {
        rkey: end.rkey,
        addr: end.rmb_addr,
    };
    group
        .with_rtokens(|rtokens| rtokens.add(at.slot, rtoken))
        .map_err(|_| Reason::NoRtoken)?;
    join::save_peer_rmbe(conn, &at, end)
}

/// Has the first link receive from that queue pair of the peer.
pub(super) fn ready_to_receive(conn: &Conn, peer: PeerEnd) -> Result<(), Reason> {
    let LinkRef { slot, link } = conn.link_ref();
    LinkRx::new(&conn.group, slot)
        .and_then(|rx| link.ready_to_receive(peer, rx))
        .map_err(|_| Reason::LinkNotReady)
}

/// Registers the connection's RMB with the first link.
pub(super) fn register_rmb(conn: &Conn) -> Result<(), Reason> {
    let LinkRef { slot, link } = conn.link_ref();
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    rmbe.rmb()
        .register(slot, &link)
        .map_err(|_| Reason::RegistrationFailed)
}

/// Begins with the LLC messages of the first contact. Returns how much longer than usual the peer gets: only one with
/// this module waits for the decision however long that takes.
pub(super) fn begin(clc: &ClcChannel<'_>, conn: &Conn) -> Grace {
    let (group, at) = (&conn.group, conn.link_ref());
    let grace = match group.peer().takes_any_link {
        true => Grace::new(clc.round_trip()),
        false => Grace::NONE,
    };
    group.begin_first_contact(group.local_end(at.slot, &at.link), grace);
    grace
}

/// A client's answer that has not arrived after so long will hardly do so.
const LATE: Duration = Duration::from_secs(1);

/// Waits until the link works both ways; the client brings it up when the server asked. Other connections avoid
/// the `path` when it seems not to.
pub(super) fn finish(
    clc: &mut ClcChannel<'_>,
    conn: &Arc<Conn>,
    path: &Path<'_>,
    grace: Grace,
) -> Result<(), Failure> {
    let group = &conn.group;
    let start = now();
    let is_late = Cell::new(false);
    let role = group.terms.role;
    let prepare = || {
        if role == Role::Client {
            let link = conn.link_ref().link;
            link.ready_to_send().map_err(|_| Reason::LinkNotReady)?;
            register_rmb(conn)?;
            // From now on this thread is woken when something that was sent has arrived.
            link.want_slot(true);
        }
        Ok(())
    };
    let is_vain = |has_answered| {
        let is_due = start.saturating_add(LATE).is_due(now());
        if has_answered && is_due && !is_late.replace(true) {
            path.suspect();
        }
        is_over(clc, role, has_answered)
    };
    let result = clc.wake_on_tcp(|| group.await_first_contact(prepare, is_vain));
    match result {
        Ok(()) => {
            // The handshake itself told the peer of the first region.
            if let Some(rmbe) = conn.rmbe() {
                rmbe.rmb().set_known();
            }
            Ok(())
        }
        Err(Error::Failed(reason)) => Err(reason.into()),
        Err(Error::Undecided) => Err(Fatal::TimedOut.into()),
        Err(Error::Silent) => {
            let end = start.saturating_add(patience(role, grace));
            Err(hear(clc, end.saturating_since(now())))
        }
    }
}

/// What a link means that stays silent: a DECLINE tells, for which there is so much time.
fn hear(clc: &mut ClcChannel<'_>, left: Duration) -> Failure {
    let wait = match clc.tcp_activity() {
        // The rest of it follows at once.
        TcpActivity::Data => left.max(LATE),
        TcpActivity::None | TcpActivity::Eof => left,
    };
    match clc.take_decline(wait) {
        Ok(PendingMessage::Decline(decline)) => after_silence(Some(&Message::Decline(decline))),
        Ok(PendingMessage::None) => after_silence(None),
        Ok(PendingMessage::Other) => match clc.receive(CLC_WAIT) {
            Ok(message) => after_silence(Some(&message)),
            Err(failure) => failure,
        },
        Err(failure) => failure,
    }
}
