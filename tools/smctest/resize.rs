// SPDX-License-Identifier: GPL-2.0

//! `smctest resize`: RMBEs that grow with use and shrink when idle, as `sock_diag` and applications see them.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::diag;
use smc_tools::view::Module;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::charged;
use crate::context::Context;
use crate::context::CALL_TIMEOUT;
use crate::data::Stream;
use crate::ktap::Ktap;
use crate::netns;

/// Longest time for a larger RMBE, and for the smallest again.
const GROWN: Duration = Duration::from_secs(10);
const SHRUNK: Duration = Duration::from_secs(40);

/// The setting `smcr_wmem_max`.
const WMEM_MAX: u32 = 256 << 10;

/// A time after which nothing more comes.
const QUIET: Duration = Duration::from_millis(300);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Bytes that an RMBE begins with
    #[arg(long, default_value_t = 16 << 10)]
    min: u32,

    /// Bytes that it may have: the setting `rmem`
    #[arg(long, default_value_t = 64 << 10)]
    max: u32,

    /// Bytes that it may have in a bulk transfer: the setting `smcr_rmem_max`
    #[arg(long, default_value_t = 512 << 10)]
    bulk: u32,

    /// RMBEs stay as they are, but in a bulk transfer: that of the handshake has `max`
    #[arg(long)]
    fixed: bool,

    /// Only see that an RMBE does not grow beyond the memory that all sockets may have
    #[arg(long)]
    limit: bool,
}

/// The limit, of the first network namespace.
const LIMIT: &str = "/proc/sys/net/smc/smcr_mem";

/// A test, given a listener.
type Row = fn(&Context, &Socket, &Arguments) -> Result<()>;

/// Both ends of a connection; the client's is in the namespace of the calling thread.
struct Pair {
    client: Arc<Socket>,
    server: Socket,
}

/// Runs the tests; prints KTAP.
pub(crate) fn run(context: &Context, sizes: &Arguments) -> Result<()> {
    let listener = context.listen(64)?;
    // In the namespace that this was called in, which is the first one.
    let limit = sizes.limit.then(Limit::open).transpose()?;
    netns::enter(context.client_netns.as_deref())?;
    // The first connection of a link group is made before the server knows what the client can do.
    let _first = open(context, &listener)?;
    let rows: &[(&str, Row)] = match sizes.fixed {
        true => &[
            ("has its size from the beginning", begins),
            ("keeps it", keeps),
            ("but that of a bulk transfer grows", bulk),
            ("though not if SO_RCVBUF was set", bulk_set),
            (
                "grows for a peer that waits when SO_RCVBUF is raised",
                raised,
            ),
            ("the send buffer follows the peer's RMBE", send_buffer),
            ("though not if SO_SNDBUF was set", send_buffer_set),
        ],
        false => &[
            ("begins small", begins),
            (
                "grows when the peer waits, and data are read in order",
                grows,
            ),
            ("the one before is released", releases),
            ("MSG_PEEK sees both RMBEs", peeks),
            ("grows as far as SO_RCVBUF permits", grows_far),
            ("MSG_PEEK waits for all that SO_RCVBUF permits", peeks_all),
            ("poll(2) waits for SO_RCVLOWAT bytes", lowat),
            ("both directions at once", both_ways),
            ("the peer closes while data are in both", closes),
            ("does not grow for requests and answers", stays_small),
            ("but for many in a short time", busy),
            ("becomes small again, and large when it is used", shrinks),
            (
                "grows further for a bulk transfer, and becomes small again",
                bulk,
            ),
            ("though not if SO_RCVBUF was set", bulk_set),
        ],
    };
    if let Some(limit) = limit {
        return limited(context, &listener, sizes, &limit);
    }
    let mut ktap = Ktap::start(rows.len());
    for (name, row) in rows {
        let result = row(context, &listener, sizes);
        ktap.result(name, result.map_err(|error| format!("{error:#}")));
    }
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

fn open(context: &Context, listener: &Socket) -> Result<Pair> {
    let client = Arc::new(context.connect()?);
    let server = listener.accept(0).context("accept")?;
    for socket in [&*client, &server] {
        socket.set_timeout(CALL_TIMEOUT)?;
    }
    Ok(Pair { client, server })
}

impl Pair {
    /// Bytes of the RMBEs of the client and of the server, by the client's `sock_diag`.
    fn sizes(&self) -> Result<(u32, u32)> {
        let conn = self.diag()?;
        Ok((conn.receive_bytes, conn.peer_bytes))
    }

    /// What the client's `sock_diag` says of the connection.
    fn diag(&self) -> Result<diag::Conn> {
        let local = self.client.local_address()?.to_ip();
        let all = diag::sockets()?.into_iter();
        let mut own = all.filter(|entry| Some(entry.local) == local);
        let conn = own.find_map(|entry| entry.conn);
        conn.context("sock_diag does not list it")
    }

    fn expect(&self, client: u32, server: u32, within: Duration) -> Result<()> {
        let start = Instant::now();
        loop {
            let now = self.sizes()?;
            if now == (client, server) {
                return Ok(());
            }
            ensure!(
                start.elapsed() < within,
                "RMBEs of {now:?} bytes after {within:?}, not {:?}",
                (client, server)
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Sends the first `len` bytes of a stream, by calls of at most `chunk`.
fn send(socket: &Socket, seed: u64, len: usize, chunk: usize) -> Result<()> {
    let mut data = vec![0; len];
    Stream::new(seed).fill(&mut data);
    for part in data.chunks(chunk) {
        let mut part = part;
        while !part.is_empty() {
            let sent = socket.send(part, 0).context("send")?;
            part = &part[sent..];
        }
    }
    Ok(())
}

/// Receives as many, by calls of at most `chunk`, and compares them.
fn receive(socket: &Socket, seed: u64, len: usize, chunk: usize) -> Result<()> {
    let (mut got, mut expected) = (vec![0; len], vec![0; len]);
    Stream::new(seed).fill(&mut expected);
    let mut at = 0;
    while at < len {
        let end = len.min(at + chunk);
        let n = socket.recv(&mut got[at..end], 0).context("recv")?;
        ensure!(n > 0, "the end after {at} of {len} bytes");
        at += n;
    }
    let wrong = got.iter().zip(&expected).position(|(a, b)| a != b);
    ensure!(wrong.is_none(), "byte {wrong:?} of {len} is wrong");
    Ok(())
}

/// The server does not read; then the data are in several RMBEs.
fn fill(pair: &Pair, seed: u64, len: usize, size: u32) -> Result<thread::JoinHandle<Result<()>>> {
    let client = pair.client.clone();
    let sender = thread::spawn(move || send(&client, seed, len, 30_000));
    let (own, _) = pair.sizes()?;
    pair.expect(own, size, GROWN)?;
    Ok(sender)
}

fn end(sender: thread::JoinHandle<Result<()>>) -> Result<()> {
    sender.join().map_err(|_| anyhow::anyhow!("panicked"))?
}

fn begins(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let size = match sizes.fixed {
        true => sizes.max,
        false => sizes.min,
    };
    open(context, listener)?.expect(size, size, Duration::ZERO)
}

fn keeps(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 4;
    let sender = fill(&pair, 1, len, sizes.max)?;
    receive(&pair.server, 1, len, 9_001)?;
    end(sender)?;
    pair.expect(sizes.max, sizes.max, Duration::ZERO)
}

fn grows(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 4;
    let sender = fill(&pair, 2, len, sizes.max)?;
    receive(&pair.server, 2, len, 4_999)?;
    end(sender)?;
    // And from the beginning of the other.
    let sender = fill(&pair, 3, len, sizes.max)?;
    receive(&pair.server, 3, len, 100_000)?;
    end(sender)?;
    // The client has received nothing.
    pair.expect(sizes.min, sizes.max, Duration::ZERO)
}

/// The client receives, as the counters are those of its namespace.
fn releases(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 4;
    thread::scope(|scope| {
        let sender = scope.spawn(|| send(&pair.server, 17, len, 30_000));
        receive(&pair.client, 17, len, 10_000)?;
        sender.join().map_err(|_| anyhow::anyhow!("panicked"))?
    })?;
    pair.expect(sizes.max, sizes.min, GROWN)?;
    // The sockets of the rows before may still be closing.
    let start = Instant::now();
    loop {
        let sockets = diag::sockets()?;
        let conns = sockets.iter().filter_map(|entry| entry.conn.as_ref());
        let listed: u64 = conns.map(|conn| u64::from(conn.receive_bytes)).sum();
        let in_use = Module::open()?.stats()?.smcr.received.buffer_bytes;
        if listed == in_use {
            return Ok(());
        }
        ensure!(
            start.elapsed() < GROWN,
            "{in_use} bytes are in use, {listed} by sockets"
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn peeks(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize;
    let sender = fill(&pair, 4, len, sizes.max)?;
    end(sender)?;
    let mut expected = vec![0; len];
    Stream::new(4).fill(&mut expected);
    peek(&pair.server, &expected)?;
    // Then from the middle of the first on.
    let (first, rest) = expected.split_at(sizes.min as usize / 2);
    receive_part(&pair.server, first)?;
    peek(&pair.server, rest)?;
    receive_part(&pair.server, rest)
}

fn peek(socket: &Socket, expected: &[u8]) -> Result<()> {
    let mut got = vec![0; expected.len()];
    let n = socket.recv(&mut got, libc::MSG_PEEK | libc::MSG_WAITALL)?;
    ensure!(n == got.len(), "{n} of {} bytes", got.len());
    ensure!(got == expected, "other bytes");
    Ok(())
}

fn receive_part(socket: &Socket, expected: &[u8]) -> Result<()> {
    let mut got = vec![0; expected.len()];
    let n = socket.recv(&mut got, libc::MSG_WAITALL)?;
    ensure!(n == got.len() && got == expected, "other bytes");
    Ok(())
}

fn grows_far(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    // The kernel doubles it.
    let bytes = i32::try_from(sizes.max * 16)?;
    pair.server
        .set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
    let (len, most) = (sizes.max as usize * 64, sizes.max * 16);
    let client = pair.client.clone();
    let sender = thread::spawn(move || send(&client, 5, len, 30_000));
    // Another one is offered when the one before was read.
    receive(&pair.server, 5, len, 50_000)?;
    end(sender)?;
    pair.expect(sizes.min, most, GROWN)
}

/// Nothing is read, nor called otherwise.
fn raised(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    fill_all(&pair)?;
    let client = pair.client.clone();
    let poller = thread::spawn(move || poll_fd(&*client, libc::POLLOUT, CALL_TIMEOUT));
    // So that it waits by then.
    thread::sleep(Duration::from_millis(100));
    let bytes = i32::try_from(sizes.max * 8)?;
    pair.server
        .set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
    let raised = Instant::now();
    let events = poller.join().unwrap_or(Ok(0))?;
    ensure!(events & libc::POLLOUT != 0, "poll says {events:#x}");
    // One that nobody woke looks again in the end.
    ensure!(raised.elapsed() < GROWN, "the poll took too long");
    Ok(())
}

/// Nothing is read meanwhile.
fn peeks_all(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let bytes = i32::try_from(sizes.max * 8)?;
    pair.server
        .set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
    let len = sizes.max as usize * 5;
    let client = pair.client.clone();
    let sender = thread::spawn(move || send(&client, 18, len, 30_000));
    let mut expected = vec![0; len];
    Stream::new(18).fill(&mut expected);
    peek(&pair.server, &expected)?;
    receive_part(&pair.server, &expected)?;
    end(sender)
}

fn lowat(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let want = sizes.max as usize / 8 * 5;
    pair.server
        .set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, i32::try_from(want)?)?;
    pair.expect(sizes.min, sizes.max, GROWN)?;
    send(&pair.client, 6, want - 1, 30_000)?;
    thread::sleep(QUIET);
    let events = poll_fd(&pair.server, libc::POLLIN, Duration::ZERO)?;
    ensure!(events == 0, "poll says {events:#x} for a byte less");
    send(&pair.client, 7, 1, 1)?;
    let events = poll_fd(&pair.server, libc::POLLIN, CALL_TIMEOUT)?;
    ensure!(events == libc::POLLIN, "poll says {events:#x} for all");
    receive(&pair.server, 6, want - 1, 30_000)
}

fn both_ways(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 40;
    let ends = [(&*pair.client, 8, 9), (&pair.server, 9, 8)];
    thread::scope(|scope| {
        let tasks: Vec<_> = ends
            .iter()
            .flat_map(|(socket, sends, receives)| {
                [
                    scope.spawn(|| send(socket, *sends, len, 7_777)),
                    scope.spawn(|| receive(socket, *receives, len, 33_333)),
                ]
            })
            .collect();
        tasks
            .into_iter()
            .try_for_each(|task| task.join().map_err(|_| anyhow::anyhow!("panicked"))?)
    })?;
    pair.expect(sizes.max, sizes.max, GROWN)
}

/// How many times a small RMBE is filled in ten seconds before it is replaced, and one in a bulk transfer.
const BUSY: u64 = 64;
const BULK: u64 = 256;

/// The steps are factors of 4.
fn bulk(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let full = sizes.max.max(sizes.bulk);
    let steps = std::iter::successors(Some(sizes.max), |size| Some(size.saturating_mul(4)));
    let needed: u64 = steps
        .take_while(|size| *size < full)
        .map(|size| BULK * u64::from(size))
        .sum();
    let grows = needed > 0;
    // What has arrived before an RMBE was watched does not count, nor what comes while the work that replaces it waits.
    let most = 2 * (needed + 4 * u64::from(sizes.max)).max(BULK * u64::from(full));
    let sent = transfer(&pair, most, |now| grows && now == full)?;
    let begun = match sizes.fixed {
        true => sizes.max,
        false => sizes.min,
    };
    pair.expect(begun, full, Duration::ZERO)
        .with_context(|| format!("{sent} bytes"))?;
    ensure!(
        sent >= needed,
        "{full} bytes after {sent}, before {needed} have come"
    );
    match sizes.fixed {
        true => Ok(()),
        false => pair.expect(sizes.min, sizes.min, SHRUNK),
    }
}

fn bulk_set(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    // The kernel doubles it.
    let bytes = i32::try_from(sizes.max)?;
    pair.server
        .set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes)?;
    transfer(&pair, 2 * BULK * u64::from(sizes.max), |_| false)?;
    let (_, now) = pair.sizes()?;
    ensure!(now == sizes.max, "{now} bytes");
    Ok(())
}

fn send_buffer(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let held = fill_all(&pair)?;
    let most = (sizes.max + sizes.max * 2) as usize;
    ensure!(held == most, "{held} bytes, not {most}");

    let pair = open(context, listener)?;
    let full = sizes.max.max(sizes.bulk);
    transfer(&pair, u64::MAX, |now| now == full)?;
    // It is as large as before until it has been empty.
    thread::sleep(QUIET);
    let held = fill_all(&pair)?;
    let now = pair.diag()?.send_bytes;
    let expected = WMEM_MAX.max(sizes.max * 2).min(full * 2);
    ensure!(now == expected, "{now} bytes, not {expected}");
    // The server does not say at once that it has read the last of what came before.
    let most = (full + now) as usize;
    ensure!((most / 2..=most).contains(&held), "{held} of {most} bytes");
    let said = pair.client.option_int(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    ensure!(said >= i32::try_from(now)?, "SO_SNDBUF says {said}");
    Ok(())
}

fn send_buffer_set(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    // The kernel doubles it.
    let bytes = i32::try_from(sizes.max / 2)?;
    pair.client
        .set_option_int(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, bytes)?;
    let held = fill_all(&pair)?;
    let most = (sizes.max + sizes.max / 2) as usize;
    ensure!(held == most, "{held} bytes, not {most}");
    let said = pair.client.option_int(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    ensure!(said == bytes * 2, "SO_SNDBUF says {said}");
    Ok(())
}

/// Sends data that nobody reads until no more fit, and nothing is on its way; returns how many did.
fn fill_all(pair: &Pair) -> Result<usize> {
    let mut sent = charged::fill(&pair.client)?;
    loop {
        thread::sleep(QUIET);
        match charged::fill(&pair.client)? {
            0 => return Ok(sent),
            more => sent += more,
        }
    }
}

/// Sends data from the client until the server's RMBE has a size that is asked for, or `most` bytes were sent; returns
/// how many.
fn transfer(pair: &Pair, most: u64, is_enough: impl Fn(u32) -> bool) -> Result<u64> {
    const PIECE: usize = 1 << 20;
    let mut sent = 0;
    while sent < most && !is_enough(pair.sizes()?.1) {
        let client = pair.client.clone();
        let sender = thread::spawn(move || send(&client, sent, PIECE, 100_000));
        receive(&pair.server, sent, PIECE, 100_000)?;
        end(sender)?;
        sent += PIECE as u64;
    }
    Ok(sent)
}

/// Without memory for another RMBE the connection goes on, and gets it once there is some.
fn limited(context: &Context, listener: &Socket, sizes: &Arguments, limit: &Limit) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 2;
    // A send buffer comes before the limit.
    send(&pair.client, 14, 1, 1)?;
    receive(&pair.server, 14, 1, 1)?;
    let before = limit.set(b"1 2 3")?;
    let client = pair.client.clone();
    let sender = thread::spawn(move || send(&client, 15, len, 30_000));
    thread::sleep(QUIET);
    let sizes_then = pair.expect(sizes.min, sizes.min, Duration::ZERO);
    let received = receive(&pair.server, 15, len, 5_000);
    let ended = end(sender);
    limit.set(&before)?;
    sizes_then.and(received).and(ended)?;
    let sender = fill(&pair, 16, len, sizes.max)?;
    receive(&pair.server, 16, len, 5_000)?;
    end(sender)
}

/// The limit of the memory of all sockets.
struct Limit(File);

impl Limit {
    fn open() -> Result<Self> {
        let file = File::options().read(true).write(true).open(LIMIT);
        Ok(Self(file.context(LIMIT)?))
    }

    /// Sets it, and returns what it was.
    fn set(&self, pages: &[u8]) -> Result<Vec<u8>> {
        let mut before = vec![0; 64];
        let len = self.0.read_at(&mut before, 0).context(LIMIT)?;
        before.truncate(len);
        self.0.write_all_at(pages, 0).context(LIMIT)?;
        Ok(before)
    }
}

fn closes(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize;
    let sender = fill(&pair, 10, len, sizes.max)?;
    end(sender)?;
    let Pair { client, server } = pair;
    drop(client);
    receive(&server, 10, len, 12_345)?;
    let rest = server.recv(&mut [0], 0)?;
    ensure!(rest == 0, "not the end of the stream");
    Ok(())
}

fn stays_small(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    // A quarter of an RMBE each.
    requests(&pair, sizes, BUSY * 4 - 10)?;
    pair.expect(sizes.min, sizes.min, Duration::ZERO)
}

fn busy(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    requests(&pair, sizes, BUSY * 4 + 10)?;
    pair.expect(sizes.max, sizes.max, GROWN)?;
    requests(&pair, sizes, 20)
}

/// Requests and answers of a quarter of an RMBE.
fn requests(pair: &Pair, sizes: &Arguments, rounds: u64) -> Result<()> {
    let len = sizes.min as usize / 4;
    for round in 0..rounds {
        for (from, to) in [(&*pair.client, &pair.server), (&pair.server, &*pair.client)] {
            send(from, round, len, len)?;
            receive(to, round, len, len)?;
        }
    }
    Ok(())
}

fn shrinks(context: &Context, listener: &Socket, sizes: &Arguments) -> Result<()> {
    let pair = open(context, listener)?;
    let len = sizes.max as usize * 2;
    for seed in [11, 12] {
        let sender = fill(&pair, seed, len, sizes.max)?;
        receive(&pair.server, seed, len, 8_000)?;
        end(sender)?;
        pair.expect(sizes.min, sizes.min, SHRUNK)?;
    }
    send(&pair.server, 13, 1_000, 1_000)?;
    receive(&pair.client, 13, 1_000, 1_000)
}
