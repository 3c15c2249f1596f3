// SPDX-License-Identifier: GPL-2.0

//! Waking the reader: at once, or by a timer for many messages together.

use kernel::{
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::{
        hrtimer::{
            HrTimerCallback,
            HrTimerCallbackContext,
            HrTimerPointer,
            HrTimerRestart, //
        },
        Delta, //
    }, //
};
use kernel_ext::{
    barrier::{
        smp_mb,
        Full, //
    },
    net::Sk, //
};
use smc_proto::{
    smcd::{
        gather::{
            self,
            Wake, //
        },
        ring::Fill, //
    },
    time::Duration, //
};

use super::{
    pair::{
        Pair,
        SmcdConn,
        SmcdEnd, //
    },
    pipe::{
        Pipe,
        RingWriter, //
    }, //
};
use crate::{
    blocking::SendOptions,
    clock, //
};

/// Until the timer tries again to wake a reader whose socket somebody else uses just now.
const RETRY: Delta = Delta::from_micros(10);

impl HrTimerCallback for Pair {
    type Pointer<'a> = Arc<Self>;

    fn run(this: ArcBorrow<'_, Self>, mut ctx: HrTimerCallbackContext<'_, Self>) -> HrTimerRestart {
        let is_client_done = wake_due(&this.to_client, &this.client);
        let is_server_done = wake_due(&this.to_server, &this.server);
        if is_client_done && is_server_done {
            return HrTimerRestart::NoRestart;
        }
        ctx.forward_now(RETRY);
        HrTimerRestart::Restart
    }
}

/// Wakes the reader if that is due; returns `false` if that must wait.
/// Context: does not sleep.
fn wake_due(pipe: &Pipe, reader: &SmcdEnd) -> bool {
    reader.try_with_sk(|sk| {
        if pipe.take_wake_due() {
            sk.wake_readable();
        }
    })
}

impl Pair {
    /// Has the readers woken after that time, or when it was to be for the other direction.
    /// Context: may sleep.
    fn wake_after(self: &Arc<Self>, wait: Duration) {
        let now = clock::now();
        let mut started = self.wake_handle.lock();
        // A handle that is dropped stops the timer.
        let before = started.take().map(|(due, _)| due);
        let due = now.saturating_add(wait);
        let due = match self.to_client.is_wake_due() && self.to_server.is_wake_due() {
            true => before.map_or(due, |before| due.min(before)),
            false => due,
        };
        let nanos = due.saturating_since(now).as_nanos();
        let nanos = i64::try_from(nanos).unwrap_or(i64::MAX);
        *started = Some((due, self.clone().start(Delta::from_nanos(nanos))));
    }

    /// Stops the timer.
    pub(super) fn stop_wake_timer(&self) {
        let started = self.wake_handle.lock().take();
        drop(started);
    }
}

impl SmcdConn {
    /// Something was written: wakes the reader if one sleeps and there is as much as it waits for (C function
    /// `tcp_data_ready`), at once or a moment later.
    pub(super) fn tell_reader(&self, writer: &mut RingWriter, how: &SendOptions, fill: Fill) {
        let (peer, pipe) = (self.peer(), self.tx());
        let max = match how.nodelay || peer.lowat() > 1 {
            true => 0,
            false => gather::gather_max(how.autocork_bytes, fill.limit),
        };
        if fill.used() >= max.into() {
            pipe.take_wake_due();
            return self.wake_reader();
        }
        if pipe.is_wake_due() {
            return;
        }
        let mut later = None;
        peer.with_sk(|sk| {
            if !sk.has_waiter() {
                return;
            }
            match writer.gather.on_write(self.rx().consumed(), clock::now) {
                Wake::Now => sk.wake_readable(),
                Wake::Later(wait) => later = Some(wait),
            }
        });
        if let Some(wait) = later {
            pipe.set_wake_due();
            self.pair.wake_after(wait);
        }
    }

    /// The writer waits for something itself: the reader is to wait no longer.
    pub(super) fn end_gathering(&self) {
        if self.tx().take_wake_due() {
            self.wake_reader();
        }
    }

    /// Wakes the reader if one sleeps and there is as much as it waits for.
    pub(super) fn wake_reader(&self) {
        let (peer, pipe) = (self.peer(), self.tx());
        let mut lowat = u64::from(peer.lowat());
        if lowat > 1 {
            // Who lowers it wakes the reader after that, with a barrier: either the reader sees what was produced, or
            // this is the new one.
            smp_mb(Full);
            lowat = peer.lowat().into();
        }
        if lowat <= 1 || pipe.is_full() || pipe.fill(0).used() >= lowat {
            peer.with_sk(Sk::wake_readable);
        }
    }

    /// Wakes the reader, and tells its owner of urgent data.
    pub(super) fn wake_for_urgent(&self) {
        self.peer().with_sk(|sk| {
            sk.send_sigurg();
            sk.wake_readable();
        });
    }
}
