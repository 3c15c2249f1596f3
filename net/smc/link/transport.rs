// SPDX-License-Identifier: GPL-2.0

//! Interface between a link and its transport: RoCE or iWARP.
//!
//! [`TransportSetup`] and [`TransportOps`] are all that differs between the two. Layers above the link do not depend on
//! the transport, but only on its [`Caps`].
//!
//! [`LinkTransport`] has one variant for each. On the data path a `match` on two variants costs a predictable branch, a
//! trait object would cost an indirect call for each message; setup, which may sleep for seconds, goes by a trait
//! object. RoCE keeps no state of its own. A third transport is a third variant, and the compiler reports each place to
//! extend.

mod iwarp;
mod roce;

use kernel::sync::Arc;
use kernel_ext::{
    ib::Device,
    net::{
        NetNs,
        NetNsId, //
    },
    prelude::*, //
};
use smc_proto::{
    id::Gid,
    link::Transport,
    time::Instant,
    wire::{
        iwarp::{
            IwListenAddr,
            Nonce,
            TRAILER_LEN, //
        },
        llc::NewLink, //
    }, //
};

use super::{
    IbResources,
    Link,
    LinkError,
    PeerQp,
    ResourceError,
    Sent, //
};
use crate::config::QueueDepth;
use iwarp::Iwarp;
use roce::Roce;

/// Properties of a transport that layers above a link depend on.
pub(super) struct Caps {
    /// A completion means only that a message was sent locally: the peer acknowledges it on request.
    pub(super) needs_acks: bool,
    /// Data that the peer sent on the link may be written here even after the link went down there.
    pub(super) delivers_after_down: bool,
    /// The link goes down here as soon as the peer takes it down.
    pub(super) sees_peer_teardown: bool,
    /// The link holds its network namespace, which is not destroyed before the link.
    pub(super) holds_netns: bool,
    /// A write can carry immediate data.
    pub(super) has_immediate: bool,
}

/// Parameters to connect the two ends of the first link of a group, in addition to the peer's queue pair: for a
/// transport with a connection of its own.
pub(crate) struct Setup<'a> {
    /// The network namespace of the connection.
    pub(crate) net: &'a NetNs,
    /// From the PROPOSAL, if it had one.
    pub(crate) nonce: Option<Nonce>,
    /// The TCP port at which the peer listens, 0 for none.
    pub(crate) peer_port: u16,
    /// Returns true if the setup was cancelled.
    pub(crate) is_cancelled: &'a dyn Fn() -> bool,
}

/// Why the first link of a group did not come up.
pub(crate) enum SetupError {
    /// A local failure.
    LinkNotReady,
    /// The peer could not be reached.
    PeerUnreachable,
}

impl From<Error> for SetupError {
    fn from(_: Error) -> Self {
        Self::LinkNotReady
    }
}

/// Purpose of a send credit.
#[derive(Clone, Copy)]
pub(super) enum CreditUse {
    /// A message; the last credit is left for an update.
    Message,
    /// A credit update.
    Update,
}

/// Connection setup of a link's two queue pairs, from state Init on. All may sleep.
///
/// The defaults are those of a transport without a connection of its own, whose queue pairs need each other's
/// parameters only.
pub(super) trait TransportSetup {
    /// Makes the queue pair ready to receive from `peer`, as far as possible before its receives are posted.
    fn to_rtr(&self, link: &Link, resources: &IbResources, peer: &PeerQp) -> Result;
    /// Makes the queue pair ready to send, unless it is already.
    fn to_rts(&self, link: &Link, resources: &IbResources) -> Result;
    /// As the server of a first contact, before its ACCEPT: listens for the client at `peer`; returns the TCP port, 0
    /// for none.
    fn listen(&self, _link: &Link, _net: &NetNs, _peer: Gid) -> u16 {
        0
    }
    /// As the client of a first contact, before its CONFIRM: listens for the server, if that is to connect; returns the
    /// TCP port.
    fn listen_for_server(
        &self,
        _link: &Link,
        _net: &NetNs,
        _nonce: Option<Nonce>,
    ) -> Result<Option<u16>> {
        Ok(None)
    }
    /// As the client of a first contact, after its CONFIRM: connects, if the server may be unable to. A cancelled setup
    /// is not an error.
    fn connect_as_client(&self, _link: &Arc<Link>, _setup: &Setup<'_>) -> Result<(), SetupError> {
        Ok(())
    }
    /// As the server of a first contact, after the CONFIRM: connects, and makes the queue pair ready to send.
    fn connect_as_server(&self, link: &Arc<Link>, _setup: &Setup<'_>) -> Result<(), SetupError> {
        Ok(link.ready_to_send()?)
    }
    /// As the client, before the answer to ADD_LINK: listens for the server, in the namespace `net`.
    fn listen_added(&self, _link: &Link, _net: NetNsId) -> Result<Option<IwListenAddr>> {
        Ok(None)
    }
    /// As the server, after the answer to ADD_LINK: connects to the client, in the namespace `net`.
    fn connect_added(&self, _link: &Link, _net: NetNsId, _client: &NewLink) -> Result {
        Ok(())
    }
    /// Closes the connection of the two queue pairs, which are gone or going; it cannot be set up again.
    fn close(&self) {}
}

/// Per-message operations that differ between transports. Called from completion context and under the locks of
/// connections: must not sleep.
///
/// The defaults are those of a transport with flow control in the devices, where a send completes when the peer has the
/// message.
pub(super) trait TransportOps {
    /// Returns the properties that layers above depend on.
    fn caps(&self) -> &'static Caps;

    // --- Sending.

    /// Takes a credit. Returns false if the peer could not receive the message.
    fn take_credit(&self, _for_what: CreditUse) -> bool {
        true
    }
    /// Returns a credit for a message that was not posted.
    fn put_back_credit(&self) {}
    /// Returns true if there is a credit for a message.
    fn has_credit(&self) -> bool {
        true
    }
    /// Returns the trailer for a message that is being posted.
    fn trailer(&self) -> Option<[u8; TRAILER_LEN]> {
        None
    }
    /// A send completed without error. Its owner is notified once the peer has the message.
    fn on_completion(&self, sent: Sent) {
        sent.complete(true);
    }
    /// The link was stopped, and its sends have completed: reports the messages that the peer may not have received.
    fn on_stop(&self) {}
    /// Sends a credit update if it is due and a slot is free.
    fn send_credit_update(&self, _link: &Arc<Link>) -> Result {
        Ok(())
    }

    // --- Receiving.

    /// Removes the trailer of a message. Returns the message; `None` if there was only the trailer.
    fn on_message<'b>(&self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, LinkError> {
        Ok(Some(bytes))
    }
    /// Accounts a message that arrived and could not be read.
    fn on_unread_message(&self) {}
    /// A message was handled: reports what it acknowledged, resumes senders that waited for credits, and sends a credit
    /// update if it is due.
    fn after_message(&self, _link: &Arc<Link>) -> Result {
        Ok(())
    }

    // --- Acknowledgements, where completions do not provide them.

    /// Requests an acknowledgement of all messages so far, with the next one.
    fn request_ack(&self) {}
    /// Schedules such a request, and returns when it is due; `None` if one is already scheduled.
    fn schedule_ack_request(&self) -> Option<Instant> {
        None
    }
    /// Returns when the scheduled request is due, if there is one.
    fn ack_request_at(&self) -> Option<Instant> {
        None
    }
    /// Cancels the scheduled request.
    fn unschedule_ack_request(&self) {}
}

/// The transport of a link, with its state.
pub(super) enum LinkTransport {
    Roce(Roce),
    Iwarp(Pin<KBox<Iwarp>>),
}

impl LinkTransport {
    /// Creates the device resources and the transport's part of a link.
    /// Context: may sleep.
    pub(super) fn new(
        transport: Transport,
        device: &Arc<Device>,
        depth: QueueDepth,
    ) -> Result<(Arc<IbResources>, Self), ResourceError> {
        match transport {
            Transport::Roce => Ok((IbResources::new(device, depth, 0)?, Self::Roce(Roce))),
            Transport::Iwarp => {
                let (resources, iwarp) = Iwarp::new(device, depth)?;
                Ok((resources, Self::Iwarp(iwarp)))
            }
        }
    }

    /// Returns the part that sets connections up.
    pub(super) fn setup(&self) -> &dyn TransportSetup {
        match self {
            Self::Roce(roce) => roce,
            Self::Iwarp(iwarp) => &**iwarp,
        }
    }
}

/// Calls a method of the current transport.
macro_rules! dispatch {
    ($self:ident.$($call:tt)*) => {
        match $self {
            Self::Roce(roce) => roce.$($call)*,
            Self::Iwarp(iwarp) => iwarp.$($call)*,
        }
    };
}

impl TransportOps for LinkTransport {
    fn caps(&self) -> &'static Caps {
        dispatch!(self.caps())
    }

    fn take_credit(&self, for_what: CreditUse) -> bool {
        dispatch!(self.take_credit(for_what))
    }

    fn put_back_credit(&self) {
        dispatch!(self.put_back_credit())
    }

    fn has_credit(&self) -> bool {
        dispatch!(self.has_credit())
    }

    fn trailer(&self) -> Option<[u8; TRAILER_LEN]> {
        dispatch!(self.trailer())
    }

    fn on_completion(&self, sent: Sent) {
        dispatch!(self.on_completion(sent))
    }

    fn on_stop(&self) {
        dispatch!(self.on_stop())
    }

    fn send_credit_update(&self, link: &Arc<Link>) -> Result {
        dispatch!(self.send_credit_update(link))
    }

    fn on_message<'b>(&self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, LinkError> {
        dispatch!(self.on_message(bytes))
    }

    fn on_unread_message(&self) {
        dispatch!(self.on_unread_message())
    }

    fn after_message(&self, link: &Arc<Link>) -> Result {
        dispatch!(self.after_message(link))
    }

    fn request_ack(&self) {
        dispatch!(self.request_ack())
    }

    fn schedule_ack_request(&self) -> Option<Instant> {
        dispatch!(self.schedule_ack_request())
    }

    fn ack_request_at(&self) -> Option<Instant> {
        dispatch!(self.ack_request_at())
    }

    fn unschedule_ack_request(&self) {
        dispatch!(self.unschedule_ack_request())
    }
}

impl Link {
    // --- Connection setup, from [`Link::ready_to_receive`] on.

    /// As the server of a first contact, before its ACCEPT and before [`Link::ready_to_receive`]: listens for the
    /// client at `peer` if the link needs a connection; returns the TCP port, 0 for none.
    /// Context: may sleep.
    pub(crate) fn listen(&self, net: &NetNs, peer: Gid) -> u16 {
        self.transport.setup().listen(self, net, peer)
    }

    /// As the client of a first contact, before its CONFIRM: listens for the server if the link needs a connection;
    /// returns the TCP port. `nonce` is that of the PROPOSAL.
    /// Context: may sleep.
    pub(crate) fn listen_for_server(
        &self,
        net: &NetNs,
        nonce: Option<Nonce>,
    ) -> Result<Option<u16>> {
        self.transport.setup().listen_for_server(self, net, nonce)
    }

    /// As the client of a first contact, after its CONFIRM: connects if that is the client's task. A cancelled setup is
    /// not an error.
    /// Context: may sleep, for seconds.
    pub(crate) fn connect_as_client(self: &Arc<Self>, setup: &Setup<'_>) -> Result<(), SetupError> {
        self.transport.setup().connect_as_client(self, setup)
    }

    /// As the server of a first contact, after the CONFIRM: connects, and makes the queue pair ready to send.
    /// Context: may sleep, for seconds.
    pub(crate) fn connect_as_server(self: &Arc<Self>, setup: &Setup<'_>) -> Result<(), SetupError> {
        self.transport.setup().connect_as_server(self, setup)
    }

    /// As the client of an added link, before the answer: listens for the server if the link needs a connection, in the
    /// namespace `net`; returns the address.
    /// Context: may sleep.
    pub(crate) fn listen_added(&self, net: NetNsId) -> Result<Option<IwListenAddr>> {
        self.transport.setup().listen_added(self, net)
    }

    /// As the server of an added link, after the client's answer: connects to it if the link needs a connection, in the
    /// namespace `net`.
    /// Context: may sleep, for seconds.
    pub(crate) fn connect_added(&self, net: NetNsId, client: &NewLink) -> Result {
        self.transport.setup().connect_added(self, net, client)
    }

    // --- Properties of the transport.

    /// Returns true if a completion means only that a message was sent locally, so that the peer must acknowledge it.
    pub(crate) fn needs_acks(&self) -> bool {
        self.transport.caps().needs_acks
    }

    /// Returns true if data that the peer sent may be written here even after the link went down there.
    pub(crate) fn delivers_after_down(&self) -> bool {
        self.transport.caps().delivers_after_down
    }

    /// Returns true if the link holds its network namespace, which is not destroyed before it.
    pub(crate) fn holds_netns(&self) -> bool {
        self.transport.caps().holds_netns
    }

    /// Returns true if a write can carry immediate data.
    pub(crate) fn has_immediate(&self) -> bool {
        self.transport.caps().has_immediate
    }

    // --- Acknowledgements, if [`Link::needs_acks`].

    /// Requests an acknowledgement of all messages sent so far, if one is missing.
    /// Context: does not sleep.
    pub(crate) fn request_ack(self: &Arc<Self>) {
        self.transport.request_ack();
        if self.transport.send_credit_update(self).is_err() {
            self.fail(LinkError::Post);
        }
    }

    /// Schedules such a request and returns when it is due; `None` if one is already scheduled. An acknowledgement may
    /// make it unnecessary meanwhile.
    /// Context: does not sleep.
    pub(crate) fn schedule_ack_request(&self) -> Option<Instant> {
        self.transport.schedule_ack_request()
    }

    /// Makes a scheduled request if it is due at `now`; otherwise returns when it is due.
    /// Context: does not sleep.
    pub(crate) fn request_ack_if_due(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let at = self.transport.ack_request_at()?;
        if !at.is_due(now) {
            return Some(at);
        }
        // A sender that comes after this schedules another.
        self.transport.unschedule_ack_request();
        self.request_ack();
        None
    }
}
