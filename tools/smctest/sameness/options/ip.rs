// SPDX-License-Identifier: GPL-2.0

//! IPPROTO_IP: ip(7), and `linux/in.h`.

super::of_level!(libc::IPPROTO_IP);

/// `struct ip_mreqn` of a group, and `struct ip_mreq_source`.
const GROUP: &[&[u8]] = &[&[224, 0, 0, 77, 0, 0, 0, 0, 0, 0, 0, 0]];

/// `struct group_req` and `struct group_source_req`.
const GROUPS: &[&[u8]] = &[&[0; 136], &[0; 264]];

pub(super) const OPTIONS: &[Entry] = &[
    ints("IP_TOS", 1, &[-1, 0, 256, 3, 0x10]),
    ints("IP_TTL", 2, &[0, 256, -1, 77]),
    flag("IP_HDRINCL", 3),
    bytes(
        "IP_OPTIONS",
        4,
        &[&[1, 1], &[99; 41], &[7, 7, 4, 0, 0, 0, 0, 1], b""],
    )
    .alone(),
    flag("IP_ROUTER_ALERT", 5),
    flag("IP_RECVOPTS", 6),
    flag("IP_RECVRETOPTS (IP_RETOPTS)", 7),
    flag("IP_PKTINFO", 8),
    read("IP_PKTOPTIONS", 9).form(Form::Length),
    ints("IP_MTU_DISCOVER", 10, &[-1, 6, 5, 4, 3, 1, 0, 2]),
    flag("IP_RECVERR", 11),
    flag("IP_RECVTTL", 12),
    flag("IP_RECVTOS", 13),
    // The route, which some options make be looked up again.
    read("IP_MTU", 14).alone(),
    flag("IP_FREEBIND", 15),
    bytes("IP_IPSEC_POLICY", 16, &[&[0; 16]]),
    bytes("IP_XFRM_POLICY", 17, &[&[0; 16]]),
    flag("IP_PASSSEC", 18),
    flag("IP_TRANSPARENT", 19),
    flag("IP_RECVORIGDSTADDR (IP_ORIGDSTADDR)", 20),
    ints("IP_MINTTL", 21, &[-1, 256, 0, 1]),
    flag("IP_NODEFRAG", 22),
    flag("IP_CHECKSUM", 23),
    flag("IP_BIND_ADDRESS_NO_PORT", 24),
    flag("IP_RECVFRAGSIZE", 25),
    flag("IP_RECVERR_RFC4884", 26),
    bytes("IP_MULTICAST_IF", 32, &[&[0; 4], &[127, 0, 0, 1]]),
    ints("IP_MULTICAST_TTL", 33, &[-1, 256, 5]),
    flag("IP_MULTICAST_LOOP", 34),
    bytes("IP_ADD_MEMBERSHIP", 35, GROUP),
    bytes("IP_DROP_MEMBERSHIP", 36, GROUP),
    bytes("IP_UNBLOCK_SOURCE", 37, GROUP),
    bytes("IP_BLOCK_SOURCE", 38, GROUP),
    bytes("IP_ADD_SOURCE_MEMBERSHIP", 39, GROUP),
    bytes("IP_DROP_SOURCE_MEMBERSHIP", 40, GROUP),
    bytes("IP_MSFILTER", 41, &[&[0; 16], &[0; 20]]),
    bytes("MCAST_JOIN_GROUP", 42, GROUPS),
    bytes("MCAST_BLOCK_SOURCE", 43, GROUPS),
    bytes("MCAST_UNBLOCK_SOURCE", 44, GROUPS),
    bytes("MCAST_LEAVE_GROUP", 45, GROUPS),
    bytes("MCAST_JOIN_SOURCE_GROUP", 46, GROUPS),
    bytes("MCAST_LEAVE_SOURCE_GROUP", 47, GROUPS),
    bytes("MCAST_MSFILTER", 48, GROUPS),
    flag("IP_MULTICAST_ALL", 49),
    // An interface's index in network order.
    bytes(
        "IP_UNICAST_IF",
        50,
        &[&[0, 0, 0x27, 0x0f], &[0, 0, 0, 1], &[0; 4]],
    )
    .alone(),
    bytes(
        "IP_LOCAL_PORT_RANGE",
        51,
        &[&[9, 0, 8, 0], &[0x40, 0x9c, 0x50, 0xc3]],
    ),
    // The port, in fact.
    read("IP_PROTOCOL", 52).form(Form::IsSet),
    read("IPT_SO_GET_INFO", 64),
    read("SO_ORIGINAL_DST", 80),
];
