// SPDX-License-Identifier: GPL-2.0

//! How a stream ended for its reader or its writer, and the server's memory of it.
//!
//! A client that resets its connection, or dies, cannot see what that did to the server. It gives
//! the conversation a number, and another one asks the server how that ended.

use std::collections::HashMap;
use std::fmt;
use std::io::Write;
use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use sha2::Digest;
use sha2::Sha256;
use smc_user::Errno;
use smc_user::Socket;

/// Time in which either side has to notice that the other is gone.
pub(crate) const NOTICE: Duration = Duration::from_secs(20);

/// The end of one direction of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ending {
    /// `None` for the end of the stream.
    pub(crate) error: Option<Errno>,
    /// Bytes until then.
    pub(crate) len: u64,
    digest: [u8; 32],
}

impl Ending {
    /// The end that a reader sees when it gets `data` and no more.
    pub(crate) fn of(data: &[u8]) -> Self {
        Self {
            error: None,
            len: data.len() as u64,
            digest: Sha256::digest(data).into(),
        }
    }

    /// Reads to the end, whatever it is.
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

    /// Writes until that fails.
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

    /// Whether it tells that the peer is gone: only a reader may take that for the end.
    pub(crate) fn is_loss(&self) -> bool {
        matches!(
            self.error,
            None | Some(Errno::ECONNRESET | Errno::ECONNABORTED | Errno::EPIPE)
        )
    }

    fn to_bytes(&self) -> [u8; 44] {
        let mut bytes = [0; 44];
        let error = self.error.map_or(0, |error| error.0);
        bytes[..4].copy_from_slice(&error.to_le_bytes());
        bytes[4..12].copy_from_slice(&self.len.to_le_bytes());
        bytes[12..].copy_from_slice(&self.digest);
        bytes
    }

    /// Receives one that [`Endings::tell`] or [`Ending::send`] sent.
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

    /// Sends it.
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

/// The conversations that ended, by the numbers that clients gave them.
#[derive(Default)]
pub(crate) struct Endings {
    known: Mutex<HashMap<u64, Ending>>,
    changed: Condvar,
}

impl Endings {
    /// Keeps the end of conversation `id`.
    pub(crate) fn keep(&self, id: u64, ending: Ending) {
        // The map is whole after each statement that touches it.
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.insert(id, ending);
        self.changed.notify_all();
    }

    /// Sends the end of conversation `id`, as soon as it has one.
    pub(crate) fn tell(&self, socket: &Socket, id: u64) -> Result<()> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .changed
            .wait_timeout_while(known, NOTICE, |known| !known.contains_key(&id));
        let (known, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let ending = known.get(&id).cloned();
        drop(known);
        ensure!(ending.is_some(), "conversation {id:x} has no end");
        ending.map_or(Ok(()), |ending| ending.send(socket))
    }
}
