// SPDX-License-Identifier: GPL-2.0

//! The part of a link that belongs to the RDMA device (attributes: C file `smc_ib.c`).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::ib::{
    Config,
    Cq,
    Device,
    Pd,
    PollContext,
    Qp, //
};

use super::{
    control::MAX_CONTROL,
    Link, //
};

/// Bytes of a message of any kind but the long ones of version 2.
pub(super) const MSG_LEN: u32 = 44;

/// Send slots of a link, and receives posted. A receive queue of three times the peer's send slots
/// is what C peers have; a peer that sends more waits.
const SEND_SLOTS: u16 = 16;
const RECV_SLOTS: u16 = 48;

/// What belongs to the RDMA device.
pub(crate) struct Hardware {
    pub(crate) qp: Qp<Link>,
    pub(crate) pd: Arc<Pd>,
}

impl Hardware {
    pub(super) fn new(device: &Arc<Device>) -> Result<Arc<Self>> {
        let config = Config {
            send_slots: SEND_SLOTS,
            send_len: MSG_LEN,
            // For control messages, which must not wait behind data.
            large_len: MAX_CONTROL as u32,
            // All messages, and the data of small requests and answers.
            inline_len: 128,
            recv_slots: RECV_SLOTS,
            recv_len: MSG_LEN,
            spill_len: if device.limits().max_recv_sge >= 2 {
                8148
            } else {
                0
            },
        };
        let cq = |entries| Cq::new(device, entries, PollContext::Workqueue);
        let send_cq = cq(config.send_work_requests())?;
        let recv_cq = cq(config.recv_work_requests())?;
        let pd = Pd::new(device)?;
        let qp = Qp::new(&pd, &send_cq, &recv_cq, &config)?;
        Ok(Arc::new(Self { qp, pd }, GFP_KERNEL)?)
    }
}
