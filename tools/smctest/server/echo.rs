// SPDX-License-Identifier: GPL-2.0

//! An echo server for many connections in one thread.

use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::EpollFlags;
use smc_user::Errno;
use smc_user::Socket;

use super::State;
use super::STOP_INTERVAL;
use crate::event_loop::Loop;
use crate::job::Job;

/// Accepts connections and echoes what they send, in one thread.
pub(super) fn run(listener: &Socket, state: &State) {
    let result = Loop::new(Echoed::socket).and_then(|mut ready| {
        ready.add(Echoed::Listener(listener.duplicate()?), EpollFlags::EPOLLIN)?;
        while !state.must_stop() {
            let mut new = Vec::new();
            ready.turn(STOP_INTERVAL, |echoed| echoed.go_on(&mut new, state))?;
            for echo in new {
                ready.add(Echoed::Connection(echo), EpollFlags::EPOLLIN)?;
            }
        }
        Ok(())
    });
    if let Err(error) = result {
        state.fail(&error);
    }
}

/// The sockets of the echo loop.
enum Echoed {
    Listener(Socket),
    Connection(Echo),
}

impl Echoed {
    fn socket(&self) -> &Socket {
        match self {
            Self::Listener(socket) => socket,
            Self::Connection(echo) => &echo.socket,
        }
    }

    fn go_on(&mut self, new: &mut Vec<Echo>, state: &State) -> Option<EpollFlags> {
        let echo = match self {
            Self::Listener(listener) => {
                while let Ok(socket) = listener.accept(libc::SOCK_NONBLOCK) {
                    new.push(Echo::new(socket));
                }
                return Some(EpollFlags::EPOLLIN);
            }
            Self::Connection(echo) => echo,
        };
        echo.go_on().unwrap_or_else(|error| {
            state.fail(&error);
            None
        })
    }
}

/// A connection of the echo loop.
struct Echo {
    socket: Socket,
    /// Bytes of the request that have not arrived yet.
    request: usize,
    /// Data to be echoed.
    pending: Vec<u8>,
}

impl Echo {
    fn new(socket: Socket) -> Self {
        Self {
            socket,
            request: Job::ECHO_LEN,
            pending: Vec::new(),
        }
    }

    /// Receives and sends without blocking; returns the events to wait for next, `None` at the end.
    fn go_on(&mut self) -> Result<Option<EpollFlags>> {
        if self.pending.is_empty() {
            let mut buffer = [0; 1 << 13];
            match self.socket.recv(&mut buffer, 0) {
                Ok(0) => return Ok(None),
                Ok(len) => {
                    let skip = self.request.min(len);
                    self.request -= skip;
                    self.pending.extend(&buffer[skip..len]);
                }
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error).context("echo: receive"),
            }
        }
        if !self.pending.is_empty() {
            match self.socket.send(&self.pending, 0) {
                Ok(len) => drop(self.pending.drain(..len)),
                Err(Errno::EAGAIN) => {}
                Err(error) => return Err(error).context("echo: send"),
            }
        }
        Ok(Some(match self.pending.is_empty() {
            true => EpollFlags::EPOLLIN,
            false => EpollFlags::EPOLLOUT,
        }))
    }
}
