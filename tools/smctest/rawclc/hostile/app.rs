// SPDX-License-Identifier: GPL-2.0

//! The application at the kernel's end: an ordinary program, which must always end soon after its peer does.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Stream;
use crate::netns;

/// What a writer sends, bytes.
pub(super) const WRITTEN: u64 = 100_000;

/// SO_RCVBUF.
const RCVBUF: i32 = 256 << 10;

/// Longest wait for an event at once: then it looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// Events without any effect, one after the other, that no program should see.
const SPINS: u32 = 2000;

/// What the program does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Reads up to the end.
    Reader,
    /// Sends [`WRITTEN`] bytes, shuts down, and reads up to the end.
    Writer,
    /// Sends back what it reads, up to the end.
    Echo,
    /// The same by poll.
    Poller,
}

/// How it gets its connection.
pub(super) enum Opening {
    Accept(Socket),
    Connect(SocketAddr),
}

/// The seeds of what it reads and of what a writer sends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds {
    pub(super) read: u64,
    pub(super) sent: u64,
}

/// What it has seen.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    pub(super) is_connected: bool,
    pub(super) received: u64,
    /// Position of the first byte that was not that of the stream.
    pub(super) wrong_at: Option<u64>,
    pub(super) sent: u64,
    /// The error that ended it.
    pub(super) errno: Option<Errno>,
    /// It was woken again and again for nothing.
    pub(super) spins: bool,
}

/// A program that runs.
pub(super) struct App {
    outcomes: mpsc::Receiver<Outcome>,
    is_unwanted: Arc<AtomicBool>,
}

impl App {
    /// Starts it in the server's namespace. The thread is not waited for: it may hang.
    pub(super) fn start(context: &Context, kind: Kind, opening: Opening, seeds: Seeds) -> Self {
        let (tell, outcomes) = mpsc::channel();
        let is_unwanted = Arc::new(AtomicBool::new(false));
        let unwanted = Arc::clone(&is_unwanted);
        let context = context.clone();
        thread::spawn(move || {
            let mut program = Program {
                outcome: Outcome::default(),
                expected: Stream::new(seeds.read),
            };
            let result = program.run(&context, kind, opening, seeds, &unwanted);
            program.outcome.errno = result.err();
            let _ = tell.send(program.outcome);
        });
        Self {
            outcomes,
            is_unwanted,
        }
    }

    /// Returns what it has seen, if it ends within `time`.
    pub(super) fn end(&self, time: Duration) -> Option<Outcome> {
        self.outcomes.recv_timeout(time).ok()
    }

    /// Tells it that no connection will come any more.
    pub(super) fn give_up(&self) {
        // ORDERING: only the flag itself is shared.
        self.is_unwanted.store(true, Ordering::Relaxed);
    }
}

struct Program {
    outcome: Outcome,
    expected: Stream,
}

type Done = Result<(), Errno>;

impl Program {
    fn run(
        &mut self,
        context: &Context,
        kind: Kind,
        opening: Opening,
        seeds: Seeds,
        unwanted: &AtomicBool,
    ) -> Done {
        let Some(socket) = connection(context, opening, unwanted)? else {
            return Ok(());
        };
        self.outcome.is_connected = true;
        // Now that it has an RMBE, a larger one is of use.
        socket.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RCVBUF)?;
        match kind {
            Kind::Reader => self.read(&socket),
            Kind::Writer => self.write(&socket, seeds.sent),
            Kind::Echo => self.echo(&socket),
            Kind::Poller => self.poll(&socket),
        }
    }

    fn read(&mut self, socket: &Socket) -> Done {
        let mut buffer = vec![0; 1 << 14];
        loop {
            match socket.recv(&mut buffer, 0)? {
                0 => return Ok(()),
                len => self.check(&buffer[..len]),
            }
        }
    }

    fn write(&mut self, socket: &Socket, seed: u64) -> Done {
        let mut stream = Stream::new(seed);
        while self.outcome.sent < WRITTEN {
            let mut data = [0; 5000];
            stream.fill(&mut data);
            self.send(socket, &data)?;
        }
        match socket.shutdown(libc::SHUT_WR) {
            // As with TCP after a reset, whose error the next call returns.
            Err(Errno(libc::ENOTCONN)) => {}
            done => done?,
        }
        self.read(socket)
    }

    fn echo(&mut self, socket: &Socket) -> Done {
        let mut buffer = vec![0; 1 << 13];
        loop {
            match socket.recv(&mut buffer, 0)? {
                0 => return Ok(()),
                len => {
                    self.check(&buffer[..len]);
                    self.send(socket, &buffer[..len])?;
                }
            }
        }
    }

    fn send(&mut self, socket: &Socket, data: &[u8]) -> Done {
        let mut rest = data;
        while !rest.is_empty() {
            let len = socket.send(rest, libc::MSG_NOSIGNAL)?;
            self.outcome.sent += len as u64;
            rest = &rest[len..];
        }
        Ok(())
    }

    fn poll(&mut self, socket: &Socket) -> Done {
        socket.set_nonblocking(true)?;
        let mut buffer = vec![0; 1 << 13];
        let (mut held, mut idle) = (Vec::new(), 0);
        loop {
            let wanted = match held.is_empty() {
                true => libc::POLLIN,
                false => libc::POLLOUT,
            };
            let events = poll_fd(socket, wanted, LOOK)?;
            let result = match held.is_empty() {
                true => socket.recv(&mut buffer, 0),
                false => socket.send(&held, libc::MSG_NOSIGNAL),
            };
            match result {
                Ok(0) if held.is_empty() => return Ok(()),
                Ok(len) if held.is_empty() => {
                    self.check(&buffer[..len]);
                    held.extend(&buffer[..len]);
                }
                Ok(len) => {
                    self.outcome.sent += len as u64;
                    held.drain(..len);
                }
                Err(Errno::EAGAIN) if events == 0 => {}
                Err(Errno::EAGAIN) if idle < SPINS => {
                    idle += 1;
                    continue;
                }
                Err(Errno::EAGAIN) => {
                    self.outcome.spins = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
            idle = 0;
        }
    }

    fn check(&mut self, data: &[u8]) {
        let mut expected = vec![0; data.len()];
        self.expected.fill(&mut expected);
        let differs = data.iter().zip(&expected).position(|(a, b)| a != b);
        if let (Some(at), None) = (differs, self.outcome.wrong_at) {
            self.outcome.wrong_at = Some(self.outcome.received + at as u64);
        }
        self.outcome.received += data.len() as u64;
    }
}

/// Returns the connection; `None` if none came while it was wanted.
fn connection(
    context: &Context,
    opening: Opening,
    unwanted: &AtomicBool,
) -> Result<Option<Socket>, Errno> {
    match opening {
        Opening::Accept(listener) => {
            // ORDERING: only the flag itself is shared.
            while !unwanted.load(Ordering::Relaxed) {
                if poll_fd(&listener, libc::POLLIN, LOOK)? != 0 {
                    return listener.accept(0).map(Some);
                }
            }
            Ok(None)
        }
        Opening::Connect(address) => {
            let socket = netns::inside(context.server_netns.as_deref(), || {
                Ok(context.family.open(context.addr)?)
            });
            let socket = socket.map_err(|_| Errno::ENODEV)?;
            socket.connect(address)?;
            Ok(Some(socket))
        }
    }
}
