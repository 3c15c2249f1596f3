// SPDX-License-Identifier: GPL-2.0

//! One link: a reliable queue pair to the peer (RFC 7609 section 2.2; attributes: `smc_ib.c`).
//!
//! The part that belongs to the RDMA device can be taken away at any time ([`Link::shut_down`]): when
//! a device leaves, nothing of it stays behind in link groups or connections.

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
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        barrier::smp_mb,
        Arc,
        CondVar,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    ib::Device,
    random,
    time, //
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
        Event,
        State,
        Transport, //
    },
    pnet::PnetId,
    time::Instant,
    wire::clc::SmcR, //
};

use crate::{
    clock::now,
    config::Depth, //
};
pub(crate) use error::LinkError;
use llc_txq::LlcTxQueue;
pub(crate) use resources::IbResources;
use transport::{
    LinkTransport,
    TransportOps,
    TransportSetup, //
};
pub(crate) use transport::{
    Setup,
    SetupError, //
};
pub(crate) use wr_tx::Slot;

/// Our port, as a link uses it.
#[derive(Clone, Copy)]
pub(crate) struct PortInfo {
    pub(crate) transport: Transport,
    pub(crate) port: u32,
    pub(crate) gid: Gid,
    pub(crate) sgid_index: u8,
    pub(crate) mac: Mac,
    pub(crate) mtu: Mtu,
    pub(crate) next_hop: Option<Mac>,
    /// The physical network that it is on, if that has a name.
    pub(crate) pnetid: Option<PnetId>,
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
    /// The queue pair that a peer named in the handshake.
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

/// What administrators see of a link.
pub(crate) struct LinkInfo {
    pub(crate) number: LinkNum,
    pub(crate) state: State,
    /// Gone once the link is down.
    pub(crate) device: Option<Arc<Device>>,
    pub(crate) peer_gid: Gid,
    pub(crate) peer_uid: LinkUid,
}

/// The link group of a link, as tracepoints name it.
#[derive(Clone, Copy, Default)]
pub(crate) struct TraceLgr {
    pub(crate) address: usize,
    /// That of its network namespace.
    pub(crate) net_cookie: u64,
}

/// Gets the completions of messages. Nothing here sleeps.
pub(crate) trait Sender: Send + Sync {
    /// The message of `record` has arrived, or was lost.
    fn on_sent(self: Arc<Self>, record: &SentRecord, good: bool);
    /// A message has left, of which `on_acked` tells the rest.
    fn on_local_completion(self: Arc<Self>);
    /// The message of `record`, which has left, has arrived, or is not known to.
    fn on_acked(self: Arc<Self>, record: &SentRecord, arrived: bool);
}

/// Receives a link's events. Called from completion context: must not sleep.
pub(crate) trait Handler: Send + Sync {
    /// The group that the link belongs to.
    fn group(&self) -> TraceLgr;
    /// A message arrived.
    fn on_message(self: Arc<Self>, bytes: &[u8]);
    /// A send slot is free again.
    fn on_slot(self: Arc<Self>);
    /// The link is broken.
    fn on_failure(self: Arc<Self>);
}

/// What a send keeps until it completes.
pub(crate) enum Sent {
    /// An LLC message or a credit update, for which nobody waits.
    Control,
    /// A message about a connection.
    Data(Arc<dyn Sender>, SentRecord),
}

impl Sent {
    /// The peer has the message, or it was lost. Does not sleep.
    fn complete(self, good: bool) {
        if let Self::Data(sender, record) = self {
            sender.on_sent(&record, good);
        }
    }
}

struct Inner {
    resources: Option<Arc<IbResources>>,
    device: Option<Arc<Device>>,
    handler: Option<Arc<dyn Handler>>,
    state: State,
    number: LinkNum,
    peer: Option<PeerQp>,
    peer_uid: LinkUid,
    /// How the registration under way ended.
    registered: Option<bool>,
    llc_txq: LlcTxQueue,
}

/// A link.
#[pin_data]
pub(crate) struct Link {
    port: PortInfo,
    qp_num: QpNum,
    psn: Psn,
    max_mr_bytes: usize,
    max_map_bytes: usize,
    /// Somebody waits for a send slot. Written under the lock of those who wait.
    is_slot_wanted: Atomic<bool>,
    /// LLC messages wait for a slot. Written under `inner`.
    is_llc_waiting: Atomic<bool>,
    /// The group ends, and the link with it.
    is_ending: Atomic<bool>,
    transport: LinkTransport,
    #[pin]
    inner: SpinLock<Inner>,
    /// Waits for a registration, or for the peer's first message.
    #[pin]
    state_wait: CondVar,
    /// When a message arrived last, ns of the clock.
    last_rx: Atomic<u64>,
    /// When a message had arrived last as a test of the link got no answer, ns; `u64::MAX` if none did.
    unanswered: Atomic<u64>,
    /// One registration at a time.
    #[pin]
    reg_mr_lock: Mutex<()>,
}

impl Link {
    /// Makes the queue pair of a link. May sleep.
    pub(crate) fn new(device: &Arc<Device>, port: PortInfo, depth: Depth) -> Result<Arc<Self>> {
        let (resources, transport) = LinkTransport::new(port.transport, device, depth)?;
        let qp_num = QpNum::new(resources.qp.number()).ok_or(EINVAL)?;
        let pages = device.limits().max_fast_reg_pages as usize;
        let inner = Inner {
            resources: Some(resources),
            device: Some(device.clone()),
            handler: None,
            state: State::Activating,
            number: LinkNum(1),
            peer: None,
            peer_uid: LinkUid(0),
            registered: None,
            llc_txq: LlcTxQueue::new()?,
        };
        Arc::pin_init(
            pin_init!(Self {
                port,
                qp_num,
                psn: Psn::from_low_bits(u32::from_ne_bytes(random::bytes())),
                max_mr_bytes: pages * kernel::page::PAGE_SIZE,
                max_map_bytes: device.limits().max_map_bytes,
                is_slot_wanted: Atomic::new(false),
                is_llc_waiting: Atomic::new(false),
                is_ending: Atomic::new(false),
                transport,
                inner <- new_spinlock!(inner, "smc::Link::inner"),
                state_wait <- new_condvar!("smc::Link::state_wait"),
                last_rx: Atomic::new(0),
                unanswered: Atomic::new(u64::MAX),
                reg_mr_lock <- new_mutex!((), "smc::Link::reg_mr_lock"),
            }),
            GFP_KERNEL,
        )
    }

    // --- Properties.

    /// Our port.
    pub(crate) fn port(&self) -> &PortInfo {
        &self.port
    }

    /// Our queue pair's number.
    pub(crate) fn qp_num(&self) -> QpNum {
        self.qp_num
    }

    /// Our first packet number.
    pub(crate) fn psn(&self) -> Psn {
        self.psn
    }

    /// Most bytes of one memory region.
    pub(crate) fn max_mr_bytes(&self) -> usize {
        self.max_mr_bytes
    }

    /// Most bytes of one buffer that the device can be shown.
    pub(crate) fn max_map_bytes(&self) -> usize {
        self.max_map_bytes
    }

    /// The link's number in its group; the server gives it.
    pub(crate) fn number(&self) -> LinkNum {
        self.inner.lock().number
    }

    /// The server gave the link this number.
    pub(crate) fn set_number(&self, number: LinkNum) {
        self.inner.lock().number = number;
    }

    /// The link as a new connection looks for it, if its namespace may use the device.
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

    /// The peer's queue pair, once [`Link::ready_to_receive`] was told it.
    fn peer(&self) -> Option<PeerQp> {
        self.inner.lock().peer
    }

    /// The link as administrators see it.
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

    /// Whether connections may use the link.
    pub(crate) fn is_active(&self) -> bool {
        self.inner.lock().state.is_active()
    }

    /// When a message arrived last, whatever it was; up to a tick before.
    pub(crate) fn last_rx(&self) -> Instant {
        Instant::from_nanos(self.last_rx.load(Relaxed))
    }

    /// A test of the link got no answer, and the last message had arrived at `last_rx`.
    pub(crate) fn note_unanswered(&self, last_rx: Instant) {
        self.unanswered.store(last_rx.as_nanos(), Relaxed);
    }

    /// Whether a test of the link got no answer, and nothing has arrived since.
    pub(crate) fn is_suspect(&self) -> bool {
        self.unanswered.load(Relaxed) == self.last_rx.load(Relaxed)
    }

    /// The link's device, while it is there.
    pub(crate) fn device(&self) -> Option<Arc<Device>> {
        self.inner.lock().device.clone()
    }

    /// Whether the link is on this device.
    pub(crate) fn is_on(&self, device: &Arc<Device>) -> bool {
        let inner = self.inner.lock();
        inner
            .device
            .as_ref()
            .is_some_and(|d| Arc::ptr_eq(d, device))
    }

    /// Whether nothing has gone wrong with the link so far.
    pub(crate) fn is_up(&self) -> bool {
        self.inner.lock().state.is_usable()
    }

    /// What belongs to the device, as long as the link is up.
    pub(crate) fn resources(&self) -> Option<Arc<IbResources>> {
        let inner = self.inner.lock();
        inner.resources.clone().filter(|_| inner.state.is_usable())
    }

    // --- Life.

    /// Gets ready to receive from `peer`; what arrives goes to `handler`. May sleep.
    pub(crate) fn ready_to_receive(
        self: &Arc<Self>,
        peer: PeerQp,
        handler: Arc<dyn Handler>,
    ) -> Result {
        let resources = {
            let mut inner = self.inner.lock();
            // Once the device is gone nobody takes the handler out again.
            let resources = inner.resources.clone().ok_or(ENOLINK)?;
            inner.peer = Some(peer);
            inner.handler = Some(handler);
            resources
        };
        resources.qp.to_init(self.port.port)?;
        self.transport.to_rtr(self, &resources, &peer)?;
        // Not before: a device that could not get ready may keep what was posted for ever. Nothing is
        // missed, as the peer sends when it knows of our queue pair, or once more.
        resources.qp.post_receives(self).map(drop)
    }

    /// Gets ready to send, where the two queue pairs are connected already. May sleep.
    pub(crate) fn ready_to_send(&self) -> Result {
        let resources = self.resources().ok_or(ENOLINK)?;
        self.transport.to_rts(self, &resources)
    }

    /// Both sides have tried the link: it takes connections.
    pub(crate) fn activate(&self, peer_uid: LinkUid) {
        let mut inner = self.inner.lock();
        inner.peer_uid = peer_uid;
        if let Some(next) = inner.state.on(Event::Confirmed) {
            inner.state = next;
        }
    }

    /// Nothing more is sent, and nothing arrives any more. What did so before has been told when this
    /// returns; what was in flight is told as not good then or later. May sleep.
    pub(crate) fn stop(&self) {
        self.inner.lock().state = State::Inactive;
        self.state_wait.notify_all();
        self.flush(|resources| {
            // It fails when the device is gone, and then nothing is in flight.
            let _ = resources.qp.to_error();
        });
        self.transport.on_stop();
    }

    /// Has all messages told that arrived and all that left by now. May sleep.
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

    /// Takes the link down and lets go of its device. May sleep. Messages in flight complete, most of
    /// them not good.
    pub(crate) fn shut_down(&self) {
        self.stop();
        let mut inner = self.inner.lock();
        let resources = inner.resources.take();
        let device = inner.device.take();
        let handler = inner.handler.take();
        drop(inner);
        self.transport.close();
        drop((resources, device, handler));
    }

    // --- Use.

    /// Whether a slot for a send is free just now. Does not sleep.
    pub(crate) fn has_slot(&self) -> bool {
        let inner = self.inner.lock();
        inner.resources.as_ref().is_some_and(|h| h.qp.has_slot()) && self.transport.has_credit()
    }

    /// Says whether [`Handler::on_slot`] is to be called for slots that get free from now on: who wants
    /// one looks again after this. Does not sleep.
    pub(crate) fn want_slot(&self, wanted: bool) {
        self.is_slot_wanted.store(wanted, Relaxed);
        smp_mb(Full);
    }

    /// Whether nothing that was sent, or is to be, is on its way. Does not sleep.
    pub(crate) fn is_quiet(&self) -> bool {
        let inner = self.inner.lock();
        let is_idle = inner.resources.as_ref().is_none_or(|h| h.qp.is_send_idle());
        is_idle && inner.llc_txq.is_empty()
    }

    /// Waits until the peer has sent something, or until `end`. Returns whether it has. May sleep.
    fn wait_first_msg(&self, end: Instant) -> bool {
        let mut inner = self.inner.lock();
        loop {
            let has_received = self.last_rx.load(Relaxed) != 0;
            let left = end.saturating_since(now());
            if has_received || left.is_zero() || !inner.state.is_usable() {
                return has_received;
            }
            let left = time::jiffies(left.as_nanos());
            // The wait is short, and a signal no reason to end it.
            let _ = self.state_wait.wait_interruptible_timeout(&mut inner, left);
        }
    }

    fn handler(&self) -> Option<Arc<dyn Handler>> {
        self.inner.lock().handler.clone()
    }
}
