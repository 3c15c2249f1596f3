// SPDX-License-Identifier: GPL-2.0

//! How many messages each side of an iWARP link may send: as many as the other has receives for.
//!
//! A RoCE device says "not ready" for a message that meets no receive, and its peer sends it again. iWARP
//! has nothing of the kind: the stream is ended. And a send completes once TCP has it, so the depth of the
//! send queue says nothing about how many messages are on their way. So each message carries the number of
//! receives that its sender has made available so far, and the other side sends no more than that.
//!
//! The last credit is left for a message that brings credits, and such a message is due as soon as half of
//! the receives can be granted again. So two sides that wait for each other cannot both be without one.

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
    /// Receives made available.
    posted: u16,
    /// Of these, what the peer was told.
    told: u16,
    /// A message was received whose receive is posted again by the time of the next one.
    is_behind: bool,
}

impl Credits {
    /// The deepest receive queue; a deeper one is not used whole.
    pub const MAX_DEPTH: u16 = 0x4000;

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
            posted: depth,
            told: FIRST,
            is_behind: false,
        }
    }

    /// Takes a credit for a message; says no if there is none but the last.
    pub fn take(&mut self) -> bool {
        self.take_if_above(1)
    }

    /// Takes a credit for a message that is to bring credits; says no if there is none.
    pub fn take_last(&mut self) -> bool {
        self.take_if_above(0)
    }

    /// Whether [`Credits::take`] would say yes.
    pub const fn has_any(&self) -> bool {
        self.left() > 1
    }

    /// A credit that was taken was not used.
    pub fn put_back(&mut self) {
        self.sent = self.sent.wrapping_sub(1);
    }

    /// A message arrived, with this number behind it. A number that is not above the last one is late, and
    /// says nothing.
    pub fn on_message(&mut self, granted: u16) {
        self.on_unread();
        if is_ahead(granted, self.limit) {
            self.limit = granted;
        }
    }

    /// A message arrived that cannot be read; the next one says as much as it did.
    pub fn on_unread(&mut self) {
        if self.is_behind {
            self.posted = self.posted.wrapping_add(1);
        }
        self.is_behind = true;
    }

    /// The number that a message takes with it which goes out now.
    pub fn tell(&mut self) -> u16 {
        self.told = self.posted;
        self.posted
    }

    /// Whether the peer has to be told, if need be by a message of its own.
    pub const fn is_tell_due(&self) -> bool {
        self.posted.wrapping_sub(self.told) >= self.depth / 2
    }

    const fn left(&self) -> u16 {
        if is_ahead(self.limit, self.sent) {
            self.limit.wrapping_sub(self.sent)
        } else {
            0
        }
    }

    fn take_if_above(&mut self, reserve: u16) -> bool {
        let is_there = self.left() > reserve;
        if is_there {
            self.sent = self.sent.wrapping_add(1);
        }
        is_there
    }
}

/// Whether a count is above another, which is less than 2^15 away.
const fn is_ahead(count: u16, other: u16) -> bool {
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
        inbox: VecDeque<u16>,
    }

    impl Side {
        fn new(depth: u16) -> Self {
            Self {
                credits: Credits::new(depth),
                receives: depth,
                inbox: VecDeque::new(),
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
            let Some(granted) = self.inbox.front().copied() else {
                return false;
            };
            self.credits.on_message(granted);
            if self.credits.is_tell_due() {
                self.send(peer, false);
            }
            self.inbox.pop_front();
            true
        }
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
        let mut credits = Credits::new(16);
        credits.on_message(40);
        credits.on_message(20);
        assert_eq!((0..100).filter(|_| credits.take()).count(), 39);
    }

    #[test]
    fn a_stream_in_one_direction_does_not_stop_however_long() {
        for depth in [16, 17, 48, 2048, u16::MAX] {
            let (mut a, mut b) = (Side::new(depth), Side::new(depth));
            let mut sent = 0;
            while sent < 200_000 {
                if a.send(&mut b, true) {
                    sent += 1;
                    continue;
                }
                let moved = b.receive(&mut a) | a.receive(&mut b);
                assert!(moved, "both wait at {sent} with {depth} receives");
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
                    if a.credits.is_tell_due() {
                        a.send(&mut b, false);
                    }
                    if b.credits.is_tell_due() {
                        b.send(&mut a, false);
                    }
                }
            }
        }
    }
}
