// SPDX-License-Identifier: GPL-2.0

//! The settings of a network namespace (`net.smc.*`).

use kernel_ext::net::Sk;
use smc_proto::wire::clc::Limits;

/// What an administrator may set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    autocorking_size: u32,
    wmem: u32,
    rmem: u32,
    max_links: u8,
    max_conns: u8,
    limit_smc_hs: bool,
}

/// As the C module has them.
const DEFAULTS: Settings = Settings {
    autocorking_size: 64 * 1024,
    wmem: 64 * 1024,
    rmem: 64 * 1024,
    max_links: 2,
    max_conns: 255,
    limit_smc_hs: false,
};

/// The settings for a socket.
pub(crate) fn of(_sk: &Sk) -> Settings {
    DEFAULTS
}

/// How large link groups may be.
pub(crate) fn limits() -> Limits {
    Limits {
        max_conns: DEFAULTS.max_conns,
        max_links: DEFAULTS.max_links,
    }
}

impl Settings {
    /// What SO_SNDBUF reports at first, in bytes.
    pub(crate) fn wmem_bytes(self) -> u32 {
        self.wmem.saturating_mul(2)
    }

    /// What SO_RCVBUF reports at first, in bytes.
    pub(crate) fn rmem_bytes(self) -> u32 {
        self.rmem.saturating_mul(2)
    }

    /// How much to collect while a message is under way, in bytes.
    pub(crate) fn autocork_bytes(self) -> u32 {
        self.autocorking_size
    }

    /// Whether new listeners take on no more handshakes than can be worked on at once.
    pub(crate) fn limits_handshakes(self) -> bool {
        self.limit_smc_hs
    }
}
