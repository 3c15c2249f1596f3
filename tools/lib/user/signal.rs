// SPDX-License-Identifier: GPL-2.0

//! What signals do: interrupt a system call and nothing else, ask the program to end, or what they do by
//! default.
//!
//! The libraries that set handlers have the kernel start interrupted calls again, which is what must not happen here.

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

fn handle(signal: i32, handler: Option<extern "C" fn(libc::c_int)>) -> Result<()> {
    // SAFETY: all zeroes is a valid `sigaction`: no flags, so that calls are not started again, and
    // an empty mask.
    let mut action: libc::sigaction = unsafe { mem::zeroed() };
    action.sa_sigaction = handler.map_or(libc::SIG_DFL, |handler| handler as usize);
    // SAFETY: `action` is valid, and its handler does nothing or stores to an atomic, which is safe in any
    // context.
    check(unsafe { libc::sigaction(signal, &action, ptr::null_mut()) })?;
    Ok(())
}

/// From now on `signal` ends the calls in which it meets a thread with `EINTR`, where they can be
/// ended, instead of ending the process.
pub fn interrupt_calls_by(signal: i32) -> Result<()> {
    handle(signal, Some(nothing))
}

/// As [`interrupt_calls_by`], and [`stopped`] remembers it.
pub fn stop_by(signal: i32) -> Result<()> {
    handle(signal, Some(stop))
}

/// Whether a signal of [`stop_by`] came.
pub fn stopped() -> bool {
    STOPPED.load(Relaxed)
}

/// From now on `signal` does what it does by default. A program in Rust begins with `SIGPIPE` ignored, and
/// would complain about a reader who has enough.
pub fn restore_signal(signal: i32) -> Result<()> {
    handle(signal, None)
}
