// SPDX-License-Identifier: GPL-2.0

//! New sockets, and the arguments of socket(2).

use std::net::SocketAddr;

use smc_user::Address;
use smc_user::Socket;

use crate::family::Family;
use crate::semantics::answer::answer;
use crate::semantics::rig::events;
use crate::semantics::rig::local;
use crate::semantics::rig::FIONREAD;
use crate::semantics::rig::SIOCATMARK;
use crate::semantics::rig::SIOCOUTQ;
use crate::semantics::rig::SIOCOUTQNSD;
use crate::semantics::Row;

const SIOCGSTAMP: u64 = 0x8906;

/// An address family that no IP socket accepts.
const UNKNOWN_FAMILY: u16 = 99;

pub(super) const ROWS: &[Row] = &[
    Row::same("poll", "0x14", |rig| answer![events(&rig.open()?)]).c_differs("0x0"),
    Row::same("send", "EPIPE", |rig| {
        answer![rig.open()?.send(b"hello", 0)]
    })
    .c_differs("ENOTCONN"),
    Row::same("send of nothing", "EPIPE", |rig| {
        answer![rig.open()?.send(b"", 0)]
    })
    .c_differs("ENOTCONN"),
    Row::same("receive", "ENOTCONN", |rig| {
        answer![rig.open()?.recv(&mut [0; 5], 0)]
    }),
    Row::same("read of nothing", "0", |rig| {
        answer![rig.open()?.read(&mut [])]
    }),
    Row::same(
        "shutdown, then with an unknown direction",
        "ENOTCONN EINVAL",
        |rig| {
            let socket = rig.open()?;
            answer![socket.shutdown(libc::SHUT_WR), socket.shutdown(5)]
        },
    ),
    Row::same("peer's name", "ENOTCONN", |rig| {
        answer![rig.open()?.peer_address()]
    }),
    Row::same("own name is the unspecified address", "true 0", |rig| {
        let name = local(&rig.open()?)?;
        answer![name.ip().is_unspecified(), usize::from(name.port())]
    }),
    Row::same("queue lengths and urgent mark", "0 0 0 0", |rig| {
        let socket = rig.open()?;
        answer![
            socket.ioctl_int(FIONREAD),
            socket.ioctl_int(SIOCOUTQ),
            socket.ioctl_int(SIOCOUTQNSD),
            socket.ioctl_int(SIOCATMARK),
        ]
    }),
    Row::same("unknown ioctl", "ENOTTY", |rig| {
        answer![rig.open()?.ioctl_int(0x1234)]
    }),
    Row::same("time stamp ioctl", "ENOENT", |rig| {
        answer![rig.open()?.ioctl_int(SIOCGSTAMP)]
    })
    .c_differs("ENOTTY"),
    Row::same("map", "ok", |rig| answer![rig.open()?.map()]).c_differs("ENODEV"),
    Row::same("accept", "EINVAL", |rig| {
        answer![rig.open()?.accept(0).map(drop)]
    }),
    Row::same("pending error", "none", |rig| {
        answer![rig.open()?.take_error()]
    }),
    Row::same("a pair of sockets", "EOPNOTSUPP", |rig| {
        let (domain, kind, protocol) = rig.context.family.triple(rig.context.addr);
        answer![Socket::open_pair(domain, kind, protocol)]
    }),
    Row::same("domain, type and protocol read back", "true", |rig| {
        let socket = rig.open()?;
        let read = |name| socket.option_int(libc::SOL_SOCKET, name);
        let got = (
            read(libc::SO_DOMAIN)?,
            read(libc::SO_TYPE)?,
            read(libc::SO_PROTOCOL)?,
        );
        answer![got == rig.context.family.triple(rig.context.addr)]
    }),
    Row::same("other types and protocols are refused", "true", |rig| {
        let try_open = |kind, protocol| {
            let (domain, ..) = rig.context.family.triple(rig.context.addr);
            match Socket::open(domain, kind, protocol) {
                Ok(_) => "opened".to_string(),
                Err(error) => error.to_string(),
            }
        };
        let refused = match rig.context.family {
            Family::Smc => [
                (libc::SOCK_DGRAM, 0, "ESOCKTNOSUPPORT"),
                (libc::SOCK_STREAM, 2, "EPROTONOSUPPORT"),
                (libc::SOCK_STREAM, libc::IPPROTO_TCP, "EPROTONOSUPPORT"),
            ],
            Family::Ipproto => [(libc::SOCK_DGRAM, smc_uapi::IPPROTO_SMC, "EPROTONOSUPPORT"); 3],
            Family::Ulp | Family::Tcp | Family::Bare => {
                [(libc::SOCK_DGRAM, libc::IPPROTO_TCP, "EPROTONOSUPPORT"); 3]
            }
        };
        answer![refused
            .iter()
            .all(|(kind, protocol, error)| try_open(*kind, *protocol) == *error)]
    }),
    Row::same("bind with a short address", "EINVAL", |rig| {
        let address = Address::from(SocketAddr::new(rig.context.addr, 0));
        answer![rig.open_server()?.bind(address.cut(10))]
    }),
    Row::same("bind with an unknown family", "EAFNOSUPPORT", |rig| {
        let address = Address::from(SocketAddr::new(rig.context.addr, 0));
        answer![rig.open_server()?.bind(address.with_family(UNKNOWN_FAMILY))]
    }),
    Row::same(
        "bind with no family but an address",
        "EAFNOSUPPORT",
        |rig| {
            let address = Address::from(SocketAddr::new(rig.context.addr, 0));
            answer![rig.open_server()?.bind(address.with_family(0))]
        },
    ),
    Row::same("bind, then again", "ok EINVAL", |rig| {
        let socket = rig.open_server()?;
        let address = SocketAddr::new(rig.context.addr, 0);
        answer![socket.bind(address), socket.bind(address)]
    }),
    Row::same("bind to a port in use", "EADDRINUSE", |rig| {
        let (_listener, address) = rig.listener()?;
        answer![rig.open_server()?.bind(address)]
    }),
    Row::same("close of a bound socket frees the port", "ok", |rig| {
        let socket = rig.open_server()?;
        socket.bind(SocketAddr::new(rig.context.addr, 0))?;
        let address = local(&socket)?;
        drop(socket);
        answer![rig.open_server()?.bind(address)]
    }),
];
