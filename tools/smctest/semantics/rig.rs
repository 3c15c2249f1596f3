// SPDX-License-Identifier: GPL-2.0

//! Sockets in the state that a row starts from.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

/// Longest time for something that has to happen.
pub(super) const SOON: Duration = Duration::from_secs(5);

/// Time in which something that must not happen would have happened.
pub(super) const WHILE: Duration = Duration::from_millis(150);

/// How often a value that has to change is read.
const STEP: Duration = Duration::from_millis(5);

/// The two ends' namespaces and addresses.
pub(crate) struct Rig<'a> {
    pub(super) context: &'a Context,
    /// How long threads race.
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

    /// The network namespace of the client, or else that of the server.
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

    /// A fresh socket at the client.
    pub(crate) fn open(&self) -> Result<Socket> {
        let socket = self.context.family.open(self.context.addr)?;
        socket.set_timeout(SOON)?;
        Ok(socket)
    }

    /// A fresh socket at the server.
    pub(super) fn open_server(&self) -> Result<Socket> {
        netns::inside(self.context.server_netns.as_deref(), || {
            let socket = self.context.server_family().open(self.context.addr)?;
            socket.set_timeout(SOON)?;
            Ok(socket)
        })
    }

    /// A listener at a port that the kernel chooses.
    pub(crate) fn listener(&self) -> Result<(Socket, SocketAddr)> {
        let listener = self.open_server()?;
        listener.bind(SocketAddr::new(self.context.addr, 0))?;
        listener.listen(16)?;
        let address = local(&listener)?;
        Ok((listener, address))
    }

    /// A connection.
    pub(crate) fn pair(&self) -> Result<Pair> {
        self.pair_with(|_| Ok(()))
    }

    /// A connection whose client was prepared before it connected.
    pub(super) fn pair_with(&self, prepare: impl FnOnce(&Socket) -> Result<()>) -> Result<Pair> {
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

    /// The way that an ordinary connection takes here.
    pub(crate) fn path(&self) -> Result<Path> {
        Ok(Path::of(&self.pair()?.client)?)
    }

    /// An address at which nobody listens.
    pub(crate) fn refusing(&self) -> Result<SocketAddr> {
        let (listener, address) = self.listener()?;
        drop(listener);
        // The listener's port is free once its release is complete.
        let probe = self.open()?;
        await_true("a free port", || probe.connect(address).is_err())?;
        Ok(address)
    }

    /// The unspecified address, to which a socket of either end can be bound.
    pub(super) fn any(&self) -> SocketAddr {
        let ip = match self.context.addr {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        SocketAddr::new(ip, 0)
    }

    /// An address of the same network with no machine behind it: a connection stays pending.
    pub(crate) fn silent(&self) -> SocketAddr {
        self.nearby(0x99, 99)
    }

    /// An address of the same network which nobody answers for.
    pub(crate) fn missing(&self) -> SocketAddr {
        self.nearby(0x98, 98)
    }

    /// An address to which no route leads: one set aside for documentation.
    pub(crate) fn unrouted(&self) -> SocketAddr {
        let ip = match self.context.addr {
            IpAddr::V4(_) => IpAddr::from([203, 0, 113, 1]),
            IpAddr::V6(_) => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, 1]),
        };
        SocketAddr::new(ip, 9)
    }

    /// An address of the same network, by its last part.
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
    /// Sends from the client and waits until the server can read.
    pub(super) fn deliver(&self, data: &[u8]) -> Result<()> {
        self.client.send(data, 0)?;
        self.await_queued(data.len())
    }

    /// Waits until `len` bytes wait at the server.
    pub(super) fn await_queued(&self, len: usize) -> Result<()> {
        await_true("data at the server", || {
            self.server.ioctl_int(FIONREAD) == Ok(i32::try_from(len).unwrap_or(-1))
        })
    }

    /// Waits until the server sees the client's end of stream.
    pub(super) fn await_end(&self) -> Result<()> {
        await_true("the end of the stream", || {
            events(&self.server) & libc::POLLRDHUP != 0
        })
    }
}

/// Bytes to read.
pub(crate) const FIONREAD: u64 = 0x541b;
/// Bytes that the peer has not acknowledged, or with SMC not read.
pub(super) const SIOCOUTQ: u64 = 0x5411;
/// Bytes not sent.
pub(super) const SIOCOUTQNSD: u64 = 0x894b;
/// Whether the urgent mark is next.
pub(crate) const SIOCATMARK: u64 = 0x8905;

/// The events there are now, of all kinds.
pub(crate) fn events(socket: &Socket) -> i16 {
    let all = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP;
    poll_fd(socket, all, Duration::ZERO).unwrap_or(-1)
}

/// Sends without blocking until nothing more is taken; returns how much was.
pub(super) fn fill(socket: &Socket) -> usize {
    let (buffer, mut total) = ([0x11; 4096], 0);
    // Acknowledgements still on their way may make room: full is what stays full.
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

/// Waits until one of `wanted` is there and returns all events then.
pub(super) fn await_events(socket: &Socket, wanted: i16) -> Result<i16> {
    await_true("an event", || events(socket) & wanted != 0)?;
    Ok(events(socket))
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

/// The local address as an IP address.
pub(super) fn local(socket: &Socket) -> Result<SocketAddr> {
    socket.local_address()?.to_ip().context("not an IP address")
}
