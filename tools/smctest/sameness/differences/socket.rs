// SPDX-License-Identifier: GPL-2.0

//! Differences of options of SOL_SOCKET, ioctl(2) and SOL_SMC.

use super::Difference;
use super::ACCEPTED;
use super::ACCEPTEDS_SET;
use super::ACCEPTED_SET;
use super::ALL;
use super::BORN;
use super::CLIENT;
use super::CLIENTS_SET;
use super::CLIENT_SET;
use super::CONNECTING;
use super::CONVERTED;
use super::EVERYWHERE;
use super::FALLEN;
use super::FALLEN_ACCEPTED;
use super::FALLEN_CLIENT;
use super::IPPROTO;
use super::LISTENING;
use super::NOT_FALLEN;
use super::RDMA;
use super::SET;
use super::SMC;
use super::ULP;
use super::UNCONNECTED;

pub(super) const DIFFERENCES: &[Difference] = &[
    Difference {
        options: &["SO_DOMAIN"],
        families: SMC,
        groups: &[EVERYWHERE],
        effects: &[],
        answers: &["43"],
        why: "it is the domain that socket(2) was called with, `AF_SMC`",
    },
    Difference {
        options: &["SO_PROTOCOL"],
        families: SMC,
        groups: &[EVERYWHERE],
        effects: &[],
        answers: &["0", "1"],
        why: "it is the protocol that socket(2) was called with, which says the version of IP",
    },
    Difference {
        options: &["SO_PROTOCOL"],
        families: IPPROTO,
        groups: &[EVERYWHERE],
        effects: &[],
        answers: &["256"],
        why: "it is the protocol that socket(2) was called with, `IPPROTO_SMC`",
    },
    Difference {
        options: &["SO_PROTOCOL"],
        families: ULP,
        groups: &[ACCEPTED, FALLEN_ACCEPTED, ACCEPTEDS_SET],
        effects: &[],
        answers: &["256"],
        why: "only the listener is a converted TCP socket; what it accepts is one of `IPPROTO_SMC`",
    },
    Difference {
        options: &["SO_ACCEPTCONN"],
        families: ULP,
        groups: &[LISTENING],
        effects: &[],
        answers: &["0"],
        why: "the kernel reads it from the TCP socket that was converted, which is no listener",
    },
    Difference {
        options: &["SO_SNDBUF"],
        families: ALL,
        groups: &[NOT_FALLEN],
        effects: &[],
        answers: &["131072"],
        why: "its default is twice `net.smc.wmem`, and it does not grow with a connection over RDMA",
    },
    Difference {
        options: &["SO_MEMINFO"],
        families: ALL,
        groups: &[NOT_FALLEN, CONVERTED],
        effects: &[],
        answers: &["36 bytes: 131072 131072"],
        why: "it contains `SO_SNDBUF`, whose default is another",
    },
    Difference {
        options: &["SO_RCVLOWAT"],
        families: ALL,
        groups: &[SET],
        effects: &[],
        answers: &["2147483647"],
        why: "it is not cut to half of `SO_RCVBUF`: a reader waits for no more than the buffer holds, whatever it says",
    },
    Difference {
        options: &["SO_PEEK_OFF"],
        families: ALL,
        groups: &[EVERYWHERE],
        effects: &["peeks go on"],
        answers: &["EOPNOTSUPP", "EOPNOTSUPP he he"],
        why: "peeks start at the first byte; after a fallback it can be set, but not read",
    },
    Difference {
        options: &["SO_ZEROCOPY"],
        families: ALL,
        groups: &[NOT_FALLEN],
        effects: &[],
        answers: &["0", "EOPNOTSUPP"],
        why: "a connection over RDMA copies",
    },
    Difference {
        options: &["SO_ZEROCOPY"],
        families: BORN,
        groups: &[FALLEN, CLIENTS_SET, ACCEPTEDS_SET, CONVERTED],
        effects: &[],
        answers: &["0"],
        why: "refused before a connection is known to be TCP; it works after a fallback, but the kernel reads it from the socket that was not",
    },
    Difference {
        options: &["SO_ZEROCOPY"],
        families: ULP,
        groups: &[FALLEN_ACCEPTED, CLIENTS_SET, ACCEPTEDS_SET],
        effects: &[],
        answers: &["0"],
        why: "as with `IPPROTO_SMC`",
    },
    Difference {
        options: &["SO_RESERVE_MEM"],
        families: ALL,
        groups: &[NOT_FALLEN],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "the kernel would charge the socket without the lock under which SMC does; a negative value is refused with this error, too",
    },
    Difference {
        options: &["SO_TXREHASH"],
        families: BORN,
        groups: &[EVERYWHERE],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "the kernel answers it for a TCP socket only",
    },
    Difference {
        options: &["SO_TXREHASH"],
        families: ULP,
        groups: &[ACCEPTED, FALLEN_ACCEPTED, ACCEPTEDS_SET],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "the kernel answers it for a TCP socket only",
    },
    Difference {
        options: &["SO_DEVMEM_DONTNEED"],
        families: BORN,
        groups: &[SET],
        effects: &[],
        answers: &["EBADF"],
        why: "the kernel answers it for a TCP socket only",
    },
    Difference {
        options: &["SO_DEVMEM_DONTNEED"],
        families: ULP,
        groups: &[ACCEPTED, FALLEN_ACCEPTED],
        effects: &[],
        answers: &["EBADF"],
        why: "the kernel answers it for a TCP socket only",
    },
    Difference {
        options: &["SO_TIMESTAMP", "SO_TIMESTAMPNS", "SO_TIMESTAMPING"],
        families: ALL,
        groups: &[],
        effects: &["a time comes with the data"],
        answers: &["ok 3 bytes, []"],
        why: "data over RDMA is not received in packets, which could have a time",
    },
    Difference {
        options: &["SO_TIMESTAMPING", "SO_TIMESTAMPING_NEW"],
        families: BORN,
        groups: &[UNCONNECTED],
        effects: &[],
        answers: &["8 bytes: 80", "ok"],
        why: "the kernel refuses `SOF_TIMESTAMPING_OPT_ID` for a TCP socket without a connection, for others it does not",
    },
    Difference {
        options: &["SO_TIMESTAMPING", "SO_TIMESTAMPING_NEW"],
        families: ULP,
        groups: &[CONNECTING, CLIENT, FALLEN_CLIENT],
        effects: &[],
        answers: &["8 bytes: 0", "EINVAL"],
        why: "the kernel refuses `SOF_TIMESTAMPING_OPT_ID` for a TCP socket without a connection, as the converted one is",
    },
    Difference {
        options: &["SO_TIMESTAMP", "SO_TIMESTAMPNS", "SO_TIMESTAMPING", "SO_TIMESTAMP_NEW", "SO_TIMESTAMPNS_NEW", "SO_TIMESTAMPING_NEW", "SO_RXQ_OVFL", "SO_TXTIME", "SO_ZEROCOPY", "SO_ATTACH_FILTER"],
        families: ULP,
        groups: &[CONVERTED],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "a TCP socket with it is not converted",
    },
    Difference {
        options: &["SO_ATTACH_FILTER"],
        families: ALL,
        groups: &[ACCEPTEDS_SET],
        effects: &[],
        answers: &["0 bytes: 0"],
        why: "the filter of a listener is that of its TCP socket, and of its TCP connections",
    },
    Difference {
        options: &["SO_LOCK_FILTER"],
        families: ALL,
        groups: &[ACCEPTEDS_SET],
        effects: &[],
        answers: &["0"],
        why: "the filter of a listener is that of its TCP socket, and of its TCP connections",
    },
    Difference {
        options: &["SO_ATTACH_FILTER"],
        families: ALL,
        groups: &[],
        effects: &["data that a filter drops"],
        answers: &["5"],
        why: "a filter sees the packets of TCP; data over RDMA is not in packets",
    },
    Difference {
        options: &["SIOCGSTAMP", "SIOCGSTAMPNS", "SIOCGSTAMP_NEW", "SIOCGSTAMPNS_NEW"],
        families: ALL,
        groups: &[RDMA, CLIENT_SET, ACCEPTED_SET],
        effects: &[],
        answers: &["ENOTTY"],
        why: "data over RDMA is not received in packets, which could have a time",
    },
    Difference {
        options: &["SOL_SMC, SMC_LIMIT_HS"],
        families: ALL,
        groups: &[SET, CLIENTS_SET, ACCEPTEDS_SET, CONVERTED],
        effects: &[],
        answers: &["0", "1", "EFAULT", "EINVAL", "ok"],
        why: "an option of SMC",
    },
    Difference {
        options: &["SOL_SMC, 99"],
        families: ALL,
        groups: &[EVERYWHERE],
        effects: &[],
        answers: &["EOPNOTSUPP"],
        why: "the level of SMC",
    },
];
