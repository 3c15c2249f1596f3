// SPDX-License-Identifier: GPL-2.0

//! Completions of work requests.

use kernel::fmt::{self, Display};

use crate::bindings;

/// The completion of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// Success, or what went wrong.
    pub status: Status,
    /// Bytes received, for a successful receive.
    pub byte_len: u32,
    /// The immediate data of the write that a successful receive stands for, a number in host byte order; `None` if a
    /// message was received.
    pub written: Option<u32>,
    /// The device's own code for an error.
    pub vendor_err: u32,
}

/// Status of a completed work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Success,
    /// Not started: the queue pair was in the error state.
    Flushed,
    /// The peer did not respond.
    RetryExceeded,
    /// The peer had no receive posted for too long.
    RnrRetryExceeded,
    /// Such access to the peer's memory is not allowed.
    RemoteAccess,
    /// The peer could not carry out the request.
    RemoteOperation,
    /// Such access to local memory is not allowed.
    LocalProtection,
    /// The message did not fit the receive.
    LocalLength,
    /// Any other, as `enum ib_wc_status`.
    Other(u32),
}

impl Status {
    /// Number of the status in `enum ib_wc_status`.
    pub fn code(self) -> u32 {
        match self {
            Self::Success => bindings::ib_wc_status_IB_WC_SUCCESS,
            Self::Flushed => bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR,
            Self::RetryExceeded => bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR,
            Self::RnrRetryExceeded => bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR,
            Self::RemoteAccess => bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR,
            Self::RemoteOperation => bindings::ib_wc_status_IB_WC_REM_OP_ERR,
            Self::LocalProtection => bindings::ib_wc_status_IB_WC_LOC_PROT_ERR,
            Self::LocalLength => bindings::ib_wc_status_IB_WC_LOC_LEN_ERR,
            Self::Other(code) => code,
        }
    }

    /// Whether the work request succeeded.
    pub fn is_success(self) -> bool {
        self == Self::Success
    }

    pub(super) fn from_code(code: u32) -> Self {
        match code {
            bindings::ib_wc_status_IB_WC_SUCCESS => Self::Success,
            bindings::ib_wc_status_IB_WC_WR_FLUSH_ERR => Self::Flushed,
            bindings::ib_wc_status_IB_WC_RETRY_EXC_ERR => Self::RetryExceeded,
            bindings::ib_wc_status_IB_WC_RNR_RETRY_EXC_ERR => Self::RnrRetryExceeded,
            bindings::ib_wc_status_IB_WC_REM_ACCESS_ERR => Self::RemoteAccess,
            bindings::ib_wc_status_IB_WC_REM_OP_ERR => Self::RemoteOperation,
            bindings::ib_wc_status_IB_WC_LOC_PROT_ERR => Self::LocalProtection,
            bindings::ib_wc_status_IB_WC_LOC_LEN_ERR => Self::LocalLength,
            other => Self::Other(other),
        }
    }
}

impl Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("success"),
            Self::Flushed => f.write_str("flushed"),
            Self::RetryExceeded => f.write_str("the peer does not answer"),
            Self::RnrRetryExceeded => f.write_str("the peer takes no messages"),
            Self::RemoteAccess => f.write_str("no access to the peer's memory"),
            Self::RemoteOperation => f.write_str("the peer failed"),
            Self::LocalProtection => f.write_str("no access to own memory"),
            Self::LocalLength => f.write_str("message too long"),
            Self::Other(code) => write!(f, "status {code}"),
        }
    }
}

impl Wc {
    /// The completion of a work request that was lost with its queue pair.
    pub(super) const LOST: Self = Self {
        status: Status::Flushed,
        written: None,
        byte_len: 0,
        vendor_err: 0,
    };

    pub(super) fn new(wc: &bindings::ib_wc) -> Self {
        let status = Status::from_code(wc.status);
        let is_write = match wc.opcode {
            bindings::ib_wc_opcode_IB_WC_RECV_RDMA_WITH_IMM => true,
            bindings::ib_wc_opcode_IB_WC_RECV => is_hns_write(wc),
            _ => false,
        };
        Self {
            status,
            written: (status.is_success() && is_write).then(|| {
                // SAFETY: The completion of such a receive has immediate data; any bits are valid.
                u32::from_be(unsafe { wc.ex.imm_data })
            }),
            // Undefined in a failed completion.
            byte_len: if status.is_success() { wc.byte_len } else { 0 },
            vendor_err: if status.is_success() {
                0
            } else {
                wc.vendor_err
            },
        }
    }
}

/// Whether a receive that looks like one of a message is one of a write with immediate data. The kernel's driver `hns`
/// looks its operation up in a table for those of sends. Other drivers leave the flag of an earlier completion there
/// (`ocrdma`).
fn is_hns_write(wc: &bindings::ib_wc) -> bool {
    let has_imm = wc.wc_flags & bindings::ib_wc_flags_IB_WC_WITH_IMM as i32 != 0;
    // SAFETY: A completion carries its queue pair, which lives until its completions were handled; the driver's number
    // is constant.
    has_imm
        && unsafe { (*(*wc.qp).device).ops.driver_id } == bindings::rdma_driver_id_RDMA_DRIVER_HNS
}
