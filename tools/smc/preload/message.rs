// SPDX-License-Identifier: GPL-2.0

//! Messages on standard error, formatted without allocation: `socket` may run in a signal handler.

use core::ffi::c_int;
use core::fmt;
use std::fmt::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;

use crate::config::Config;

/// A line being formatted; longer ones are truncated.
struct Line {
    bytes: [u8; 128],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let free = self.bytes.get_mut(self.len..).unwrap_or_default();
        let len = text.len().min(free.len());

        if let (Some(to), Some(from)) = (free.get_mut(..len), text.as_bytes().get(..len)) {
            to.copy_from_slice(from);
            self.len += len;
        }
        Ok(())
    }
}

/// Logs, if enabled, that descriptor `fd` is an SMC socket.
pub(crate) fn mapped(config: &Config, fd: c_int) {
    if config.debug {
        print(format_args!("libsmc_preload: socket {fd} is SMC\n"));
    }
}

/// Logs, if enabled and once per process, that SMC is not available and why.
pub(crate) fn unavailable(config: &Config, error: c_int) {
    static SAID: AtomicBool = AtomicBool::new(false);

    // ORDERING: only the flag itself is shared.
    if config.debug && !SAID.swap(true, Ordering::Relaxed) {
        print(format_args!(
            "libsmc_preload: no SMC here (errno {error}), sockets stay TCP\n"
        ));
    }
}

fn print(text: fmt::Arguments<'_>) {
    let mut line = Line {
        bytes: [0; 128],
        len: 0,
    };
    let _ = line.write_fmt(text);

    // Written without libc, which preserves `errno`.
    let bytes = line.bytes.get(..line.len).unwrap_or_default();
    let _ = rustix::io::write(rustix::stdio::stderr(), bytes);
}
