// SPDX-License-Identifier: GPL-2.0

//! `smctest reset`: the underlying TCP connection is reset during a transfer.
//!
//! The kernel has no call to reset only the TCP connection of an SMC socket. Therefore the test
//! sends a forged RST from the other side's address (RFC 7609 section 4.8.2: it ends the
//! connection).

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::ptr;
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
use crate::ktap::Ktap;
use crate::netns;

/// Time for the last acknowledgement of the handshake to arrive.
const QUIET: Duration = Duration::from_millis(500);

/// Longest time until an application must detect the reset.
const NOTICE: Duration = Duration::from_secs(20);

/// The receiver of the RST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Client,
    Server,
}

/// Resets connections at either side while data flow; prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    let mut ktap = Ktap::start(2);
    for victim in [Victim::Client, Victim::Server] {
        let result = reset(context, victim).map_err(|error| format!("{error:#}"));
        ktap.result(
            format!("a reset of TCP at the {victim:?} ends both sides"),
            result,
        );
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn reset(context: &Context, victim: Victim) -> Result<()> {
    let raw = |name: &Option<String>, protocol: i32| {
        netns::inside(name.as_deref(), || {
            Socket::open(libc::AF_INET, libc::SOCK_RAW, protocol).context("raw socket")
        })
    };
    // The segments that arrive at the server contain the sequence numbers that either side expects
    // next.
    let ears = raw(&context.server_netns, libc::IPPROTO_TCP)?;
    let mouth = match victim {
        Victim::Client => raw(&context.server_netns, libc::IPPROTO_RAW)?,
        Victim::Server => raw(&context.client_netns, libc::IPPROTO_RAW)?,
    };
    let listener = context.listen(1)?;
    let client = netns::inside(context.client_netns.as_deref(), || context.connect())?;
    let server = listener.accept(0).context("accept")?;
    for socket in [&client, &server] {
        socket.set_timeout(NOTICE)?;
    }

    // During a transfer: more data is in flight than was read.
    server.set_nonblocking(true)?;
    while server.send(&[0x11; 1 << 14], 0).is_ok() {}
    server.set_nonblocking(false)?;
    ensure!(client.recv(&mut [0; 1000], 0)? == 1000, "a short read");

    let waiting = usize::try_from(client.ioctl_int(libc::FIONREAD)?)?;
    ensure!(waiting > 0, "nothing waits for the reader");
    let seen = last_segment(&ears, context.port)?;
    let (packet, to) = seen.reset(victim);
    mouth.send_to(&packet, 0, to).context("sending the reset")?;

    let (hit, other) = match victim {
        Victim::Client => (&client, &server),
        Victim::Server => (&server, &client),
    };
    // Data that has arrived is read first.
    let least = |socket| if ptr::eq(socket, &client) { waiting } else { 0 };
    ends_with(hit, least(hit), &[Errno::ECONNRESET]).context("the side that was reset")?;
    let errors = [Errno::ECONNRESET, Errno::ECONNABORTED];
    ends_with(other, least(other), &errors).context("the other side")?;
    match hit.send(&[0], 0) {
        Err(Errno::EPIPE | Errno::ECONNRESET) => Ok(()),
        other => bail!("send after the reset: {other:?}"),
    }
}

/// Reads the remaining data, at least `least` bytes, up to one of `errors`. An end of the stream is
/// a failure.
fn ends_with(socket: &Socket, least: usize, errors: &[Errno]) -> Result<()> {
    let mut read = 0;
    let started = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    while started.elapsed() < NOTICE {
        match socket.recv(&mut buffer, 0) {
            Ok(0) => bail!("end of the stream, as if all were there"),
            Ok(len) => read += len,
            Err(error) if errors.contains(&error) => {
                ensure!(read >= least, "{error} after {read} of {least} bytes");
                return Ok(());
            }
            Err(error) => bail!("receive: {error}"),
        }
    }
    bail!("still receiving after {} s", NOTICE.as_secs())
}

/// The addresses and sequence numbers of a segment from the client.
struct Seen {
    from: (Ipv4Addr, u16),
    to: (Ipv4Addr, u16),
    /// Next sequence number that the client sends.
    next: u32,
    /// Next sequence number that the client expects.
    wanted: u32,
}

/// Returns the last segment to `port` before the traffic pauses for [`QUIET`].
fn last_segment(ears: &Socket, port: u16) -> Result<Seen> {
    let mut last = None;
    let mut packet = [0; 1 << 11];
    while poll_fd(ears, libc::POLLIN, QUIET)? != 0 {
        let len = ears.recv(&mut packet, 0)?;
        if let Some(seen) = Seen::parse(&packet[..len]) {
            if seen.to.1 == port {
                last = Some(seen);
            }
        }
    }
    last.context("no segment was seen")
}

impl Seen {
    /// Parses an IPv4 packet with a TCP segment.
    fn parse(packet: &[u8]) -> Option<Self> {
        let head = usize::from(packet.first()? & 0xf) * 4;
        let ip = |at: usize| {
            Some(Ipv4Addr::from(
                <[u8; 4]>::try_from(packet.get(at..at + 4)?).ok()?,
            ))
        };
        let total = usize::from(u16::from_be_bytes(packet.get(2..4)?.try_into().ok()?));
        let tcp = packet.get(head..total)?;
        let short = |at: usize| Some(u16::from_be_bytes(tcp.get(at..at + 2)?.try_into().ok()?));
        let long = |at: usize| Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?));
        let data = tcp.len().checked_sub(usize::from(tcp.get(12)? >> 4) * 4)?;
        Some(Self {
            from: (ip(12)?, short(0)?),
            to: (ip(16)?, short(2)?),
            next: long(4)?.wrapping_add(u32::try_from(data).ok()?),
            wanted: long(8)?,
        })
    }

    /// Returns an IPv4 packet with an RST whose sequence number `victim` accepts, and its
    /// destination.
    fn reset(&self, victim: Victim) -> (Vec<u8>, SocketAddr) {
        let (from, to, seq) = match victim {
            Victim::Client => (self.to, self.from, self.wanted),
            Victim::Server => (self.from, self.to, self.next),
        };
        let mut tcp = Vec::new();
        tcp.extend(from.1.to_be_bytes());
        tcp.extend(to.1.to_be_bytes());
        tcp.extend(seq.to_be_bytes());
        tcp.extend([0; 4]);
        // Header of five words, RST, window 0; the checksum follows.
        tcp.extend([0x50, 0x04, 0, 0, 0, 0, 0, 0]);
        let mut pseudo = Vec::new();
        pseudo.extend(from.0.octets());
        pseudo.extend(to.0.octets());
        pseudo.extend([0, 6, 0, 20]);
        pseudo.extend(&tcp);
        tcp[16..18].copy_from_slice(&checksum(&pseudo).to_be_bytes());

        // The kernel fills in length, identification and checksum.
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
        packet.extend(from.0.octets());
        packet.extend(to.0.octets());
        packet.extend(tcp);
        (packet, SocketAddr::new(IpAddr::V4(to.0), 0))
    }
}

/// The Internet checksum (RFC 1071) of an even number of bytes.
fn checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks_exact(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: at most 16 bits are left.
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_has_the_number_that_its_victim_expects() {
        let seen = Seen {
            from: (Ipv4Addr::new(10, 0, 0, 1), 4000),
            to: (Ipv4Addr::new(10, 0, 0, 2), 7000),
            next: 11,
            wanted: 22,
        };
        for (victim, ports, seq) in [
            (Victim::Client, (7000, 4000), 22),
            (Victim::Server, (4000, 7000), 11),
        ] {
            let (mut packet, to) = seen.reset(victim);
            let len = u16::try_from(packet.len()).unwrap();
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            let made = Seen::parse(&packet).unwrap();
            assert_eq!((made.from.1, made.to.1), ports);
            assert_eq!(made.next, seq);
            assert_eq!(to.ip(), IpAddr::V4(made.to.0));
        }
    }

    #[test]
    fn a_checksum_makes_the_sum_all_ones() {
        let mut bytes = [0x45, 0, 0x12, 0x34, 0xff, 0xff, 0, 0];
        let sum = checksum(&bytes);
        bytes[6..].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(checksum(&bytes), 0);
    }
}
