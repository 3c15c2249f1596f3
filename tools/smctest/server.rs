// SPDX-License-Identifier: GPL-2.0

//! The server of all tests except the semantics.

mod echo;

use std::io::Read;
use std::io::Write;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::data;
use crate::data::Check;
use crate::data::Stream;
use crate::ending::Ending;
use crate::ending::Endings;
use crate::job::Job;
use crate::urgent;

/// Interval at which an idle listener checks whether the test is over.
const STOP_INTERVAL: Duration = Duration::from_millis(100);

const BACKLOG: i32 = 4096;

/// Bytes that [`Job::Half`] sends: more than a receive buffer holds.
pub(crate) const HALF_LEN: usize = 300_000;

/// What [`Job::Source`] sends.
const SOURCE_BYTE: u8 = 0x5a;

/// How connections are served.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// One thread per connection.
    Spawn,
    /// One thread for all connections; supports only [`Job::Echo`] with any size.
    Loop,
    /// This many threads, each of which accepts and serves one connection after another.
    Pool(u32),
}

/// A listening server; it stops when dropped.
pub(crate) struct Server {
    state: Arc<State>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct State {
    stop: AtomicBool,
    failed: AtomicU64,
    /// Bytes that [`Job::Sink`] and [`Job::Hold`] received.
    received: AtomicU64,
    endings: Endings,
}

impl State {
    fn must_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn fail(&self, error: &anyhow::Error) {
        println!("# server: {error:#}");
        self.failed.fetch_add(1, Ordering::Relaxed);
        if data::is_wrong() {
            // Later connections are refused, which clients elsewhere notice.
            self.stop.store(true, Ordering::Relaxed);
        }
    }
}

impl Server {
    /// Starts a server unless it runs elsewhere according to the context.
    pub(crate) fn start(context: &Context, mode: Mode) -> Result<Option<Self>> {
        if context.remote {
            return Ok(None);
        }
        let listener = Arc::new(listen(context)?);
        let state = Arc::new(State::default());
        let acceptors = match mode {
            Mode::Spawn | Mode::Loop => 1,
            Mode::Pool(threads) => threads.max(1),
        };

        let start = |_| {
            let (listener, state) = (listener.clone(), state.clone());
            thread::spawn(move || match mode {
                Mode::Loop => echo::run(&listener, &state),
                Mode::Spawn | Mode::Pool(_) => accept_loop(&listener, &state, mode),
            })
        };
        let threads = (0..acceptors).map(start).collect();
        Ok(Some(Self { state, threads }))
    }

    /// Returns the number of connections that failed on the server's side so far.
    pub(crate) fn failures(&self) -> u64 {
        self.state.failed.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes received and discarded so far ([`Job::Sink`]).
    pub(crate) fn received(&self) -> u64 {
        self.state.received.load(Ordering::Relaxed)
    }

    /// Waits until all `sent` bytes were received and discarded, and no more.
    pub(crate) fn await_bytes(&self, sent: u64) -> Result<()> {
        let end = Instant::now() + CALL_TIMEOUT;
        while self.received() < sent && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
        let received = self.received();
        ensure!(received == sent, "{sent} bytes sent, {received} received");
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // ORDERING: only the flag itself is shared.
        self.state.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Serves until killed, or a wrong byte arrives.
pub(crate) fn serve(context: &Context) -> Result<()> {
    let listener = listen(context)?;
    println!(
        "# serving {} at {}",
        context.server_family().name(),
        context.address()
    );
    let state = Arc::<State>::default();
    accept_loop(&listener, &state, Mode::Spawn);
    bail!("the data was wrong");
}

fn listen(context: &Context) -> Result<Socket> {
    let listener = context.listen(BACKLOG)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn accept_loop(listener: &Socket, state: &Arc<State>, mode: Mode) {
    while !state.must_stop() {
        match listener.accept(0) {
            Ok(socket) => match mode {
                Mode::Pool(_) => serve_connection(&socket, state),
                Mode::Spawn | Mode::Loop => {
                    let state = state.clone();
                    thread::spawn(move || serve_connection(&socket, &state));
                }
            },
            Err(Errno::EAGAIN) => {
                let _ = poll_fd(listener, libc::POLLIN, STOP_INTERVAL);
            }
            // A connection that was reset in the backlog; the client checks that.
            Err(Errno::ECONNABORTED) => {}
            Err(error) => {
                state.fail(&anyhow::Error::from(error).context("accept"));
                thread::sleep(STOP_INTERVAL);
            }
        }
    }
}

fn serve_connection(socket: &Socket, state: &State) {
    if let Err(error) = handle(socket, state) {
        state.fail(&error);
    }
}

fn handle(mut socket: &Socket, state: &State) -> Result<()> {
    let endings = &state.endings;
    match Job::receive(socket)? {
        None => Ok(()),
        Some(Job::One) => Ok(socket.write_all(b"1")?),
        Some(Job::Bulk(bulk)) => bulk.run_server(socket),
        Some(Job::Echo(size)) => echo(socket, usize::try_from(size)?.clamp(1, 1 << 24)),
        Some(Job::Mirror(seed)) => mirror(socket, seed, |data, _| Ok(socket.write_all(data)?)),
        Some(Job::UrgentMirror(seed)) => {
            socket.set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)?;
            mirror(socket, seed, |data, number| {
                urgent::send_some(socket, data, number)
            })
        }
        // A reset is one of the ways in which a client may end the connection.
        Some(Job::Hold) => {
            let _ = sink(socket, &state.received);
            Ok(())
        }
        Some(Job::Sink) => sink(socket, &state.received),
        Some(Job::Source) => source(socket),
        Some(Job::Urgent) => urgent::run_server(socket),
        Some(Job::Count) => Ending::of_reading(socket).send(socket),
        Some(Job::Half(id)) => half(socket, endings, id),
        Some(Job::Watch(id)) => {
            endings.keep(id, Ending::of_reading(socket));
            Ok(())
        }
        Some(Job::Feed(id)) => {
            endings.keep(id, Ending::of_writing(socket));
            Ok(())
        }
        Some(Job::Ask(id)) => endings.tell(socket, id),
        Some(Job::Reset) => Ok(socket.set_linger(true, 0)?),
        Some(Job::Shut(id)) => {
            socket.shutdown(libc::SHUT_RDWR)?;
            endings.keep(id, Ending::of_waiting(socket)?);
            Ok(())
        }
    }
}

fn echo(mut socket: &Socket, size: usize) -> Result<()> {
    let mut message = vec![0; size];
    loop {
        let first = socket.read(&mut message)?;
        if first == 0 {
            return Ok(());
        }
        socket.read_exact(&mut message[first..])?;
        socket.write_all(&message)?;
    }
}

/// Compares what arrives with the stream of the seed, and sends it back by `send`, which gets the number of the piece.
fn mirror(
    socket: &Socket,
    seed: u64,
    mut send: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    let mut check = Check::new(seed);
    let mut number = 0;
    let mut buffer = vec![0; 1 << 13];
    loop {
        let len = socket.read(&mut buffer)?;
        if len == 0 {
            return Ok(());
        }
        check
            .take(&buffer[..len])
            .with_context(|| format!("on the way here, seed {seed}"))?;
        send(&buffer[..len], number)?;
        number += 1;
    }
}

fn sink(socket: &Socket, received: &AtomicU64) -> Result<()> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let len = socket.read(&mut buffer).context("not read to the end")?;
        if len == 0 {
            return Ok(());
        }
        received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

fn source(mut socket: &Socket) -> Result<()> {
    let buffer = vec![SOURCE_BYTE; 1 << 16];
    while socket.write_all(&buffer).is_ok() {}
    Ok(())
}

/// Checks what [`Job::Source`] sent.
pub(crate) fn check_source(data: &[u8]) -> Result<()> {
    match data.iter().find(|byte| **byte != SOURCE_BYTE) {
        Some(wrong) => {
            data::note_wrong();
            bail!("the server sent a byte {wrong:#x}")
        }
        None => Ok(()),
    }
}

/// Sends random data, shuts down writing, then reads to the end of the stream.
fn half(mut socket: &Socket, endings: &Endings, id: u64) -> Result<()> {
    let mut data = vec![0; HALF_LEN];
    Stream::new(!id).fill(&mut data);
    socket.write_all(&data)?;
    socket.shutdown(libc::SHUT_WR)?;
    endings.keep(id, Ending::of_reading(socket));
    Ok(())
}
