// SPDX-License-Identifier: GPL-2.0

//! Replaces this process by a program, for which SIGPIPE is as it was for this process.
//!
//! Rust's runtime ignores SIGPIPE, and [`CommandExt::exec`] sets it to its default: a program of a
//! service or shell that ignores it would start otherwise than without this process between.

use std::io;
use std::mem;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::ignore_signal;

static IS_PIPE_IGNORED: AtomicBool = AtomicBool::new(false);

/// Runs at load time, before Rust's runtime changes the disposition.
#[used]
#[link_section = ".init_array"]
static LOOK_AT_LOAD: extern "C" fn() = {
    extern "C" fn look_at_load() {
        // SAFETY: all zeroes is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { mem::zeroed() };
        // SAFETY: a null pointer changes nothing, and `action` is valid for the answer.
        let known = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), &mut action) } == 0;
        IS_PIPE_IGNORED.store(known && action.sa_sigaction == libc::SIG_IGN, Relaxed);
    }
    look_at_load
};

/// Replaces this process by `command`; returns the error. The program ignores SIGPIPE if this process did when it
/// started.
pub fn exec(command: &mut Command) -> io::Error {
    let is_pipe_ignored = IS_PIPE_IGNORED.load(Relaxed);
    let restore = move || {
        if is_pipe_ignored {
            ignore_signal(libc::SIGPIPE)?;
        }
        Ok(())
    };
    // SAFETY: the function makes one system call, and neither allocates nor locks.
    unsafe { command.pre_exec(restore) }.exec()
}
