// SPDX-License-Identifier: GPL-2.0

//! The SMC option of TCP (RFC 7609, section 3.1), by which both ends of a connection learn that the other one can do
//! SMC: the client has it in its SYN, and the server in its SYN-ACK if the SYN had it.
//!
//! A kernel with `CONFIG_SMC` has hooks for it in TCP itself. Most distributions build theirs without, and there
//! netfilter writes the option. Both ways have the same functions.

#[cfg(not(CONFIG_SMC))]
mod af_ops;
#[cfg(not(CONFIG_SMC))]
mod header;
#[cfg(not(CONFIG_SMC))]
mod netfilter;
#[cfg(not(CONFIG_SMC))]
mod saved_syn;
#[cfg(not(CONFIG_SMC))]
use netfilter as way;

#[cfg(CONFIG_SMC)]
mod hooks;
#[cfg(CONFIG_SMC)]
use hooks as way;

#[cfg(not(CONFIG_SMC))]
pub(super) use way::Offer;
pub use way::SynOption;
pub(super) use way::{
    accepted,
    hook_listener,
    unaccepted_syn_smc,
    unhook_listener,
    with_own_save_syn, //
};
