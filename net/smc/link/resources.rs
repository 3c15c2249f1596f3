// SPDX-License-Identifier: GPL-2.0

//! The part of a link that belongs to the RDMA device (attributes: C file `smc_ib.c`).

use kernel::{
    page::PAGE_SIZE,
    sync::Arc, //
};
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
use smc_proto::{
    buffer::SizeClass,
    cause::Cause,
    link::{
        credits,
        device::RdmaLimits,
        Transport, //
    },
    wire::{
        llc,
        SEND_LEN, //
    }, //
};

use super::Link;
use crate::config::QueueDepth;

/// Bytes of a message of any kind except the long ones of version 2.
const MSG_LEN: u32 = SEND_LEN as u32;

/// Bytes of the longest message that a peer may send.
const MAX_LEN: u32 = 8192;

/// Why there are no resources for a link.
#[derive(Clone, Copy)]
pub(crate) struct ResourceError {
    pub(crate) error: Error,
    /// What the device did not give.
    pub(crate) cause: Option<Cause>,
}

impl ResourceError {
    /// Returns a conversion of the errors of a step that needs something of the device.
    fn lacks(cause: Cause) -> impl Fn(Error) -> Self {
        move |error| Self {
            error,
            cause: Some(cause),
        }
    }
}

impl From<Error> for ResourceError {
    fn from(error: Error) -> Self {
        Self { error, cause: None }
    }
}

impl From<ResourceError> for Error {
    fn from(error: ResourceError) -> Self {
        error.error
    }
}

/// Returns the limits of a device.
pub(crate) fn limits(device: &Device) -> RdmaLimits {
    let limits = device.limits();
    RdmaLimits {
        send_sge: limits.max_send_sge,
        recv_sge: limits.max_recv_sge,
        work_requests: limits.max_qp_wr,
        completions: limits.max_cqe,
        comp_vectors: limits.num_comp_vectors,
        fast_reg_pages: limits.max_fast_reg_pages,
    }
}

/// Returns what a link needs at least of its device: two SGEs to send, for the end and the start of a ring, and the
/// registration of the smallest ring, see `Mr::ring`.
pub(crate) fn needs(transport: Transport) -> RdmaLimits {
    let least = QpConfig {
        send_slots: 1,
        send_len: MSG_LEN,
        large_len: 0,
        inline_len: 0,
        recv_slots: match transport {
            Transport::Roce => 1,
            Transport::Iwarp => credits::INITIAL,
        },
        recv_len: MAX_LEN,
        shared_v2_len: 0,
    };
    let work_requests = least.send_work_requests().max(least.recv_work_requests());
    let ring_pages = (SizeClass::SMALLEST.bytes() as usize).div_ceil(PAGE_SIZE);
    RdmaLimits {
        send_sge: 2,
        recv_sge: 1,
        work_requests,
        completions: work_requests,
        comp_vectors: 1,
        // CAST: a few pages.
        fast_reg_pages: 2 * ring_pages as u32,
    }
}

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
    ) -> Result<Arc<Self>, ResourceError> {
        loop {
            match Self::with_depth(device, depth, trailer) {
                Err(e) if e.error == ENOMEM && depth.halve() => {}
                result => return result,
            }
        }
    }

    fn with_depth(
        device: &Arc<Device>,
        depth: QueueDepth,
        trailer: u32,
    ) -> Result<Arc<Self>, ResourceError> {
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
        let lacks = ResourceError::lacks;
        let cq = |entries| Cq::new(device, entries).map_err(lacks(Cause::DeviceCqs));
        let send_cq = cq(config.send_work_requests())?;
        let recv_cq = cq(config.recv_work_requests())?;
        let pd = Pd::new(device).map_err(lacks(Cause::DeviceMrs))?;
        let qp = Qp::new(&pd, &send_cq, &recv_cq, &config).map_err(lacks(Cause::DeviceQps))?;
        let resources = Self {
            qp: Arc::new(qp, GFP_KERNEL).map_err(Error::from)?,
            recv_slots: config.recv_slots,
            pd,
            send_cq,
            recv_cq,
        };
        Ok(Arc::new(resources, GFP_KERNEL).map_err(Error::from)?)
    }
}
