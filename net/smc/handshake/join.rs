// SPDX-License-Identifier: GPL-2.0

//! Joining a link group that both sides have: which group the peer named, which RMBE of the peer the connection writes
//! to, and what becomes of our RMBE if the handshake fails (RFC 7609 sections 3.5.2 and 4.4.2).

use kernel::time::Jiffies;
use kernel_ext::{
    net::{
        NetNsId,
        TcpSocket, //
    },
    prelude::*,
    ratelimit,
    time, //
};
use smc_proto::{
    handshake::{
        server::{
            AcceptSent,
            Confirmed, //
        },
        Failure,
        Fatal,
        CONFIRM_WAIT,
        REST_WAIT, //
    },
    lgr::{
        rtoken::{
            Refused,
            Rtoken, //
        },
        LgrKey, //
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

use crate::{
    clc::{
        ClcChannel,
        TcpActivity, //
    },
    clock::now,
    conn::{
        Conn,
        PeerRmbe, //
    },
    groups,
    lgr::{
        ConnReservation,
        LinkRef, //
    }, //
};

/// Time for which an RMBE of the peer may still be in use here when the peer assigns it to another connection: the CDC
/// message that closed the last one may be in a completion queue.
const IN_USE_WAIT: Duration = Duration::from_secs(1);

/// Time between two attempts, in jiffies.
const TICK: Jiffies = time::HZ / 50 + 1;

/// Reserves a place in the group that the server named. `wanted` has the keys that its ACCEPT may stand for.
///
/// # Errors
///
/// [`Reason::NoServerLink`] if the group is there, but this connection cannot use it: see
/// [`groups::is_any_named`]; else [`Reason::SyncError`], after which the server terminates its group.
pub(super) fn find_named(
    wanted: &[Option<LgrKey>],
    net: NetNsId,
) -> Result<(ConnReservation, LgrKey), Reason> {
    let mut all = wanted.iter().flatten();
    let found = all.find_map(|wanted| Some((groups::find(wanted, net)?, *wanted)));
    let mut all = wanted.iter().flatten();
    found.ok_or_else(|| match all.any(groups::is_any_named) {
        true => Reason::NoServerLink,
        false => Reason::SyncError,
    })
}

/// Saves the peer's RMBE of a connection, with the rkey for the link `named`: it has to be in an RMB that the peer has
/// announced on the group's links, and in use by no other connection.
/// Context: may sleep.
pub(super) fn save_peer_rmbe(conn: &Conn, named: &LinkRef, peer: &SmcR) -> Result<(), Reason> {
    let group = &conn.group;
    let rtoken = Rtoken {
        rkey: peer.rkey,
        addr: peer.rmb_addr,
    };
    let claim = || group.with_rtokens(|all| all.claim(named.idx, rtoken, peer.rmbe_index));
    let end = now().saturating_add(IN_USE_WAIT);
    let mut claimed = claim();
    while claimed == Err(Refused::InUse) && !end.is_due(now()) {
        group.wait_llc_event(TICK, |_| false);
        claimed = claim();
    }
    let row = claimed.map_err(|why| {
        if ratelimit::peer() {
            pr_warn!("peer assigned an unusable RMBE to a connection: {why:?}\n");
        }
        Reason::RegistrationFailed
    })?;
    let remote = PeerRmbe {
        token: peer.token,
        row,
        index: peer.rmbe_index,
        size: peer.rmbe_size,
    };
    conn.save_peer_rmbe(named, remote)
}

/// The CONFIRM, at a server: saves the client's end of the connection and uses the link that the client named.
///
/// # Errors
///
/// The client uses RDMA already and reads no DECLINE: if the CONFIRM cannot be used TCP is reset.
pub(super) fn on_answer(
    conn: &Conn,
    tcp: &TcpSocket,
    accepted: AcceptSent,
    answer: &ClcMessage<'_>,
) -> Result<(), Failure> {
    let is_confirm = matches!(answer, ClcMessage::Confirm(_));
    let confirmed = accepted.on_message(answer);
    let result = confirmed.and_then(|confirmed| Ok(use_link_of(conn, &confirmed)?));
    result.map_err(|failure| match is_confirm {
        true => reset(tcp, failure),
        false => failure,
    })
}

fn use_link_of(conn: &Conn, confirmed: &Confirmed) -> Result<(), Reason> {
    let named = conn.group.find_active(|link| confirmed.is_on(&link.end()));
    let named = named.ok_or(Reason::NoActiveLink)?;
    conn.use_link(&named)?;
    save_peer_rmbe(conn, &named, confirmed.client())
}

fn reset(tcp: &TcpSocket, failure: Failure) -> Failure {
    if ratelimit::peer() {
        pr_warn!("connection reset, unusable CONFIRM of the peer: {failure:?}\n");
    }
    tcp.abort(ECONNABORTED);
    Fatal::Reset.into()
}

/// Runs the part of a handshake in which the peer knows our RMBE and may begin to write to it. If that fails without a
/// DECLINE of the peer, the RMBE is quarantined: the peer may still write.
pub(super) fn while_rmbe_is_known<R>(
    conn: &Conn,
    rest: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    let result = rest();
    let has_declined = matches!(result, Err(Failure::PeerDeclined { .. }));
    if result.is_err() && !has_declined {
        if let Some(rmbe) = conn.rmbe() {
            rmbe.quarantine();
        }
    }
    result
}

/// Whether a client may still send its CONFIRM, for an ACCEPT that came at `accepted_at`.
///
/// # Errors
///
/// If the server has given up, or would have before the CONFIRM arrives: its RMBE may belong to another connection
/// then.
pub(super) fn may_confirm(clc: &mut ClcChannel<'_>, accepted_at: Instant) -> Result<(), Failure> {
    match clc.tcp_activity() {
        TcpActivity::None if accepted_at.saturating_add(CONFIRM_WAIT).is_due(now()) => {
            Err(Reason::RegistrationFailed.into())
        }
        TcpActivity::None => Ok(()),
        TcpActivity::Eof => Err(Fatal::Reset.into()),
        TcpActivity::Data => match clc.receive(REST_WAIT)? {
            ClcMessage::Decline(decline) => Err(Failure::from(&decline)),
            _ => Err(Fatal::Protocol.into()),
        },
    }
}
