// SPDX-License-Identifier: GPL-2.0

//! Lists AF_SMC sockets with `sock_diag` (`include/uapi/linux/smc_diag.h`).

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;

use libc::NETLINK_SOCK_DIAG;
use serde::Serialize;
use serde::Serializer;
use smc_uapi::DiagCause;
use smc_uapi::AF_SMC;
use smc_uapi::SMC_DIAG_CAUSE;
use smc_uapi::SMC_DIAG_CONNINFO;
use smc_uapi::SMC_DIAG_DMBINFO;
use smc_uapi::SMC_DIAG_FALLBACK;
use smc_uapi::SMC_DIAG_LGRINFO;
use smc_uapi::SMC_DIAG_MODE_SMCD;
use smc_uapi::SMC_DIAG_MODE_SMCR;
use smc_uapi::SMC_DIAG_SHUTDOWN;
use zerocopy::FromBytes as _;

use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::text;
use crate::netlink::Netlink;

/// The only request type of `sock_diag`.
pub const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// Length of `struct smc_diag_req`, bytes.
pub const REQUEST_LEN: usize = 52;

/// Length of `struct smc_diag_msg`, bytes.
pub const MESSAGE_LEN: usize = 64;

/// Requests the attributes of the connection, its link or its shared memory, and the cause of a
/// fallback: bits (number - 1).
const EXTENSIONS: u8 = 1 << (SMC_DIAG_CONNINFO - 1)
    | 1 << (SMC_DIAG_LGRINFO - 1)
    | 1 << (SMC_DIAG_DMBINFO - 1)
    | 1 << (SMC_DIAG_CAUSE - 1);

/// The transport of a socket's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// RDMA; also the value for a socket that is not connected.
    SmcR,
    /// Fell back to TCP.
    Tcp,
    /// Internal shared memory.
    SmcD,
}

/// The state of an SMC socket, as in `sock_diag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State(pub u8);

impl State {
    /// Connected.
    pub const ACTIVE: Self = Self(1);
    /// Not connected yet.
    pub const INIT: Self = Self(2);
    /// Listening.
    pub const LISTEN: Self = Self(10);

    fn name(self) -> &'static str {
        match self.0 {
            1 => "ACTIVE",
            2 => "INIT",
            7 => "CLOSED",
            10 => "LISTEN",
            20 => "PEERCLOSEWAIT1",
            21 => "PEERCLOSEWAIT2",
            22 => "APPCLOSEWAIT1",
            23 => "APPCLOSEWAIT2",
            24 => "APPFINCLOSEWAIT",
            25 => "PEERFINCLOSEWAIT",
            26 => "PEERABORTWAIT",
            27 => "PROCESSABORT",
            _ => "UNKNOWN",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One socket of the list.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The socket's state.
    pub state: State,
    /// The transport of its data.
    pub mode: Mode,
    /// Local address.
    pub local: SocketAddr,
    /// Peer's address.
    pub peer: SocketAddr,
    /// User id of the owner.
    pub uid: u32,
    /// Inode number of the socket's file.
    pub inode: u64,
    /// Why it fell back to TCP: the reason on this side.
    pub reason: u32,
    /// The reason in the peer's DECLINE.
    pub peer_diagnosis: u32,
    /// What exactly was missing here; 0 if unknown, as always with the C module.
    pub cause: u32,
    /// The role, as [`crate::path::Fallback::end`].
    pub end: u32,
    /// The interface that it is bound to; 0 for none.
    pub interface: u32,
    /// Directions that were shut down: bit 0 receiving, bit 1 sending.
    pub shutdown: u8,
    /// The buffers and cursors of a connection over SMC.
    pub conn: Option<Conn>,
    /// The link of a connection over RDMA.
    pub link: Option<Link>,
    /// The shared memory of a connection over SMC-D.
    pub dmb: Option<Dmb>,
}

/// The buffers and cursors of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Conn {
    /// The alert token that the peer sends in CDC messages.
    pub token: u32,
    /// Size of the send buffer, bytes.
    pub send_bytes: u32,
    /// Size of the RMBE, bytes.
    pub receive_bytes: u32,
    /// Size of the peer's RMBE, bytes.
    pub peer_bytes: u32,
    /// Cursors (wrap count and offset): peer's producer, peer's consumer, own producer, own
    /// consumer; in the send buffer: prepared, sent, and completed.
    pub cursors: [(u16, u32); 7],
    /// Producer and state flags, received and sent.
    pub flags: [u8; 4],
}

/// The link of a connection.
#[derive(Clone, Debug, Serialize)]
pub struct Link {
    /// Its id in the link group.
    pub id: u8,
    /// The RDMA device.
    pub device: String,
    /// The port number.
    pub port: u8,
    /// The GID of the port.
    pub gid: String,
    /// The peer's GID.
    pub peer_gid: String,
    /// Whether this side is the server.
    pub is_server: bool,
}

/// The shared memory of a connection over SMC-D.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Dmb {
    /// The link group.
    pub group: u32,
    /// The GID of this end's device: its first eight bytes and, for an emulated device, eight more.
    #[serde(serialize_with = "hex_pair")]
    pub gid: [u64; 2],
    /// The token of this end, unique on its device.
    #[serde(serialize_with = "hex")]
    pub token: u64,
    /// The GID of the peer's device. Both ends are on one kernel if it is the same.
    #[serde(serialize_with = "hex_pair")]
    pub peer_gid: [u64; 2],
    /// The token of the peer's end.
    #[serde(serialize_with = "hex")]
    pub peer_token: u64,
}

/// Serialises as hexadecimal digits: not all JSON parsers keep 64 bits of a number.
fn hex<S: Serializer>(number: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(&format_args!("{number:016x}"))
}

fn hex_pair<S: Serializer>(pair: &[u64; 2], to: S) -> Result<S::Ok, S::Error> {
    let [first, second] = pair;
    to.collect_str(&format_args!("{first:016x}{second:016x}"))
}

impl Dmb {
    fn of(bytes: &[u8]) -> Option<Self> {
        let number = |at| get(bytes, at);
        // Kernels before 6.8 know the first halves of GIDs only.
        let extension = |at| number(at).unwrap_or(0);
        Some(Self {
            group: get(bytes, 0)?,
            gid: [number(16)?, extension(48)],
            token: number(24)?,
            peer_gid: [number(8)?, extension(40)],
            peer_token: number(32)?,
        })
    }
}

impl Conn {
    fn of(bytes: &[u8]) -> Option<Self> {
        let word = |at| get(bytes, at);
        let cursor = |at: usize| Some((get(bytes, at + 2)?, get(bytes, at + 4)?));
        let mut cursors = [(0, 0); 7];
        for (cursor_at, place) in [16, 24, 32, 40, 52, 60, 68].into_iter().zip(&mut cursors) {
            *place = cursor(cursor_at)?;
        }
        Some(Self {
            token: word(0)?,
            send_bytes: word(4)?,
            receive_bytes: word(8)?,
            peer_bytes: word(12)?,
            cursors,
            flags: get(bytes, 48)?,
        })
    }
}

impl Link {
    fn of(bytes: &[u8]) -> Option<Self> {
        Some(Self {
            id: *bytes.first()?,
            device: text(bytes.get(1..65)?),
            port: *bytes.get(65)?,
            gid: text(bytes.get(66..106)?),
            peer_gid: text(bytes.get(106..146)?),
            is_server: *bytes.get(146)? == 1,
        })
    }
}

/// Lists the AF_SMC sockets of the caller's network namespace.
///
/// ENOENT if no module has registered for the family.
pub fn sockets() -> io::Result<Vec<Entry>> {
    let mut request = [0; REQUEST_LEN];
    // CAST: The number is small.
    request[0] = AF_SMC as u8;
    request[3] = EXTENSIONS;

    let replies = Netlink::open(NETLINK_SOCK_DIAG)?.dump(SOCK_DIAG_BY_FAMILY, &request)?;
    Ok(replies
        .iter()
        .filter_map(|reply| parse(&reply.payload))
        .collect())
}

fn parse(bytes: &[u8]) -> Option<Entry> {
    let attributes = bytes.get(MESSAGE_LEN..)?;
    let fallback = attribute(attributes, SMC_DIAG_FALLBACK).unwrap_or_default();
    let cause = attribute(attributes, SMC_DIAG_CAUSE);
    let cause = cause.and_then(|value| DiagCause::read_from_bytes(value).ok());
    let cause = cause.unwrap_or_default();
    let shutdown = attribute(attributes, SMC_DIAG_SHUTDOWN).and_then(|value| value.first());

    Some(Entry {
        state: State(*bytes.get(1)?),
        mode: match *bytes.get(2)? {
            SMC_DIAG_MODE_SMCR => Mode::SmcR,
            SMC_DIAG_MODE_SMCD => Mode::SmcD,
            _ => Mode::Tcp,
        },
        local: address(bytes, 4, 8)?,
        peer: address(bytes, 6, 24)?,
        uid: get(bytes, 52)?,
        inode: get(bytes, 56)?,
        reason: get(fallback, 0).unwrap_or(0),
        peer_diagnosis: get(fallback, 4).unwrap_or(0),
        cause: cause.cause,
        end: cause.role,
        interface: get(bytes, 40)?,
        shutdown: shutdown.copied().unwrap_or(0),
        conn: attribute(attributes, SMC_DIAG_CONNINFO).and_then(Conn::of),
        link: attribute(attributes, SMC_DIAG_LGRINFO).and_then(Link::of),
        dmb: attribute(attributes, SMC_DIAG_DMBINFO).and_then(Dmb::of),
    })
}

/// Returns whether the addresses are of IPv4: by the family at the beginning, or, as that of an AF_SMC socket says
/// nothing, because there are zeros behind both.
fn is_ipv4(bytes: &[u8]) -> Option<bool> {
    Some(match i32::from(*bytes.first()?) {
        libc::AF_INET => true,
        libc::AF_INET6 => false,
        _ => {
            let mut behind = bytes.get(12..24)?.iter().chain(bytes.get(28..40)?);
            behind.all(|byte| *byte == 0)
        }
    })
}

/// Reads a port at `port_at` and an address at `ip_at`.
fn address(bytes: &[u8], port_at: usize, ip_at: usize) -> Option<SocketAddr> {
    let ip = match is_ipv4(bytes)? {
        true => IpAddr::from(get::<[u8; 4]>(bytes, ip_at)?),
        false => IpAddr::from(get::<[u8; 16]>(bytes, ip_at)?),
    };
    Some(SocketAddr::new(ip, u16::from_be(get(bytes, port_at)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;

    /// `struct smcd_diag_dmbinfo`.
    fn dmbinfo() -> Vec<u8> {
        let group = [0x100u32.to_ne_bytes(), [0; 4]].concat();
        let numbers = (0xa1..=0xa6u64).flat_map(u64::to_ne_bytes);
        group.into_iter().chain(numbers).collect()
    }

    #[test]
    fn each_number_of_shared_memory_has_its_place() {
        let dmb = Dmb::of(&dmbinfo()).unwrap();
        let expected = Dmb {
            group: 0x100,
            peer_gid: [0xa1, 0xa5],
            gid: [0xa2, 0xa6],
            token: 0xa3,
            peer_token: 0xa4,
        };
        assert_eq!(dmb, expected);
        let older = Dmb::of(&dmbinfo()[..40]).unwrap();
        assert_eq!((older.gid, older.peer_gid), ([0xa2, 0], [0xa1, 0]));
        assert_eq!(Dmb::of(&dmbinfo()[..32]), None);
    }

    #[test]
    fn all_digits_of_a_number_are_in_json() {
        let json = serde_json::to_value(Dmb::of(&dmbinfo()).unwrap()).unwrap();
        assert_eq!(json["token"], "00000000000000a3");
        assert_eq!(json["peer_gid"], "00000000000000a100000000000000a5");
    }

    #[test]
    fn an_address_is_of_the_family_of_its_socket() {
        let mut message = vec![0; MESSAGE_LEN];
        message[4..6].copy_from_slice(&7000u16.to_be_bytes());
        for (family, any) in [
            (libc::AF_INET, "0.0.0.0:7000"),
            (libc::AF_INET6, "[::]:7000"),
        ] {
            message[0] = u8::try_from(family).unwrap();
            assert_eq!(parse(&message).unwrap().local.to_string(), any);
        }
    }

    #[test]
    fn the_address_of_an_af_smc_socket_is_of_the_family_that_it_looks_like() {
        let shown = |local: IpAddr, peer: IpAddr| {
            let mut message = vec![0; MESSAGE_LEN];
            message[0] = 43;
            for (at, ip) in [(8, local), (24, peer)] {
                match ip {
                    IpAddr::V4(ip) => message[at..at + 4].copy_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => message[at..at + 16].copy_from_slice(&ip.octets()),
                }
            }
            let entry = parse(&message).unwrap();
            (entry.local.ip(), entry.peer.ip())
        };
        for (local, peer) in [
            ("10.9.0.1", "10.9.0.2"),
            ("10.9.0.1", "0.0.0.0"),
            ("fd00:9::2", "fd00:9::1"),
            ("fd00:9::2", "::"),
            ("::ffff:10.9.0.1", "::ffff:10.9.0.2"),
        ] {
            let (local, peer) = (local.parse().unwrap(), peer.parse().unwrap());
            assert_eq!(shown(local, peer), (local, peer));
        }
    }

    #[test]
    fn a_message_may_have_shared_memory() {
        let mut message = vec![0; MESSAGE_LEN];
        message[2] = SMC_DIAG_MODE_SMCD;
        assert_eq!(parse(&message).unwrap().dmb, None);
        put_attribute(&mut message, SMC_DIAG_DMBINFO, &dmbinfo());
        let entry = parse(&message).unwrap();
        assert_eq!(entry.mode, Mode::SmcD);
        assert_eq!(entry.dmb, Dmb::of(&dmbinfo()));
    }
}
