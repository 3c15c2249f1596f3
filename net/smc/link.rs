// SPDX-License-Identifier: GPL-2.0

//! A link: a reliable queue pair with the peer (RFC 7609 section 2.2; attributes: `smc_ib.c`).
//!
//! The part that belongs to the RDMA device can be released at any time ([`Link::shut_down`]): after a device is
//! removed, link groups and connections hold no resources of it.

mod completion;
mod down;
mod error;
mod llc_txq;
mod resources;
mod transport;
mod wr_tx;

use kernel::{
    new_condvar,
    new_mutex,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        CondVar,
        Mutex, //
    }, //
};
use kernel_ext::{
    barrier::smp_mb,
    ib::{
        Device,
        GidKind, //
    },
    prelude::*,
    random,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    conn::SentRecord,
    id::{
        Gid,
        LinkNum,
        LinkUid,
        Mac,
        Mtu,
        Psn,
        QpNum, //
    },
    lgr::find::LinkEnd,
    link::{
        LinkEvent,
        LinkState,
        Transport, //
    },
    pnet::PnetId,
    time::Instant,
    wire::{
        clc::SmcR,
        immediate::Immediate, //
    }, //
};

use crate::{
    clock::{
        self,
        now, //
    },
    config::QueueDepth, //
};
pub(crate) use error::LinkError;
use llc_txq::LlcTxQueue;
pub(crate) use resources::{
    limits,
    needs,
    IbResources,
    ResourceError, //
};
use transport::{
    LinkTransport,
    TransportOps, //
};
pub(crate) use transport::{
    Setup,
    SetupError, //
};
pub(crate) use wr_tx::Slot;

/// Our port of a link.
#[derive(Clone, Copy)]
pub(crate) struct PortInfo {
    pub(crate) transport: Transport,
    pub(crate) port: u32,
    pub(crate) gid: Gid,
    pub(crate) sgid_index: u8,
    /// The kind of the GID: RoCE v1 in groups of version 1.
    pub(crate) gid_kind: GidKind,
    pub(crate) mac: Mac,
    pub(crate) next_hop: Option<Mac>,
    /// Its physical network, if it has a name.
    pub(crate) pnetid: Option<PnetId>,
}

/// Settings of all links of a group.
#[derive(Clone, Copy)]
pub(crate) struct LinkConfig {
    pub(crate) depth: QueueDepth,
    /// Traffic class of the packets that we send.
    pub(crate) traffic_class: u8,
}

/// The peer's queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerQp {
    pub(crate) qp: QpNum,
    pub(crate) gid: Gid,
    pub(crate) mac: Mac,
    pub(crate) psn: Psn,
    /// The lower of both sides' path MTUs.
    pub(crate) mtu: Mtu,
}

impl PeerQp {
    /// Returns the queue pair that a peer named in the handshake.
    pub(crate) fn of(peer: &SmcR, mtu: Mtu) -> Self {
        Self {
            qp: peer.qp_num,
            gid: peer.gid,
            mac: peer.mac,
            psn: peer.psn,
            mtu,
        }
    }
}

/// Information about a link for administrators.
pub(crate) struct LinkInfo {
    pub(crate) number: LinkNum,
    pub(crate) state: LinkState,
    /// `None` once the link is down.
    pub(crate) device: Option<Arc<Device>>,
    pub(crate) peer_gid: Gid,
    pub(crate) peer_uid: LinkUid,
}

/// A link's group, as shown in tracepoints.
#[derive(Clone, Copy, Default)]
pub(crate) struct TraceLgr {
    pub(crate) address: usize,
    /// Cookie of its network namespace.
    pub(crate) net_cookie: u64,
}

/// Receives the completions of messages.
/// Context: does not sleep.
pub(crate) trait Sender: Send + Sync {
    /// The message of `record` has arrived (`good`), or was lost.
    fn on_sent(self: Arc<Self>, record: &SentRecord, good: bool);
    /// A message was sent locally; `on_acked` reports the rest.
    fn on_local_completion(self: Arc<Self>);
    /// The message of `record`, sent before, has arrived, or may not have (`arrived` is false).
    fn on_acked(self: Arc<Self>, record: &SentRecord, arrived: bool);
}

/// Receives a link's events, in completions.
/// Context: does not sleep.
pub(crate) trait LinkHandler: Send + Sync {
    /// Returns the link's group, for tracepoints.
    fn group(&self) -> TraceLgr;
    /// A message arrived.
    fn on_message(self: Arc<Self>, bytes: &[u8]);
    /// A write of `len` bytes with immediate data arrived.
    fn on_immediate(self: Arc<Self>, immediate: Immediate, len: u32);
    /// A send slot became free.
    fn on_slot(self: Arc<Self>);
    /// The link failed.
    fn on_failure(self: Arc<Self>);
}

/// What is stored with a send until it completes.
pub(crate) enum Sent {
    /// An LLC message or a credit update; its completion is not reported.
    Control,
    /// A message about a connection.
    Data(Arc<dyn Sender>, SentRecord),
}

impl Sent {
    /// Reports that the peer has the message, or that it was lost.
    /// Context: does not sleep.
    fn complete(self, good: bool) {
        if let Self::Data(sender, record) = self {
            sender.on_sent(&record, good);
        }
    }
}

struct LinkInner {
    resources: Option<Arc<IbResources>>,
    device: Option<Arc<Device>>,
    handler: Option<Arc<dyn LinkHandler>>,
    state: LinkState,
    number: LinkNum,
    peer: Option<PeerQp>,
    peer_uid: LinkUid,
    /// Result of the registration in progress.
    registered: Option<bool>,
    llc_txq: LlcTxQueue,
}

/// A link.
#[pin_data]
pub(crate) struct Link {
    port: PortInfo,
    /// The largest path MTU of the port.
    mtu: Mtu,
    traffic_class: u8,
    qp_num: QpNum,
    psn: Psn,
    max_mr_bytes: usize,
    max_map_bytes: usize,
    /// A send slot is waited for. Written under the lock of the waiters.
    slot_wakeup_wanted: Atomic<bool>,
    /// LLC messages wait for a send slot. Written under `inner`.
    is_llc_waiting: Atomic<bool>,
    /// The group is ending, and the link with it.
    is_ending: Atomic<bool>,
    transport: LinkTransport,
    #[pin]
    inner: SpinLockBh<LinkInner>,
    /// Wait queue for registrations, and for the peer's first message.
    #[pin]
    state_wait: CondVar,
    /// When the last message arrived, ns of the clock.
    last_rx: Atomic<u64>,
    /// Value of `last_rx` when a TEST LINK went unanswered, ns; `u64::MAX` if none did.
    unanswered: Atomic<u64>,
    /// Serialises registrations.
    #[pin]
    reg_mr_lock: Mutex<()>,
}

impl Link {
    /// Creates the queue pair of a link.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// That of the device, with what it did not give.
    pub(crate) fn new(
        device: &Arc<Device>,
        port: PortInfo,
        config: LinkConfig,
    ) -> Result<Arc<Self>, ResourceError> {
        // Devices do not tell of a change.
        let mtu = device.query_port(port.port)?.active_mtu;
        let mtu = Mtu::from_code(mtu.code()).ok_or(EINVAL)?;
        let (resources, transport) = LinkTransport::new(port.transport, device, config.depth)?;
        let qp_num = QpNum::new(resources.qp.number()).ok_or(EINVAL)?;
        let pages = device.limits().max_fast_reg_pages as usize;
        let inner = LinkInner {
            resources: Some(resources),
            device: Some(device.clone()),
            handler: None,
            state: LinkState::Activating,
            number: LinkNum(1),
            peer: None,
            peer_uid: LinkUid(0),
            registered: None,
            llc_txq: LlcTxQueue::new()?,
        };
        let link = Arc::pin_init(
            pin_init!(Self {
                port,
                mtu,
                traffic_class: config.traffic_class,
                qp_num,
                psn: Psn::from_low_bits(random::number_u32()),
                max_mr_bytes: pages * kernel::page::PAGE_SIZE,
                max_map_bytes: device.limits().max_map_bytes,
                slot_wakeup_wanted: Atomic::new(false),
                is_llc_waiting: Atomic::new(false),
                is_ending: Atomic::new(false),
                transport,
                inner <- new_spinlock_bh!(inner, "smc::Link::inner"),
                state_wait <- new_condvar!("smc::Link::state_wait"),
                last_rx: Atomic::new(0),
                unanswered: Atomic::new(u64::MAX),
                reg_mr_lock <- new_mutex!((), "smc::Link::reg_mr_lock"),
            }),
            GFP_KERNEL,
        )?;
        Ok(link)
    }

    // --- Properties.

    /// Returns our port.
    pub(crate) fn port(&self) -> &PortInfo {
        &self.port
    }

    /// Returns the largest path MTU of our port, when the link was made.
    pub(crate) fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// Returns the traffic class of the packets that we send.
    pub(crate) fn traffic_class(&self) -> u8 {
        self.traffic_class
    }

    /// Returns our queue pair's number.
    pub(crate) fn qp_num(&self) -> QpNum {
        self.qp_num
    }

    /// Returns our first packet number.
    pub(crate) fn psn(&self) -> Psn {
        self.psn
    }

    /// Returns the maximum size of one memory region, bytes.
    pub(crate) fn max_mr_bytes(&self) -> usize {
        self.max_mr_bytes
    }

    /// Returns the maximum size of one ring that can be registered for writes that read it, bytes: see `Mr::ring`.
    pub(crate) fn max_ring_bytes(&self) -> usize {
        self.max_mr_bytes / 2
    }

    /// Returns the maximum size of one buffer that can be mapped for the device, bytes.
    pub(crate) fn max_map_bytes(&self) -> usize {
        self.max_map_bytes
    }

    /// Returns the link's number in its group, assigned by the server.
    pub(crate) fn number(&self) -> LinkNum {
        self.inner.lock().number
    }

    /// Sets the link's number, assigned by the server.
    pub(crate) fn set_number(&self, number: LinkNum) {
        self.inner.lock().number = number;
    }

    /// Returns the peer's side of the link for the search of a link group, assuming that the namespace may use the
    /// device.
    pub(crate) fn end(&self) -> LinkEnd {
        let inner = self.inner.lock();
        let peer = inner.peer;
        LinkEnd {
            state: inner.state,
            is_visible: true,
            peer_qp: peer.map_or(QpNum::default(), |peer| peer.qp),
            peer_gid: peer.map_or(Gid::NONE, |peer| peer.gid),
            peer_mac: peer.map_or(Mac::NONE, |peer| peer.mac),
        }
    }

    /// Returns the peer's queue pair, set by [`Link::ready_to_receive`].
    fn peer(&self) -> Option<PeerQp> {
        self.inner.lock().peer
    }

    /// Returns information about the link for administrators.
    pub(crate) fn info(&self) -> LinkInfo {
        let inner = self.inner.lock();
        LinkInfo {
            number: inner.number,
            state: inner.state,
            device: inner.device.clone(),
            peer_gid: inner.peer.map_or(Gid::NONE, |peer| peer.gid),
            peer_uid: inner.peer_uid,
        }
    }

    /// Returns true if connections may use the link.
    pub(crate) fn is_active(&self) -> bool {
        self.inner.lock().state.is_active()
    }

    /// Returns when the last message of any kind arrived; up to a tick early.
    pub(crate) fn last_rx(&self) -> Instant {
        Instant::from_nanos(self.last_rx.load(Relaxed))
    }

    /// Records an unanswered TEST LINK; the last message before it arrived at `last_rx`.
    pub(crate) fn note_unanswered(&self, last_rx: Instant) {
        self.unanswered.store(last_rx.as_nanos(), Relaxed);
    }

    /// Returns true if a TEST LINK went unanswered and nothing has arrived since.
    pub(crate) fn is_suspect(&self) -> bool {
        self.unanswered.load(Relaxed) == self.last_rx.load(Relaxed)
    }

    /// Returns the link's device, until that is released.
    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        self.inner.lock().device.clone()
    }

    /// Returns true if the link is on this device.
    pub(crate) fn is_on(&self, device: &Arc<Device>) -> bool {
        let inner = self.inner.lock();
        inner
            .device
            .as_ref()
            .is_some_and(|d| Arc::ptr_eq(d, device))
    }

    /// Returns true if the link has not failed.
    pub(crate) fn is_up(&self) -> bool {
        self.inner.lock().state.is_usable()
    }

    /// Returns the device's part of the link, as long as the link is up.
    pub(crate) fn resources(&self) -> Option<Arc<IbResources>> {
        let inner = self.inner.lock();
        inner.resources.clone().filter(|_| inner.state.is_usable())
    }

    // --- Life cycle.

    /// Makes the queue pair ready to receive from `peer`; events go to `handler`.
    /// Context: may sleep.
    pub(crate) fn ready_to_receive(
        self: &Arc<Self>,
        peer: PeerQp,
        handler: Arc<dyn LinkHandler>,
    ) -> Result {
        let resources = {
            let mut inner = self.inner.lock();
            // Once the device is gone the handler would not be removed any more.
            let resources = inner.resources.clone().ok_or(ENOLINK)?;
            inner.peer = Some(peer);
            inner.handler = Some(handler);
            resources
        };
        resources.qp.to_init(self.port.port)?;
        self.transport.setup().to_rtr(self, &resources, &peer)?;
        // Not before: a device that fails to get ready may keep posted receives for ever. Nothing is missed, as the
        // peer sends only once it knows our queue pair, or retransmits.
        resources.qp.post_receives(self).map(drop)
    }

    /// Makes the queue pair ready to send, if the two queue pairs are connected already.
    /// Context: may sleep.
    pub(crate) fn ready_to_send(&self) -> Result {
        let resources = self.resources().ok_or(ENOLINK)?;
        self.transport.setup().to_rts(self, &resources)
    }

    /// Activates the link for connections, after both sides have tested it.
    pub(crate) fn activate(&self, peer_uid: LinkUid) {
        let mut inner = self.inner.lock();
        inner.peer_uid = peer_uid;
        if let Some(next) = inner.state.on(LinkEvent::Confirmed) {
            inner.state = next;
        }
    }

    /// Stops sending and receiving. Earlier completions have been reported on return; messages in flight are reported
    /// as failed then or later.
    /// Context: may sleep.
    pub(crate) fn stop(&self) {
        self.inner.lock().state = LinkState::Inactive;
        self.state_wait.notify_all();
        self.flush(|resources| {
            // Fails if the device is gone, and then nothing is in flight.
            let _ = resources.qp.to_error();
        });
        self.transport.on_stop();
    }

    /// Processes all completions so far, of receives and of sends.
    /// Context: may sleep.
    pub(crate) fn flush_cqs(&self) {
        self.flush(|_| ());
    }

    fn flush(&self, first: impl FnOnce(&IbResources)) {
        let resources = self.inner.lock().resources.clone();
        if let Some(resources) = resources {
            first(&resources);
            resources.recv_cq.flush();
            resources.send_cq.flush();
        }
    }

    /// Takes the link down and releases its device. Messages in flight complete, most of them with an error.
    /// Context: may sleep.
    pub(crate) fn shut_down(&self) {
        self.stop();
        let mut inner = self.inner.lock();
        let resources = inner.resources.take();
        let device = inner.device.take();
        let handler = inner.handler.take();
        drop(inner);
        self.transport.setup().close();
        drop((resources, device, handler));
    }

    // --- Use.

    /// Returns true if a send slot is free now.
    /// Context: does not sleep.
    pub(crate) fn has_slot(&self) -> bool {
        let inner = self.inner.lock();
        inner.resources.as_ref().is_some_and(|h| h.qp.has_slot()) && self.transport.has_credit()
    }

    /// Sets whether [`LinkHandler::on_slot`] is called for slots freed from now on. After enabling it a waiter must
    /// check for a slot again.
    /// Context: does not sleep.
    pub(crate) fn request_slot_wakeup(&self, wanted: bool) {
        self.slot_wakeup_wanted.store(wanted, Relaxed);
        smp_mb(Full);
    }

    /// Returns true if no send is in flight or queued.
    /// Context: does not sleep.
    pub(crate) fn is_quiet(&self) -> bool {
        let inner = self.inner.lock();
        let is_idle = inner.resources.as_ref().is_none_or(|h| h.qp.is_send_idle());
        is_idle && inner.llc_txq.is_empty()
    }

    /// Waits for the peer's first message, until `end`. Returns whether it has arrived.
    /// Context: may sleep.
    fn wait_first_msg(&self, end: Instant) -> bool {
        let mut inner = self.inner.lock();
        loop {
            let has_received = self.last_rx.load(Relaxed) != 0;
            let left = end.saturating_since(now());
            if has_received || left.is_zero() || !inner.state.is_usable() {
                return has_received;
            }
            let left = clock::jiffies(left);
            // The wait is short, so signals do not end it.
            let _ = self.state_wait.wait_interruptible_timeout(&mut inner, left);
        }
    }

    fn handler(&self) -> Option<Arc<dyn LinkHandler>> {
        self.inner.lock().handler.clone()
    }
}
