// SPDX-License-Identifier: GPL-2.0

//! Links over iWARP: the queue pairs are connected by a TCP connection of the driver, [`connect`]. The devices provide
//! no flow control, and a send completes when it is passed to TCP: see [`smc_proto::link::credits`].

mod connect;
mod unacked;

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    ib::Device,
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    link::credits::{
        Credits,
        INITIAL, //
    },
    time::{
        Duration,
        Instant, //
    },
    wire::iwarp::{
        self,
        TRAILER_LEN, //
    }, //
};

use super::{
    Caps,
    CreditUse,
    TransportOps, //
};
use crate::{
    clock::now,
    config::QueueDepth,
    link::{
        IbResources,
        Link,
        LinkError,
        ResourceError,
        Sent, //
    }, //
};
use connect::IwState;
use unacked::Unacked;

/// Delay of requests for acknowledgements that are not urgent.
const ACK_REQUEST_DELAY: Duration = Duration::from_millis(20);

/// State of a link over iWARP.
#[pin_data]
pub(in crate::link) struct Iwarp {
    /// Send credits from the peer.
    #[pin]
    credits: SpinLockBh<Credits>,
    /// Messages not yet acknowledged by the peer.
    #[pin]
    unacked: SpinLockBh<Unacked>,
    /// The TCP connection.
    #[pin]
    conn: SpinLockBh<IwState>,
    /// When to request an acknowledgement, ns of the clock; 0 for never.
    ack_request_at: Atomic<u64>,
}

impl Iwarp {
    /// Creates the resources, with receives for at least the peer's initial credits.
    /// Context: may sleep.
    pub(super) fn new(
        device: &Arc<Device>,
        depth: QueueDepth,
    ) -> Result<(Arc<IbResources>, Pin<KBox<Self>>), ResourceError> {
        let depth = depth.with_receives(INITIAL);
        let resources = IbResources::new(device, depth, TRAILER_LEN as u32)?;
        if resources.recv_slots < INITIAL {
            return Err(EINVAL.into());
        }
        let credits = Credits::new(resources.recv_slots);
        let unacked = Unacked::new(credits.window())?;
        let iwarp = KBox::pin_init(
            pin_init!(Self {
                credits <- new_spinlock_bh!(credits, "smc::Iwarp::credits"),
                unacked <- new_spinlock_bh!(unacked, "smc::Iwarp::unacked"),
                conn <- new_spinlock_bh!(IwState::default(), "smc::Iwarp::conn"),
                ack_request_at: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?;
        Ok((resources, iwarp))
    }
}

impl TransportOps for Iwarp {
    fn caps(&self) -> &'static Caps {
        &Caps {
            needs_acks: true,
            delivers_after_down: true,
            sees_peer_teardown: true,
            holds_netns: true,
            has_immediate: false,
        }
    }

    fn take_credit(&self, for_what: CreditUse) -> bool {
        let mut credits = self.credits.lock();
        // A sender with a slot but no credit waits for the peer's next message, as does one that finds no slot
        // meanwhile: that message wakes both.
        match for_what {
            CreditUse::Message => credits.take(),
            CreditUse::Update => credits.take_last(),
        }
    }

    fn put_back_credit(&self) {
        self.credits.lock().put_back();
    }

    fn has_credit(&self) -> bool {
        self.credits.lock().has_any()
    }

    fn trailer(&self) -> Option<[u8; TRAILER_LEN]> {
        Some(self.credits.lock().advertise().to_bytes())
    }

    fn on_completion(&self, sent: Sent) {
        self.on_local_completion(sent);
    }

    fn on_stop(&self) {
        self.report_lost();
    }

    fn send_credit_update(&self, link: &Arc<Link>) -> Result {
        if !self.credits.lock().is_update_due() {
            return Ok(());
        }
        let Some(resources) = link.resources() else {
            return Ok(());
        };
        // If no slot is free, the completion of a send calls this again.
        let Some(mut slot) = link.take_update_slot(&resources) else {
            return Ok(());
        };
        slot.write(&[])?;
        Ok(slot.post(link, Sent::Control, &[])?)
    }

    fn on_message<'b>(&self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, LinkError> {
        let (message, ack) = iwarp::split(bytes).map_err(|_| LinkError::MissingTrailer)?;
        self.credits.lock().on_message(ack);
        Ok((!message.is_empty()).then_some(message))
    }

    fn on_unread_message(&self) {
        self.credits.lock().on_unread();
    }

    fn after_message(&self, link: &Arc<Link>) -> Result {
        self.report_acked();
        link.wake_slot_waiters()?;
        self.send_credit_update(link)
    }

    fn request_ack(&self) {
        self.credits.lock().request_ack();
    }

    fn schedule_ack_request(&self) -> Option<Instant> {
        if self.ack_request_at.load(Relaxed) != 0 {
            return None;
        }
        let at = now().saturating_add(ACK_REQUEST_DELAY);
        let is_first = self.ack_request_at.cmpxchg(0, at.as_nanos(), Relaxed);
        is_first.is_ok().then_some(at)
    }

    fn ack_request_at(&self) -> Option<Instant> {
        match self.ack_request_at.load(Relaxed) {
            0 => None,
            at => Some(Instant::from_nanos(at)),
        }
    }

    fn unschedule_ack_request(&self) {
        self.ack_request_at.store(0, Relaxed);
    }
}
