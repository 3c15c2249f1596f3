// SPDX-License-Identifier: GPL-2.0

//! `smc trace`: prints the events of the module's tracepoints as they occur.
//!
//! Uses its own tracefs instance, so that other users of tracing are not affected, and removes it
//! at the end. Works with the C module, too, which has the same tracepoints.

mod event;

use std::fs;
use std::fs::File;
use std::fs::OpenOptions;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;
use std::time::Instant;

use event::Event;
use smc_user::ignore_signal;
use smc_user::poll_fd;
use smc_user::stop_by;
use smc_user::stopped;
use smc_user::Errno;

use crate::table::not_loaded;

/// The mount points of tracefs; the second one on older kernels.
const ROOTS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// The tracepoints.
const EVENTS: [&str; 4] = [
    "smc_switch_to_fallback",
    "smc_tx_sendmsg",
    "smc_rx_recvmsg",
    "smcr_link_down",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only these tracepoints (default: all)
    #[arg(value_parser = EVENTS, value_name = "TRACEPOINT")]
    events: Vec<String>,

    /// End after that many seconds
    #[arg(short, long)]
    seconds: Option<u64>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

/// A tracefs instance; removed on drop.
struct Instance(PathBuf);

impl Instance {
    fn make() -> io::Result<Self> {
        let root = ROOTS.map(Path::new);
        let root = root.into_iter().find(|root| root.join("events").is_dir());
        let root = root.ok_or_else(|| {
            let text =
                "no tracefs: the kernel has no tracers (CONFIG_FTRACE), we are not root, or \
                        mount -t tracefs tracefs /sys/kernel/tracing";
            io::Error::other(text)
        })?;
        if !root.join("events/smc").is_dir() {
            return Err(not_loaded(io::ErrorKind::NotFound.into()));
        }
        let path = root.join(format!("instances/smc-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        })?;
        Ok(Self(path))
    }

    fn enable(&self, event: &str) -> io::Result<()> {
        fs::write(self.0.join("events/smc").join(event).join("enable"), "1")
    }

    fn disable(&self) -> io::Result<()> {
        fs::write(self.0.join("events/smc/enable"), "0")
    }

    fn pipe(&self) -> io::Result<File> {
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(libc::O_NONBLOCK);
        how.open(self.0.join("trace_pipe"))
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // On failure the instance remains, with its events disabled.
        let _ = self.disable();
        let _ = fs::remove_dir(&self.0);
    }
}

/// Prints events until a signal or the time limit.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        stop_by(signal)?;
    }
    // Otherwise the process would end without removing the instance when the reader of the output closes it.
    ignore_signal(libc::SIGPIPE)?;
    let instance = Instance::make()?;
    let pipe = instance.pipe()?;
    match arguments.events.is_empty() {
        true => EVENTS.iter().try_for_each(|event| instance.enable(event))?,
        false => {
            let mut chosen = arguments.events.iter();
            chosen.try_for_each(|event| instance.enable(event))?;
        }
    }
    let end = arguments.seconds;
    let end = end.and_then(|seconds| Instant::now().checked_add(Duration::from_secs(seconds)));
    let shown = follow(
        &instance,
        pipe,
        end,
        &mut Printer {
            json: arguments.json,
        },
    );
    match shown {
        // The reader of the output has closed it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

/// Prints what occurs until the end, and all of it.
fn follow(
    instance: &Instance,
    mut pipe: File,
    end: Option<Instant>,
    printer: &mut Printer,
) -> io::Result<()> {
    /// Polling interval for signals.
    const PAUSE: Duration = Duration::from_millis(200);
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    let mut is_over = false;
    loop {
        if !is_over && (stopped() || end.is_some_and(|end| Instant::now() >= end)) {
            // What occurred before is still in the buffer; nothing is added to that.
            instance.disable()?;
            is_over = true;
        }
        match pipe.read(&mut piece) {
            Ok(0) => {}
            Ok(len) => {
                text.extend_from_slice(&piece[..len]);
                printer.print(&mut text)?;
                continue;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if is_over {
            return Ok(());
        }
        match poll_fd(&pipe, libc::POLLIN, PAUSE) {
            Err(error) if error != Errno::EINTR => return Err(error.into()),
            _ => {}
        }
    }
}

struct Printer {
    json: bool,
}

impl Printer {
    /// Prints the complete lines and leaves the rest in `text`.
    fn print(&mut self, text: &mut Vec<u8>) -> io::Result<()> {
        let Some(end) = text.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(());
        };
        let mut out = io::stdout().lock();
        for line in text
            .drain(..=end)
            .collect::<Vec<_>>()
            .split(|byte| *byte == b'\n')
        {
            let line = String::from_utf8_lossy(line);
            match Event::parse(&line) {
                Some(event) if self.json => {
                    serde_json::to_writer(&mut out, &event)?;
                    writeln!(out)?;
                }
                Some(event) => writeln!(out, "{event}")?,
                // Messages about the buffer itself, such as the number of lost events.
                None if !self.json && !line.trim().is_empty() => writeln!(out, "{line}")?,
                None => {}
            }
        }
        out.flush()
    }
}
