// SPDX-License-Identifier: GPL-2.0

//! SMC-R (RFC 7609 and its second version) as pure functions and tables.
//!
//! No kernel, no `unsafe`, no allocation, no input or output: bytes, times and random numbers come
//! in as arguments, parsed messages, next states and lists of actions go out. The kernel module
//! carries the actions out; the tests on the host join two cores by a simulated network.
//!
//! | modules | what they hold |
//! | --- | --- |
//! | [`id`], [`time`], [`error`] | words that everything else uses |
//! | [`wire`] | every byte on the wire: parsed once, into types that cannot hold nonsense |
//! | [`mod@transitions`] | state tables as data |
//! | [`policy`] | whether a connection may use SMC |
//! | [`handshake`], [`pnet`], [`reason`], [`cause`] | which version, device, link and buffer two peers agree on |
//! | [`link`], [`lgr`], [`llc`] | links and link groups, and the flows that change them |
//! | [`buffer`], [`cursor`], [`conn`] | one connection: sizes, rings, data, close |
//! | [`smcd`] | a connection within one kernel, by shared memory |

#![cfg_attr(not(any(CONFIG_RUST, test)), no_std)]
#![crate_name = "smc_proto"]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    expect(
        clippy::unwrap_used,
        clippy::indexing_slicing,
        reason = "a test that meets one of these has failed, which is its purpose"
    )
)]

pub mod buffer;
pub mod cause;
pub mod conn;
pub mod cursor;
pub mod error;
mod explained;
mod flags;
pub mod handshake;
pub mod id;
pub mod lgr;
pub mod link;
pub mod llc;
pub mod pnet;
pub mod policy;
pub mod reason;
pub mod smcd;
pub mod time;
pub mod transitions;
pub mod wire;
