// SPDX-License-Identifier: GPL-2.0

//! SOL_SOCKET: socket(7), and `asm-generic/socket.h`.

super::of_level!(libc::SOL_SOCKET);

/// A `struct timeval` or `struct timespec`.
const fn time(seconds: i64, rest: i64) -> [u8; 16] {
    let [a, b, c, d, e, f, g, h] = seconds.to_ne_bytes();
    let [i, j, k, l, m, n, o, p] = rest.to_ne_bytes();
    [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
}

/// Two numbers, as in `struct linger`.
const fn two(first: i32, second: i32) -> [u8; 8] {
    let [a, b, c, d] = first.to_ne_bytes();
    let [e, f, g, h] = second.to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

const TIMES: &[&[u8]] = &[
    &time(0, 0),
    &time(5, 0),
    &time(-1, 0),
    &time(0, 1_000_000),
    &time(30, 500_000),
];

const LINGERS: &[&[u8]] = &[
    &two(1, 0),
    &two(0, 5),
    &two(1, -1),
    &two(2, i32::MAX),
    &two(1, 3),
];

const CLOCKS: &[&[u8]] = &[&two(1, 0), &two(11, 4), &two(11, 1)];

const TOKENS: &[&[u8]] = &[&two(0, 1)];

const SIZES: &[i32] = &[0, -1, i32::MAX, 4096, 100_000];

/// An instruction that accepts every packet (`BPF_RET | BPF_K`).
static ACCEPT: [u64; 1] = [0xffff_ffff_0000_0006];

/// `struct sock_fprog`: of no, of one, and of too many instructions.
fn filters() -> Vec<Vec<u8>> {
    let program = |count: u64| {
        let address = ACCEPT.as_ptr() as usize;
        [count.to_ne_bytes(), address.to_ne_bytes()].concat()
    };
    vec![program(0), program(0xffff), program(1)]
}

const fn filter(name: &'static str, number: i32) -> Entry {
    Entry::new(libc::SOL_SOCKET, name, number, Values::Made(filters)).alone()
}

pub(super) const OPTIONS: &[Entry] = &[
    flag("SO_DEBUG", 1),
    flag("SO_REUSEADDR", 2),
    read("SO_TYPE", 3),
    read("SO_ERROR", 4),
    flag("SO_DONTROUTE", 5),
    flag("SO_BROADCAST", 6),
    ints("SO_SNDBUF", 7, SIZES),
    ints("SO_RCVBUF", 8, SIZES),
    flag("SO_KEEPALIVE", 9),
    flag("SO_OOBINLINE", 10),
    flag("SO_NO_CHECK", 11),
    ints("SO_PRIORITY", 12, &[-1, 0, 7, 6]),
    bytes("SO_LINGER", 13, LINGERS),
    flag("SO_BSDCOMPAT", 14),
    flag("SO_REUSEPORT", 15),
    flag("SO_PASSCRED", 16),
    read("SO_PEERCRED", 17),
    ints("SO_RCVLOWAT", 18, &[0, -1, i32::MAX, 1, 3]),
    ints("SO_SNDLOWAT", 19, &[0, 1, 100]),
    bytes("SO_RCVTIMEO", 20, TIMES),
    bytes("SO_SNDTIMEO", 21, TIMES),
    ints("SO_SECURITY_AUTHENTICATION", 22, &[1]),
    ints("SO_SECURITY_ENCRYPTION_TRANSPORT", 23, &[1]),
    ints("SO_SECURITY_ENCRYPTION_NETWORK", 24, &[1]),
    bytes(
        "SO_BINDTODEVICE",
        25,
        &[b"nothing\0", b"lo\0", b"a name that is too long", b""],
    )
    .alone(),
    filter("SO_ATTACH_FILTER", 26),
    ints("SO_DETACH_FILTER", 27, &[0, 1]),
    read("SO_PEERNAME", 28).form(Form::First(2)),
    flag("SO_TIMESTAMP", 29),
    read("SO_ACCEPTCONN", 30),
    read("SO_PEERSEC", 31),
    ints("SO_SNDBUFFORCE", 32, SIZES),
    ints("SO_RCVBUFFORCE", 33, SIZES),
    flag("SO_PASSSEC", 34),
    flag("SO_TIMESTAMPNS", 35),
    ints("SO_MARK", 36, &[-1, 0, 77]),
    ints("SO_TIMESTAMPING", 37, &[-1, 0, 1 << 7, 0x18]),
    read("SO_PROTOCOL", 38),
    read("SO_DOMAIN", 39),
    flag("SO_RXQ_OVFL", 40),
    flag("SO_WIFI_STATUS", 41),
    ints("SO_PEEK_OFF", 42, &[-1, 0, 3, i32::MAX, i32::MIN]),
    flag("SO_NOFCS", 43),
    // On, it could not be undone.
    ints("SO_LOCK_FILTER", 44, &[0, 1]).alone(),
    flag("SO_SELECT_ERR_QUEUE", 45),
    ints("SO_BUSY_POLL", 46, &[-1, 0, 50]),
    bytes(
        "SO_MAX_PACING_RATE",
        47,
        &[
            &[0xff; 4],
            &[0, 0, 0x10, 0],
            &[0, 0, 0x10, 0, 0, 0, 0, 0],
            &[0xff; 8],
        ],
    ),
    read("SO_BPF_EXTENSIONS", 48),
    ints("SO_INCOMING_CPU", 49, &[-1, 1, 0]).form(Form::Index),
    ints("SO_ATTACH_BPF", 50, &[-1]),
    filter("SO_ATTACH_REUSEPORT_CBPF", 51),
    ints("SO_ATTACH_REUSEPORT_EBPF", 52, &[-1]),
    ints("SO_CNX_ADVICE", 53, &[0, 1]),
    read("SCM_TIMESTAMPING_OPT_STATS", 54),
    // Both limits. What is allocated depends on the moment.
    read("SO_MEMINFO", 55).form(Form::Numbers(&[1, 3])),
    read("SO_INCOMING_NAPI_ID", 56).form(Form::IsSet),
    read("SO_COOKIE", 57).form(Form::IsSet),
    read("SCM_TIMESTAMPING_PKTINFO", 58),
    read("SO_PEERGROUPS", 59),
    flag("SO_ZEROCOPY", 60),
    bytes("SO_TXTIME", 61, CLOCKS),
    ints("SO_BINDTOIFINDEX", 62, &[-1, 9999, 1, 0]).alone(),
    flag("SO_TIMESTAMP_NEW", 63),
    flag("SO_TIMESTAMPNS_NEW", 64),
    ints("SO_TIMESTAMPING_NEW", 65, &[-1, 0, 1 << 7, 0x18]),
    bytes("SO_RCVTIMEO_NEW", 66, TIMES),
    bytes("SO_SNDTIMEO_NEW", 67, TIMES),
    ints("SO_DETACH_REUSEPORT_BPF", 68, &[0]),
    flag("SO_PREFER_BUSY_POLL", 69),
    ints("SO_BUSY_POLL_BUDGET", 70, &[-1, 70_000, 0, 16]),
    read("SO_NETNS_COOKIE", 71).form(Form::IsSet),
    ints("SO_BUF_LOCK", 72, &[4, 0, 3]).alone(),
    ints("SO_RESERVE_MEM", 73, &[-1, 4096, 0]),
    ints("SO_TXREHASH", 74, &[-2, 255, 0, 1]),
    flag("SO_RCVMARK", 75),
    flag("SO_PASSPIDFD", 76),
    read("SO_PEERPIDFD", 77),
    ints("SO_DEVMEM_LINEAR", 78, &[1]),
    ints("SO_DEVMEM_DMABUF", 79, &[1]),
    bytes("SO_DEVMEM_DONTNEED", 80, TOKENS),
    ints("SCM_TS_OPT_ID", 81, &[1]),
    flag("SO_RCVPRIORITY", 82),
    flag("SO_PASSRIGHTS", 83),
    flag("SO_INQ", 84),
    flag("SO_RIGHTS_NOTRUNC", 85),
];
