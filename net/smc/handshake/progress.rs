// SPDX-License-Identifier: GPL-2.0

//! How far the handshake of an accepted connection is, as seen by the handshakes of other connections to the listener:
//! whether the client's connect(2) may have returned.

use kernel::{
    new_spinlock,
    sync::{
        Arc,
        SpinLock, //
    }, //
};
use kernel_ext::{
    net::TcpSocket,
    prelude::*, //
};
use smc_proto::wire::clc::{
    ClcMessage,
    ClcType, //
};

use crate::{
    clc::{
        self,
        ClcWatcher, //
    },
    lgr::LinkGroup, //
};

/// What a server's handshake waits for.
#[derive(Clone)]
enum HandshakeStep {
    /// The PROPOSAL, or the server itself. Only a DECLINE lets the client go on.
    Start,
    /// The client's answer to the ACCEPT, after which the client goes on.
    Accepted,
    /// The CONFIRM and the link of a first contact, after which the client goes on.
    FirstContact(Arc<LinkGroup>),
    /// The server itself. The client goes on, if it has not already.
    Over,
}

/// How far a server's handshake is.
#[pin_data]
pub(crate) struct Progress {
    /// Innermost lock.
    #[pin]
    step: SpinLock<HandshakeStep>,
}

impl Progress {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            step <- new_spinlock!(HandshakeStep::Start, "smc::Progress::step"),
        })
    }

    fn is_at_start(&self) -> bool {
        matches!(*self.step.lock(), HandshakeStep::Start)
    }

    /// To be called before the ACCEPT is sent: from then on the handshake waits for the first link of `group`.
    pub(super) fn begin_first_contact(&self, group: &Arc<LinkGroup>) {
        self.set(HandshakeStep::FirstContact(group.clone()));
    }

    fn set(&self, step: HandshakeStep) {
        let old = core::mem::replace(&mut *self.step.lock(), step);
        // May be the last reference of a group.
        drop(old);
    }

    /// Whether the client's connect(2) may have returned; `tcp` is the connection of the handshake.
    /// Context: may sleep, but does not wait for a peer.
    pub(crate) fn may_be_connected(&self, tcp: &TcpSocket) -> bool {
        // First, as a message is noted before it is read.
        let pending = clc::pending_message(tcp);
        let step = self.step.lock().clone();
        match step {
            HandshakeStep::Over => true,
            _ if pending == Some(ClcType::Decline) => true,
            HandshakeStep::Accepted => pending.is_some(),
            HandshakeStep::FirstContact(group) => group.find_active(|_| true).is_some(),
            HandshakeStep::Start => false,
        }
    }
}

impl ClcWatcher for Progress {
    fn on_message(&self, message_type: ClcType) {
        let is_accepted = matches!(*self.step.lock(), HandshakeStep::Accepted);
        if is_accepted || message_type == ClcType::Decline {
            self.set(HandshakeStep::Over);
        }
    }

    fn on_send(&self, message: &ClcMessage<'_>) {
        match message {
            ClcMessage::Accept(_) if self.is_at_start() => self.set(HandshakeStep::Accepted),
            ClcMessage::Decline(_) => self.set(HandshakeStep::Over),
            _ => {}
        }
    }
}
