// SPDX-License-Identifier: GPL-2.0

//! How many messages each side of an iWARP link may send, and which of them have arrived.
//!
//! A RoCE device says "not ready" for a message that meets no receive, and its peer sends it again. iWARP
//! has nothing of the kind: the stream is ended. And a send completes once TCP has it, so the depth of the
//! send queue says nothing about how many messages are on their way, nor a completion that one has arrived. So
//! each message carries the number of receives that its sender has made available so far, and how many
//! messages it has received; the other side sends no more than the first, and keeps what it may have to send
//! again until the second counts it.
//!
//! The last credit is left for a message that brings credits, and such a message is due as soon as half of
//! the receives can be granted again. So two sides that wait for each other cannot both be without one. Who
//! waits for word of what has arrived asks for it, in a message that is due anyway or in one of its own.

use crate::wire::iwarp::Word;

/// Receives that each side has posted before there is a stream, whatever it tells.
pub const FIRST: u16 = 16;

/// The credits of one side of a link. All counts are modulo 2^16; no two differ by as much as half of that.
#[derive(Clone, Copy, Debug)]
pub struct Credits {
    depth: u16,
    /// Messages sent.
    sent: u16,
    /// Messages that may have been sent by now.
    limit: u16,
    /// Of those sent, what the peer says to have received.
    arrived: u16,
    /// The newest of those sent of which somebody wants to know whether it arrived.
    wanted: u16,
    /// The peer was asked, and has not answered.
    is_asking: bool,
    /// The peer asks.
    is_asked: bool,
    /// Receives made available.
    posted: u16,
    /// Of these, what the peer was told.
    told: u16,
    /// A message was received whose receive is posted again by the time of the next one.
    is_behind: bool,
}

impl Credits {
    /// The deepest receive queue; a deeper one is not used whole.
    pub const MAX_DEPTH: u16 = 0x1000;

    /// Of a side that has posted `depth` receives: [`FIRST`] at least.
    pub const fn new(depth: u16) -> Self {
        let depth = match depth {
            depth if depth > Self::MAX_DEPTH => Self::MAX_DEPTH,
            depth => depth,
        };
        Self {
            depth,
            sent: 0,
            limit: FIRST,
            arrived: 0,
            wanted: 0,
            is_asking: false,
            is_asked: false,
            posted: depth,
            told: FIRST,
            is_behind: false,
        }
    }

    /// The most messages of [`Credits::take`] that may be on their way, whatever the peer grants.
    pub const fn window(&self) -> u16 {
        self.depth
    }

    /// Takes a credit for a message; says no if there is none but the last, or if too many messages are on
    /// their way.
    pub fn take(&mut self) -> bool {
        self.has_any() && self.take_last()
    }

    /// Takes a credit for a message that is to bring credits; says no if there is none.
    pub fn take_last(&mut self) -> bool {
        let is_there = self.left() > 0;
        if is_there {
            self.sent = self.sent.wrapping_add(1);
        }
        is_there
    }

    /// Whether [`Credits::take`] would say yes.
    pub const fn has_any(&self) -> bool {
        self.left() > 1 && self.on_their_way() < self.window()
    }

    /// A credit that was taken was not used. What was to be said with it is still to be said.
    pub fn put_back(&mut self) {
        self.sent = self.sent.wrapping_sub(1);
        if is_ahead(self.wanted, self.sent) {
            self.wanted = self.sent;
        }
        self.is_asking = false;
        self.is_asked = true;
    }

    /// A message arrived, with this word behind it. A number that is not above the last one is late, and
    /// says nothing.
    pub fn on_message(&mut self, word: Word) {
        self.receive();
        if is_ahead(word.granted, self.limit) {
            self.limit = word.granted;
        }
        let arrived = word.received_after(self.arrived);
        let is_true = !is_ahead(arrived, self.sent);
        if is_true && is_ahead(arrived, self.arrived) {
            self.arrived = arrived;
            self.is_asking = false;
        }
        self.is_asked |= word.asks;
    }

    /// A message arrived that cannot be read; the next one says as much as it did, and it may have asked.
    pub fn on_unread(&mut self) {
        self.receive();
        self.is_asked = true;
    }

    fn receive(&mut self) {
        if self.is_behind {
            self.posted = self.posted.wrapping_add(1);
        }
        self.is_behind = true;
    }

    /// How many of our messages have arrived, modulo 2^16.
    pub const fn arrived(&self) -> u16 {
        self.arrived
    }

    /// Somebody wants to know when what was sent by now has arrived.
    pub fn want_word(&mut self) {
        self.wanted = self.sent;
    }

    /// The peer is to be told what it may send, though nothing is new.
    pub fn owe_word(&mut self) {
        self.is_asked = true;
    }

    /// What a message takes with it which goes out now.
    pub fn tell(&mut self) -> Word {
        let is_filling = self.on_their_way() >= self.window() / 2;
        let asks = !self.is_asking && (is_filling || self.is_word_wanted());
        self.told = self.posted;
        self.is_asked = false;
        self.is_asking |= asks;
        Word::new(self.posted, self.received(), asks)
    }

    /// Whether the peer has to be told, or asked, if need be by a message of its own.
    pub const fn is_tell_due(&self) -> bool {
        let is_due = self.posted.wrapping_sub(self.told) >= self.depth / 2;
        is_due || self.is_asked || (self.is_word_wanted() && !self.is_asking)
    }

    const fn is_word_wanted(&self) -> bool {
        is_ahead(self.wanted, self.arrived)
    }

    /// Messages received.
    const fn received(&self) -> u16 {
        let again = self.posted.wrapping_sub(self.depth);
        match self.is_behind {
            true => again.wrapping_add(1),
            false => again,
        }
    }

    const fn on_their_way(&self) -> u16 {
        self.sent.wrapping_sub(self.arrived)
    }

    const fn left(&self) -> u16 {
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
        inbox: VecDeque<Word>,
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
                peer.inbox.push_back(self.credits.tell());
            }
            is_taken
        }

        /// Handles a message; its receive is posted again after that.
        fn receive(&mut self, peer: &mut Side) -> bool {
            let Some(word) = self.inbox.front().copied() else {
                return false;
            };
            self.credits.on_message(word);
            self.handled = self.handled.wrapping_add(1);
            let early = is_ahead(self.credits.arrived(), peer.handled);
            assert!(!early, "what has not arrived is said to have");
            self.tell(peer);
            self.inbox.pop_front();
            true
        }

        fn tell(&mut self, peer: &mut Side) {
            if self.credits.is_tell_due() {
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
        assert_eq!(taken, usize::from(FIRST) - 1);
        assert!(credits.take_last());
        assert!(!credits.take_last());
        credits.put_back();
        assert!(credits.take_last());
    }

    #[test]
    fn a_late_number_takes_nothing_away() {
        let mut credits = Credits::new(48);
        credits.on_message(Word::new(40, 0, false));
        credits.on_message(Word::new(20, 0, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 39);
    }

    #[test]
    fn no_more_are_on_their_way_than_can_be_kept() {
        let mut credits = Credits::new(16);
        credits.on_message(Word::new(400, 0, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 16);
        assert!(credits.take_last());
        credits.on_message(Word::new(400, 10, false));
        assert_eq!((0..100).filter(|_| credits.take()).count(), 9);
    }

    #[test]
    fn a_peer_cannot_have_received_what_was_not_sent() {
        let mut credits = Credits::new(16);
        assert!(credits.take());
        credits.on_message(Word::new(20, 2, false));
        assert_eq!(credits.arrived(), 0);
        credits.on_message(Word::new(20, 1, false));
        assert_eq!(credits.arrived(), 1);
        credits.on_message(Word::new(20, 0, false));
        assert_eq!(credits.arrived(), 1);
    }

    #[test]
    fn who_wants_word_gets_it() {
        for depth in [16, 48, 2048] {
            let (mut a, mut b) = (Side::new(depth), Side::new(depth));
            for sent in 1..1000 {
                assert!(a.send(&mut b, true));
                if sent % 3 != 0 {
                    continue;
                }
                a.credits.want_word();
                a.tell(&mut b);
                settle(&mut a, &mut b);
                assert!(!a.credits.is_word_wanted());
                assert!(!a.credits.is_tell_due() && !b.credits.is_tell_due());
            }
        }
    }

    #[test]
    fn who_wants_word_with_a_message_asks_in_it() {
        let (mut a, mut b) = (Side::new(16), Side::new(16));
        assert!(a.credits.take());
        a.credits.want_word();
        let word = a.credits.tell();
        assert!(word.asks && !a.credits.is_tell_due());
        b.credits.on_message(word);
        assert!(b.credits.is_tell_due());
        a.credits.on_message(b.credits.tell());
        assert!(!a.credits.is_word_wanted());
    }

    #[test]
    fn a_question_that_was_not_sent_is_asked_again() {
        let mut credits = Credits::new(16);
        assert!(credits.take() && credits.take());
        credits.want_word();
        assert!(credits.tell().asks);
        credits.put_back();
        assert!(credits.is_tell_due());
        assert!(credits.take_last() && credits.tell().asks);
        // Nothing that was sent is left to be asked about.
        let mut credits = Credits::new(16);
        assert!(credits.take());
        credits.want_word();
        credits.put_back();
        assert!(!credits.is_word_wanted());
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
                    a.tell(&mut b);
                    b.tell(&mut a);
                }
            }
        }
    }
}
