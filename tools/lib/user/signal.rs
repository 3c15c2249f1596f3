// SPDX-License-Identifier: GPL-2.0

//! Signal dispositions: only interrupt system calls, have them begin again, request the end of the program, ignored, or
//! the default.
//!
//! Libraries install handlers with SA_RESTART, which must not be set for most of these.

use std::mem;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::check;
use crate::Result;

extern "C" fn nothing(_signal: libc::c_int) {}

static STOPPED: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_signal: libc::c_int) {
    STOPPED.store(true, Relaxed);
}

fn handle(signal: i32, handler: libc::sighandler_t, flags: i32) -> Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: no flags, so that calls are not started again, and
    // an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: `action` is valid, and its handler, if it is one, does nothing or stores to an atomic, which is safe in
    // any context.
    check(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) })?;
    Ok(())
}

/// Makes `signal` interrupt blocking calls with `EINTR`, instead of ending the process.
pub fn interrupt_calls_by(signal: i32) -> Result<()> {
    handle(signal, nothing as extern "C" fn(libc::c_int) as usize, 0)
}

/// Makes `signal` interrupt blocking calls, which then begin again where the kernel can do that (SA_RESTART).
pub fn restart_calls_by(signal: i32) -> Result<()> {
    handle(
        signal,
        nothing as extern "C" fn(libc::c_int) as usize,
        libc::SA_RESTART,
    )
}

/// As [`interrupt_calls_by`]; [`stopped`] returns true afterwards.
pub fn stop_by(signal: i32) -> Result<()> {
    handle(signal, stop as extern "C" fn(libc::c_int) as usize, 0)
}

/// Returns whether a signal of [`stop_by`] was received.
pub fn stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// Restores the default disposition of `signal`. Rust programs start with `SIGPIPE` ignored, and
/// would report EPIPE when the reader of a pipe closes it.
pub fn restore_signal(signal: i32) -> Result<()> {
    handle(signal, libc::SIG_DFL, 0)
}

/// Ignores `signal`, so that what would raise it reports its error.
pub fn ignore_signal(signal: i32) -> Result<()> {
    handle(signal, libc::SIG_IGN, 0)
}
