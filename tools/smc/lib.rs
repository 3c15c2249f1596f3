// SPDX-License-Identifier: GPL-2.0

//! Code shared by the `smc` command and the guest tests: netlink, the records that it returns, the
//! path of a socket.

#![forbid(unsafe_code)]

pub mod diag;
pub mod flow;
pub mod genl;
pub mod memory;
pub mod netdevs;
pub mod netlink;
pub mod path;
pub mod pnet;
pub mod rdma;
pub mod route;
pub mod rules;
pub mod smcd;
pub mod socket;
pub mod stats;
pub mod view;
