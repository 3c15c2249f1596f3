// SPDX-License-Identifier: GPL-2.0

//! One connection over RDMA: the stream state, its rings, and the link that carries it.
//!
//! A connection is in its link group's token table from the handshake on until both sides have
//! closed, whatever the application does; a message that arrives takes a counted reference there.
//! When the group ends the connection lets go of all that belongs to the RDMA device.

use core::mem;

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        aref::ARef,
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    ib::Write,
    net::Sk,
    ratelimit, //
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
        Cdc,
        Effects,
        Fault,
        SentRecord,
        Stream,
        WritePlan, //
    },
    wire::cdc, //
};

use crate::{
    lgr::{
        LinkGroup,
        Member,
        SLOT, //
    },
    link::{
        Sender,
        Sent, //
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

/// What the spinlock of a connection guards.
pub(crate) struct Inner {
    pub(crate) stream: Stream,
    /// Lent by the link group while data are in flight.
    pub(crate) sndbuf: Option<Arc<SendBuf>>,
    /// Gone when the group ended.
    rmbe: Option<Arc<Rmbe>>,
    remote: Option<Remote>,
    /// The application's socket; taken out when it closes.
    sk: Option<ARef<Sk>>,
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
}

impl Conn {
    /// A connection in the handshake which receives into `rmbe`.
    pub(crate) fn new(group: Arc<LinkGroup>, rmbe: Rmbe, sk: ARef<Sk>) -> Result<Arc<Self>> {
        let token = group.next_token()?;
        let inner = Inner {
            stream: Stream::new(rmbe.size()),
            sndbuf: None,
            rmbe: Some(Arc::new(rmbe, GFP_KERNEL)?),
            remote: None,
            sk: Some(sk),
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
            }),
            GFP_KERNEL,
        )?;
        conn.group.join(token, conn.clone())?;
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

    /// Learns where the peer receives. Data may come from now on; see [`Conn::establish`] for ours.
    pub(crate) fn set_remote(&self, remote: Remote) {
        self.inner.lock().remote = Some(remote);
    }

    /// The handshake is done. Any context.
    pub(crate) fn establish(&self) {
        let mut inner = self.inner.lock();
        if let Some(remote) = inner.remote {
            inner.stream.establish(remote.size);
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
        self.inner.lock().sk.clone()
    }

    /// The application closed its socket: nobody is to be woken any more.
    pub(crate) fn detach(&self) {
        let sk = self.inner.lock().sk.take();
        drop(sk);
    }

    /// Sends all that may be sent. Does not sleep.
    pub(crate) fn transmit(self: &Arc<Self>) {
        self.transmit_if(|_| true);
    }

    /// Sends all that may be sent if `begin`, which runs under the lock, says so. Does not sleep.
    ///
    /// RDMA writes and their message are posted under the lock: the order on the queue pair must be
    /// the order in which the cursors were advanced.
    pub(crate) fn transmit_if(self: &Arc<Self>, begin: impl FnOnce(&mut Inner) -> bool) {
        let hardware = self.group.link.hardware();
        let mut broken = false;
        let mut inner = self.inner.lock();
        if !begin(&mut inner) {
            return;
        }
        let Some(hardware) = hardware else {
            return;
        };
        while inner.stream.has_work() {
            let Some(slot) = hardware.qp.take_slot() else {
                if mem::replace(&mut inner.queued, true) {
                    break;
                }
                self.group.wait_for_slot(self.token);
                // A slot that was freed before this woke nobody.
                continue;
            };
            let Some(plan) = inner.stream.plan() else {
                break;
            };
            if self.post(&inner, slot, &plan).is_err() {
                inner.stream.plan_failed(&plan.record);
                broken = true;
                break;
            }
        }
        let flushed = inner.flushing > 0 && !inner.stream.needs_flush();
        let sk = inner.sk.clone().filter(|_| flushed);
        drop(inner);
        if let Some(sk) = sk {
            sk.wake_state();
        }
        if broken {
            self.group.link.fail();
        }
    }

    /// Runs `wait`, during which the socket is woken when the last data have left.
    pub(crate) fn while_flushing(&self, wait: impl FnOnce()) {
        self.inner.lock().flushing += 1;
        wait();
        self.inner.lock().flushing -= 1;
    }

    /// Posts what a plan says.
    fn post(
        self: &Arc<Self>,
        inner: &Inner,
        mut slot: kernel_ext::ib::SendSlot<'_, crate::link::Link>,
        plan: &WritePlan,
    ) -> Result {
        let remote = inner.remote.ok_or(ENOTCONN)?;
        let message = cdc::Message {
            token: remote.token,
            cdc: plan.cdc,
        };
        slot.write(&message.to_bytes())?;
        let what = Sent::Data(self.clone(), plan.record);
        let link = &self.group.link;
        if plan.is_empty() {
            return Ok(slot.post(link, what, &[])?);
        }
        let source = inner.sndbuf.as_ref().ok_or(EIO)?.memory();
        let rtoken = self.group.rtoken(remote.row, SLOT).ok_or(EIO)?;
        let element = rtoken.addr.0.wrapping_add(remote.index.offset(remote.size));
        let write = |write: &smc_proto::stream::RdmaWrite| Write {
            source,
            parts: write
                .src
                .map(|chunk| (chunk.offset as usize, chunk.len as usize)),
            remote_addr: element.wrapping_add(u64::from(write.dst_offset)),
            rkey: rtoken.rkey.0,
        };
        let mut writes = plan.writes();
        match (writes.next(), writes.next()) {
            (Some(first), Some(second)) => {
                Ok(slot.post(link, what, &[write(first), write(second)])?)
            }
            (Some(only), None) => Ok(slot.post(link, what, &[write(only)])?),
            (None, _) => Ok(slot.post(link, what, &[])?),
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
        if after.is_finished || fx.transmit {
            self.reap();
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

    /// Leaves the link group once both sides have closed.
    pub(crate) fn reap(&self) {
        if self.inner.lock().stream.is_finished() {
            self.group.leave(self.token);
        }
    }

    /// Ends the connection from here: the group ends, or the peer broke the protocol.
    pub(crate) fn kill(self: &Arc<Self>) {
        let fx = self.inner.lock().stream.abort();
        if fx.transmit {
            self.transmit();
        }
        self.inner.lock().stream.aborted();
        if let Some(sk) = self.sk() {
            sk.set_err(ECONNABORTED);
            sk.set_state(self.state().number());
            sk.wake_state();
            sk.wake_readable();
            sk.wake_writable();
        }
        self.reap();
    }

    fn on_fault(self: &Arc<Self>, fault: Fault) {
        if ratelimit::peer() {
            pr_warn!("a peer broke the protocol, its connection is aborted: {fault:?}\n");
        }
        self.kill();
    }
}

/// What an event asks for, noted while the lock is held, so that it is not taken again.
struct After {
    fx: Effects,
    /// The socket, if it is to hear of the event.
    sk: Option<ARef<Sk>>,
    /// The connection leaves its group.
    is_finished: bool,
}

impl Inner {
    /// Our receive element, until the group ends.
    pub(crate) fn rmbe(&self) -> Option<&Arc<Rmbe>> {
        self.rmbe.as_ref()
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
            sk: if is_heard { self.sk.clone() } else { None },
            is_finished: self.stream.is_finished(),
        }
    }

    /// Saves the urgent byte while nobody can overwrite it.
    fn save_urgent(&mut self, offset: Option<u32>) {
        let (Some(offset), Some(rmbe)) = (offset, &self.rmbe) else {
            return;
        };
        let mut byte = [0];
        let memory = rmbe.memory();
        if memory.is_some_and(|m| m.block().read(offset as usize, &mut byte).is_ok()) {
            let [byte] = byte;
            self.stream.store_urgent(byte);
        }
    }
}

impl Member for Conn {
    fn on_cdc(self: Arc<Self>, cdc: &Cdc) {
        let mut inner = self.inner.lock();
        let result = inner.stream.on_cdc(cdc).map(|fx| {
            inner.save_urgent(fx.urgent_at);
            inner.after(fx)
        });
        drop(inner);
        match result {
            Ok(after) => self.act(&after),
            Err(fault) => self.on_fault(fault),
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.inner.lock().queued = false;
        self.transmit();
    }

    fn on_group_end(self: Arc<Self>) {
        self.kill();
        let mut inner = self.inner.lock();
        inner.stream.detach_sndbuf(true);
        let left = (inner.rmbe.take(), inner.sndbuf.take());
        drop(inner);
        drop(left);
    }
}

impl Sender for Conn {
    fn on_sent(self: Arc<Self>, record: &SentRecord, good: bool) {
        let mut inner = self.inner.lock();
        let fx = inner.stream.on_sent(record, good);
        let mut idle = None;
        if inner.stream.may_release_sndbuf() && inner.stream.detach_sndbuf(false) {
            idle = inner.sndbuf.take();
        }
        let after = inner.after(fx);
        drop(inner);
        if let Some(buf) = idle {
            self.group.sndbufs.give_back(buf);
        }
        self.act(&after);
    }
}
