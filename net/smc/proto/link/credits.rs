// SPDX-License-Identifier: GPL-2.0

//! Credits and acknowledgements of an iWARP link: how many messages each side may send, and which of them the
//! peer has received.
//!
//! A RoCE device answers a message that meets no posted receive with RNR NAK, and the message is sent again.
//! iWARP has nothing of the kind: the connection is ended. And a send completes once TCP has it, so neither does
//! the depth of the send queue limit the messages in flight, nor does a completion say that one has arrived. So
//! each message carries a [`CreditAck`] trailer: the number of receives that its sender has granted so far, and
//! how many messages it has received. The other side sends no more than the first, and keeps what it may have to
//! send again until the second counts it.
//!
//! The last credit is reserved for a credit update, a message of the trailer alone, which is due as soon as half
//! of the receives can be granted again. So two sides that wait for each other cannot both be without credits. A
//! side that needs an acknowledgement requests it, in a message that is due anyway or in an update of its own.

use crate::wire::iwarp::CreditAck;

/// Credits of each side when the connection begins: as many receives are posted before it is there.
pub const INITIAL: u16 = 16;

/// The credits of one side of a link. All counts are modulo 2^16; no two differ by as much as half of that.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    depth: u16,
    /// Messages sent.
    sent: u16,
    /// Messages that may have been sent by now.
    limit: u16,
    /// Of those sent, what the peer has acknowledged.
    acked: u16,
    /// The newest of those sent for which an acknowledgement is needed.
    ack_wanted: u16,
    /// An acknowledgement was requested, and has not come.
    is_ack_requested: bool,
    /// An update is due though nothing is new: the peer requested it.
    is_update_requested: bool,
    /// Receives made available.
    posted: u16,
    /// Of these, what was advertised to the peer.
    advertised: u16,
    /// A message was received whose receive is posted again by the time of the next one.
    is_behind: bool,
}

impl Credits {
    /// The deepest receive queue; a deeper one is not used whole.
    pub const MAX_DEPTH: u16 = 0x1000;

    /// Of a side that has posted `depth` receives: [`INITIAL`] at least.
    pub const fn new(depth: u16) -> Self {
        let depth = match depth {
            depth if depth > Self::MAX_DEPTH => Self::MAX_DEPTH,
            depth => depth,
        };
        Self {
            depth,
            sent: 0,
            limit: INITIAL,
            acked: 0,
            ack_wanted: 0,
            is_ack_requested: false,
            is_update_requested: false,
            posted: depth,
            advertised: INITIAL,
            is_behind: false,
        }
    }

    /// The most messages of [`Credits::take`] that may be in flight, whatever the peer grants.
    pub const fn window(&self) -> u16 {
        self.depth
    }

    /// Takes a credit for a message. Returns false if there is none but the last, or if too many messages are in
    /// flight.
    pub fn take(&mut self) -> bool {
        self.has_any() && self.take_last()
    }

    /// Takes a credit for a credit update. Returns false if there is none.
    pub fn take_last(&mut self) -> bool {
        let is_there = self.available() > 0;
        if is_there {
            self.sent = self.sent.wrapping_add(1);
        }
        is_there
    }

    /// Whether [`Credits::take`] would return true.
    pub const fn has_any(&self) -> bool {
        self.available() > 1 && self.in_flight() < self.window()
    }

    /// Returns a credit that was taken and not used. What was advertised with it is due again.
    pub fn put_back(&mut self) {
        self.sent = self.sent.wrapping_sub(1);
        if is_ahead(self.ack_wanted, self.sent) {
            self.ack_wanted = self.sent;
        }
        self.is_ack_requested = false;
        self.is_update_requested = true;
    }

    /// A message arrived with this trailer. A count that is not ahead of the last one is late, and ignored.
    pub fn on_message(&mut self, ack: CreditAck) {
        self.receive();
        if is_ahead(ack.granted, self.limit) {
            self.limit = ack.granted;
        }
        let acked = ack.received_after(self.acked);
        let is_true = !is_ahead(acked, self.sent);
        if is_true && is_ahead(acked, self.acked) {
            self.acked = acked;
            self.is_ack_requested = false;
        }
        self.is_update_requested |= ack.requests_ack;
    }

    /// A message arrived that cannot be read. The next trailer includes its counts; it may have requested an
    /// acknowledgement.
    pub fn on_unread(&mut self) {
        self.receive();
        self.is_update_requested = true;
    }

    fn receive(&mut self) {
        if self.is_behind {
            self.posted = self.posted.wrapping_add(1);
        }
        self.is_behind = true;
    }

    /// How many of our messages the peer has acknowledged, modulo 2^16.
    pub const fn acked(&self) -> u16 {
        self.acked
    }

    /// Requests an acknowledgement of all that was sent by now, with the next message.
    pub fn request_ack(&mut self) {
        self.ack_wanted = self.sent;
    }

    /// Makes a credit update due, though nothing is new.
    pub fn force_credit_update(&mut self) {
        self.is_update_requested = true;
    }

    /// The trailer of a message that is posted now.
    pub fn advertise(&mut self) -> CreditAck {
        let is_filling = self.in_flight() >= self.window() / 2;
        let requests_ack = !self.is_ack_requested && (is_filling || self.needs_ack());
        self.advertised = self.posted;
        self.is_update_requested = false;
        self.is_ack_requested |= requests_ack;
        CreditAck::new(self.posted, self.received(), requests_ack)
    }

    /// Whether a credit update is due, if no other message is.
    pub const fn is_update_due(&self) -> bool {
        let is_due = self.posted.wrapping_sub(self.advertised) >= self.depth / 2;
        is_due || self.is_update_requested || (self.needs_ack() && !self.is_ack_requested)
    }

    const fn needs_ack(&self) -> bool {
        is_ahead(self.ack_wanted, self.acked)
    }

    /// Messages received.
    const fn received(&self) -> u16 {
        let again = self.posted.wrapping_sub(self.depth);
        match self.is_behind {
            true => again.wrapping_add(1),
            false => again,
        }
    }

    const fn in_flight(&self) -> u16 {
        self.sent.wrapping_sub(self.acked)
    }

    const fn available(&self) -> u16 {
        if is_ahead(self.limit, self.sent) {
            self.limit.wrapping_sub(self.sent)
        } else {
            0
        }
    }
}

/// Whether a count is above another, which is less than 2^15 away.
pub const fn is_ahead(count: u16, other: u16) -> bool {
    let ahead = count.wrapping_sub(other);
    ahead != 0 && ahead < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    /// A side, and what arrived there. That keeps its receive until it was handled.
    struct Side {
        credits: Credits,
        receives: u16,
        inbox: VecDeque<CreditAck>,
        handled: u16,
    }

    impl Side {
        fn new(depth: u16) -> Self {
            Self {
                credits: Credits::new(depth),
                receives: depth,
                inbox: VecDeque::new(),
                handled: 0,
            }
        }

        fn send(&mut self, peer: &mut Side, is_data: bool) -> bool {
            let is_taken = match is_data {
                true => self.credits.take(),
                false => self.credits.take_last(),
            };
            if is_taken {
                let is_there = peer.inbox.len() < usize::from(peer.receives);
                assert!(is_there, "a message meets no receive");
                peer.inbox.push_back(self.credits.advertise());
            }
            is_taken
        }

        /// Handles a message; its receive is posted again after that.
        fn receive(&mut self, peer: &mut Side) -> bool {
            let Some(ack) = self.inbox.front().copied() else {
                return false;
            };
            self.credits.on_message(ack);
            self.handled = self.handled.wrapping_add(1);
            let early = is_ahead(self.credits.acked(), peer.handled);
            assert!(!early, "acknowledged before it arrived");
            self.update(peer);
            self.inbox.pop_front();
            true
        }

        fn update(&mut self, peer: &mut Side) {
            if self.credits.is_update_due() {
                self.send(peer, false);
            }
        }
    }

    fn settle(a: &mut Side, b: &mut Side) {
        let is_still = (0..1000).any(|_| !(a.receive(b) | b.receive(a)));
        assert!(is_still, "the two never stop talking");
    }

    #[test]
    fn the_first_credits_are_those_that_everybody_has() {
        let mut credits = Credits::new(48);
        let taken = (0..100).filter(|_| credits.take()).count();
        assert_eq!(taken, usize::from(INITIAL) - 1);
        assert!(credits.take_last());
        assert!(!credits.take_last());
        credits.put_back();
        assert!(credits.take_last());
    }

    #[test]
    fn a_late_number_takes_nothing_away() {
        let mut credits = Credits::new(48);
        credits.on_message(CreditAck::new(40, 0, false));
        credits.on_message(CreditAck::new(20, 0, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 39);
    }

    #[test]
    fn no_more_are_in_flight_than_can_be_kept() {
        let mut credits = Credits::new(16);
        credits.on_message(CreditAck::new(400, 0, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 16);
        assert!(credits.take_last());
        credits.on_message(CreditAck::new(400, 10, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 9);
    }

    #[test]
    fn a_peer_cannot_have_received_what_was_not_sent() {
        let mut credits = Credits::new(16);
        assert!(credits.take());
        credits.on_message(CreditAck::new(20, 2, false));
        assert_eq!(credits.acked(), 0);
        credits.on_message(CreditAck::new(20, 1, false));
        assert_eq!(credits.acked(), 1);
        credits.on_message(CreditAck::new(20, 0, false));
        assert_eq!(credits.acked(), 1);
    }

    #[test]
    fn a_requested_ack_comes() {
        for depth in [16, 48, 2048] {
            let (mut a, mut b) = (Side::new(depth), Side::new(depth));
            for sent in 1..1000 {
                assert!(a.send(&mut b, true));
                if sent % 3 != 0 {
                    continue;
                }
                a.credits.request_ack();
                a.update(&mut b);
                settle(&mut a, &mut b);
                assert!(!a.credits.needs_ack());
                assert!(!a.credits.is_update_due() && !b.credits.is_update_due());
            }
        }
    }

    #[test]
    fn an_ack_is_requested_in_a_message_that_is_due_anyway() {
        let (mut a, mut b) = (Side::new(16), Side::new(16));
        assert!(a.credits.take());
        a.credits.request_ack();
        let ack = a.credits.advertise();
        assert!(ack.requests_ack && !a.credits.is_update_due());
        b.credits.on_message(ack);
        assert!(b.credits.is_update_due());
        a.credits.on_message(b.credits.advertise());
        assert!(!a.credits.needs_ack());
    }

    #[test]
    fn a_request_that_was_not_sent_is_made_again() {
        let mut credits = Credits::new(16);
        assert!(credits.take() && credits.take());
        credits.request_ack();
        assert!(credits.advertise().requests_ack);
        credits.put_back();
        assert!(credits.is_update_due());
        assert!(credits.take_last() && credits.advertise().requests_ack);
        // Nothing that was sent is left to be acknowledged.
        let mut credits = Credits::new(16);
        assert!(credits.take());
        credits.request_ack();
        credits.put_back();
        assert!(!credits.needs_ack());
    }

    #[test]
    fn a_stream_in_one_direction_does_not_stop_however_long() {
        for (depth, other) in [
            (16, 16),
            (17, 17),
            (48, 48),
            (2048, 2048),
            (u16::MAX, 16),
            (16, u16::MAX),
        ] {
            let (mut a, mut b) = (Side::new(depth), Side::new(other));
            let mut sent = 0;
            while sent < 200_000 {
                if a.send(&mut b, true) {
                    sent += 1;
                    continue;
                }
                let moved = b.receive(&mut a) | a.receive(&mut b);
                assert!(
                    moved,
                    "both wait at {sent} with {depth} and {other} receives"
                );
            }
        }
    }

    #[test]
    fn two_sides_that_send_as_much_as_they_may_do_not_stop() {
        for depth in [16, 48] {
            let (mut a, mut b) = (Side::new(depth), Side::new(16));
            let mut sent = 0;
            while sent < 200_000 {
                while a.send(&mut b, true) {
                    sent += 1;
                }
                while b.send(&mut a, true) {
                    sent += 1;
                }
                let moved = a.receive(&mut b) | b.receive(&mut a);
                assert!(moved, "both wait at {sent}");
                // A message that was due and could not go goes with the credits that came.
                for _ in 0..2 {
                    a.update(&mut b);
                    b.update(&mut a);
                }
            }
        }
    }
}
