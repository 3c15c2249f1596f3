// SPDX-License-Identifier: GPL-2.0

//! Sockets: those that an application holds, and the TCP sockets below them.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/linux/net.h`](srctree/include/linux/net.h)

mod addr;
mod args;
mod charge;
mod converted;
mod family;
#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
pub mod hs_ctrl;
mod inet;
mod layout;
#[cfg(CONFIG_MEMCG)]
mod memcg;
pub mod memory;
mod msg;
mod pernet;
mod proto;
mod proto_ops;
mod sock;
mod sock_alloc;
mod sock_lock;
mod stream_socket;
pub mod sysctl;
mod tcp;
#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
pub mod text_setting;
mod ulp;
mod wait;
mod wake;
pub(crate) mod with_netns;

pub use addr::{
    InetAddr,
    IpVersion,
    SockAddr, //
};
pub use args::{
    PollWait,
    SockAddrBuf,
    SockOptIn,
    SockOptOut, //
};
pub use charge::{
    Charge,
    Purpose, //
};
pub use family::FamilyRegistration;
pub use inet::InetRegistration;
pub use msg::*;
pub use pernet::{
    NetNs,
    NetNsId,
    NetNsRef,
    NewNetNs,
    PerNet,
    PerNetKey,
    PerNetRef,
    PerNetRegistration, //
};
pub use sock::Sk;
pub use sock_alloc::UnattachedSk;
pub use stream_socket::{
    Caller,
    StreamSocket, //
};
pub use tcp::{
    AcceptQueue,
    BeforeConnect,
    Hook,
    Nagle,
    RequestEnds,
    SynOption,
    TcpEvents,
    TcpSocket,
    TcpState,
    UserAccessCall,
    UserAccessWork, //
};
pub use wait::{
    WaitEnd,
    FOREVER, //
};

pub use bindings::{
    POLLERR,
    POLLHUP,
    POLLIN,
    POLLOUT,
    POLLRDNORM, //
};

use crate::bindings;

/// Defines constants with the types that the calls use.
macro_rules! constants {
    ($($ty:ty: $($name:ident = $doc:literal),+;)+) => {
        $($(
            #[doc = $doc]
            // CAST: The numbers are small; bindgen gives all of them one type.
            pub const $name: $ty = bindings::$name as $ty;
        )+)+
    };
}

constants! {
    u16:
        AF_SMC = "The family of SMC sockets.",
        IPPROTO_SMC = "The protocol of SMC sockets of AF_INET.";
    i32:
        IP_MSFILTER = "Whose packets of a group are received, of IPv4.",
        IPV6_HOPOPTS = "Options for each hop, for packets to send.",
        IPV6_RTHDRDSTOPTS = "Options for the destinations before a routing header.",
        IPV6_RTHDR = "A routing header.",
        IPV6_DSTOPTS = "Options for the destination.",
        MCAST_MSFILTER = "Whose packets of a group are received.",
        TCP_WINDOW_CLAMP = "The largest window that is advertised.",
        IPV6_2292PKTOPTIONS = "What came with the connection's packets, as RFC 2292 has it.",
        IP_TOS = "The type of service of packets, by which SO_PRIORITY is set, too.",
        SMC_INFO = "Which way a socket's data go, and why: `struct smc_info`.",
        SMC_LIMIT_HS = "Take on no more handshakes than can be worked on at once; not 0 for yes.",
        SO_ATTACH_FILTER = "Filter what arrives by this classic BPF program.",
        SO_ATTACH_REUSEPORT_CBPF = "Choose among listeners of a port by this classic BPF program.",
        SO_ATTACH_REUSEPORT_EBPF = "The same, by an eBPF program.",
        SO_DETACH_REUSEPORT_BPF = "Choose by the kernel's own rule again.",
        SO_OOBINLINE = "Urgent data stay in the stream.",
        SO_PEEK_OFF = "Where MSG_PEEK begins to read.",
        SO_LINGER = "Whether close waits, and how long.",
        SO_RCVLOWAT = "How many bytes a receiver waits for.",
        SO_RCVTIMEO_NEW = "How long a receiver waits, with 64 bits.",
        SO_RCVTIMEO_OLD = "How long a receiver waits.",
        SO_RESERVE_MEM = "Have memory ready.",
        SO_REUSEPORT = "Several sockets may be bound to one port.",
        SO_SNDBUF = "How much may wait to be sent.",
        SO_SNDBUFFORCE = "The same, beyond what the administrator allows.",
        SO_SNDTIMEO_NEW = "How long a sender waits, with 64 bits.",
        SO_SNDTIMEO_OLD = "How long a sender waits.",
        SO_ZEROCOPY = "Send from the application's memory.",
        SOL_IP = "Level of the options of IPv4.",
        SOL_IPV6 = "Level of the options of IPv6.",
        SOL_SMC = "Level of SMC's options.",
        SOL_SOCKET = "Level of the options of all sockets.",
        SOL_TCP = "Level of TCP's options.",
        SOL_TLS = "Level of the options of TLS.",
        TCP_AO_ADD_KEY = "Sign segments with this key (RFC 5925).",
        TCP_AO_GET_KEYS = "List the keys of TCP-AO.",
        TCP_AO_INFO = "What goes for the keys of TCP-AO.",
        TCP_CORK = "Hold partial segments back.",
        TCP_DEFER_ACCEPT = "Accept a connection when data came.",
        TCP_FASTOPEN = "Listen with fast open.",
        TCP_FASTOPEN_CONNECT = "Connect with fast open.",
        TCP_FASTOPEN_KEY = "Key of fast open.",
        TCP_FASTOPEN_NO_COOKIE = "Fast open without a cookie.",
        TCP_INFO = "The state of a connection, or the queue of a listener.",
        TCP_MD5SIG = "Sign segments with this key (RFC 2385).",
        TCP_MD5SIG_EXT = "The same, for a network of peers.",
        TCP_NODELAY = "Send at once.",
        TCP_REPAIR = "Change a connection without telling the peer.",
        TCP_SAVED_SYN = "The headers of the SYN that a listener got.",
        TCP_ZEROCOPY_RECEIVE = "Map what has arrived, in place of a copy.",
        TCP_ULP = "Put a protocol on top of TCP.",
        TCP_USER_TIMEOUT = "How long data may wait for the peer, milliseconds.";
    u32:
        SIOCATMARK = "Whether the reader stands at the urgent mark.",
        SIOCINQ = "Bytes to read.",
        SIOCOUTQ = "Bytes that the peer has not confirmed.",
        SIOCOUTQNSD = "Bytes that were not sent.";
}
