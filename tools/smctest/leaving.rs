// SPDX-License-Identifier: GPL-2.0

//! `smctest leaving`: an application that sends data and then ends the connection in one of many
//! ways, and a slow reader.
//!
//! Each prints one line: the bytes that send(2) accepted, or the bytes read and how the stream
//! ended. The caller compares the two to find out whether data was lost without an error.

use std::io::Write;
use std::process;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Result;
use clap::Subcommand;
use clap::ValueEnum;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Stream;

/// The seed of the data.
const SEED: u64 = 7;

/// Pause between two reads of the slow reader.
const PAUSE: Duration = Duration::from_millis(2);

/// Bytes per read of the slow reader.
const PIECE: usize = 5_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Be the server of the one connection
    #[arg(long)]
    listen: bool,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Send, and go
    Give {
        #[arg(long)]
        how: How,
    },
    /// Read slowly to the end
    Take {
        /// Milliseconds before the first read
        #[arg(long, default_value_t = 0)]
        wait: u64,
        /// Close after so many bytes, instead of at the end
        #[arg(long)]
        only: Option<usize>,
        /// Send so many bytes first
        #[arg(long, default_value_t = 0)]
        send: usize,
    },
}

/// What the sender sends, and how it ends the connection.
#[derive(Clone, Copy, ValueEnum)]
enum How {
    /// A full window; the process exits
    FullExit,
    /// A full window; the process is killed
    FullKill,
    /// A full window; close(2)
    FullClose,
    /// A full window; close(2) without lingering
    FullAbort,
    /// A full window; shutdown(2) of writing, then waits for the reader to go
    FullHalf,
    /// A full window; shutdown(2) of writing, then the process exits
    FullHalfExit,
    /// The same, and has not read what it was sent
    FullHalfUnread,
    /// A full window; the process exits, and has not read what it was sent
    FullUnread,
    /// As much as just fits; the process exits
    JustExit,
    /// Two small sends; the process exits
    SmallExit,
    /// Two small sends, the second with "more comes"; the process exits
    MoreExit,
    /// Two small sends; close(2)
    SmallClose,
}

/// Runs the sender or the reader.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let socket = match arguments.listen {
        true => context.listen(1)?.accept(0)?,
        false => context.connect()?,
    };
    match arguments.role {
        Role::Give { how } => give(&socket, how),
        Role::Take { wait, only, send } => {
            socket.send(&vec![0; send], 0)?;
            thread::sleep(Duration::from_millis(wait));
            take(&socket, only)
        }
    }
}

struct Giver<'a> {
    socket: &'a Socket,
    data: Stream,
    taken: usize,
}

impl Giver<'_> {
    /// Sends `len` bytes in one call; returns false on EAGAIN. A partial send is an error.
    fn send(&mut self, len: usize, flags: i32) -> Result<bool> {
        let mut buffer = vec![0; len];
        let before = self.data.clone();
        self.data.fill(&mut buffer);
        match self.socket.send(&buffer, flags) {
            Ok(sent) => {
                self.data = before;
                self.data.fill(&mut buffer[..sent]);
                self.taken += sent;
                Ok(true)
            }
            Err(Errno(libc::EAGAIN)) => {
                self.data = before;
                Ok(false)
            }
            Err(error) => bail!("send: {error}"),
        }
    }

    /// Sends without blocking until no send has succeeded for 300 ms: data in flight may still free
    /// space.
    fn fill(&mut self) -> Result<()> {
        let mut last = Instant::now();
        while last.elapsed() < Duration::from_millis(300) {
            match self.send(4_000, libc::MSG_DONTWAIT)? {
                true => last = Instant::now(),
                false => thread::sleep(PAUSE),
            }
        }
        Ok(())
    }
}

fn give(socket: &Socket, how: How) -> Result<()> {
    let mut giver = Giver {
        socket,
        data: Stream::new(SEED),
        taken: 0,
    };
    match how {
        How::JustExit => _ = giver.send(65_536, 0)?,
        How::SmallExit | How::SmallClose => {
            giver.send(100, 0)?;
            giver.send(100, 0)?;
        }
        How::MoreExit => {
            giver.send(100, 0)?;
            giver.send(100, libc::MSG_MORE)?;
        }
        _ => giver.fill()?,
    }
    // Printed first, since the process may exit without further output.
    println!("# gave {}", giver.taken);
    std::io::stdout().flush()?;
    match how {
        How::FullClose | How::SmallClose => Ok(()),
        How::FullAbort => Ok(socket.set_linger(true, 0)?),
        How::FullHalf => {
            socket.shutdown(libc::SHUT_WR)?;
            // The reader closes at the end of the stream.
            let _ = socket.read(&mut [0]);
            Ok(())
        }
        How::FullHalfExit | How::FullHalfUnread => {
            socket.shutdown(libc::SHUT_WR)?;
            process::exit(0)
        }
        How::FullKill => process::abort(),
        _ => process::exit(0),
    }
}

fn take(socket: &Socket, only: Option<usize>) -> Result<()> {
    let mut data = Stream::new(SEED);
    let (mut buffer, mut expected) = (vec![0; PIECE], vec![0; PIECE]);
    let mut read = 0;
    while only.is_none_or(|only| read < only) {
        match socket.read(&mut buffer) {
            Ok(0) => {
                println!("# took {read} end");
                return Ok(());
            }
            Ok(len) => {
                data.fill(&mut expected[..len]);
                ensure!(
                    buffer[..len] == expected[..len],
                    "other bytes behind {read}"
                );
                read += len;
            }
            Err(error) => {
                println!("# took {read} error {error}");
                return Ok(());
            }
        }
        thread::sleep(PAUSE);
    }
    println!("# took {read} left");
    Ok(())
}
