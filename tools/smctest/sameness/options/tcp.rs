// SPDX-License-Identifier: GPL-2.0

//! IPPROTO_TCP: tcp(7), and `linux/tcp.h`.

super::of_level!(libc::IPPROTO_TCP);

/// An address that no test uses, for keys: `struct sockaddr_storage` of either family.
fn stranger(is_v6: bool) -> Vec<u8> {
    let family = if is_v6 { libc::AF_INET6 } else { libc::AF_INET };
    let mut address = vec![0; 128];
    // CAST: fits in `sa_family_t`.
    address[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    match is_v6 {
        true => address[8..10].copy_from_slice(&[0x20, 0x01]),
        false => address[4..8].copy_from_slice(&[203, 0, 113, 77]),
    }
    address
}

/// `struct tcp_md5sig`: a key for either family, and none.
fn signatures() -> Vec<Vec<u8>> {
    let of = |is_v6, key: &[u8]| {
        let mut value = stranger(is_v6);
        // Flags, prefix, length, interface.
        value.extend([0, 0]);
        value.extend((key.len() as u16).to_ne_bytes());
        value.extend([0; 4]);
        value.extend(key);
        value.resize(216, 0);
        value
    };
    vec![of(false, b""), of(true, b"secret"), of(false, b"secret")]
}

/// `struct tcp_ao_add`: a key for either family, and one of an unknown algorithm.
fn keys() -> Vec<Vec<u8>> {
    let of = |is_v6: bool, algorithm: &[u8]| {
        let mut value = stranger(is_v6);
        value.extend(algorithm);
        // Interface, flags, reserved; then prefix, the numbers of the key at both ends, lengths and flags.
        value.resize(128 + 64 + 4 + 4 + 2, 0);
        value.extend([if is_v6 { 128 } else { 32 }, 100, 100, 12, 0, 6]);
        value.extend(b"secret");
        value.resize(288, 0);
        value
    };
    vec![
        of(false, b"nothing"),
        of(true, b"hmac(sha1)"),
        of(false, b"hmac(sha1)"),
    ]
}

const fn made(name: &'static str, number: i32, make: fn() -> Vec<Vec<u8>>) -> Entry {
    Entry::new(libc::IPPROTO_TCP, name, number, Values::Made(make)).alone()
}

const TIMES: &[i32] = &[0, -1, i32::MAX, 100];

pub(super) const OPTIONS: &[Entry] = &[
    flag("TCP_NODELAY", 1),
    ints("TCP_MAXSEG", 2, &[-1, 0, 87, 1 << 20, 1000]),
    flag("TCP_CORK", 3),
    ints("TCP_KEEPIDLE", 4, &[-1, 0, 40_000, 50]),
    ints("TCP_KEEPINTVL", 5, &[-1, 0, 40_000, 50]),
    ints("TCP_KEEPCNT", 6, &[-1, 0, 128, 5]),
    ints("TCP_SYNCNT", 7, &[-1, 0, 128, 3]),
    ints("TCP_LINGER2", 8, &[-1, 0, 100_000, 5]),
    // Off in the end: a connection would not be accepted before it has data.
    ints("TCP_DEFER_ACCEPT", 9, &[-1, 1, 100_000, 5, 0]),
    ints("TCP_WINDOW_CLAMP", 10, &[-1, 1, 0, 100_000]),
    // The state of the connection.
    read("TCP_INFO", 11).form(Form::First(1)),
    ints("TCP_QUICKACK", 12, &[-1, 2, 0, 1]).form(Form::OnceSet),
    bytes(
        "TCP_CONGESTION",
        13,
        &[b"", b"abc", b"nothing", b"cubic", b"reno"],
    ),
    made("TCP_MD5SIG", 14, signatures),
    flag("TCP_THIN_LINEAR_TIMEOUTS", 16),
    flag("TCP_THIN_DUPACK", 17),
    ints("TCP_USER_TIMEOUT", 18, &[-1, 0, 30_000]),
    ints("TCP_REPAIR", 19, &[2, 1, -1, 1, 0]).alone(),
    ints("TCP_REPAIR_QUEUE", 20, &[3, 1, 0]),
    ints("TCP_QUEUE_SEQ", 21, &[0, 1]).form(Form::IsSet),
    bytes("TCP_REPAIR_OPTIONS", 22, &[&[2, 0, 0, 0, 0xe8, 3, 0, 0]]),
    ints("TCP_FASTOPEN", 23, &[-1, 0, 5]).alone(),
    ints("TCP_TIMESTAMP", 24, &[0, 1000]).form(Form::IsSet),
    ints("TCP_NOTSENT_LOWAT", 25, &[-1, 0, 100_000]),
    read("TCP_CC_INFO", 26).form(Form::Length),
    ints("TCP_SAVE_SYN", 27, &[-1, 2, 3, 0, 1]),
    read("TCP_SAVED_SYN", 28).form(Form::Length),
    bytes("TCP_REPAIR_WINDOW", 29, &[&[0; 20]]).form(Form::Length),
    ints("TCP_FASTOPEN_CONNECT", 30, &[-1, 2, 1, 0]).alone(),
    bytes("TCP_ULP", 31, &[b"nothing", b"", b"tls"]).alone(),
    made("TCP_MD5SIG_EXT", 32, signatures),
    bytes("TCP_FASTOPEN_KEY", 33, &[&[1; 15], &[1; 16], &[1; 32]]).alone(),
    ints("TCP_FASTOPEN_NO_COOKIE", 34, &[2, 0, 1, 0]).alone(),
    bytes("TCP_ZEROCOPY_RECEIVE", 35, &[&[0; 64]]),
    flag("TCP_INQ", 36),
    ints("TCP_TX_DELAY", 37, &[-1, 1000, 0]),
    made("TCP_AO_ADD_KEY", 38, keys),
    bytes("TCP_AO_DEL_KEY", 39, &[&[0; 144]]),
    bytes("TCP_AO_INFO", 40, &[&[0; 48]]).alone(),
    bytes("TCP_AO_GET_KEYS", 41, &[&[0; 144]]),
    bytes("TCP_AO_REPAIR", 42, &[&[0; 24]]),
    read("TCP_IS_MPTCP", 43),
    ints("TCP_RTO_MAX_MS", 44, &[-1, 999, 120_001, 60_000]),
    ints("TCP_RTO_MIN_US", 45, TIMES),
    ints("TCP_DELACK_MAX_US", 46, TIMES),
];
