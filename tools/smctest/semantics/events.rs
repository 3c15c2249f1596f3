// SPDX-License-Identifier: GPL-2.0

//! `epoll`, level and edge triggered, also if set up before the connection was established.

use nix::sys::epoll::EpollFlags;

use crate::semantics::answer::answer;
use crate::semantics::rig::fill;
use crate::semantics::rig::WHILE;
use crate::semantics::Row;
use crate::watch::Watch;

const ALL: EpollFlags = EpollFlags::EPOLLIN
    .union(EpollFlags::EPOLLOUT)
    .union(EpollFlags::EPOLLRDHUP);

pub(super) const ROWS: &[Row] =
    &[
        Row::same(
            "level: data stays an event until read",
            "0x5 0x5 0x4",
            |rig| {
                let pair = rig.pair()?;
                let watch = Watch::new(&pair.server, ALL)?;
                pair.deliver(b"hello")?;
                let events = (watch.soon()?, watch.soon()?);
                pair.server.recv(&mut [0; 5], 0)?;
                answer![events.0, events.1, watch.soon()?]
            },
        ),
        Row::same("edge: data is one event", "true none", |rig| {
            let pair = rig.pair()?;
            let watch = Watch::new(&pair.server, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
            watch.settle()?;
            pair.deliver(b"hello")?;
            let first = watch.soon()? == "0x1";
            answer![first, watch.wait(WHILE)?]
        }),
        Row::same(
            "level and edge: fewer bytes than the low-water mark are none",
            "none none 0x4 3 0x5 0x5",
            |rig| {
                let pair = rig.pair()?;
                let server = &pair.server;
                server.set_option_int(libc::SOL_SOCKET, libc::SO_RCVLOWAT, 5)?;
                let level = Watch::new(server, EpollFlags::EPOLLIN)?;
                let edge = Watch::new(server, ALL | EpollFlags::EPOLLET)?;
                edge.settle()?;
                pair.deliver(b"abc")?;
                let few = (level.wait(WHILE)?, edge.wait(WHILE)?);
                let mask = crate::semantics::rig::events(server);
                let peeked = server.recv(&mut [0; 8], libc::MSG_PEEK | libc::MSG_DONTWAIT);
                pair.client.send(b"de", 0)?;
                let enough = edge.soon()?;
                let mask = (mask, crate::semantics::rig::events(server));
                answer![few.0, few.1, mask.0, peeked, enough, mask.1]
            },
        )
        .c_is_wrong("poll has no low-water mark"),
        Row::same("edge: more data is another event", "0x1 0x1", |rig| {
            let pair = rig.pair()?;
            let watch = Watch::new(&pair.server, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
            watch.settle()?;
            pair.deliver(b"hello")?;
            let first = watch.soon()?;
            pair.client.send(b"again", 0)?;
            answer![first, watch.soon()?]
        }),
        Row::same(
            "edge: room after a full buffer is an event",
            "none true",
            |rig| {
                let pair = rig.pair()?;
                let watch = Watch::new(&pair.client, EpollFlags::EPOLLOUT | EpollFlags::EPOLLET)?;
                pair.client.set_nonblocking(true)?;
                let mut len = 0;
                // Acknowledgements may arrive meanwhile: fill again until the buffer stays full.
                loop {
                    let more = fill(&pair.client);
                    watch.settle()?;
                    len += more;
                    if more == 0 {
                        break;
                    }
                }
                let full = watch.wait(WHILE)?;
                let mut buffer = vec![0; len];
                while len > 0 {
                    len -= pair.server.recv(&mut buffer, 0)?;
                }
                answer![full, watch.soon()? == "0x4"]
            },
        ),
        Row::same("edge: the peer's end is an event", "0x2001", |rig| {
            let pair = rig.pair()?;
            let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP | EpollFlags::EPOLLET;
            let watch = Watch::new(&pair.server, flags)?;
            watch.settle()?;
            pair.client.shutdown(libc::SHUT_WR)?;
            answer![watch.soon()?]
        }),
        Row::same(
            "set up before connect: writable afterwards",
            "true",
            |rig| {
                let (_listener, address) = rig.listener()?;
                let client = rig.open()?;
                client.set_nonblocking(true)?;
                let watch = Watch::new(&client, ALL | EpollFlags::EPOLLET)?;
                watch.settle()?;
                let _ = client.connect(address);
                answer![watch.soon()? == "0x4"]
            },
        ),
        Row::same("set up before connect: data afterwards", "true", |rig| {
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            client.set_nonblocking(true)?;
            let watch = Watch::new(&client, ALL | EpollFlags::EPOLLET)?;
            let _ = client.connect(address);
            let server = listener.accept(0)?;
            watch.settle()?;
            server.send(b"hello", 0)?;
            answer![watch.soon()? == "0x5"]
        }),
        Row::same("set up before a refusal: an error", "true", |rig| {
            let address = rig.refusing()?;
            let client = rig.open()?;
            client.set_nonblocking(true)?;
            let watch = Watch::new(&client, ALL | EpollFlags::EPOLLET)?;
            watch.settle()?;
            let _ = client.connect(address);
            let events = watch.soon()?;
            answer![u32::from_str_radix(events.trim_start_matches("0x"), 16)
                .is_ok_and(|e| e & 0x18 != 0)]
        }),
        Row::same("a listener: level and edge", "0x1 0x1 none", |rig| {
            let (listener, address) = rig.listener()?;
            let level = Watch::new(&listener, EpollFlags::EPOLLIN)?;
            let edge = Watch::new(&listener, EpollFlags::EPOLLIN | EpollFlags::EPOLLET)?;
            let client = rig.open()?;
            client.connect(address)?;
            let events = (level.soon()?, edge.soon()?);
            edge.settle()?;
            answer![events.0, events.1, edge.wait(WHILE)?]
        }),
        Row::same("an accepted socket: end of stream", "true", |rig| {
            let pair = rig.pair()?;
            let watch = Watch::new(&pair.server, EpollFlags::EPOLLIN | EpollFlags::EPOLLRDHUP)?;
            drop(pair.client);
            let events = watch.soon()?;
            answer![u32::from_str_radix(events.trim_start_matches("0x"), 16)
                .is_ok_and(|e| e & 0x2000 != 0)]
        }),
    ];
