// SPDX-License-Identifier: GPL-2.0

//! shutdown(2) of a connection, also of one that is not there yet.

use kernel::sync::atomic::{
    Full,
    Relaxed, //
};
use kernel_ext::prelude::*;

use super::{
    Phase,
    Sock, //
};
use crate::carrier::Carrier;

/// shutdown(2) for receiving alone.
const SHUT_RD: i32 = 0;

/// shutdown(2).
///
/// TCP ends with the stream, as that of the C module does: TIME_WAIT is on the side that ends first. It does so before
/// the peer hears of the end, which may close the socket then.
pub(super) fn shutdown(this: &Sock, conn: &Carrier, how: i32) -> Result {
    if how != SHUT_RD && conn.has_peer() {
        this.tcp.shutdown_write();
    }
    conn.shutdown(&this.sk, how)?;
    // CAST: 0, 1 or 2, which `shutdown` has checked.
    this.sk.add_shutdown((how + 1) as u8);
    this.sk.wake_state();
    Ok(())
}

/// shutdown(2) with argument `how` while the handshake runs.
pub(super) fn shutdown_late(this: &Sock, how: i32) {
    // CAST: 0, 1 or 2.
    let bits = (how + 1) as u32;
    let mut old = this.late_shutdown.load(Relaxed);
    while let Err(other) = this.late_shutdown.cmpxchg(old, old | bits, Full) {
        old = other;
    }
    apply_late(this);
}

/// Takes what the application has asked for meanwhile, as the argument of shutdown(2).
fn take_late(this: &Sock) -> Option<i32> {
    let bits = this.late_shutdown.xchg(0, Full);
    // CAST: two bits.
    (bits != 0).then_some(bits as i32 - 1)
}

/// Shuts down what has come of the handshake, if the application has asked for that meanwhile. Called after either has
/// happened.
pub(super) fn apply_late(this: &Sock) {
    if !matches!(this.phase(), Phase::Active | Phase::Fallback) {
        return;
    }
    let Some(how) = take_late(this) else {
        return;
    };
    match this.conn() {
        Some(conn) => _ = shutdown(this, &conn, how),
        None => shutdown_tcp(this, how),
    }
    this.sk.wake_state();
}

/// As [`apply_late`], to a TCP connection of which the application does not know yet that it is all that there is: no
/// call of it can be in the way.
/// Context: may sleep.
pub(super) fn apply_to_tcp(this: &Sock) {
    if let Some(how) = take_late(this) {
        shutdown_tcp(this, how);
    }
}

fn shutdown_tcp(this: &Sock, how: i32) {
    // CAST: 0, 1 or 2.
    let bits = (how + 1) as u8;
    let _ = this.tcp.shutdown(how).map(|()| this.sk.add_shutdown(bits));
}

/// As [`apply_late`], to a connection that the application does not see yet: no call of it can be in the way.
pub(super) fn apply_to_new(this: &Sock, conn: &Carrier) {
    if let Some(how) = take_late(this) {
        let _ = shutdown(this, conn, how);
    }
}
