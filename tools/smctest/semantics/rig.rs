// SPDX-License-Identifier: GPL-2.0

//! Creates sockets in the initial states of the rows.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread::Scope;
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use std::time::Instant;

use anyhow::anyhow;
use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use nix::unistd::gettid;
use nix::unistd::Pid;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

/// Longest time for an expected event.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Time to wait for an event that must not occur.
pub(super) const WHILE: Duration = Duration::from_millis(150);

/// Polling interval.
const STEP: Duration = Duration::from_millis(5);

/// The namespaces and addresses of both ends.
pub(crate) struct Rig<'a> {
    pub(crate) context: &'a Context,
    /// Duration of race tests.
    pub(super) race: Duration,
}

/// Both ends of one connection, and the listener that it came from.
pub(crate) struct Pair {
    pub(crate) client: Socket,
    pub(crate) server: Socket,
    pub(crate) listener: Socket,
    pub(crate) address: SocketAddr,
}

impl<'a> Rig<'a> {
    /// Moves the calling thread into the client's namespace.
    pub(crate) fn new(context: &'a Context, race: Duration) -> Result<Self> {
        netns::enter(context.client_netns.as_deref())?;
        Ok(Self { context, race })
    }

    /// Returns the network namespace of the client or of the server.
    pub(crate) fn netns(&self, is_client: bool) -> Option<&str> {
        let Context {
            client_netns,
            server_netns,
            ..
        } = self.context;
        match is_client {
            true => client_netns.as_deref(),
            false => server_netns.as_deref(),
        }
    }

    /// Opens a socket at the client.
    pub(crate) fn open(&self) -> Result<Socket> {
        let socket = self.context.family.open(self.context.addr)?;
        socket.set_timeout(SOON)?;
        Ok(socket)
    }

    /// Opens a socket at the server.
    pub(crate) fn open_server(&self) -> Result<Socket> {
        netns::inside(self.context.server_netns.as_deref(), || {
            let socket = self.context.server_family().open(self.context.addr)?;
            socket.set_timeout(SOON)?;
            Ok(socket)
        })
    }

    /// Opens a listener at a port that the kernel chooses.
    pub(crate) fn listener(&self) -> Result<(Socket, SocketAddr)> {
        let listener = self.open_server()?;
        listener.bind(SocketAddr::new(self.context.addr, 0))?;
        listener.listen(16)?;
        let address = local(&listener)?;
        Ok((listener, address))
    }

    /// Opens nonblocking listeners that share a port (SO_REUSEPORT).
    pub(crate) fn sharing<const N: usize>(&self) -> Result<([Socket; N], SocketAddr)> {
        let mut address = SocketAddr::new(self.context.addr, 0);
        let mut listeners = Vec::new();
        for _ in 0..N {
            let listener = self.open_server()?;
            listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)?;
            listener.bind(address)?;
            listener.listen(64)?;
            listener.set_nonblocking(true)?;
            address = local(&listener)?;
            listeners.push(listener);
        }
        let listeners = listeners.try_into();
        Ok((listeners.map_err(|_| anyhow!("too few"))?, address))
    }

    /// Connects `clients` times to listeners that share a port; returns how many of the connections each got.
    pub(crate) fn shares(
        &self,
        listeners: &[Socket],
        address: SocketAddr,
        clients: usize,
    ) -> Result<Vec<usize>> {
        let mut open = Vec::new();
        for _ in 0..clients {
            let client = self.open()?;
            client.connect(address)?;
            open.push(client);
        }
        let mut got = vec![0; listeners.len()];
        await_true("all connections", || {
            for (listener, got) in listeners.iter().zip(&mut got) {
                *got += usize::from(listener.accept(0).is_ok());
            }
            got.iter().sum::<usize>() == clients
        })?;
        Ok(got)
    }

    /// Opens a connection.
    pub(crate) fn pair(&self) -> Result<Pair> {
        self.pair_with(|_| Ok(()))
    }

    /// Opens a connection; calls `prepare` for the client before connect(2).
    pub(crate) fn pair_with(&self, prepare: impl FnOnce(&Socket) -> Result<()>) -> Result<Pair> {
        let (listener, address) = self.listener()?;
        let client = self.open()?;
        prepare(&client)?;
        client.connect(address).context("connect")?;
        let server = listener.accept(0).context("accept")?;
        server.set_timeout(SOON)?;
        Ok(Pair {
            client,
            server,
            listener,
            address,
        })
    }

    /// Returns the path that connections use here.
    pub(crate) fn path(&self) -> Result<Path> {
        Ok(Path::of(&self.pair()?.client)?)
    }

    /// Returns an address without a listener.
    pub(crate) fn refusing(&self) -> Result<SocketAddr> {
        let (listener, address) = self.listener()?;
        drop(listener);
        // The port is free once the release of the listener is complete.
        let probe = self.open()?;
        await_true("a free port", || probe.connect(address).is_err())?;
        Ok(address)
    }

    /// Returns the unspecified address, to which a socket of either end can be bound.
    pub(crate) fn any(&self) -> SocketAddr {
        let ip = match self.context.addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, 0)
    }

    /// Returns an address of the same network that does not answer SYNs: a connection stays
    /// pending.
    pub(crate) fn silent(&self) -> SocketAddr {
        self.nearby(0x99, 99)
    }

    /// Returns an address of the same network that answers neither ARP nor neighbour discovery.
    pub(crate) fn missing(&self) -> SocketAddr {
        self.nearby(0x98, 98)
    }

    /// Returns an address without a route, from a documentation prefix.
    pub(crate) fn unrouted(&self) -> SocketAddr {
        let ip = match self.context.addr {
            IpAddr::V4(_) => IpAddr::from([203, 0, 113, 1]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        };
        SocketAddr::new(ip, 9)
    }

    /// Returns an address of the same network with this last part.
    fn nearby(&self, last_v6: u16, last_v4: u8) -> SocketAddr {
        let ip = match self.context.addr {
            IpAddr::V4(ip) => {
                let [a, b, c, _] = ip.octets();
                IpAddr::from([a, b, c, last_v4])
            }
            IpAddr::V6(ip) => {
                let mut segments = ip.segments();
                segments[7] = last_v6;
                IpAddr::from(segments)
            }
        };
        SocketAddr::new(ip, 9)
    }
}

impl Pair {
    /// Sends from the client, and waits until the server can read the data.
    pub(crate) fn deliver(&self, data: &[u8]) -> Result<()> {
        self.client.send(data, 0)?;
        self.await_queued(data.len())
    }

    /// Waits until `len` bytes are in the server's receive queue.
    pub(crate) fn await_queued(&self, len: usize) -> Result<()> {
        await_queued(&self.server, len)
    }

    /// Waits until the server sees the end of the stream.
    pub(super) fn await_end(&self) -> Result<()> {
        await_true("the end of the stream", || {
            events(&self.server) & libc::POLLRDHUP != 0
        })
    }
}

/// Number of bytes that can be read.
pub(crate) const FIONREAD: u64 = 0x541b;
/// Number of bytes that the peer has not acknowledged, or, with SMC, not read.
pub(super) const SIOCOUTQ: u64 = 0x5411;
/// Number of bytes not sent.
pub(super) const SIOCOUTQNSD: u64 = 0x894b;
/// Whether the read position is at the urgent mark.
pub(crate) const SIOCATMARK: u64 = 0x8905;

/// Returns the current poll events.
pub(crate) fn events(socket: &Socket) -> i16 {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
    poll_fd(socket, all, Duration::ZERO).unwrap_or(-1)
}

/// Sends without blocking until the buffers are full; returns the number of bytes.
pub(crate) fn fill(socket: &Socket) -> usize {
    let (buffer, mut total) = ([0x11; 4096], 0);
    // Acknowledgements in flight may free space: try again after a while.
    loop {
        match socket.send(&buffer, libc::MSG_DONTWAIT) {
            Ok(len) => total += len,
            Err(_) => {
                std::thread::sleep(WHILE);
                match socket.send(&buffer, libc::MSG_DONTWAIT) {
                    Ok(len) => total += len,
                    Err(_) => return total,
                }
            }
        }
    }
}

/// Waits until one of the events `wanted` occurs; returns all current events.
pub(super) fn await_events(socket: &Socket, wanted: i16) -> Result<i16> {
    await_true("an event", || events(socket) & wanted != 0)?;
    Ok(events(socket))
}

/// Waits until `len` bytes are in the socket's receive queue.
pub(crate) fn await_queued(socket: &Socket, len: usize) -> Result<()> {
    await_true("data in the receive queue", || {
        socket.ioctl_int(FIONREAD) == Ok(i32::try_from(len).unwrap_or(-1))
    })
}

/// Returns the TCP state as TCP_INFO has it: the first byte of `struct tcp_info`.
pub(crate) fn tcp_state(socket: &Socket) -> Result<i32> {
    let mut state = [0];
    socket.option(libc::IPPROTO_TCP, libc::TCP_INFO, &mut state)?;
    Ok(state[0].into())
}

/// Waits until `condition` holds.
pub(crate) fn await_true(what: &str, mut condition: impl FnMut() -> bool) -> Result<()> {
    let start = Instant::now();
    while start.elapsed() < SOON {
        if condition() {
            return Ok(());
        }
        std::thread::sleep(STEP);
    }
    bail!("waited {} s for {what}", SOON.as_secs())
}

/// Starts a thread for `call`, and waits until that is blocked, or has ended.
pub(crate) fn blocked<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    call: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>> {
    let (tell, told) = mpsc::channel();
    let thread = scope.spawn(move || {
        let _ = tell.send(gettid());
        call()
    });
    let id = told.recv()?;
    await_true("a blocked call", || is_blocked(id) || thread.is_finished())?;
    Ok(thread)
}

/// Returns whether a thread of this process sleeps in a system call, but for futex(2), by which threads wait for each
/// other.
pub(crate) fn is_blocked(thread: Pid) -> bool {
    let read = |file| {
        let text = fs::read_to_string(format!("/proc/self/task/{thread}/{file}"));
        text.unwrap_or_default()
    };
    let (stat, call) = (read("stat"), read("syscall"));
    // After the thread's name. A task that runs, or waits elsewhere, has "running" or -1 for a system call.
    let sleeps = stat
        .rsplit(") ")
        .next()
        .is_some_and(|rest| rest.starts_with('S'));
    let number: Option<libc::c_long> = call.split(' ').next().and_then(|word| word.parse().ok());
    sleeps && number.is_some_and(|number| number >= 0 && number != libc::SYS_futex)
}

/// Returns the local address as an IP address.
pub(super) fn local(socket: &Socket) -> Result<SocketAddr> {
    socket.local_address()?.to_ip().context("not an IP address")
}
