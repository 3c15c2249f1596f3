// SPDX-License-Identifier: GPL-2.0

//! A connection that sends a stream, which comes back and is compared.

use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::fcntl::splice;
use nix::fcntl::SpliceFFlags;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Check;
use crate::data::Random;
use crate::data::Stream;
use crate::job::Job;
use crate::netns;
use crate::urgent;

/// Bytes per send; no more than a pipe holds.
pub(super) const PIECE: usize = 8192;

/// A reader in bursts stops after so many bytes, more than the rings of both directions hold,
const BURST: u64 = 1 << 20;

/// for so long that they fill.
const NAP: Duration = Duration::from_millis(300);

/// How a connection sends and reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// With such pauses between two sends.
    Paced(Duration),
    /// Without pauses.
    Steady,
    /// Without pauses, and the reader naps, so that the writers of both ends block.
    Bursts,
    /// Without pauses, with urgent data both ways, which the readers keep in the stream.
    Urgent,
    /// Without pauses, from a pipe.
    Splice,
}

/// The longest interval without data since the last link failure.
#[derive(Clone, Copy, Default)]
pub(super) struct Pause {
    pub(super) len: Duration,
    pub(super) end: Option<Instant>,
}

/// When data arrived.
struct Pulse {
    last: Instant,
    pause: Pause,
}

/// A connection.
pub(super) struct Transfer {
    socket: Socket,
    style: Style,
    seed: u64,
    sent: AtomicU64,
    received: AtomicU64,
    pulse: Mutex<Pulse>,
    broken: AtomicBool,
}

impl Transfer {
    pub(super) fn open(context: &Context, style: Style) -> Result<Self> {
        let socket = netns::inside(context.client_netns.as_deref(), || context.connect())?;
        let seed = Random::fresh_seed();
        match style {
            Style::Urgent => {
                socket.set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
                Job::UrgentMirror(seed).send(&socket)?;
            }
            _ => Job::Mirror(seed).send(&socket)?,
        }
        Ok(Self {
            socket,
            style,
            seed,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            pulse: Mutex::new(Pulse {
                last: Instant::now(),
                pause: Pause::default(),
            }),
            broken: AtomicBool::new(false),
        })
    }

    /// On an error, marks the connection as broken and shuts it down, which ends the other
    /// direction, too.
    pub(super) fn watch(&self, result: Result<()>) {
        if let Err(error) = result {
            println!("# connection of seed {}: {error:#}", self.seed);
            self.broken.store(true, Ordering::Relaxed);
            let _ = self.socket.shutdown(libc::SHUT_RDWR);
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken.load(Ordering::Relaxed)
    }

    /// The seed of its stream, by which messages name it.
    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Bytes that were sent, or are just being sent.
    pub(super) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Bytes that came back.
    pub(super) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Sends until it is over.
    pub(super) fn send(&self, is_over: &AtomicBool) -> Result<()> {
        let mut stream = Stream::new(self.seed);
        let mut piece = [0; PIECE];
        let mut pieces = 0;
        while !is_over.load(Ordering::Relaxed) && !self.is_broken() {
            stream.fill(&mut piece);
            // Counted before they are sent, so that the echoed bytes never exceed them.
            let at = self.sent.fetch_add(PIECE as u64, Ordering::Relaxed);
            self.send_piece(&piece, pieces)
                .with_context(|| format!("send at {at}"))?;
            pieces += 1;
        }
        self.socket.shutdown(libc::SHUT_WR).context("shutdown")
    }

    fn send_piece(&self, piece: &[u8], number: u64) -> Result<()> {
        let mut socket = &self.socket;
        match self.style {
            Style::Urgent => urgent::send_some(socket, piece, number),
            Style::Splice => send_by_splice(socket, piece),
            Style::Steady | Style::Bursts => Ok(socket.write_all(piece)?),
            Style::Paced(pause) => {
                socket.write_all(piece)?;
                thread::sleep(pause);
                Ok(())
            }
        }
    }

    pub(super) fn receive(&self) -> Result<()> {
        let mut check = Check::new(self.seed);
        let mut got = [0; PIECE];
        let socket = &self.socket;
        let mut awake = 0;
        loop {
            if self.style == Style::Bursts && awake >= BURST {
                thread::sleep(NAP);
                awake = 0;
            }
            let at = check.at();
            let len = socket
                .read(&mut got)
                .with_context(|| format!("receive at {at}"))?;
            if len == 0 {
                let sent = self.sent.load(Ordering::Relaxed);
                ensure!(at == sent, "the end at {at}, after {sent} were sent");
                return Ok(());
            }
            self.note(Instant::now());
            check.take(&got[..len])?;
            self.received.fetch_add(len as u64, Ordering::Relaxed);
            awake += len as u64;
        }
    }

    fn note(&self, now: Instant) {
        self.with_pulse(|pulse| {
            let len = now.saturating_duration_since(pulse.last);
            pulse.last = now;
            if len > pulse.pause.len {
                pulse.pause = Pause {
                    len,
                    end: Some(now),
                };
            }
        });
    }

    /// Resets the longest interval: a link is about to fail.
    pub(super) fn mark(&self) {
        self.with_pulse(|pulse| pulse.pause = Pause::default());
    }

    pub(super) fn pause(&self) -> Pause {
        self.with_pulse(|pulse| pulse.pause)
    }

    /// Returns whether data arrived after `since`, or the connection is broken.
    pub(super) fn has_heard_since(&self, since: Instant) -> bool {
        self.is_broken() || self.with_pulse(|pulse| pulse.last > since)
    }

    fn with_pulse<R>(&self, f: impl FnOnce(&mut Pulse) -> R) -> R {
        // No holder of the lock panics.
        f(&mut self.pulse.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

fn send_by_splice(socket: &Socket, piece: &[u8]) -> Result<()> {
    let (reader, writer) = nix::unistd::pipe()?;
    std::fs::File::from(writer).write_all(piece)?;
    let mut left = piece.len();
    while left > 0 {
        let sent = splice(&reader, None, socket, None, left, SpliceFFlags::empty())?;
        ensure!(sent > 0, "nothing was spliced");
        left -= sent;
    }
    Ok(())
}
