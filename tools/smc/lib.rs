// SPDX-License-Identifier: GPL-2.0

//! What the `smc` command and the guest tests share: netlink, the
//! records that it gives, a socket's path.

#![forbid(unsafe_code)]

pub mod diag;
pub mod genl;
pub mod memory;
pub mod netlink;
pub mod path;
pub mod pnet;
pub mod route;
pub mod stats;
pub mod view;
