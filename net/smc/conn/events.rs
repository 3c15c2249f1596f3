// SPDX-License-Identifier: GPL-2.0

//! What happens to a connection: messages of the peer, completions, what its group tells it.

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::net::Sk;
use smc_proto::{
    conn::{
        Cdc,
        Effects,
        EpollMask,
        Fault,
        RxVerdict,
        SentRecord,
        Stream, //
    },
    llc::link_work::LinkWork,
    time::Instant, //
};

use super::{
    Conn,
    Inner, //
};
use crate::{
    lgr::LgrConn,
    link::Sender,
    rmb::Rmbe, //
};

/// What an event asks for, noted while the lock is held, so that it is not taken again.
pub(super) struct Followup {
    fx: Effects,
    /// The socket, if it is to hear of the event.
    sk: Option<ARef<Sk>>,
    /// Readers and pollers are to be woken.
    is_worth_reading: bool,
    /// The connection may be about to leave its group, or to leave the peer's element.
    is_ending: bool,
    /// The peer is to be asked whether it sends on, on the link in this slot.
    echo: Option<usize>,
}

impl Conn {
    /// Carries out what a message of the peer asked for.
    fn conclude_message(self: &Arc<Self>, result: Result<Followup, Fault>) {
        match result {
            Ok(after) => self.follow_up(&after),
            Err(fault) => self.on_fault(fault),
        }
    }

    /// Carries out what an event asked for.
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
        if fx.state_changed || fx.peer_done {
            sk.wake_state();
        }
        if after.is_worth_reading {
            sk.wake_readable();
        }
        if fx.wake_writers {
            sk.wake_writable();
        }
    }
}

impl Inner {
    /// Takes a message of the peer, which came by the link in `slot`, or was held back.
    fn take(&mut self, slot: Option<usize>, cdc: &Cdc) -> Result<Followup, Fault> {
        let before = self.stream.arrived();
        let fx = self.stream.on_cdc(cdc)?;
        if let (Some(slot), Some(rmbe)) = (slot, self.rmbe_to_sync()) {
            rmbe.sync_for_cpu(slot, &self.stream.arrived_since(before));
            self.arrivals.took(slot, cdc, &self.stream);
        }
        self.save_urgent(fx.urgent_at);
        if fx.reset {
            self.note_err(ECONNRESET);
        } else if fx.broken_pipe {
            self.note_err(EPIPE);
        }
        Ok(self.after(fx))
    }

    /// Takes the messages that were held back, if any is to be taken now.
    fn take_held(&mut self) -> [Option<Result<Followup, Fault>>; 4] {
        let held = self.cdc_hold.release();
        if let (Some(_), Some(rmbe)) = (held.iter().flatten().next(), self.rmbe_to_sync()) {
            for (slot, chunks) in self.arrivals.release(&self.stream).iter().flatten() {
                rmbe.sync_for_cpu(*slot, chunks);
            }
        }
        held.map(|cdc| Some(self.take(None, &cdc?)))
    }

    /// Our receive element if what arrives there has to be synchronised.
    fn rmbe_to_sync(&self) -> Option<Arc<Rmbe>> {
        self.rmbe.as_ref().filter(|rmbe| rmbe.needs_sync()).cloned()
    }

    /// Whether what arrives has to be synchronised.
    fn needs_sync(&self) -> bool {
        self.rmbe.as_ref().is_some_and(|rmbe| rmbe.needs_sync())
    }

    pub(super) fn after(&mut self, fx: Effects) -> Followup {
        let is_heard = fx.wake_readers
            || fx.wake_writers
            || fx.urgent_at.is_some()
            || fx.peer_done
            || fx.reset
            || fx.state_changed;
        let sk = if is_heard { self.sk() } else { None };
        // Who waits in poll(2) for a number of bytes is not woken before, as with TCP; who waits in recv(2)
        // may want fewer.
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
        }
    }

    /// Whether a message that came by the link in `slot` has to wait for others, since it does not say by which link
    /// came what those say.
    fn is_early(&self, slot: usize, cdc: &Cdc) -> bool {
        self.needs_sync() && self.arrivals.is_early(slot, cdc, &self.stream)
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

impl LgrConn for Conn {
    fn on_cdc(self: Arc<Self>, slot: usize, cdc: &Cdc) {
        // Before the filter: a flush retires the links that are marked by then.
        let is_given_up = cdc.is_validation() && self.group.give_up(cdc);
        let mut inner = self.inner.lock();
        let is_early = inner.is_early(slot, cdc);
        let Inner {
            cdc_hold, stream, ..
        } = &mut *inner;
        let verdict = cdc_hold.filter(cdc, stream, is_given_up || is_early);
        if verdict == RxVerdict::Deliver {
            let result = inner.take(Some(slot), cdc);
            drop(inner);
            return self.conclude_message(result);
        }
        let is_held = !inner.needs_sync() || inner.arrivals.hold(slot, cdc);
        drop(inner);
        if !is_held {
            self.kill(ECONNABORTED);
        }
        if verdict == RxVerdict::HoldAndFlush {
            self.group.queue_link_work(LinkWork::FlushRx);
        }
    }

    fn before_rx_flush(self: Arc<Self>) {
        self.inner.lock().cdc_hold.begin_flush();
    }

    fn after_rx_flush(self: Arc<Self>) {
        let mut inner = self.inner.lock();
        let results = inner.take_held();
        drop(inner);
        for result in results.into_iter().flatten() {
            self.conclude_message(result);
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.inner.lock().queued = false;
        // Whoever offers the slot looks himself whether it was used.
        let _ = self.try_transmit(|_| true);
    }

    fn fail_over_from(self: Arc<Self>, slot: usize) {
        self.fail_over(slot);
    }

    fn rebalance_from(self: Arc<Self>, slot: usize, can_carry: &dyn Fn(usize) -> bool) -> bool {
        self.rebalance(slot, can_carry)
    }

    fn on_echo(self: Arc<Self>) {
        self.note_echo();
    }

    fn on_rows_gone(self: Arc<Self>) {
        self.look_at_row();
    }

    fn on_timer(self: Arc<Self>, now: Instant) -> Option<Instant> {
        self.end_shortage();
        let silence = self.look_at_silence(now);
        let orphan = self.on_orphan_timer(now);
        let cork = self.look_at_cork(now);
        [silence, orphan, cork].into_iter().flatten().min()
    }

    fn on_group_end(self: Arc<Self>) {
        self.kill(ECONNABORTED);
    }

    fn on_link_gone(self: Arc<Self>) {
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
        // This may be the moment to go over to another link.
        self.try_switch(&mut inner);
        let mut idle = None;
        if inner.stream.may_release_sndbuf() && inner.stream.detach_sndbuf(false) {
            let charge = inner.charges(|all| all.sndbuf.take());
            idle = Some((inner.sndbuf.take(), inner.sndbuf_dma.take(), charge));
        }
        let after = inner.after(fx);
        drop(inner);
        if let Some((Some(buf), ..)) = idle {
            self.group.sndbufs.release(buf);
        }
        self.follow_up(&after);
    }
}
