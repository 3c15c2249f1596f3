// SPDX-License-Identifier: GPL-2.0

//! Urgent data (RFC 6093) as the receiver of a TCP connection keeps them: one byte and its place in the stream.
//!
//! C functions `tcp_check_urg`, `tcp_recv_urg`, and what `tcp_recvmsg_locked` does at the mark.

/// The last urgent byte of a stream, until the reader has passed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Its position in the stream.
    position: u64,
    /// `None` once it was read out of line.
    byte: Option<u8>,
    /// An earlier mark at which the reader stood when this one came: its byte cannot be read any more.
    hole: Option<u64>,
}

/// What a reader may read at its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// Bytes to step over first: an urgent byte that is not in line.
    pub skip: u64,
    /// Bytes to read at most after that. 0: the reader stands at the mark, and has read what is before it.
    pub len: u64,
    /// The read ends at the mark.
    pub is_at_mark: bool,
}

impl Mark {
    /// A new urgent byte at `position`, after `before`. `reader` is where the reader is, and `is_inline` SO_OOBINLINE.
    pub fn new(
        before: Option<Self>,
        position: u64,
        byte: u8,
        reader: u64,
        is_inline: bool,
    ) -> Self {
        let is_at_last = before.is_some_and(|mark| mark.position == reader);
        let earlier = before
            .and_then(|mark| mark.hole)
            .filter(|hole| *hole == reader);
        Self {
            position,
            byte: Some(byte),
            hole: match is_at_last && !is_inline {
                true => Some(reader),
                false => earlier,
            },
        }
    }

    /// The byte, unless it was read.
    pub const fn byte(&self) -> Option<u8> {
        self.byte
    }

    /// The byte was read out of line.
    pub fn take(&mut self) {
        self.byte = None;
    }

    /// Whether a reader at `at` stands at the mark (SIOCATMARK).
    pub const fn is_at(&self, at: u64) -> bool {
        self.position == at
    }

    /// Whether a reader at `at` has passed the mark, which then means nothing any more.
    pub const fn is_passed(&self, at: u64) -> bool {
        at > self.position
    }

    /// What a reader at `at` may read if data are there up to `end`; `has_read`: it has read something in this call.
    pub fn reach(&self, at: u64, end: u64, is_inline: bool, has_read: bool) -> Reach {
        let hole = self.hole(at, end);
        let from = at.saturating_add(hole);
        let to_mark = self.position.saturating_sub(from);
        let available = end.saturating_sub(from);
        if self.position > from {
            return Reach {
                skip: hole,
                len: available.min(to_mark),
                is_at_mark: to_mark <= available,
            };
        }
        if self.position < from {
            return Reach {
                skip: hole,
                len: available,
                is_at_mark: false,
            };
        }
        if has_read || available == 0 {
            return Reach {
                skip: hole,
                len: 0,
                is_at_mark: has_read,
            };
        }
        let urgent = u64::from(!is_inline);
        Reach {
            skip: hole.saturating_add(urgent),
            len: available.saturating_sub(urgent),
            is_at_mark: false,
        }
    }

    /// Bytes that SIOCINQ reports for a reader at `at` (C function `tcp_inq`).
    pub fn inq(&self, at: u64, end: u64, is_inline: bool) -> u64 {
        let at = at.saturating_add(self.hole(at, end));
        match is_inline || self.position < at {
            true => end.saturating_sub(at),
            false => self.position.saturating_sub(at),
        }
    }

    /// Bytes to step over at `at`: 1 if that is the place of an urgent byte that cannot be read any more.
    fn hole(&self, at: u64, end: u64) -> u64 {
        u64::from(self.hole == Some(at) && at < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reach(skip: u64, len: u64, is_at_mark: bool) -> Reach {
        Reach {
            skip,
            len,
            is_at_mark,
        }
    }

    /// An urgent byte at 10.
    const AT_10: Mark = Mark {
        position: 10,
        byte: Some(b'!'),
        hole: None,
    };

    #[test]
    fn a_read_ends_before_the_mark_and_the_next_steps_over_it() {
        assert_eq!(AT_10.reach(4, 20, false, false), reach(0, 6, true));
        assert_eq!(AT_10.reach(10, 20, false, true), reach(0, 0, true));
        assert_eq!(AT_10.reach(10, 20, false, false), reach(1, 9, false));
        assert_eq!(AT_10.reach(10, 20, true, false), reach(0, 10, false));
        assert_eq!(AT_10.reach(11, 20, false, false), reach(0, 9, false));
    }

    #[test]
    fn nothing_is_stepped_over_that_is_not_there_yet() {
        assert_eq!(AT_10.reach(4, 8, false, false), reach(0, 4, false));
        assert_eq!(AT_10.reach(10, 10, false, false), reach(0, 0, false));
        assert_eq!(AT_10.reach(10, 11, false, false), reach(1, 0, false));
    }

    #[test]
    fn a_reader_at_the_last_mark_loses_its_byte_to_a_new_one() {
        let new = Mark::new(Some(AT_10), 15, b'?', 10, false);
        assert_eq!(new.byte(), Some(b'?'));
        assert_eq!(new.reach(10, 20, false, false), reach(1, 4, true));
        assert_eq!(new.reach(11, 20, false, false), reach(0, 4, true));
        // In line it stays, and so does one that the reader has not come to.
        assert_eq!(
            Mark::new(Some(AT_10), 15, b'?', 10, true).reach(10, 20, true, false),
            reach(0, 5, true)
        );
        assert_eq!(
            Mark::new(Some(AT_10), 15, b'?', 4, false).reach(4, 20, false, false),
            reach(0, 11, true)
        );
        // A third one, with the reader where it was.
        let third = Mark::new(Some(new), 17, b';', 10, false);
        assert_eq!(third.reach(10, 20, false, false), reach(1, 6, true));
        // Two in a row.
        let next = Mark::new(Some(AT_10), 11, b'?', 10, false);
        assert_eq!(next.reach(10, 20, false, false), reach(2, 8, false));
        assert_eq!(next.reach(10, 11, false, false), reach(1, 0, false));
    }

    #[test]
    fn the_byte_is_read_once_out_of_line() {
        let mut mark = AT_10;
        mark.take();
        assert_eq!(mark.byte(), None);
        assert!(mark.is_at(10) && !mark.is_passed(10) && mark.is_passed(11));
    }

    #[test]
    fn queued_bytes_count_up_to_the_mark() {
        assert_eq!(AT_10.inq(4, 20, false), 6);
        assert_eq!(AT_10.inq(4, 20, true), 16);
        assert_eq!(AT_10.inq(12, 20, false), 8);
        let new = Mark::new(Some(AT_10), 15, b'?', 10, false);
        assert_eq!(new.inq(10, 16, false), 4);
    }
}
