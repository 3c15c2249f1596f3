// SPDX-License-Identifier: GPL-2.0

//! SMC-R (RFC 7609): stream sockets over RDMA, as the `PF_SMC` socket family.

#![crate_name = "smc"]
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

use kernel::prelude::*;

module! {
    type: Smc,
    name: "smc",
    authors: ["SMC developers"],
    description: "SMC-R: stream sockets over RDMA (RFC 7609)",
    license: "GPL",
    alias: ["net-pf-43"],
}

/// The loaded module. Fields drop in order of declaration, which is the order of teardown.
struct Smc {
    _option: kernel_ext::TcpHaveSmc,
}

impl kernel::Module for Smc {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _option: kernel_ext::TcpHaveSmc::enable(),
        })
    }
}
