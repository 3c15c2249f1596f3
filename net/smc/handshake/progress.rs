// SPDX-License-Identifier: GPL-2.0

//! How far the handshake of an accepted connection is, as seen by the handshakes of other connections to the listener:
//! whether the client's connect(2) may have returned.

use kernel::{
    new_spinlock,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
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
    /// Nothing: the connection is reset.
    GivenUp,
}

/// How far a server's handshake is.
#[pin_data]
pub(crate) struct Progress {
    /// Innermost lock.
    #[pin]
    step: SpinLock<HandshakeStep>,
    /// The client is a C module that joins a group: it has the connection when it has sent its CONFIRM, and does not
    /// look at TCP after that.
    ignores_tcp: Atomic<bool>,
}

impl Progress {
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            step <- new_spinlock!(HandshakeStep::Start, "smc::Progress::step"),
            ignores_tcp: Atomic::new(false),
        })
    }

    fn is_at_start(&self) -> bool {
        matches!(*self.step.lock(), HandshakeStep::Start)
    }

    /// To be called before the ACCEPT is sent: from then on the handshake waits for the first link of `group`.
    pub(super) fn begin_first_contact(&self, group: &Arc<LinkGroup>) {
        self.set(HandshakeStep::FirstContact(group.clone()));
    }

    /// To be called before the ACCEPT for a group that both sides have is sent to a C client.
    pub(super) fn expect_deaf_client(&self) {
        self.ignores_tcp.store(true, Relaxed);
    }

    fn set(&self, step: HandshakeStep) {
        let mut at = self.step.lock();
        if !matches!(*at, HandshakeStep::GivenUp) {
            let old = core::mem::replace(&mut *at, step);
            drop(at);
            // May be the last reference of a group.
            drop(old);
        }
    }

    /// Gives the handshake up, whose connection is to be reset then. Returns false, and leaves it as it is, if that has
    /// to be ended over RDMA, as the client may have it and not look at TCP. In a first contact it sees its group end.
    /// Context: does not sleep.
    pub(crate) fn give_up(&self) -> bool {
        let mut at = self.step.lock();
        let is_late = matches!(*at, HandshakeStep::Accepted | HandshakeStep::Over)
            && self.ignores_tcp.load(Relaxed);
        let old = (!is_late).then(|| core::mem::replace(&mut *at, HandshakeStep::GivenUp));
        drop(at);
        drop(old);
        !is_late
    }

    fn is_given_up(&self) -> bool {
        matches!(*self.step.lock(), HandshakeStep::GivenUp)
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
            HandshakeStep::Start | HandshakeStep::GivenUp => false,
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

    fn on_send(&self, message: &ClcMessage<'_>) -> bool {
        match message {
            ClcMessage::Accept(_) if self.is_at_start() => self.set(HandshakeStep::Accepted),
            ClcMessage::Decline(_) => self.set(HandshakeStep::Over),
            _ => {}
        }
        !self.is_given_up()
    }
}
