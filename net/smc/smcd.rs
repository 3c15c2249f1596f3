// SPDX-License-Identifier: GPL-2.0

//! SMC-D within this kernel: connections between two of its sockets, in whatever network namespaces, by shared memory.
//!
//! Both sockets share one [`Pair`](pair::Pair): a ring for each direction, which the writer's copy fills and the
//! reader's copy empties, and two counters that say how far each is. No message is sent, no work is queued, and no
//! lock is taken by both sides while data move. Rings are made when first written to, grow with use, and are given
//! back when idle.
//!
//! How both ends find each other is in [`device`] and in `handshake/smcd.rs`; what an application sees is TCP's
//! behaviour, by the rules in [`smc_proto::smcd`]. C counterpart: `drivers/dibs/dibs_loopback.c` with `smc_ism.c`.

mod close;
mod device;
mod idle;
mod pair;
mod pipe;
mod poll;
mod rx;
mod tx;
mod wake;

pub(crate) use device::{
    attach,
    group_id,
    own_gid,
    SmcdDevice,
    SmcdOffer, //
};
pub(crate) use pair::{
    connections,
    SmcdConn, //
};
pub(crate) use pipe::ring_bytes;
