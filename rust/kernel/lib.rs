// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers over the parts of the kernel that the in-tree `kernel` crate does not cover yet.
//!
//! All `unsafe` code of the module lives here. Each file is written as if for `rust/kernel`: one C subsystem each, with
//! a link to its C header first.

#![crate_name = "kernel_ext"]
#![cfg_attr(not(CONFIG_RUST), no_std)]

mod compat;
pub mod delayed_work;
pub mod genl;
pub mod global;
pub mod ib;
mod ifaddr;
pub mod module;
pub mod net;
pub mod param;
pub mod random;
pub mod ratelimit;
pub mod read_once;
pub mod record;
pub mod route;
pub mod shrinker;
pub mod sock_diag;
pub mod spinlock_bh;
pub mod time;
pub mod trace;
pub mod uapi;
pub mod utsname;
pub mod window;
pub mod workqueue;

pub use compat::{
    barrier,
    prelude,
    rcu, //
};

use bindings_ext as bindings;

/// Prefix of the messages printed by this crate.
#[allow(dead_code, reason = "used by the pr_* macros")]
const __LOG_PREFIX: &[u8] = b"smc\0";
