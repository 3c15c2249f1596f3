// SPDX-License-Identifier: GPL-2.0

//! How a stream ended for its reader or writer, and the server's record of it.
//!
//! A client that resets its connection or is killed cannot observe the effect at the server. It
//! gives the connection an id, and a second connection asks the server how the first one ended.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use sha2::Digest;
use sha2::Sha256;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

/// Longest time until either side must detect the loss of the other.
pub(crate) const NOTICE: Duration = Duration::from_secs(20);

/// Pause between two looks.
const STEP: Duration = Duration::from_millis(5);

/// The end of one direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// The errno; `None` for the end of the stream.
    pub(crate) error: Option<Errno>,
    /// Bytes transferred before.
    pub(crate) len: u64,
    digest: [u8; 32],
}

impl Ending {
    /// Returns what a reader sees that gets exactly `data` and then the end of the stream.
    pub(crate) fn of(data: &[u8]) -> Self {
        Self {
            error: None,
            len: data.len() as u64,
            digest: Sha256::digest(data).into(),
        }
    }

    /// Reads until the end of the stream or an error.
    pub(crate) fn of_reading(socket: &Socket) -> Self {
        let mut digest = Sha256::new();
        let mut buffer = vec![0; 1 << 16];
        let mut len = 0;
        let error = loop {
            match socket.recv(&mut buffer, 0) {
                Ok(0) => break None,
                Ok(got) => {
                    digest.update(&buffer[..got]);
                    len += got as u64;
                }
                Err(error) => break Some(error),
            }
        };
        let digest = digest.finalize().into();
        Self { error, len, digest }
    }

    /// Writes until an error.
    pub(crate) fn of_writing(socket: &Socket) -> Self {
        let buffer = vec![0x5a; 1 << 16];
        let mut len = 0;
        loop {
            match socket.send(&buffer, 0) {
                Ok(sent) => len += sent as u64,
                Err(error) => {
                    let digest = [0; 32];
                    return Self {
                        error: Some(error),
                        len,
                        digest,
                    };
                }
            }
        }
    }

    /// Waits for an error, without reading.
    pub(crate) fn of_waiting(socket: &Socket) -> Result<Self> {
        let start = Instant::now();
        // The end of both directions is an event at all times.
        while poll_fd(socket, 0, STEP)? & libc::POLLERR == 0 && start.elapsed() < NOTICE / 2 {
            thread::sleep(STEP);
        }
        Ok(Self {
            error: socket.take_error()?,
            len: 0,
            digest: [0; 32],
        })
    }

    /// Returns whether this is the loss of the peer: an error, or, for a reader, the end of the
    /// stream.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(
            self.error,
            None | Some(Errno::ECONNRESET | Errno::ECONNABORTED | Errno::EPIPE)
        )
    }

    /// Returns whether the peer reset the connection, as it does after a close with a linger time of zero.
    pub(crate) fn is_reset(&self) -> bool {
        self.error == Some(Errno::ECONNRESET)
    }

    /// Returns whether this is the end of the stream, without an error.
    pub(crate) fn is_end(&self) -> bool {
        self.error.is_none()
    }

    /// Returns whether a writer was told that its peer has gone: EPIPE if it heard of an orderly end first.
    pub(crate) fn is_failed_write(&self) -> bool {
        matches!(self.error, Some(Errno::ECONNRESET | Errno::EPIPE))
    }

    fn to_bytes(&self) -> [u8; 44] {
        let mut bytes = [0; 44];
        let error = self.error.map_or(0, |error| error.0);
        bytes[..4].copy_from_slice(&error.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.digest);
        bytes
    }

    /// Receives a record that [`Endings::tell`] or [`Ending::send`] sent.
    pub(crate) fn receive(mut socket: &Socket) -> Result<Self> {
        let mut bytes = [0; 44];
        std::io::Read::read_exact(&mut socket, &mut bytes).context("an answer")?;
        let (error, rest) = bytes.split_at(4);
        let (len, digest) = rest.split_at(8);
        let error = i32::from_le_bytes(error.try_into()?);
        Ok(Self {
            error: (error != 0).then_some(Errno(error)),
            len: u64::from_le_bytes(len.try_into()?),
            digest: digest.try_into()?,
        })
    }

    /// Sends the record.
    pub(crate) fn send(&self, mut socket: &Socket) -> Result<()> {
        Ok(socket.write_all(&self.to_bytes())?)
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.error {
            None => write!(f, "the end after {} bytes", self.len),
            Some(error) => write!(f, "{error} after {} bytes", self.len),
        }
    }
}

/// Records of connections that have ended, by the ids that clients chose.
#[derive(Default)]
pub(crate) struct Endings {
    known: Mutex<HashMap<u64, Ending>>,
    changed: Condvar,
}

impl Endings {
    /// Records the end of connection `id`.
    pub(crate) fn keep(&self, id: u64, ending: Ending) {
        // The map is consistent after each statement that changes it, even if a thread panicked.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id, ending);
        self.changed.notify_all();
    }

    /// Waits for the end of connection `id`, at most [`NOTICE`], and sends the record.
    pub(crate) fn tell(&self, socket: &Socket, id: u64) -> Result<()> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(known, NOTICE, |known| !known.contains_key(&id));
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let ending = known.get(&id).cloned();
        drop(known);
        ensure!(ending.is_some(), "connection {id:x} has no end");
        ending.map_or(Ok(()), |ending| ending.send(socket))
    }
}
