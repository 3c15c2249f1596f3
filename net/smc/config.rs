// SPDX-License-Identifier: GPL-2.0

//! The settings of a network namespace: `/proc/sys/net/smc`, with the names, ranges and defaults of the C module. The
//! limit of links in a group is higher; both ends must be configured for it.

use kernel::{
    sync::Arc,
    time::Jiffies, //
};
use kernel_ext::{
    ib::BlockKind,
    net::{
        sysctl::{
            Bounds,
            SysctlEntry,
            Values, //
        },
        NewNetNs, //
    },
    prelude::*,
    time, //
};
use smc_proto::{
    lgr::MAX_LINKS,
    link::TrafficClass,
    time::Duration,
    wire::clc::Limits, //
};

/// The table of settings; also assigns the indices into [`ENTRIES`].
macro_rules! settings {
    ($($setting:ident: $entry:expr,)+) => {
        /// The settings, as indices into [`ENTRIES`].
        #[derive(Clone, Copy)]
        enum Setting {
            $($setting,)+
        }

        const COUNT: usize = [$(Setting::$setting),+].len();

        static ENTRIES: [SysctlEntry; COUNT] = [$($entry),+];
    };
}

/// Minimum size of buffers, bytes.
const BUF_MIN: u32 = 16 * 1024;

/// Default maximum of messages in flight on a link.
const SEND_SLOTS: u16 = 16;
const RECV_SLOTS: u16 = 48;

/// A socket's value is twice the setting and must fit an `int`.
const BUF_MAX: u32 = i32::MAX as u32 / 2;

const fn range(name: &'static CStr, min: u32, max: u32, default: u32) -> SysctlEntry {
    SysctlEntry {
        name,
        bounds: Bounds::Range(min, max),
        default,
    }
}

const fn seconds(name: &'static CStr, default: u32) -> SysctlEntry {
    SysctlEntry {
        name,
        bounds: Bounds::Seconds,
        // CAST: a second has at most 1000 jiffies.
        default: default * time::HZ as u32,
    }
}

settings! {
    Autocorking: range(c"autocorking_size", 0, u32::MAX, 64 * 1024),
    BufType: range(c"smcr_buf_type", 0, 2, 0),
    TestLink: seconds(c"smcr_testlink_time", 30),
    // The C module has neither this nor the next one.
    TrafficClass: SysctlEntry {
        name: c"smcr_traffic_class",
        bounds: Bounds::Signed(TrafficClass::OF_SOCKET, u8::MAX as i32),
        default: 0,
    },
    IdleTime: seconds(c"smcr_lgr_idle_time", 600),
    Wmem: range(c"wmem", BUF_MIN, BUF_MAX, 64 * 1024),
    Rmem: range(c"rmem", BUF_MIN, BUF_MAX, 64 * 1024),
    // The C module has neither of these: its RMBEs stay as they are.
    RmemMin: range(c"smcr_rmem_min", BUF_MIN, BUF_MAX, BUF_MIN),
    RmemMax: range(c"smcr_rmem_max", BUF_MIN, BUF_MAX, 512 * 1024),
    // The C module's send buffers have the size that SO_SNDBUF asks for.
    WmemMax: range(c"smcr_wmem_max", BUF_MIN, BUF_MAX, 256 * 1024),
    // CAST: it is small.
    MaxLinks: range(c"smcr_max_links_per_lgr", 1, MAX_LINKS as u32, 2),
    MaxConns: range(c"smcr_max_conns_per_lgr", 16, 255, 255),
    // The C module has no such setting either: its loopback device is always on.
    Smcd: range(c"smcd_loopback", 0, 1, 1),
    LimitHandshakes: range(c"limit_smc_hs", 0, 1, 0),
    MaxSendWr: range(c"smcr_max_send_wr", 2, 2048, SEND_SLOTS as u32),
    MaxRecvWr: range(c"smcr_max_recv_wr", 2, 2048, RECV_SLOTS as u32),
}

/// Directory of the files, relative to `/proc/sys`.
pub(crate) const DIRECTORY: &CStr = c"net/smc";

/// The settings of a namespace.
#[derive(Clone)]
pub(crate) struct Config(Arc<Values<COUNT>>);

impl Config {
    /// Creates the files of a namespace.
    /// Context: may sleep.
    pub(crate) fn new(net: &mut NewNetNs) -> Result<Self> {
        Ok(Self(net.settings(DIRECTORY, &ENTRIES)?))
    }

    fn get(&self, setting: Setting) -> u32 {
        self.0.get(setting as usize)
    }

    /// Returns how many bytes to collect while a message is in flight.
    pub(crate) fn autocork_bytes(&self) -> u32 {
        self.get(Setting::Autocorking)
    }

    /// Returns the initial SO_SNDBUF, bytes.
    pub(crate) fn sndbuf_bytes(&self) -> u32 {
        self.get(Setting::Wmem).saturating_mul(2)
    }

    /// Returns the initial SO_RCVBUF, bytes.
    pub(crate) fn rcvbuf_bytes(&self) -> u32 {
        self.get(Setting::Rmem).saturating_mul(2)
    }

    /// Returns the size that an RMBE begins with if it can be replaced, bytes.
    pub(crate) fn rmbe_min_bytes(&self) -> u32 {
        self.get(Setting::RmemMin)
    }

    /// Returns the size up to which the RMBE of a bulk transfer grows beyond SO_RCVBUF, bytes.
    pub(crate) fn rmbe_max_bytes(&self) -> u32 {
        self.get(Setting::RmemMax)
    }

    /// Returns the size up to which a send buffer grows beyond SO_SNDBUF, bytes.
    pub(crate) fn sndbuf_max_bytes(&self) -> u32 {
        self.get(Setting::WmemMax)
    }

    /// Returns true if new listeners limit handshakes to the number that can be processed at once.
    pub(crate) fn limits_handshakes(&self) -> bool {
        self.get(Setting::LimitHandshakes) != 0
    }

    /// Enables or disables that limit.
    pub(crate) fn limit_handshakes(&self, on: bool) {
        self.0.set(Setting::LimitHandshakes as usize, u32::from(on));
    }

    /// Returns true if connections within this kernel may use shared memory.
    pub(crate) fn has_smcd(&self) -> bool {
        self.get(Setting::Smcd) != 0
    }

    /// Returns the limits of link groups.
    pub(crate) fn limits(&self) -> Limits {
        let small = |setting| u8::try_from(self.get(setting)).unwrap_or(u8::MAX);
        Limits {
            max_conns: small(Setting::MaxConns),
            max_links: small(Setting::MaxLinks),
        }
    }

    /// Returns the idle time after which a link is tested; zero for never.
    pub(crate) fn test_after(&self) -> Duration {
        self.time(Setting::TestLink)
    }

    /// Returns how long a server keeps a link group without connections; a client keeps it a little longer
    /// ([`Role::idle_time`](smc_proto::lgr::Role::idle_time)).
    pub(crate) fn idle_time(&self) -> Duration {
        self.time(Setting::IdleTime)
    }

    fn time(&self, setting: Setting) -> Duration {
        // CAST: no bits are lost.
        Duration::from_nanos(time::nanos(self.get(setting) as Jiffies))
    }

    /// Returns the traffic class of the packets of link groups.
    pub(crate) fn traffic_class(&self) -> TrafficClass {
        TrafficClass::of_setting(self.0.get_signed(Setting::TrafficClass as usize))
    }

    /// Returns how the buffers of link groups lie in physical memory.
    pub(crate) fn buf_type(&self) -> BlockKind {
        match self.get(Setting::BufType) {
            1 => BlockKind::Virtual,
            2 => BlockKind::Either,
            _ => BlockKind::Contiguous,
        }
    }

    /// Returns the maximum number of messages in flight on a link, in each direction.
    pub(crate) fn depth(&self) -> QueueDepth {
        let slots = |setting| u16::try_from(self.get(setting)).unwrap_or(u16::MAX);
        QueueDepth {
            send: slots(Setting::MaxSendWr),
            recv: slots(Setting::MaxRecvWr),
        }
    }
}

/// Maximum number of messages in flight on a link. Others wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueDepth {
    /// To the peer.
    pub(crate) send: u16,
    /// From the peer. The default is three times that of a peer's sends, as in the C module.
    pub(crate) recv: u16,
}

impl QueueDepth {
    /// Returns the depth with at least `least` receives.
    pub(crate) fn with_receives(self, least: u16) -> Self {
        Self {
            recv: self.recv.max(least),
            ..self
        }
    }

    /// Returns the minimum of each.
    pub(crate) fn at_most(self, most: Self) -> Self {
        Self {
            send: self.send.min(most.send),
            recv: self.recv.min(most.recv),
        }
    }

    /// Halves it, but not below the defaults; returns whether that is a reduction.
    pub(crate) fn halve(&mut self) -> bool {
        let before = *self;
        self.send = self.send.min((self.send / 2).max(SEND_SLOTS));
        self.recv = self.recv.min((self.recv / 2).max(RECV_SLOTS));
        before.send != self.send || before.recv != self.recv
    }
}
