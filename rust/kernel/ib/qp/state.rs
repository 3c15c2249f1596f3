// SPDX-License-Identifier: GPL-2.0

//! State transitions of a reliable connected queue pair.

use kernel::error::to_result;

use super::{
    Handler,
    Qp, //
};
use crate::{
    bindings,
    ib::IbMtu,
    prelude::*, //
};

/// What a RoCE queue pair needs to know of its peer to receive.
#[derive(Clone, Copy, Debug)]
pub struct RtrAttr {
    /// Own port.
    pub port: u32,
    /// The smaller of both sides' MTU.
    pub path_mtu: IbMtu,
    /// The peer's queue pair number.
    pub dest_qpn: u32,
    /// The peer's first packet sequence number, 24 bits.
    pub rq_psn: u32,
    /// The peer's GID.
    pub dgid: [u8; 16],
    /// Index of the own GID.
    pub sgid_index: u8,
    /// Traffic class of the packets that are sent: the byte in the IP header of RoCE v2, and in the GRH of RoCE v1.
    pub traffic_class: u8,
    /// Number of routers on the path, plus one.
    pub hop_limit: u8,
    /// MAC address of the peer or of the next router.
    pub dmac: [u8; 6],
}

/// Local acknowledgement timeout: 4.096 us * 2^15.
const TIMEOUT: u8 = 15;
/// Number of retransmissions before the connection breaks.
const RETRY_COUNT: u8 = 7;
/// Infinite: the peer may be out of receives for any time.
const RNR_RETRY: u8 = 7;
/// 0.06 ms that a peer waits after we were out of receives.
const MIN_RNR_TIMER: u8 = 5;

impl<H: Handler> Qp<H> {
    /// From Reset to Init: the peer may write, receives may be posted.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// The driver's error, `EINVAL` in the wrong state or for a port that the device does not have.
    pub fn to_init(&self, port: u32) -> Result {
        if !self.core().pd().device().has_port(port) {
            return Err(EINVAL);
        }
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_INIT,
            pkey_index: 0,
            port_num: port,
            qp_access_flags: (bindings::ib_access_flags_IB_ACCESS_LOCAL_WRITE
                | bindings::ib_access_flags_IB_ACCESS_REMOTE_WRITE)
                as i32,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_PKEY_INDEX
                | bindings::ib_qp_attr_mask_IB_QP_ACCESS_FLAGS
                | bindings::ib_qp_attr_mask_IB_QP_PORT,
        )
    }

    /// From Init to Ready to Receive.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// The driver's error, `EINVAL` in the wrong state or for a GID that was removed.
    pub fn to_rtr(&self, peer: &RtrAttr) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTR,
            path_mtu: u32::from(peer.path_mtu.code()),
            ah_attr: bindings::rdma_ah_attr {
                type_: bindings::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_ROCE,
                ah_flags: bindings::ib_ah_flags_IB_AH_GRH as u8,
                port_num: peer.port,
                grh: bindings::ib_global_route {
                    dgid: bindings::ib_gid { raw: peer.dgid },
                    sgid_index: peer.sgid_index,
                    traffic_class: peer.traffic_class,
                    hop_limit: peer.hop_limit,
                    ..Default::default()
                },
                __bindgen_anon_1: bindings::rdma_ah_attr__bindgen_ty_1 {
                    roce: bindings::roce_ah_attr { dmac: peer.dmac },
                },
                ..Default::default()
            },
            dest_qp_num: peer.dest_qpn,
            rq_psn: peer.rq_psn,
            max_dest_rd_atomic: 1,
            min_rnr_timer: MIN_RNR_TIMER,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_AV
                | bindings::ib_qp_attr_mask_IB_QP_PATH_MTU
                | bindings::ib_qp_attr_mask_IB_QP_DEST_QPN
                | bindings::ib_qp_attr_mask_IB_QP_RQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_DEST_RD_ATOMIC
                | bindings::ib_qp_attr_mask_IB_QP_MIN_RNR_TIMER,
        )
    }

    /// From Ready to Receive to Ready to Send, with our first packet sequence number (24 bits).
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// The driver's error, `EINVAL` in the wrong state.
    pub fn to_rts(&self, sq_psn: u32) -> Result {
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_RTS,
            timeout: TIMEOUT,
            retry_cnt: RETRY_COUNT,
            rnr_retry: RNR_RETRY,
            sq_psn,
            max_rd_atomic: 1,
            ..Default::default()
        };
        self.modify(
            &mut attr,
            bindings::ib_qp_attr_mask_IB_QP_STATE
                | bindings::ib_qp_attr_mask_IB_QP_TIMEOUT
                | bindings::ib_qp_attr_mask_IB_QP_RETRY_CNT
                | bindings::ib_qp_attr_mask_IB_QP_RNR_RETRY
                | bindings::ib_qp_attr_mask_IB_QP_SQ_PSN
                | bindings::ib_qp_attr_mask_IB_QP_MAX_QP_RD_ATOMIC,
        )
    }

    /// To Error: all work requests, present and future, complete as [`Status::Flushed`](super::Status::Flushed), and
    /// receives are not posted again. The completions release what they hold. A queue pair to which nothing was posted
    /// is left as it is: there is no transition from Reset.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn to_error(&self) -> Result {
        self.core().stop_receiving();
        if !self.core().was_posted_to() {
            return Ok(());
        }
        let mut attr = bindings::ib_qp_attr {
            qp_state: bindings::ib_qp_state_IB_QPS_ERR,
            ..Default::default()
        };
        self.modify(&mut attr, bindings::ib_qp_attr_mask_IB_QP_STATE)
    }

    fn modify(&self, attr: &mut bindings::ib_qp_attr, mask: bindings::ib_qp_attr_mask) -> Result {
        // SAFETY: The queue pair is valid by the type invariant of its core; the mask names fields
        // that are set. The RDMA core checks states and GID index; the port was checked by `to_init`.
        to_result(unsafe { bindings::ib_modify_qp(self.core().as_ptr(), attr, mask as i32) })
    }
}
