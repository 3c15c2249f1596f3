// SPDX-License-Identifier: GPL-2.0

//! Random data in both directions at once, compared byte by byte and by SHA-256.
//!
//! Each direction is a stream generated from the seed, sent and received in chunks of random sizes
//! and followed by its digest. The receiver compares with the stream, to find the position of the
//! first wrong byte, and with the sender's digest.

use std::io::Read;
use std::io::Write;
use std::thread;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use sha2::Digest;
use sha2::Sha256;
use smc_user::Socket;

use crate::data;
use crate::data::Random;
use crate::data::Stream;
use crate::job::Bulk;

/// Last byte that the server sends: all data was received correctly.
const ACCEPTED: u8 = b'K';

/// Length of a SHA-256 digest.
const DIGEST_LEN: usize = 32;

/// Tags of the directions, whose streams differ so that echoed data is detected.
const UP: u64 = 0x75;
const DOWN: u64 = 0x64;

impl Bulk {
    /// Runs the client: sends, receives, waits for [`ACCEPTED`], shuts down.
    pub(crate) fn run_client(self, socket: &Socket) -> Result<()> {
        self.both_ways(socket, (UP, self.up), (DOWN, self.down))?;

        let mut verdict = [0];
        let mut reader = socket;
        reader
            .read_exact(&mut verdict)
            .context("verdict of the server")?;
        if verdict[0] != ACCEPTED {
            bail!("the server answered {:#x} to the data", verdict[0]);
        }
        socket.shutdown(libc::SHUT_WR).context("shutdown")?;
        match reader.read(&mut verdict).context("end of the stream")? {
            0 => Ok(()),
            _ => bail!("data after the end"),
        }
    }

    /// Runs the server.
    pub(crate) fn run_server(self, socket: &Socket) -> Result<()> {
        self.both_ways(socket, (DOWN, self.down), (UP, self.up))?;

        let mut stream = socket;
        stream.write_all(&[ACCEPTED])?;
        match stream.read(&mut [0])? {
            0 => Ok(()),
            _ => bail!("data after the end"),
        }
    }

    fn both_ways(self, socket: &Socket, out: (u64, u64), into: (u64, u64)) -> Result<()> {
        thread::scope(|scope| {
            let sender = scope.spawn(move || self.send(socket, out));
            let received = self.receive(socket, into);
            if received.is_err() {
                // Otherwise the sender may block forever in a full buffer.
                let _ = socket.shutdown(libc::SHUT_RDWR);
            }
            let sent = match sender.join() {
                Ok(sent) => sent,
                Err(_) => bail!("the sending thread panicked"),
            };
            match (received, sent) {
                // The thread that comes first has the error of the socket, the other one the end of the stream.
                (Err(received), Err(sent)) => Err(received.context(format!("{sent:#}"))),
                (received, sent) => received.and(sent),
            }
        })
    }

    fn chunk(self) -> usize {
        usize::try_from(self.chunk)
            .unwrap_or(usize::MAX)
            .clamp(1, 1 << 24)
    }

    fn send(self, mut socket: &Socket, (direction, len): (u64, u64)) -> Result<()> {
        let mut stream = Stream::new(self.seed ^ direction);
        let mut random = Random::new(self.seed.rotate_left(17) ^ direction);
        let mut buffer = vec![0; self.chunk()];
        let mut digest = Sha256::new();
        let mut left = len;

        while left > 0 {
            let size = random.size(buffer.len()).min(usize::try_from(left)?);
            let chunk = &mut buffer[..size];
            stream.fill(chunk);
            digest.update(&*chunk);
            socket
                .write_all(chunk)
                .with_context(|| format!("send at {}", len - left))?;
            left -= size as u64;
        }
        socket
            .write_all(&digest.finalize())
            .context("send of the digest")?;
        Ok(())
    }

    fn receive(self, mut socket: &Socket, (direction, len): (u64, u64)) -> Result<()> {
        let mut stream = Stream::new(self.seed ^ direction);
        let mut random = Random::new(self.seed.rotate_left(31) ^ direction);
        let mut buffer = vec![0; self.chunk()];
        let mut expected = vec![0; self.chunk()];
        let mut digest = Sha256::new();
        let mut at = 0;

        while at < len {
            let size = random.size(buffer.len()).min(usize::try_from(len - at)?);
            let got = socket
                .read(&mut buffer[..size])
                .with_context(|| format!("receive at {at}"))?;
            if got == 0 {
                bail!("the stream ended at {at} of {len} bytes");
            }
            stream.fill(&mut expected[..got]);
            if let Some(wrong) = (0..got).find(|i| buffer[*i] != expected[*i]) {
                data::note_wrong();
                bail!("wrong byte at {}, in a read of {got}", at + wrong as u64);
            }
            digest.update(&buffer[..got]);
            at += got as u64;
        }

        let mut theirs = [0; DIGEST_LEN];
        socket
            .read_exact(&mut theirs)
            .context("receive of the digest")?;
        if digest.finalize()[..] != theirs {
            data::note_wrong();
            bail!("the digests differ");
        }
        Ok(())
    }
}
