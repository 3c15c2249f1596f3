// SPDX-License-Identifier: GPL-2.0

//! One connection over RDMA: the stream state, its rings, and the link that carries it.
//!
//! A connection is in its link group's token table from the handshake on until both sides have
//! closed, whatever the application does; a message that arrives takes a counted reference there.
//! When the group ends the connection lets go of all that belongs to the RDMA device.

mod abort;
mod failover;
mod transmit;

pub(crate) use abort::Registry;

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
    ib::Mapping,
    net::{
        Sk,
        TcpSocket, //
    }, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::State,
    id::{
        RmbeIndex,
        Token, //
    },
    lgr::rtoken::RowId,
    stream::{
        Admission,
        Cdc,
        Effects,
        Fault,
        Gate,
        SentRecord,
        Stream, //
    }, //
};

use crate::{
    lgr::{
        chores::Chore,
        At,
        LinkGroup,
        Member,
        Seat, //
    },
    link::{
        Link,
        Sender, //
    },
    rmb::{
        Rmbe,
        SendBuf, //
    }, //
};

/// Where the peer's receive element is, and how the peer calls the connection.
#[derive(Clone, Copy)]
pub(crate) struct Remote {
    /// The peer's alert token, part of every message to it.
    pub(crate) token: Token,
    /// Row of the peer's buffer in the group's table of remote keys.
    pub(crate) row: RowId,
    /// The element in that buffer.
    pub(crate) index: RmbeIndex,
    /// The size of the element.
    pub(crate) size: SizeClass,
}

/// Whose the connection is.
pub(crate) struct Owner {
    /// The socket that the application holds.
    pub(crate) sk: ARef<Sk>,
    /// The TCP connection below it.
    pub(crate) tcp: Arc<TcpSocket>,
}

/// What the spinlock of a connection guards.
pub(crate) struct Inner {
    pub(crate) stream: Stream,
    /// What the peer says goes through here.
    gate: Gate,
    /// Lent by the link group while data are in flight.
    pub(crate) sndbuf: Option<Arc<SendBuf>>,
    /// The send buffer as the link's device sees it.
    source: Option<Arc<Mapping>>,
    /// The link that carries what we send.
    at: At,
    /// Gone when the group ended.
    rmbe: Option<Arc<Rmbe>>,
    remote: Option<Remote>,
    /// Taken out when the application closes.
    owner: Option<Owner>,
    /// Waits in the group's queue for a send slot.
    queued: bool,
    /// How many wait for the last data to leave.
    flushing: u32,
}

/// A connection.
#[pin_data]
pub(crate) struct Conn {
    pub(crate) group: Arc<LinkGroup>,
    token: Token,
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
    pub(crate) fn new(seat: Seat, at: At, rmbe: Rmbe, owner: Owner) -> Result<Arc<Self>> {
        let group = seat.group().clone();
        let token = group.next_token()?;
        let (slot, link) = (at.slot, at.link.clone());
        let inner = Inner {
            stream: Stream::new(rmbe.size()),
            gate: Gate::default(),
            sndbuf: None,
            source: None,
            at,
            rmbe: Some(Arc::new(rmbe, GFP_KERNEL)?),
            remote: None,
            owner: Some(owner),
            queued: false,
            flushing: 0,
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
        seat.join(token, slot, conn.clone())?;
        // Who moved connections away from the link before that did not find this one.
        if !link.is_up() {
            conn.group.leave(token);
            return Err(ENOLINK);
        }
        Ok(conn)
    }

    /// Our alert token: what the peer puts into every message to us.
    pub(crate) fn token(&self) -> Token {
        self.token
    }

    /// Our receive element, until the group ends.
    pub(crate) fn rmbe(&self) -> Option<Arc<Rmbe>> {
        self.inner.lock().rmbe.clone()
    }

    /// The link that carries what we send, and its slot.
    pub(crate) fn at(&self) -> At {
        self.inner.lock().at.clone()
    }

    /// The link that carries what we send.
    pub(crate) fn link(&self) -> Arc<Link> {
        self.inner.lock().at.link.clone()
    }

    /// Learns where the peer receives. Data may come from now on; see [`Conn::establish`] for ours.
    pub(crate) fn set_remote(&self, remote: Remote) {
        self.inner.lock().remote = Some(remote);
    }

    /// The handshake is done. The peer may have sent, asked and closed already, and the group may have
    /// ended. Does not sleep.
    pub(crate) fn establish(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let Some(remote) = inner.remote else {
            return;
        };
        let due = inner.stream.establish(remote.size);
        let was_killed = inner.stream.is_killed();
        drop(inner);
        if was_killed {
            self.finish_kill(ECONNABORTED);
        } else if due {
            self.transmit();
        }
    }

    /// Runs `f` on the state under its lock, which it must leave quickly.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock())
    }

    /// The state, for poll and diagnosis.
    pub(crate) fn state(&self) -> State {
        self.inner.lock().stream.state()
    }

    /// The socket that the application holds, as long as it does.
    pub(crate) fn sk(&self) -> Option<ARef<Sk>> {
        self.inner.lock().sk()
    }

    /// The application closed its socket: nobody is to be woken any more.
    pub(crate) fn detach(&self) {
        let owner = self.inner.lock().owner.take();
        drop(owner);
    }

    /// Carries out what a message of the peer asked for.
    fn conclude_message(self: &Arc<Self>, result: Result<After, Fault>) {
        match result {
            Ok(after) => self.act(&after),
            Err(fault) => self.on_fault(fault),
        }
    }

    /// Carries out what an event asked for.
    fn act(self: &Arc<Self>, after: &After) {
        let fx = &after.fx;
        if fx.transmit {
            self.transmit();
        }
        if let Some(sk) = &after.sk {
            self.wake(sk, fx);
        }
        if after.is_ending || fx.transmit {
            self.settle();
        }
    }

    fn wake(&self, sk: &Sk, fx: &Effects) {
        if fx.reset {
            sk.set_err(ECONNRESET);
        }
        if fx.state_changed {
            sk.set_state(self.state().number());
        }
        if fx.urgent_at.is_some() {
            sk.send_sigurg();
        }
        if fx.state_changed || fx.peer_done {
            sk.wake_state();
        }
        if fx.wake_readers {
            sk.wake_readable();
        }
        if fx.wake_writers {
            sk.wake_writable();
        }
    }
}

/// What an event asks for, noted while the lock is held, so that it is not taken again.
struct After {
    fx: Effects,
    /// The socket, if it is to hear of the event.
    sk: Option<ARef<Sk>>,
    /// The connection may be about to leave its group.
    is_ending: bool,
}

impl Inner {
    /// Our receive element, until the group ends.
    pub(crate) fn rmbe(&self) -> Option<&Arc<Rmbe>> {
        self.rmbe.as_ref()
    }

    /// Attaches a send buffer, mapped for `link`. Says no if the connection uses another link by now.
    pub(crate) fn lend(
        &mut self,
        buf: &Arc<SendBuf>,
        link: &Arc<Link>,
        source: Arc<Mapping>,
    ) -> bool {
        if !Arc::ptr_eq(&self.at.link, link) {
            return false;
        }
        if self.stream.attach_sndbuf(buf.size()) {
            self.sndbuf = Some(buf.clone());
            self.source = Some(source);
        }
        true
    }

    /// Whether the link that carries what we send works: if not, another one will soon.
    pub(crate) fn has_link(&self) -> bool {
        self.at.link.is_up()
    }

    /// The socket that the application holds, as long as it does.
    fn sk(&self) -> Option<ARef<Sk>> {
        self.owner.as_ref().map(|owner| owner.sk.clone())
    }

    /// Takes a message of the peer.
    fn take(&mut self, cdc: &Cdc) -> Result<After, Fault> {
        let fx = self.stream.on_cdc(cdc)?;
        self.save_urgent(fx.urgent_at);
        Ok(self.after(fx))
    }

    fn after(&self, fx: Effects) -> After {
        let is_heard = fx.wake_readers
            || fx.wake_writers
            || fx.urgent_at.is_some()
            || fx.peer_done
            || fx.reset
            || fx.state_changed;
        After {
            fx,
            sk: if is_heard { self.sk() } else { None },
            is_ending: self.stream.is_finished() || self.stream.is_killed(),
        }
    }

    /// Saves the urgent byte while nobody can overwrite it.
    fn save_urgent(&mut self, offset: Option<u32>) {
        let (Some(offset), Some(rmbe)) = (offset, &self.rmbe) else {
            return;
        };
        let mut byte = [0];
        let memory = rmbe.memory();
        if memory.is_some_and(|m| m.read(offset as usize, &mut byte).is_ok()) {
            let [byte] = byte;
            self.stream.store_urgent(byte);
        }
    }
}

impl Member for Conn {
    fn on_cdc(self: Arc<Self>, cdc: &Cdc) {
        let mut inner = self.inner.lock();
        let Inner { gate, stream, .. } = &mut *inner;
        match gate.admit(cdc, stream) {
            Admission::Pass => {
                let result = inner.take(cdc);
                drop(inner);
                self.conclude_message(result);
            }
            Admission::Hold => {}
            Admission::Drain => {
                drop(inner);
                self.group.note(Chore::Drain);
            }
        }
    }

    fn on_draining(self: Arc<Self>) {
        self.inner.lock().gate.begin();
    }

    fn on_drained(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        let results = inner.gate.open().map(|cdc| Some(inner.take(&cdc?)));
        drop(inner);
        for result in results.into_iter().flatten() {
            self.conclude_message(result);
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.inner.lock().queued = false;
        // Whoever offers the slot looks himself whether it was used.
        let _ = self.pump(|_| true);
    }

    fn move_from(self: Arc<Self>, slot: usize) {
        self.leave_link(slot);
    }

    fn on_group_end(self: Arc<Self>) {
        self.kill(ECONNABORTED);
    }

    fn on_link_gone(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.stream.cut();
        inner.stream.detach_sndbuf(true);
        let left = (inner.rmbe.take(), inner.sndbuf.take(), inner.source.take());
        drop(inner);
        drop(left);
        self.settle();
        self.group.leave(self.token);
    }
}

impl Sender for Conn {
    fn on_sent(self: Arc<Self>, record: &SentRecord, good: bool) {
        let mut inner = self.inner.lock();
        let fx = inner.stream.on_sent(record, good);
        let mut idle = None;
        if inner.stream.may_release_sndbuf() && inner.stream.detach_sndbuf(false) {
            idle = inner.sndbuf.take().zip(inner.source.take());
        }
        let after = inner.after(fx);
        drop(inner);
        if let Some((buf, _)) = idle {
            self.group.sndbufs.give_back(buf);
        }
        self.act(&after);
    }
}
