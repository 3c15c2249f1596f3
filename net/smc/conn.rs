// SPDX-License-Identifier: GPL-2.0

//! One connection over RDMA: the stream state, its rings, and the link that carries it.
//!
//! A connection is in its link group's token table from the handshake on until both sides have
//! closed, whatever the application does; a message that arrives takes a counted reference there.
//! When the group ends the connection lets go of all that belongs to the RDMA device.

mod abort;
mod cdc;
mod claim;
mod close;
mod cork;
mod events;
mod failover;
mod orphan;
mod poll;
mod post_close;
mod rx;
mod transmit;
mod tx;

pub(crate) use abort::Registry;
use claim::Claim;
use failover::PendingSwitch;
pub(crate) use rx::RecvOptions;
pub(crate) use tx::SendOptions;

use kernel::{
    impl_has_work,
    new_mutex,
    new_spinlock,
    new_work,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex,
        SpinLock, //
    },
    workqueue::Work, //
};
use kernel_ext::{
    ib::{
        Block,
        Mapping,
        Name, //
    },
    net::{
        Charge,
        Sk,
        TcpSocket, //
    }, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::{
        Arrivals,
        CdcHold,
        ConnState,
        Stream, //
    },
    id::{
        AlertToken,
        RmbeIndex, //
    },
    lgr::rtoken::RowId,
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

/// Where the peer's receive element is, and how the peer calls the connection.
#[derive(Clone, Copy)]
pub(crate) struct PeerRmbe {
    /// The peer's alert token, part of every message to it.
    pub(crate) token: AlertToken,
    /// Row of the peer's buffer in the group's table of remote keys.
    pub(crate) row: RowId,
    /// The element in that buffer.
    pub(crate) index: RmbeIndex,
    /// The size of the element.
    pub(crate) size: SizeClass,
}

/// Whose the connection is.
pub(crate) struct ConnSock {
    /// The socket that the application holds.
    pub(crate) sk: ARef<Sk>,
    /// The TCP connection below it.
    pub(crate) tcp: Arc<TcpSocket>,
    /// What it is charged for.
    pub(crate) charges: MemCharges,
}

/// Buffers that count as memory of the socket. What happens to them once the application has closed it is
/// not its affair.
pub(crate) struct MemCharges {
    /// The receive element.
    pub(crate) rmbe: Option<Charge>,
    /// The send buffer, while one is lent.
    pub(crate) sndbuf: Option<Charge>,
}

/// What the spinlock of a connection guards.
pub(crate) struct Inner {
    pub(crate) stream: Stream,
    /// What the peer says goes through here.
    cdc_hold: CdcHold,
    /// By which links it says so, where what they write has to be synchronised.
    arrivals: Arrivals,
    /// From the link group, while data are in flight.
    pub(crate) sndbuf: Option<SndbufGuard>,
    /// The send buffer as the link's device sees it.
    sndbuf_dma: Option<Arc<Mapping>>,
    /// The link that carries what we send.
    at: LinkRef,
    /// The one that is to do so from when nothing is in flight.
    pending_switch: Option<PendingSwitch>,
    /// Gone when the group ended.
    rmbe: Option<Arc<Rmbe>>,
    /// The memory of the element that is gone, as long as it holds what the application has yet to read.
    unread: Option<Arc<Block>>,
    remote: Option<PeerRmbe>,
    /// The peer's element, as long as something may be written to it.
    claim: Option<Claim>,
    /// Taken out when the application closes.
    owner: Option<ConnSock>,
    /// A send buffer has been lent before.
    pub(crate) has_sent: bool,
    /// There was no memory for a send buffer: writers wait until it is worth another try.
    pub(crate) is_short: bool,
    /// How many wait for data.
    reading: u32,
    /// Waits in the group's queue for a send slot.
    queued: bool,
    /// How many wait for the last data to leave.
    linger_waiters: u32,
    /// The application has gone, and the peer is waited for.
    orphan: Option<orphan::Orphan>,
    /// The peer answered: when its close is the end if it says nothing until then.
    silent_at: Option<Instant>,
    /// When data that were held back for more to come leave without it.
    corked_until: Option<Instant>,
}

/// A connection.
#[pin_data]
pub(crate) struct Conn {
    pub(crate) group: Arc<LinkGroup>,
    token: AlertToken,
    /// Lock order: see `Documentation/locking.md`.
    #[pin]
    inner: SpinLock<Inner>,
    /// One writer at a time, held while the application's bytes are copied.
    #[pin]
    pub(crate) send_order: Mutex<()>,
    /// One reader at a time, held while bytes are copied to the application.
    #[pin]
    pub(crate) recv_order: Mutex<()>,
    /// Resets the TCP connection.
    #[pin]
    work: Work<Conn>,
}

impl_has_work! {
    impl HasWork<Self> for Conn { self.work }
}

impl Conn {
    /// A connection in the handshake which receives into `rmbe`.
    pub(crate) fn new(
        reservation: ConnReservation,
        at: LinkRef,
        rmbe: Rmbe,
        owner: ConnSock,
    ) -> Result<Arc<Self>> {
        let group = reservation.group().clone();
        let token = group.next_token()?;
        let (slot, link) = (at.slot, at.link.clone());
        let inner = Inner {
            stream: Stream::new(rmbe.size()),
            cdc_hold: CdcHold::default(),
            arrivals: Arrivals::default(),
            sndbuf: None,
            sndbuf_dma: None,
            at,
            pending_switch: None,
            rmbe: Some(Arc::new(rmbe, GFP_KERNEL)?),
            unread: None,
            remote: None,
            claim: None,
            owner: Some(owner),
            has_sent: false,
            is_short: false,
            reading: 0,
            queued: false,
            linger_waiters: 0,
            orphan: None,
            silent_at: None,
            corked_until: None,
        };
        let conn = Arc::pin_init(
            pin_init!(Self {
                group,
                token,
                inner <- new_spinlock!(inner, "smc::Conn::inner"),
                send_order <- new_mutex!((), "smc::Conn::send_order"),
                recv_order <- new_mutex!((), "smc::Conn::recv_order"),
                work <- new_work!("smc::Conn::work"),
            }),
            GFP_KERNEL,
        )?;
        reservation.join(token, slot, conn.clone())?;
        // Who moved connections away from the link before that did not find this one.
        if !link.is_up() {
            conn.group.leave(token);
            return Err(ENOLINK);
        }
        Ok(conn)
    }

    /// The number of the link group, for diagnosis.
    pub(crate) fn group_id(&self) -> u32 {
        self.group.id
    }

    /// Our alert token: what the peer puts into every message to us.
    pub(crate) fn token(&self) -> AlertToken {
        self.token
    }

    /// Our receive element, until the group ends.
    pub(crate) fn rmbe(&self) -> Option<Arc<Rmbe>> {
        self.inner.lock().rmbe.clone()
    }

    /// The link that carries what we send, and its slot.
    pub(crate) fn link_ref(&self) -> LinkRef {
        self.inner.lock().at.clone()
    }

    /// The name of the RDMA device that carries what we send, while it is there.
    #[cold]
    pub(crate) fn device_name(&self) -> Option<Name> {
        self.link().device().map(|device| device.name())
    }

    /// The link that carries what we send.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.inner.lock().at.link.clone()
    }

    /// The handshake is done. The peer may have sent, asked and closed already, and the group may have
    /// ended. Does not sleep.
    pub(crate) fn establish(self: &Arc<Self>) {
        let takes_any_link = self.group.peer().takes_any_link;
        let mut inner = self.inner.lock();
        let Some(remote) = inner.remote else {
            return;
        };
        if !takes_any_link {
            inner.stream.advertise_late();
            inner.stream.expect_data_after_close();
        }
        inner.stream.establish(remote.size);
        let was_killed = inner.stream.is_killed();
        drop(inner);
        if was_killed {
            self.finish_kill(ECONNABORTED);
        } else {
            self.transmit();
        }
    }

    /// Attaches a send buffer, mapped for `link`, for which the socket is charged, unless nothing can be sent any more.
    ///
    /// # Errors
    ///
    /// Gives the buffer back if the connection uses another link by now, or this one is gone.
    pub(crate) fn attach_sndbuf(
        &self,
        inner: &mut Inner,
        buf: SndbufGuard,
        link: &Arc<Link>,
        source: Arc<Mapping>,
        charge: &mut Option<Charge>,
    ) -> Result<(), SndbufGuard> {
        self.try_switch(inner);
        if !Arc::ptr_eq(&inner.at.link, link) {
            return Err(buf);
        }
        if link.resources().is_none() {
            return Err(buf);
        }
        // Nobody mapped it for another link.
        self.cancel_switch(inner);
        if inner.stream.can_send().is_ok() && inner.stream.attach_sndbuf(buf.size()) {
            inner.sndbuf = Some(buf);
            inner.sndbuf_dma = Some(source);
            inner.charges(|all| core::mem::swap(&mut all.sndbuf, charge));
        }
        Ok(())
    }

    /// Runs `f` on the state under its lock, which it must leave quickly.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// The state, for poll and diagnosis.
    pub(crate) fn state(&self) -> ConnState {
        self.inner.lock().stream.state()
    }

    /// The socket that the application holds, as long as it does.
    pub(crate) fn sk(&self) -> Option<ARef<Sk>> {
        self.inner.lock().sk()
    }

    /// Shows the connection's state on the socket, unless the application has closed that meanwhile.
    fn show_state(&self, sk: &Sk) {
        let inner = self.inner.lock();
        if inner.owner.is_some() {
            sk.set_state(inner.stream.state().number());
        }
    }

    /// The application closed its socket: nobody is to be woken any more.
    pub(crate) fn detach_sock(&self) {
        let mut inner = self.inner.lock();
        let gone = (inner.owner.take(), inner.unread.take());
        drop(inner);
        drop(gone);
    }
}

impl Inner {
    /// Lets go of the device: nothing is sent any more. A task that copies from or to the application at the moment
    /// may keep the buffers for as long as the application likes, and the removal of the device does not wait for
    /// that.
    fn release_device(&mut self) {
        if let Some(buf) = &self.sndbuf {
            buf.release_device();
        }
        self.sndbuf_dma = None;
        self.pending_switch = None;
    }

    /// Our receive element, until the group ends.
    pub(crate) fn rmbe(&self) -> Option<&Arc<Rmbe>> {
        self.rmbe.as_ref()
    }

    /// What arrived before the element went, which the application has yet to read.
    pub(crate) fn unread(&self) -> Option<&Arc<Block>> {
        self.unread.as_ref()
    }

    /// Forgets that if it was read; what is returned is to be dropped without the lock.
    pub(crate) fn forget_read(&mut self) -> impl Sized {
        let is_read = self.stream.readable() == 0;
        let unread = self.unread.take_if(|_| is_read);
        let charge = unread
            .as_ref()
            .and_then(|_| self.charges(|all| all.rmbe.take()));
        (unread, charge)
    }

    /// Lets go of the receive element, to which the peer may write on by a link of its own. What the application has
    /// yet to read stays in memory. What is returned is to be dropped without the lock.
    fn give_up_rmbe(&mut self) -> impl Sized {
        let rmbe = self.rmbe.take();
        if let Some(rmbe) = &rmbe {
            rmbe.quarantine();
            let is_wanted = self.owner.is_some() && self.stream.readable() > 0;
            self.unread = rmbe.memory().filter(|_| is_wanted).cloned();
        }
        let is_kept = self.unread.is_some();
        let charge = self.charges(|all| all.rmbe.take_if(|_| !is_kept));
        (rmbe, charge)
    }

    /// The error that the application gets. Who sets it under the lock leaves nobody the time to take the end of
    /// the connection for an end in order; the socket is to be woken after that.
    fn note_err(&self, err: Error) {
        if let Some(owner) = &self.owner {
            owner.sk.note_err(err);
        }
    }

    /// The size of the peer's element, once it is known.
    pub(crate) fn peer_size(&self) -> Option<SizeClass> {
        self.remote.map(|remote| remote.size)
    }

    /// Changes what the socket is charged for, as long as the application holds it.
    fn charges<R>(&mut self, f: impl FnOnce(&mut MemCharges) -> R) -> Option<R> {
        Some(f(&mut self.owner.as_mut()?.charges))
    }

    /// The socket that the application holds, as long as it does.
    fn sk(&self) -> Option<ARef<Sk>> {
        self.owner.as_ref().map(|owner| owner.sk.clone())
    }
}
