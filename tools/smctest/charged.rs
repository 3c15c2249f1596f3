// SPDX-License-Identifier: GPL-2.0

//! `smctest charged`: memory that is charged to the sockets of a connection for its buffers.

mod cgroups;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Address;
use smc_user::Errno;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;

/// The smallest buffer, bytes.
const LEAST: u32 = 16 << 10;

/// Longest time until sent data must have left the send buffer.
const SOON: Duration = Duration::from_secs(10);

/// Messages in both directions while options are set.
const EXCHANGES: u32 = 8000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Look at what a sender leaves unread that closes
    #[arg(long)]
    left: bool,

    /// Look at the ring of a connection that is undone during a receive call
    #[arg(long)]
    undone: bool,

    /// Look at who is charged when a peer with a large receive buffer reads nothing
    #[arg(long)]
    greedy: bool,

    /// Look at which cgroup is charged: `maker` below this one makes the listener, `acceptor` accepts
    #[arg(long, value_name = "CGROUP")]
    cgroups: Option<PathBuf>,

    /// With these, look at what senders leave unread that close, for a receiver whose cgroup has reached its limit
    #[arg(long, requires = "cgroups")]
    beyond: bool,
}

/// Checks both ends of a connection within this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(root) = &arguments.cgroups {
        return match arguments.beyond {
            true => cgroups::leave_beyond(context, root),
            false => cgroups::accept_elsewhere(context, root),
        };
    }
    let listener = context.listen(1)?;
    netns::enter(context.client_netns.as_deref())?;
    if arguments.greedy {
        return greedy(context, &listener);
    }
    let client = context.connect()?;
    let server = listener.accept(0).context("accept")?;
    if arguments.left {
        return left_unread(client, &server);
    }
    if arguments.undone {
        return undone(client, &server);
    }

    for (end, socket) in [("client", &client), ("server", &server)] {
        let charged = Charged::of(socket)?;
        println!("# {end}: {charged:?}");
        ensure!(
            charged.receive >= LEAST,
            "the {end} has no receive buffer charged"
        );
        ensure!(
            charged.send == 0,
            "the {end} is charged before it has sent anything"
        );
    }
    let sent = fill(&client)?;
    let full = Charged::of(&client)?;
    println!("# client, with {sent} bytes on their way: {full:?}");
    ensure!(full.send >= LEAST, "the send buffer is not charged");
    drain(&server, sent)?;
    wait_until("the send buffer stays charged", || {
        Ok(Charged::of(&client)?.send == 0)
    })?;
    among_options(&client, &server)
}

/// The sender closes: what is not read is memory of the receiver's socket, until it is read.
fn left_unread(client: Socket, server: &Socket) -> Result<()> {
    let empty = Charged::of(server)?;
    let sent = fill(&client)?;
    let before = [Charged::of(&client)?, Charged::of(server)?];
    drop(client);
    let after = Charged::of(server)?;
    println!("# {sent} bytes, client and server before: {before:?}, server after: {after:?}");
    let both = before[0].send + before[1].receive;
    ensure!(before[0].send >= LEAST, "the sender is not charged");
    ensure!(both as usize >= sent, "both together are not charged");
    ensure!(
        after.receive as usize >= sent,
        "the receiver is not charged"
    );
    drain(server, sent)?;
    wait_until("the receiver stays charged", || {
        Ok(Charged::of(server)?.receive == empty.receive)
    })
}

/// connect(AF_UNSPEC) undoes a connection from which a thread receives just now, into a page that is not there: what
/// that call reads from stays charged until it is given back, which it is though the socket stays open.
fn undone(client: Socket, server: &Socket) -> Result<()> {
    let sent = fill(&client)?;
    drop(client);
    let page = Unserved::new()?;
    thread::scope(|scope| {
        let reader = scope.spawn(|| page.recv(server, 0));
        let is_wanted = page.is_wanted(SOON);
        let start = Instant::now();
        let result = server.connect(Address::unspecified());
        let took = start.elapsed();
        let meanwhile = Charged::of(server);
        // In any case, let the call return.
        page.serve()?;
        println!(
            "# {sent} bytes; connect: {result:?} after {took:.1?}; then {meanwhile:?}; recv: {:?}",
            reader.join()
        );
        ensure!(is_wanted?, "nobody waits for the page");
        result?;
        ensure!(took < SOON / 2, "connect waits for the page");
        ensure!(
            meanwhile?.receive >= LEAST,
            "a ring that is read from is not charged"
        );
        Ok(())
    })?;
    wait_until("the ring stays", || Ok(Charged::of(server)?.receive == 0))
}

/// A client with a large receive buffer reads nothing: the server is charged for what its own send buffer holds, at
/// most, and the client for the rest.
fn greedy(context: &Context, listener: &Socket) -> Result<()> {
    const RCVBUF: i32 = 4 << 20;
    let client = context.family.open(context.addr)?;
    client.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RCVBUF)?;
    client.connect(context.address())?;
    let server = listener.accept(0).context("accept")?;
    for _ in 0..3 {
        server.send(&[1; 8 << 10], 0)?;
    }
    let [here, there] = [Charged::of(&server)?, Charged::of(&client)?];
    let sndbuf = server.option_int(libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    println!("# 24 KiB unread: server with SO_SNDBUF {sndbuf} {here:?}, client {there:?}");
    ensure!(
        i64::from(here.send) <= i64::from(sndbuf),
        "the server is charged for the client's buffer"
    );
    ensure!(here.send + there.receive >= 24 << 10, "nobody is charged");
    Ok(())
}

/// Sends and receives while another thread sets options, for which it owns the socket: a buffer that is given back at
/// that time is uncharged later, and once.
fn among_options(client: &Socket, server: &Socket) -> Result<()> {
    let before = [Charged::of(client)?, Charged::of(server)?];
    for socket in [client, server] {
        socket.set_nonblocking(false)?;
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // ORDERING: only the flag itself is shared.
            while !over.load(Ordering::Relaxed) {
                let _ = client.set_option_int(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1);
            }
        });
        let result = (0..EXCHANGES).try_for_each(|_| {
            client.send(&[1; 2000], 0)?;
            drain(server, 2000)?;
            server.send(&[1], 0)?;
            drain(client, 1)
        });
        // ORDERING: as above.
        over.store(true, Ordering::Relaxed);
        result
    })?;
    let mut after = Vec::new();
    let result = wait_until("it is not as before", || {
        after = vec![Charged::of(client)?, Charged::of(server)?];
        Ok(after == before)
    });
    result.with_context(|| format!("charged before and after: {before:?}, {after:?}"))
}

/// Waits for [`SOON`] until something is so; otherwise the error is `not`.
fn wait_until(not: &'static str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while !is_so()? {
        ensure!(Instant::now() < deadline, not);
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Memory charged to a socket, bytes.
#[derive(Debug, PartialEq, Eq)]
struct Charged {
    receive: u32,
    send: u32,
}

impl Charged {
    /// Reads `SO_MEMINFO`.
    fn of(socket: &Socket) -> Result<Self> {
        let mut info = [0; 36];
        let len = socket.option(libc::SOL_SOCKET, libc::SO_MEMINFO, &mut info)?;
        let field = |number: usize| {
            let bytes = info[..len].chunks_exact(4).nth(number);
            let bytes = bytes.with_context(|| format!("SO_MEMINFO of {len} bytes"))?;
            Ok::<_, anyhow::Error>(u32::from_ne_bytes(bytes.try_into()?))
        };
        Ok(Self {
            // SK_MEMINFO_RMEM_ALLOC and SK_MEMINFO_WMEM_QUEUED of linux/sock_diag.h.
            receive: field(0)?,
            send: field(5)?,
        })
    }
}

/// Sends until the buffers are full; returns the number of bytes sent.
pub(crate) fn fill(socket: &Socket) -> Result<usize> {
    socket.set_nonblocking(true)?;
    let mut sent = 0;
    loop {
        match socket.send(&[1; 4096], 0) {
            Ok(len) => sent += len,
            Err(Errno(libc::EAGAIN)) => return Ok(sent),
            Err(error) => bail!("send: {error}"),
        }
    }
}

/// Reads `left` bytes.
pub(crate) fn drain(socket: &Socket, mut left: usize) -> Result<()> {
    let mut buffer = [0; 4096];
    while left > 0 {
        let part = left.min(buffer.len());
        let len = socket.read(&mut buffer[..part])?;
        ensure!(len > 0, "the end came early");
        left -= len;
    }
    Ok(())
}
