// SPDX-License-Identifier: GPL-2.0

//! IPPROTO_IPV6: ipv6(7), `linux/in6.h` and `linux/ipv6.h`.

super::of_level!(libc::IPPROTO_IPV6);

/// `struct ipv6_mreq`.
const GROUP: &[&[u8]] = &[&[
    0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x77, 0, 0, 0, 0,
]];

/// An extension header that has only padding, one that is cut off, and none.
const HEADER: &[&[u8]] = &[&[0, 9, 1, 4, 0, 0, 0, 0], &[0, 0, 1, 4, 0, 0, 0, 0], b""];

pub(super) const OPTIONS: &[Entry] = &[
    ints("IPV6_ADDRFORM", 1, &[libc::AF_INET6, libc::AF_INET]).alone(),
    flag("IPV6_2292PKTINFO", 2),
    flag("IPV6_2292HOPOPTS", 3),
    flag("IPV6_2292DSTOPTS", 4),
    flag("IPV6_2292RTHDR", 5),
    bytes("IPV6_2292PKTOPTIONS", 6, &[&[0; 16], b""]).form(Form::Length),
    ints("IPV6_CHECKSUM", 7, &[-1, 2]),
    flag("IPV6_2292HOPLIMIT", 8),
    ints("IPV6_NEXTHOP", 9, &[1]),
    ints("IPV6_AUTHHDR", 10, &[1]),
    flag("IPV6_FLOWINFO", 11),
    ints("IPV6_UNICAST_HOPS", 16, &[-2, 256, 0, -1, 77]),
    ints("IPV6_MULTICAST_IF", 17, &[-1, 9999, 0]),
    ints("IPV6_MULTICAST_HOPS", 18, &[-2, 256, -1, 5]),
    flag("IPV6_MULTICAST_LOOP", 19),
    bytes("IPV6_ADD_MEMBERSHIP", 20, GROUP),
    bytes("IPV6_DROP_MEMBERSHIP", 21, GROUP),
    ints("IPV6_ROUTER_ALERT", 22, &[1]),
    ints("IPV6_MTU_DISCOVER", 23, &[-1, 6, 5, 4, 3, 1, 0, 2]),
    ints("IPV6_MTU", 24, &[100, 1280]).alone(),
    flag("IPV6_RECVERR", 25),
    flag("IPV6_V6ONLY", 26),
    bytes("IPV6_JOIN_ANYCAST", 27, GROUP),
    bytes("IPV6_LEAVE_ANYCAST", 28, GROUP),
    flag("IPV6_MULTICAST_ALL", 29),
    flag("IPV6_ROUTER_ALERT_ISOLATE", 30),
    flag("IPV6_RECVERR_RFC4884", 31),
    bytes("IPV6_FLOWLABEL_MGR", 32, &[&[0; 32]]).form(Form::Length),
    flag("IPV6_FLOWINFO_SEND", 33),
    bytes("IPV6_IPSEC_POLICY", 34, &[&[0; 16]]),
    bytes("IPV6_XFRM_POLICY", 35, &[&[0; 16]]),
    flag("IPV6_HDRINCL", 36),
    bytes("MCAST_JOIN_GROUP (IPv6)", 42, &[&[0; 136]]),
    bytes("MCAST_LEAVE_GROUP (IPv6)", 45, &[&[0; 136]]),
    bytes("MCAST_MSFILTER (IPv6)", 48, &[&[0; 144]]),
    flag("IPV6_RECVPKTINFO", 49),
    bytes("IPV6_PKTINFO", 50, &[&[1; 20], &[0; 20]]).alone(),
    flag("IPV6_RECVHOPLIMIT", 51),
    ints("IPV6_HOPLIMIT", 52, &[1]),
    flag("IPV6_RECVHOPOPTS", 53),
    bytes("IPV6_HOPOPTS", 54, HEADER).alone(),
    bytes("IPV6_RTHDRDSTOPTS", 55, HEADER).alone(),
    flag("IPV6_RECVRTHDR", 56),
    bytes("IPV6_RTHDR", 57, &[&[0; 8], b""]).alone(),
    flag("IPV6_RECVDSTOPTS", 58),
    bytes("IPV6_DSTOPTS", 59, HEADER).alone(),
    flag("IPV6_RECVPATHMTU", 60),
    read("IPV6_PATHMTU", 61).form(Form::Length).alone(),
    flag("IPV6_DONTFRAG", 62),
    flag("IPV6_USE_MIN_MTU", 63),
    flag("IPV6_RECVTCLASS", 66),
    ints("IPV6_TCLASS", 67, &[-2, 256, -1, 0x13, 0x10]),
    flag("IPV6_AUTOFLOWLABEL", 70),
    ints("IPV6_ADDR_PREFERENCES", 72, &[0, 3, 0xffff, 2]),
    ints("IPV6_MINHOPCOUNT", 73, &[-1, 256, 0, 1]),
    flag("IPV6_RECVORIGDSTADDR (IPV6_ORIGDSTADDR)", 74),
    flag("IPV6_TRANSPARENT", 75),
    bytes(
        "IPV6_UNICAST_IF",
        76,
        &[&[0, 0, 0x27, 0x0f], &[0, 0, 0, 1], &[0; 4]],
    )
    .alone(),
    flag("IPV6_RECVFRAGSIZE", 77),
    flag("IPV6_FREEBIND", 78),
];
