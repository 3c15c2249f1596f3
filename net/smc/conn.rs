// SPDX-License-Identifier: GPL-2.0

//! One connection over RDMA: the stream state, its rings, and the link that carries it.
//!
//! A connection is in its link group's connection table from the handshake until both sides have closed, even after the
//! application closed its socket. Message handlers take a counted reference there. When the group ends the connection
//! releases all resources of the RDMA device.

mod abort;
mod cdc;
mod claim;
mod close;
mod cork;
mod echo;
mod events;
mod failover;
mod orphan;
mod poll;
mod post_close;
mod queues;
mod rmbe;
mod rx;
mod transmit;
mod tx;
mod user_timeout;

use claim::Claim;
use failover::PendingSwitch;
pub(crate) use queues::ConnQueues;
pub(crate) use rmbe::{largest as largest_rmbe, smallest as smallest_rmbe};
use rmbe::{
    OtherRmbes,
    RMBE_WORK, //
};
pub(crate) use tx::sndbuf_class;

use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    sync::{
        aref::ARef,
        Arc,
        Mutex, //
    },
    workqueue::Work, //
};
use kernel_ext::{
    ib::{
        Block,
        Name,
        WriteSource, //
    },
    net::{
        Charge,
        Sk,
        TcpSocket, //
    },
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::{
        Arrivals,
        CdcHold,
        ConnState,
        Stream,
        TcpEquivalent,
        UserTimeout, //
    },
    id::{
        AlertToken,
        RmbeIndex, //
    },
    lgr::rtoken::RtokenIdx,
    time::Instant, //
};

use crate::{
    lgr::{
        ConnReservation,
        LinkGroup,
        LinkRef, //
    },
    link::Link,
    rmb::{
        Rmbe,
        SndbufGuard, //
    }, //
};

/// The peer's RMBE and alert token for a connection.
#[derive(Clone, Copy)]
pub(crate) struct PeerRmbe {
    /// The peer's alert token, in each CDC message to it.
    pub(crate) token: AlertToken,
    /// Row of the peer's RMB in the group's RToken table.
    pub(crate) row: RtokenIdx,
    /// Index of the RMBE in that RMB.
    pub(crate) index: RmbeIndex,
    /// Size of the RMBE.
    pub(crate) size: SizeClass,
}

/// The socket of a connection.
pub(crate) struct ConnSock {
    /// The socket that the application holds.
    pub(crate) sk: ARef<Sk>,
    /// The TCP connection below it.
    pub(crate) tcp: Arc<TcpSocket>,
    /// Memory that is charged to the socket.
    pub(crate) charges: MemCharges,
}

/// Buffers charged to the socket. The charge ends when the application closes the socket, even if the buffers stay in
/// use.
pub(crate) struct MemCharges {
    /// The RMBE.
    pub(crate) rmbe: Option<Charge>,
    /// The one that was offered to the peer in its place.
    pub(crate) offered: Option<Charge>,
    /// The send buffer, while one is attached.
    pub(crate) sndbuf: Option<Charge>,
}

/// State of a connection, guarded by its spinlock.
pub(crate) struct ConnInner {
    pub(crate) stream: Stream,
    /// Holds back received CDC messages until the CQs are flushed, where needed.
    cdc_hold: CdcHold,
    /// Links on which CDC messages arrived, where received data need a DMA sync.
    arrivals: Arrivals,
    /// From the link group's pool, while data are in flight.
    pub(crate) sndbuf: Option<SndbufGuard>,
    /// DMA mapping of the send buffer for the link's device.
    sndbuf_dma: Option<WriteSource>,
    /// The link used for sending.
    at: LinkRef,
    /// The link to switch to when nothing is in flight.
    pending_switch: Option<PendingSwitch>,
    /// `None` after the end of the group, or of a connection that the application has closed.
    rmbe: Option<Arc<Rmbe>>,
    others: OtherRmbes,
    /// Memory of the released RMBE, while it holds data that the application has not read.
    unread: Option<Arc<Block>>,
    remote: Option<PeerRmbe>,
    /// The peer's RMBE, as long as something may be written to it.
    claim: Option<Claim>,
    /// `None` after the application closed the socket.
    owner: Option<ConnSock>,
    /// The TCP connection of a socket that was closed by a reset, until the peer has answered the abort.
    closed_tcp: Option<Arc<TcpSocket>>,
    /// A send buffer was attached before.
    pub(crate) has_sent: bool,
    /// Allocating a send buffer failed: writers wait before they retry.
    pub(crate) is_short: bool,
    /// A writer or poller found no space in the send buffer.
    wants_space: bool,
    /// Number of tasks that wait for data.
    reading: u32,
    /// Is in the group's queue for a send slot.
    queued: bool,
    /// Number of tasks that wait until all data are sent.
    linger_waiters: u32,
    /// Set once the application closed the socket and the peer has yet to close.
    orphan: Option<orphan::Orphan>,
    /// After the echo of the peer: when its close becomes final if no message arrives before.
    silent_at: Option<Instant>,
    /// When the connection is reset unless something was received over RDMA, or in any case with `is_tcp_reset`.
    unheard_until: Option<Instant>,
    /// The peer has reset TCP.
    is_tcp_reset: bool,
    /// When corked data are sent even if no more are written.
    corked_until: Option<Instant>,
    /// TCP_USER_TIMEOUT.
    user_timeout: UserTimeout,
    /// The peer accepts immediate data in place of CDC messages.
    takes_immediate: bool,
}

/// A connection.
#[pin_data]
pub(crate) struct Conn {
    pub(crate) group: Arc<LinkGroup>,
    token: AlertToken,
    /// Lock order: see `Documentation/locking.md`.
    #[pin]
    inner: SpinLockBh<ConnInner>,
    /// Serializes writers; held while data are copied from user space.
    #[pin]
    pub(crate) send_order: Mutex<()>,
    /// Serializes readers; held while data are copied to user space.
    #[pin]
    pub(crate) recv_order: Mutex<()>,
    /// Resets the TCP connection.
    #[pin]
    work: Work<Conn>,
    /// Replaces the RMBE.
    #[pin]
    rmbe_work: Work<Conn, RMBE_WORK>,
}

impl_has_work! {
    impl HasWork<Self> for Conn { self.work }
    impl HasWork<Self, RMBE_WORK> for Conn { self.rmbe_work }
}

impl Conn {
    /// Creates a connection for a handshake in progress, which receives into `rmbe`.
    pub(crate) fn new(
        reservation: ConnReservation,
        at: LinkRef,
        rmbe: Rmbe,
        owner: ConnSock,
    ) -> Result<Arc<Self>> {
        let group = reservation.group().clone();
        let token = group.next_token()?;
        let (idx, link) = (at.idx, at.link.clone());
        let inner = ConnInner {
            stream: Stream::new(rmbe.size()),
            cdc_hold: CdcHold::default(),
            arrivals: Arrivals::default(),
            sndbuf: None,
            sndbuf_dma: None,
            at,
            pending_switch: None,
            rmbe: Some(Arc::new(rmbe, GFP_KERNEL)?),
            others: OtherRmbes::default(),
            unread: None,
            remote: None,
            claim: None,
            owner: Some(owner),
            closed_tcp: None,
            has_sent: false,
            is_short: false,
            wants_space: false,
            reading: 0,
            queued: false,
            linger_waiters: 0,
            orphan: None,
            silent_at: None,
            unheard_until: None,
            is_tcp_reset: false,
            corked_until: None,
            user_timeout: UserTimeout::default(),
            takes_immediate: false,
        };
        let conn = Arc::pin_init(
            pin_init!(Self {
                group,
                token,
                inner <- new_spinlock_bh!(inner, "smc::Conn::inner"),
                send_order <- new_mutex!((), "smc::Conn::send_order"),
                recv_order <- new_mutex!((), "smc::Conn::recv_order"),
                work <- new_work!("smc::Conn::work"),
                rmbe_work <- new_work!("smc::Conn::rmbe_work"),
            }),
            GFP_KERNEL,
        )?;
        reservation.join(token, idx, conn.clone())?;
        // A failover of that link before the join has missed this connection.
        if !link.is_up() {
            conn.group.leave(token);
            return Err(ENOLINK);
        }
        Ok(conn)
    }

    /// Returns the number of the link group, for diagnosis.
    pub(crate) fn group_id(&self) -> u32 {
        self.group.id
    }

    /// Returns our alert token, which the peer puts into each CDC message to us.
    pub(crate) fn token(&self) -> AlertToken {
        self.token
    }

    /// Returns our RMBE, `None` after the end of the group.
    pub(crate) fn rmbe(&self) -> Option<Arc<Rmbe>> {
        self.inner.lock().rmbe.clone()
    }

    /// Returns the link used for sending, and its index.
    pub(crate) fn link_ref(&self) -> LinkRef {
        self.inner.lock().at.clone()
    }

    /// Returns the name of the RDMA device used for sending, while it is there.
    #[cold]
    pub(crate) fn device_name(&self) -> Option<Name> {
        self.link().device().map(|device| device.name())
    }

    /// Returns the link used for sending.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.inner.lock().at.link.clone()
    }

    /// Ends the handshake. The peer may already have sent data or requests or closed, and the group may have ended.
    /// Context: does not sleep.
    pub(crate) fn establish(self: &Arc<Self>) {
        let peer = self.group.peer();
        let mut inner = self.inner.lock();
        let Some(remote) = inner.remote else {
            return;
        };
        inner.takes_immediate = peer.takes_immediate;
        inner.allow_immediate();
        if !peer.takes_cdc_on_any_link {
            inner.stream.advertise_late();
            inner.stream.expect_data_after_close();
        }
        if peer.replaces_rmbes {
            inner.stream.set_replaceable();
        }
        inner.stream.establish(remote.size);
        inner.begin_rmbe_watch();
        let was_killed = inner.stream.is_killed();
        drop(inner);
        self.watch_rmbe();
        if was_killed {
            self.finish_kill(ECONNABORTED);
        } else {
            self.transmit();
        }
    }

    /// Attaches a send buffer that is mapped for `link` and charged to the socket, unless nothing can be sent any more.
    ///
    /// # Errors
    ///
    /// Returns the buffer if the connection uses another link by now, or `link` is gone.
    pub(crate) fn attach_sndbuf(
        &self,
        inner: &mut ConnInner,
        buf: SndbufGuard,
        link: &Arc<Link>,
        source: WriteSource,
        charge: &mut Option<Charge>,
    ) -> Result<(), SndbufGuard> {
        self.try_switch(inner);
        if !Arc::ptr_eq(&inner.at.link, link) {
            return Err(buf);
        }
        if link.resources().is_none() {
            return Err(buf);
        }
        // The buffer is not mapped for another link.
        self.cancel_switch(inner);
        if inner.stream.can_send().is_ok() && inner.stream.attach_sndbuf(buf.size()) {
            inner.sndbuf = Some(buf);
            inner.sndbuf_dma = Some(source);
            inner.charges(|all| core::mem::swap(&mut all.sndbuf, charge));
        }
        Ok(())
    }

    /// Runs `f` on the state with the lock held: `f` has to be short and must not sleep.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut ConnInner) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// Returns the state, for poll and diagnosis.
    pub(crate) fn state(&self) -> ConnState {
        self.inner.lock().stream.state()
    }

    /// Whether getpeername(2) has an answer.
    pub(crate) fn has_peer(&self) -> bool {
        self.inner.lock().stream.is_connected()
    }

    /// What TCP_INFO tells of the state.
    pub(crate) fn tcp_equivalent(&self) -> TcpEquivalent {
        self.inner.lock().stream.tcp_equivalent()
    }

    /// Whether the peer has announced that it sends no more.
    pub(crate) fn is_peer_done(&self) -> bool {
        self.inner.lock().stream.is_peer_done()
    }

    /// Returns the socket, `None` after the application closed it.
    pub(crate) fn sk(&self) -> Option<ARef<Sk>> {
        self.inner.lock().sk()
    }

    /// Sets the socket's state to the connection's, unless the application closed the socket meanwhile.
    fn show_state(&self, sk: &Sk) {
        let inner = self.inner.lock();
        if inner.owner.is_some() {
            sk.set_state(inner.stream.state().number());
        }
    }

    /// Detaches the socket that the application closed: there are no more wake-ups.
    pub(crate) fn detach_sock(&self) {
        let mut inner = self.inner.lock();
        let replaced = inner.others.take_replaced();
        let gone = (inner.owner.take(), inner.unread.take(), replaced);
        drop(inner);
        drop(gone);
    }
}

impl ConnInner {
    /// Releases the device; nothing is sent any more. A task that copies from or to user space at the moment may keep
    /// the buffers for an unlimited time; the removal of the device does not wait for that.
    fn release_device(&mut self) {
        if let Some(buf) = &self.sndbuf {
            buf.release_device();
        }
        self.sndbuf_dma = None;
        self.pending_switch = None;
    }

    /// Uses immediate data if the peer accepts them and the link, which may be another one than before, carries them.
    fn allow_immediate(&mut self) {
        let is_allowed = self.takes_immediate && self.at.link.has_immediate();
        self.stream.set_immediate(is_allowed);
    }

    /// Returns our RMBE, `None` after the end of the group.
    pub(crate) fn rmbe(&self) -> Option<&Arc<Rmbe>> {
        self.rmbe.as_ref()
    }

    /// Returns the data received before the RMBE was released that the application has yet to read.
    pub(crate) fn unread(&self) -> Option<&Arc<Block>> {
        self.unread.as_ref()
    }

    /// Releases the unread data, and the RMBE before, if all was read; the caller drops the result without the lock.
    pub(crate) fn forget_read(&mut self) -> impl Sized {
        let is_read = self.stream.readable() == 0;
        let unread = self.unread.take_if(|_| is_read);
        let charge = unread
            .as_ref()
            .and_then(|_| self.charges(|all| all.rmbe.take()));
        (unread, charge, self.unneeded_replaced())
    }

    /// Releases the RMBE, which goes into quarantine as the peer may still write to it. Data that the application has
    /// yet to read stay in memory. The caller drops the result without the lock.
    fn give_up_rmbe(&mut self) -> impl Sized {
        let rmbe = self.rmbe.take();
        if let Some(rmbe) = &rmbe {
            rmbe.quarantine();
            let is_wanted = self.owner.is_some() && self.stream.readable() > 0;
            self.unread = rmbe.memory().filter(|_| is_wanted).cloned();
        }
        let is_kept = self.unread.is_some();
        let charge = self.charges(|all| all.rmbe.take_if(|_| !is_kept));
        let offered = self.charges(|all| all.offered.take());
        (rmbe, self.others.give_up_offered(), charge, offered)
    }

    /// Sets the socket's error without a wake-up; the caller wakes the socket later. Called with the lock held, so that
    /// no reader takes the end of the connection for an orderly close.
    fn note_err(&self, err: Error) {
        if let Some(owner) = &self.owner {
            owner.sk.note_err(err);
        }
    }

    /// Returns the size of the peer's RMBE, once it is known.
    pub(crate) fn peer_size(&self) -> Option<SizeClass> {
        self.remote.map(|remote| remote.size)
    }

    /// Runs `f` on the socket's charges, unless the application closed the socket.
    fn charges<R>(&mut self, f: impl FnOnce(&mut MemCharges) -> R) -> Option<R> {
        Some(f(&mut self.owner.as_mut()?.charges))
    }

    /// Returns the socket, `None` after the application closed it.
    fn sk(&self) -> Option<ARef<Sk>> {
        self.owner.as_ref().map(|owner| owner.sk.clone())
    }
}
