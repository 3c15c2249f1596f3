// SPDX-License-Identifier: GPL-2.0

//! What a peer does, and how the kernel has to answer.

use std::net::Ipv4Addr;
use std::ops::Range;

use smc_user::Errno;

use super::messages::Messages;

/// One step of a peer.
pub(super) enum Step {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Drip(Vec<u8>),
    /// The same, slowly.
    Trickle(Vec<u8>),
    /// Waits for a message.
    Receive,
    /// Closes its direction.
    Close,
    /// Resets.
    Reset,
}

/// How the kernel answers in the end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// With a message, or with the end of the connection.
    Any,
    /// With the end of the connection. If it was the kernel that connected, connect(2) says this.
    Lost(Errno),
    /// With a DECLINE for this reason, and goes on over TCP.
    Declined(u32),
    /// With nothing, and goes on over TCP.
    Tcp,
}

/// What one peer does.
pub(super) struct Script {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
    pub(super) answer: Answer,
    /// Seconds in which the answer comes, from the beginning of the last step on.
    pub(super) takes: Range<u64>,
}

impl Script {
    pub(super) fn new(name: impl Into<String>, steps: Vec<Step>, answer: Answer) -> Self {
        Self {
            name: name.into(),
            steps,
            answer,
            takes: 0..PROMPT,
        }
    }

    /// The kernel has to wait for something that does not come: at least `from` seconds, and not
    /// much longer.
    pub(super) fn after(mut self, from: u64) -> Self {
        // The kernel's time began somewhat earlier.
        self.takes = from - 1..from + PROMPT;
        self
    }
}

/// Has those come last after which the kernel avoids the path to the peer for a while, as none of its packets came.
pub(super) fn silent_last(mut scripts: Vec<Script>) -> Vec<Script> {
    scripts.sort_by_key(|script| {
        matches!(
            script.answer,
            Answer::Declined(reason::TIMEOUT_CONFIRM_LINK)
        )
    });
    scripts
}

/// Seconds in which a debug kernel on a loaded machine does what it could do at once.
const PROMPT: u64 = 10;

/// Gives each script a peer of its own.
pub(super) struct Peers {
    address: Ipv4Addr,
    last: u16,
}

impl Peers {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self { address, last: 0 }
    }

    /// The messages of another peer.
    pub(super) fn next(&mut self) -> Messages {
        self.last += 1;
        Messages::of(self.address, self.last)
    }
}

/// Reasons of a DECLINE (RFC 7609 appendix A.2.5; names as in `net/smc/proto/reason.rs`).
pub(super) mod reason {
    pub(in super::super) const TIMEOUT_CONFIRM_LINK: u32 = 0x0201_0000;
    pub(in super::super) const LINK_NOT_READY: u32 = 0x0999_0002;
    pub(in super::super) const PEER_NO_SMC: u32 = 0x0301_0000;
    pub(in super::super) const NO_SMC_DEVICE: u32 = 0x0303_0000;
    pub(in super::super) const NO_SMCR_DEVICE: u32 = 0x0303_0002;
    pub(in super::super) const NO_ISM_V2_SUPPORT: u32 = 0x0303_0003;
    pub(in super::super) const NO_UEID: u32 = 0x0303_0008;
    pub(in super::super) const RELEASE_ERROR: u32 = 0x0303_0009;
    pub(in super::super) const MAX_CONNS_ERROR: u32 = 0x0303_000a;
    pub(in super::super) const MAX_LINKS_ERROR: u32 = 0x0303_000b;
    pub(in super::super) const MODE_UNSUPPORTED: u32 = 0x0304_0000;
    pub(in super::super) const NO_SERVER_LINK: u32 = 0x030b_0000;
    pub(in super::super) const NO_INDIRECT: u32 = 0x030f_0000;
    pub(in super::super) const SYNC_ERROR: u32 = 0x0400_0000;
}
