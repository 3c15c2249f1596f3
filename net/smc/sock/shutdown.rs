// SPDX-License-Identifier: GPL-2.0

//! shutdown(2) of a connection, also of one that is not there yet.

use kernel::sync::atomic::Relaxed;
use kernel_ext::prelude::*;

use super::{
    Phase,
    Sock,
    SockState, //
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

/// shutdown(2) with argument `how` while the handshake runs. The connection is shut down before the application sees
/// it, when no other call can be in the way of the worker: see [`transition`]. If the handshake has ended meanwhile, it
/// is shut down here.
/// Context: may sleep.
pub(super) fn shutdown_late(this: &Sock, how: i32) {
    {
        let state = this.state.lock();
        if state.phase() == Phase::Connecting {
            // CAST: 0, 1 or 2.
            let bits = (how + 1) as u32;
            let asked = this.late_shutdown.load(Relaxed);
            return this.late_shutdown.store(asked | bits, Relaxed);
        }
    }
    match (this.phase(), this.conn()) {
        (_, Some(conn)) => _ = shutdown(this, &conn, how),
        (Phase::Fallback, None) => shutdown_tcp(this, how),
        _ => return,
    }
    this.sk.wake_state();
}

/// Shuts down a connection over TCP.
/// Context: may sleep.
pub(super) fn shutdown_tcp(this: &Sock, how: i32) {
    // CAST: 0, 1 or 2.
    let bits = (how + 1) as u8;
    let _ = this.tcp.shutdown(how).map(|()| this.sk.add_shutdown(bits));
}

/// As [`Sock::transition`], at the end of a handshake: first calls `apply` with the argument of each shutdown(2) that
/// was called during the handshake, so that none is left to be done after the transition.
pub(super) fn transition(
    this: &Sock,
    from: &[Phase],
    mut to: SockState,
    apply: impl Fn(i32),
) -> Result<SockState, SockState> {
    let mut applied = 0;
    loop {
        // Bits are only added meanwhile, by `shutdown::shutdown_late`, with the lock of the state.
        let asked = this.late_shutdown.load(Relaxed);
        let new = asked & !applied;
        if new != 0 {
            // CAST: two bits.
            apply(new as i32 - 1);
        }
        applied = asked;
        let is_all = || this.late_shutdown.load(Relaxed) == applied;
        match this.transition_if(|phase| from.contains(&phase) && is_all(), to) {
            Err(back) if from.contains(&this.phase()) => to = back,
            result => return result,
        }
    }
}
