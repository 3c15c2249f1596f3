// SPDX-License-Identifier: GPL-2.0

//! The part of a link that belongs to the RDMA device (attributes: C file `smc_ib.c`).

use kernel::sync::Arc;
use kernel_ext::{
    ib::{
        Cq,
        Device,
        Pd,
        Qp,
        QpConfig, //
    },
    prelude::*, //
};
use smc_proto::wire::{
    llc,
    SEND_LEN, //
};

use super::Link;
use crate::config::QueueDepth;

/// Bytes of a message of any kind except the long ones of version 2.
const MSG_LEN: u32 = SEND_LEN as u32;

/// Bytes of the longest message that a peer may send.
const MAX_LEN: u32 = 8192;

/// Resources of the RDMA device.
pub(crate) struct IbResources {
    pub(crate) qp: Arc<Qp<Link>>,
    /// Number of posted receives.
    pub(super) recv_slots: u16,
    pub(crate) pd: Arc<Pd>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
}

impl IbResources {
    /// Creates the resources with queues of `depth`, or less if memory is short: not below the default. Each message
    /// has room for `trailer` bytes after it.
    pub(super) fn new(
        device: &Arc<Device>,
        mut depth: QueueDepth,
        trailer: u32,
    ) -> Result<Arc<Self>> {
        loop {
            match Self::with_depth(device, depth, trailer) {
                Err(e) if e == ENOMEM && depth.halve() => {}
                result => return result,
            }
        }
    }

    fn with_depth(device: &Arc<Device>, depth: QueueDepth, trailer: u32) -> Result<Arc<Self>> {
        // The long messages of version 2 go to one place for all receives, if the device supports that.
        let (recv_len, shared_v2_len) = match device.limits().max_recv_sge {
            0 | 1 => (MAX_LEN + trailer, 0),
            _ => (MSG_LEN + trailer, MAX_LEN - MSG_LEN),
        };
        let config = QpConfig {
            send_slots: depth.send,
            send_len: MSG_LEN + trailer,
            // For control messages, which must not wait behind data.
            large_len: llc::MAX_LEN as u32 + trailer,
            // All messages, and the data of small requests and answers.
            inline_len: 128,
            recv_slots: depth.recv,
            recv_len,
            shared_v2_len,
        }
        .within(device.limits());
        let cq = |entries| Cq::new(device, entries);
        let send_cq = cq(config.send_work_requests())?;
        let recv_cq = cq(config.recv_work_requests())?;
        let pd = Pd::new(device)?;
        let qp = Qp::new(&pd, &send_cq, &recv_cq, &config)?;
        let resources = Self {
            qp: Arc::new(qp, GFP_KERNEL)?,
            recv_slots: config.recv_slots,
            pd,
            send_cq,
            recv_cq,
        };
        Ok(Arc::new(resources, GFP_KERNEL)?)
    }
}
