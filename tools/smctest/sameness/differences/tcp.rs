// SPDX-License-Identifier: GPL-2.0

//! Differences of options of IPPROTO_TCP, IPPROTO_IP and IPPROTO_IPV6.

use super::Difference;
use super::ACCEPTED;
use super::ACCEPTED_SET;
use super::ALL;
use super::BORN;
use super::CLIENT;
use super::CLIENTS_SET;
use super::CONNECTING;
use super::CONVERTED;
use super::ENDED;
use super::FALLEN_CLIENT;
use super::LISTENING;
use super::NEW;
use super::NOT_FALLEN;
use super::RDMA;
use super::ULP;

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        options: &["TCP_ULP"],
        families: BORN,
        groups: &[NOT_FALLEN],
        effects: &[],
        answers: &["0 bytes: 0", "EOPNOTSUPP"],
        why: "what would be on top of TCP (TLS) does not see the data; after a fallback it does",
    },
    Difference {
        options: &["TCP_ULP"],
        families: ULP,
        groups: &[NEW, CONNECTING, LISTENING, CLIENT, ENDED, FALLEN_CLIENT, CLIENTS_SET, CONVERTED],
        effects: &[],
        answers: &["6516083", "EEXIST"],
        why: "it is `smc`",
    },
    Difference {
        options: &["TCP_ULP"],
        families: ULP,
        groups: &[ACCEPTED],
        effects: &[],
        answers: &["0 bytes: 0", "EOPNOTSUPP"],
        why: "what would be on top of TCP (TLS) does not see the data; after a fallback it does",
    },
    Difference {
        options: &["TCP_MD5SIG", "TCP_MD5SIG_EXT", "TCP_AO_ADD_KEY"],
        families: ALL,
        groups: &[CONNECTING, RDMA],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "data over RDMA is not signed; set before connect or listen, it makes the connection TCP",
    },
    Difference {
        options: &["TCP_MD5SIG", "TCP_MD5SIG_EXT", "TCP_AO_ADD_KEY", "TCP_AO_INFO", "TCP_FASTOPEN", "IP_OPTIONS"],
        families: ULP,
        groups: &[CONVERTED],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "a TCP socket with it is not converted",
    },
    Difference {
        options: &["TCP_REPAIR"],
        families: ALL,
        groups: &[CONNECTING, RDMA],
        effects: &[],
        answers: &["0", "EOPNOTSUPP"],
        why: "a connection over RDMA cannot be taken apart behind its back",
    },
    Difference {
        options: &["TCP_FASTOPEN", "TCP_FASTOPEN_NO_COOKIE"],
        families: ALL,
        groups: &[LISTENING, ENDED],
        effects: &[],
        answers: &["0", "EINVAL"],
        why: "it makes a socket one of TCP, which is too late; before listen or connect it is taken",
    },
    Difference {
        options: &["TCP_FASTOPEN_CONNECT"],
        families: ALL,
        groups: &[ENDED],
        effects: &[],
        answers: &["0", "EINVAL"],
        why: "it makes a socket one of TCP, which is too late",
    },
    Difference {
        options: &["TCP_FASTOPEN_KEY"],
        families: ALL,
        groups: &[CONNECTING, LISTENING, RDMA],
        effects: &[],
        answers: &["0 bytes: 0", "EINVAL"],
        why: "it makes a socket one of TCP, which is too late; before listen or connect it is taken",
    },
    Difference {
        options: &["TCP_FASTOPEN_KEY"],
        families: ULP,
        groups: &[CONVERTED],
        effects: &[],
        answers: &["0 bytes: 0"],
        why: "the converted socket does not take it over",
    },
    Difference {
        options: &["TCP_SAVED_SYN"],
        families: ALL,
        groups: &[ACCEPTED_SET],
        effects: &[],
        answers: &["68 bytes", "88 bytes"],
        why: "the SYN has the option of SMC",
    },
];
