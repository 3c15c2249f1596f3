// SPDX-License-Identifier: GPL-2.0

//! RDMA verbs for in-kernel users: devices, protection domains, completion queues, queue pairs,
//! memory regions.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)
//!
//! # Lifetimes
//!
//! Every object made from a [`Device`] holds a counted reference to it, and the removal of the device waits until the
//! last one is dropped: no object outlives its `ib_device`. Verbs destructors may sleep and wait for completions, so
//! they run in a worker ([`deferred`]) rather than where the object is dropped; every object of this module may be
//! dropped in any context, including a completion handler.
//!
//! # Work requests
//!
//! A work request keeps what the device or its completion still needs: the handler object, the caller's value, and the
//! memory it reads or writes. The completion releases all of it exactly once; none of it can be freed earlier. Slots
//! are allocated with the queue pair; posting does not allocate and never sleeps.

mod block;
mod client;
mod cq;
mod deferred;
mod device;
mod gid;
mod iwarp;
mod map;
mod mr;
mod mtu;
mod pd;
mod qp;
mod source;
mod wr;

pub use self::{
    block::{Block, BlockKind},
    client::{Client, ClientKey, ClientRegistration, IbEvent},
    cq::Cq,
    device::{Device, DeviceLimits, Name, NetdevId, NodeType, PciId, PortAttr},
    gid::{GidEntry, GidKind},
    iwarp::{IwConn, IwListener},
    map::{DmaDirection, Mapping},
    mr::Mr,
    mtu::IbMtu,
    pd::Pd,
    qp::{Handler, PostError, Qp, QpConfig, RecvMessage, RtrAttr, SendSlot, Write},
    source::WriteSource,
    wr::{Status, Wc},
};
