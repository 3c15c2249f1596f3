// SPDX-License-Identifier: GPL-2.0

//! What a peer sends, and how the kernel must answer.

use std::net::Ipv4Addr;
use std::ops::Range;

use smc_user::Errno;

use super::messages::Messages;
use super::messages::TYPE_ACCEPT;
use super::messages::TYPE_CONFIRM;

/// One step of a peer.
pub(super) enum Step {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Drip(Vec<u8>),
    /// Sends bytes one by one, with pauses.
    Trickle(Vec<u8>),
    /// Waits for a message.
    Receive,
    /// Closes its direction.
    Close,
    /// Resets.
    Reset,
}

/// Seconds that the kernel waits for a message.
pub(super) const HANDSHAKE_S: u64 = 6;

/// The final reaction of the kernel.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Nobody is left to see it.
    Unseen,
    /// One of several: the message was changed at random.
    OneOf(&'static Ends),
    /// The next message of the handshake, of this type.
    Next(u8),
    /// The end of the connection. If the kernel had connected, connect(2) fails with this errno.
    Lost(Errno),
    /// The end of the connection, and another one without SMC.
    Again,
    /// A DECLINE with this reason, then TCP.
    Declined(u32),
    /// No message, then TCP.
    Tcp,
}

/// What the kernel may do with a message that was changed at random. It may also end the connection without a word.
#[derive(Debug)]
pub(super) struct Ends {
    /// Type of the message that is due for a good one, if any.
    pub(super) next: Option<u8>,
    /// Reasons of a DECLINE.
    pub(super) reasons: &'static [u32],
}

/// Ends after a PROPOSAL.
pub(super) const PROPOSAL_ENDS: Ends = Ends {
    next: Some(TYPE_ACCEPT),
    reasons: &[
        reason::PEER_NO_SMC,
        reason::NO_SMC_DEVICE,
        reason::NO_SMCD_DEVICE,
        reason::NO_SMCR_DEVICE,
        reason::NO_ISM_V2_SUPPORT,
        reason::NO_V2_EXTENSION,
        reason::NO_V2D_EXTENSION,
        reason::NO_SMCD2_DEVICE,
        reason::NO_UEID,
        reason::MAX_CONNS_ERROR,
        reason::MAX_LINKS_ERROR,
        reason::DIFFERENT_PREFIX,
    ],
};

/// Ends after an ACCEPT.
pub(super) const ACCEPT_ENDS: Ends = Ends {
    next: Some(TYPE_CONFIRM),
    reasons: &[
        reason::NO_SMCR_DEVICE,
        reason::RELEASE_ERROR,
        reason::MAX_CONNS_ERROR,
        reason::MAX_LINKS_ERROR,
        reason::MODE_UNSUPPORTED,
        reason::NO_SERVER_LINK,
        reason::NO_ROUTE,
        reason::NO_INDIRECT,
        reason::SYNC_ERROR,
    ],
};

/// Ends after a CONFIRM: no packet reaches the peer that it names.
pub(super) const CONFIRM_ENDS: Ends = Ends {
    next: None,
    reasons: &[
        reason::TIMEOUT_CONFIRM_LINK,
        reason::RELEASE_ERROR,
        reason::MAX_CONNS_ERROR,
        reason::MAX_LINKS_ERROR,
        reason::MODE_UNSUPPORTED,
        reason::LINK_NOT_READY,
    ],
};

/// A test case for one peer.
pub(super) struct Script {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
    pub(super) answer: Answer,
    /// Allowed seconds from the beginning of the last step until the answer.
    pub(super) takes: Range<u64>,
    /// What the peer sends when it has the kernel's DECLINE, before data.
    pub(super) crossing: Vec<u8>,
}

impl Script {
    pub(super) fn new(name: impl Into<String>, steps: Vec<Step>, answer: Answer) -> Self {
        // What was changed at random may be a message that lacks its end.
        let wait = match answer {
            Answer::OneOf(_) => HANDSHAKE_S,
            _ => 0,
        };
        Self {
            name: name.into(),
            steps,
            answer,
            takes: 0..wait + PROMPT,
            crossing: Vec::new(),
        }
    }

    /// The peer's DECLINE crosses the kernel's, and no application may read it.
    pub(super) fn crossed_by(mut self, decline: &[u8]) -> Self {
        self.crossing = decline.to_vec();
        self
    }

    /// Whether the peer closes its direction.
    pub(super) fn closes(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Close))
    }

    /// Whether what the peer sends first is no CLC message.
    pub(super) fn is_other_protocol(&self) -> bool {
        let first = self.steps.iter().find_map(|step| match step {
            Step::Send(bytes) => bytes.first_chunk(),
            _ => None,
        });
        first.is_some_and(|eye_catcher| !EYE_CATCHERS.contains(eye_catcher))
    }

    /// The kernel must time out: the answer takes at least `from` seconds, and not much longer.
    pub(super) fn after(mut self, from: u64) -> Self {
        // The kernel's timer started somewhat earlier.
        self.takes = from - 1..from + PROMPT;
        self
    }
}

/// SMCR and SMCD, in EBCDIC.
const EYE_CATCHERS: [[u8; 4]; 2] = [[0xe2, 0xd4, 0xc3, 0xd9], [0xe2, 0xd4, 0xc3, 0xc4]];

/// Moves those scripts to the end after which the kernel avoids the path to the peer for a while,
/// since no RDMA packet arrived.
pub(super) fn silent_last(mut scripts: Vec<Script>) -> Vec<Script> {
    scripts.sort_by_key(|script| {
        matches!(
            script.answer,
            Answer::Declined(reason::TIMEOUT_CONFIRM_LINK)
        )
    });
    scripts
}

/// Seconds that a debug kernel on a loaded machine may take for an immediate answer.
const PROMPT: u64 = 10;

/// Assigns each script a peer with its own identity.
pub(super) struct Peers {
    address: Ipv4Addr,
    last: u16,
}

impl Peers {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self { address, last: 0 }
    }

    /// Returns the messages of the next peer.
    pub(super) fn next(&mut self) -> Messages {
        self.last += 1;
        Messages::of(self.address, self.last)
    }
}

/// Reasons of a DECLINE (RFC 7609 appendix A.2.5; names as in `net/smc/proto/reason.rs`).
pub(super) mod reason {
    pub(in super::super) const TIMEOUT_CONFIRM_LINK: u32 = 0x0201_0000;
    pub(in super::super) const INTERNAL: u32 = 0x0999_0000;
    pub(in super::super) const LINK_NOT_READY: u32 = 0x0999_0002;
    pub(in super::super) const PEER_NO_SMC: u32 = 0x0301_0000;
    pub(in super::super) const NO_SMC_DEVICE: u32 = 0x0303_0000;
    pub(in super::super) const NO_SMCD_DEVICE: u32 = 0x0303_0001;
    pub(in super::super) const NO_SMCR_DEVICE: u32 = 0x0303_0002;
    pub(in super::super) const NO_ISM_V2_SUPPORT: u32 = 0x0303_0003;
    pub(in super::super) const NO_V2_EXTENSION: u32 = 0x0303_0004;
    pub(in super::super) const NO_V2D_EXTENSION: u32 = 0x0303_0005;
    pub(in super::super) const NO_SMCD2_DEVICE: u32 = 0x0303_0007;
    pub(in super::super) const NO_UEID: u32 = 0x0303_0008;
    pub(in super::super) const RELEASE_ERROR: u32 = 0x0303_0009;
    pub(in super::super) const MAX_CONNS_ERROR: u32 = 0x0303_000a;
    pub(in super::super) const MAX_LINKS_ERROR: u32 = 0x0303_000b;
    pub(in super::super) const MODE_UNSUPPORTED: u32 = 0x0304_0000;
    pub(in super::super) const DIFFERENT_PREFIX: u32 = 0x0307_0000;
    pub(in super::super) const NO_SERVER_LINK: u32 = 0x030b_0000;
    pub(in super::super) const NO_ROUTE: u32 = 0x030e_0000;
    pub(in super::super) const NO_INDIRECT: u32 = 0x030f_0000;
    pub(in super::super) const SYNC_ERROR: u32 = 0x0400_0000;
}
