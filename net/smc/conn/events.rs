// SPDX-License-Identifier: GPL-2.0

//! Events of a connection other than CDC messages (`cdc`): completions, timers, ends of links and groups.

use kernel::sync::{
    aref::ARef,
    Arc, //
};
use kernel_ext::{
    ib::WriteSource,
    net::{
        Charge,
        Sk, //
    },
    prelude::*, //
};
use smc_proto::{
    conn::{
        Cdc,
        Effects,
        EpollMask,
        RmbeOffer,
        SentRecord,
        Stream, //
    },
    lgr::LinkIdx,
    time::Instant, //
};

use super::{
    rmbe::Unneeded,
    Conn,
    ConnInner, //
};
use crate::{
    lgr::LgrConn,
    link::Sender,
    rmb::SndbufGuard, //
};

/// The effects of an event, collected under the lock and carried out without it.
pub(super) struct Followup {
    fx: Effects,
    /// The socket, if it has to be woken.
    sk: Option<ARef<Sk>>,
    /// Readers and pollers have to be woken.
    is_worth_reading: bool,
    /// The connection may be about to leave its group, or to release the peer's RMBE.
    is_ending: bool,
    /// Index of the link on which to send a TEST_LINK: does the peer send more data?
    echo: Option<LinkIdx>,
    /// The work that replaces the RMBE has to be queued.
    needs_rmbe_work: bool,
    /// Dropped without the lock.
    _unneeded: Unneeded,
}

impl Followup {
    /// Returns the RMBE that the peer offers.
    pub(super) fn offer(&self) -> Option<RmbeOffer> {
        self.fx.offer
    }

    /// A message has to be sent.
    pub(super) fn set_transmit(&mut self) {
        self.fx.transmit = true;
    }
}

/// A send buffer without data, with its charge; dropped without the connection's lock.
#[derive(Default)]
pub(super) struct IdleSndbuf {
    buf: Option<SndbufGuard>,
    _source: Option<WriteSource>,
    _charge: Option<Charge>,
}

impl Conn {
    /// Carries out the effects of an event.
    pub(super) fn follow_up(self: &Arc<Self>, after: &Followup) {
        let fx = &after.fx;
        if fx.transmit {
            self.transmit();
        }
        if let Some(sk) = &after.sk {
            self.wake(sk, after);
        }
        if after.is_ending || fx.transmit {
            self.free_if_done();
        }
        self.ask_echo(after.echo);
        if after.needs_rmbe_work {
            self.schedule_rmbe_work();
        }
        if fx.replaced {
            self.group.note_rmbe_released();
            self.watch_rmbe();
        }
    }

    fn wake(&self, sk: &Sk, after: &Followup) {
        let fx = &after.fx;
        if fx.reset || fx.broken_pipe {
            sk.wake_err();
        }
        if fx.state_changed {
            self.show_state(sk);
        }
        if fx.urgent_at.is_some() {
            sk.send_sigurg();
        }
        if fx.state_changed {
            sk.wake_state();
        }
        if fx.peer_done {
            sk.wake_end();
        } else if after.is_worth_reading {
            sk.wake_readable();
        }
        if fx.wake_writers {
            sk.wake_writable();
        }
    }
}

impl ConnInner {
    pub(super) fn after(&mut self, fx: Effects) -> Followup {
        self.after_replacing(fx, Unneeded::default())
    }

    /// As [`Self::after`], with what an RMBE that was replaced leaves behind.
    pub(super) fn after_replacing(&mut self, mut fx: Effects, unneeded: Unneeded) -> Followup {
        fx.wake_writers &= self.wants_space;
        self.wants_space &= !fx.wake_writers;
        let is_heard = fx.wake_readers
            || fx.wake_writers
            || fx.urgent_at.is_some()
            || fx.peer_done
            || fx.reset
            || fx.state_changed;
        let sk = if is_heard { self.sk() } else { None };
        // As with TCP, poll(2) is not woken below SO_RCVLOWAT; a task in recv(2) may want fewer bytes.
        let is_worth_reading = fx.wake_readers
            && (self.reading > 0
                || sk.as_ref().is_some_and(|sk| {
                    let ready = self.readiness(sk);
                    ready.contains(EpollMask::IN) || ready.contains(EpollMask::PRI)
                }));
        Followup {
            fx,
            sk,
            is_worth_reading,
            is_ending: self.stream.is_finished() || self.stream.has_stopped_writing(),
            echo: self.begin_echo(),
            needs_rmbe_work: self.needs_rmbe_work(&fx),
            _unneeded: unneeded,
        }
    }

    /// Takes the send buffer out if nothing is in it.
    pub(super) fn take_idle_sndbuf(&mut self) -> IdleSndbuf {
        if !self.stream.may_release_sndbuf() || !self.stream.detach_sndbuf(false) {
            return IdleSndbuf::default();
        }
        IdleSndbuf {
            _charge: self.charges(|all| all.sndbuf.take()).flatten(),
            buf: self.sndbuf.take(),
            _source: self.sndbuf_dma.take(),
        }
    }
}

impl LgrConn for Conn {
    fn on_cdc(self: Arc<Self>, idx: LinkIdx, cdc: &Cdc) {
        self.receive_cdc(idx, cdc);
    }

    fn on_immediate(self: Arc<Self>, idx: LinkIdx, seq: u16, len: u32) {
        self.receive_immediate(idx, seq, len);
    }

    fn before_rx_flush(self: Arc<Self>) {
        self.begin_rx_flush();
    }

    fn after_rx_flush(self: Arc<Self>) {
        self.end_rx_flush();
    }

    fn on_slot(self: Arc<Self>) {
        self.inner.lock().queued = false;
        // The caller checks whether the slot was used.
        let _ = self.try_transmit(|_| true);
    }

    fn fail_over_from(self: Arc<Self>, idx: LinkIdx, deadline: Instant) {
        self.fail_over(idx, deadline);
    }

    fn rebalance_from(self: Arc<Self>, idx: LinkIdx, can_carry: &dyn Fn(LinkIdx) -> bool) {
        self.rebalance(idx, can_carry);
    }

    fn on_echo(self: Arc<Self>) {
        self.note_echo();
    }

    fn on_rkeys_deleted(self: Arc<Self>) {
        self.look_at_row();
    }

    fn on_rmb_announced(self: Arc<Self>) {
        self.retry_rmbe_now();
    }

    fn on_timer(self: Arc<Self>, now: Instant) -> Option<Instant> {
        self.end_shortage();
        let silence = self.look_at_silence(now);
        let orphan = self.on_orphan_timer(now);
        let cork = self.look_at_cork(now);
        let unheard = self.look_at_unheard(now);
        let stalled = self.look_at_user_timeout(now);
        let rmbe = self.look_at_rmbe(now);
        let retry = self.retry_rmbe(now);
        let offer = self.look_at_offer(now);
        let all = [silence, orphan, cork, unheard, stalled, rmbe, retry, offer];
        all.into_iter().flatten().min()
    }

    fn on_group_end(self: Arc<Self>) {
        self.kill(ECONNABORTED);
    }

    fn release_all(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        inner.stream.set_no_link();
        inner.stream.detach_sndbuf(true);
        inner.release_device();
        let rmbe = inner.give_up_rmbe();
        let charge = inner.charges(|all| all.sndbuf.take());
        let sndbuf = (inner.sndbuf.take(), charge);
        let left = (
            rmbe,
            sndbuf,
            inner.sndbuf_dma.take(),
            inner.pending_switch.take(),
        );
        drop(inner);
        drop(left);
        self.free_if_done();
        self.group.leave(self.token);
    }
}

impl Sender for Conn {
    fn on_sent(self: Arc<Self>, record: &SentRecord, good: bool) {
        self.on_completion(|stream| stream.on_sent(record, good));
    }

    fn on_local_completion(self: Arc<Self>) {
        self.on_completion(Stream::on_local_completion);
    }

    fn on_acked(self: Arc<Self>, record: &SentRecord, arrived: bool) {
        self.on_completion(|stream| stream.on_acked(record, arrived));
    }
}

impl Conn {
    fn on_completion(self: Arc<Self>, take: impl FnOnce(&mut Stream) -> Effects) {
        let mut inner = self.inner.lock();
        let fx = take(&mut inner.stream);
        // A pending switch to another link may be possible now.
        self.try_switch(&mut inner);
        let idle = inner.take_idle_sndbuf();
        let after = inner.after(fx);
        drop(inner);
        self.release_idle_sndbuf(idle);
        self.follow_up(&after);
    }

    /// Gives back the send buffer that was taken out.
    /// Context: does not sleep.
    pub(super) fn release_idle_sndbuf(&self, idle: IdleSndbuf) {
        if let Some(buf) = idle.buf {
            self.group.sndbufs.release(buf);
        }
    }
}
