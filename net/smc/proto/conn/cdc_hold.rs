// SPDX-License-Identifier: GPL-2.0
//! Holds back what came by a new link until what came by the old one was taken.
//!
//! A peer that moves a connection says which of its messages arrived last, and goes on by another link
//! (RFC 7609 section 4.6). Each link has a completion queue of its own, so that those messages may be here
//! and not have been looked at. Only when the queues are empty is a missing one lost.
//!
//! What is held back is one message: cursors and state flags say all that earlier ones said. Only where the
//! last urgent byte is may be said by one before it, which is kept, too.

use crate::conn::{
    is_before,
    Cdc,
    ProducerFlags,
    Stream, //
};

/// Whether messages go on to a stream.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gate(Option<Held>);

/// What a closed gate holds.
#[derive(Clone, Copy, Debug)]
struct Held {
    /// The message that closed it, a validation mostly.
    first: Cdc,
    /// The newest of those after it that brings an urgent byte with others behind.
    urgent: Option<Cdc>,
    /// The newest message of those after it.
    newest: Option<Cdc>,
    /// A later validation: the peer moved again.
    last: Option<Cdc>,
    /// The queues are being emptied.
    is_draining: bool,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It goes to [`Stream::on_cdc`] now.
    Pass,
    /// It is kept.
    Hold,
    /// It is kept, and the completion queues of all links are to be emptied: [`Gate::begin`] before,
    /// [`Gate::open`] after that.
    Drain,
}

/// Messages for [`Stream::on_cdc`], in order.
pub type Admitted = [Option<Cdc>; 4];

impl Gate {
    /// Takes a message of the peer. A validation `closes` the gate even if nothing is missing where the link that
    /// the peer gave up may bring more: it does not any more once the queues were emptied. Any other message does
    /// where those before it have to be taken first, though they say nothing that it does not.
    pub fn admit(&mut self, cdc: &Cdc, stream: &mut Stream, closes: bool) -> Admission {
        let is_stale = stream.is_stale(cdc);
        let is_validation = cdc.is_validation() && !is_stale;
        if is_validation {
            stream.on_peer_switch();
        }
        match &mut self.0 {
            None if (closes && !is_stale) || (is_validation && stream.misses(cdc.seq)) => {
                self.0 = Some(Held {
                    first: *cdc,
                    urgent: None,
                    newest: None,
                    last: None,
                    is_draining: false,
                });
                Admission::Drain
            }
            None => Admission::Pass,
            Some(held) if is_validation => {
                held.last = Some(*cdc);
                held.is_draining = false;
                Admission::Drain
            }
            Some(held) if is_before(held.first.seq, cdc.seq) => {
                held.keep(*cdc);
                Admission::Hold
            }
            // One of those that are waited for, or that come too late.
            Some(_) => Admission::Pass,
        }
    }

    /// The completion queues are about to be emptied.
    pub fn begin(&mut self) {
        if let Some(held) = &mut self.0 {
            held.is_draining = true;
        }
    }

    /// They were. What was held back goes to the stream at once, before anything else.
    pub fn open(&mut self) -> Admitted {
        match self.0.take_if(|held| held.is_draining) {
            Some(held) => [Some(held.first), held.urgent, held.newest, held.last],
            None => [None; 4],
        }
    }
}

impl Held {
    fn keep(&mut self, mut cdc: Cdc) {
        if let Some(older) = self.newest {
            if is_before(cdc.seq, older.seq) {
                return;
            }
            let has_asked = older.flags.contains(ProducerFlags::UPDATE_REQUESTED);
            let was_urgent = older.flags.contains(ProducerFlags::URGENT_PRESENT);
            let is_urgent = was_urgent && older.prod == cdc.prod;
            if was_urgent && !is_urgent {
                self.urgent = Some(older);
            }
            cdc.flags = cdc
                .flags
                .with(
                    ProducerFlags::UPDATE_REQUESTED,
                    has_asked || cdc.flags.contains(ProducerFlags::UPDATE_REQUESTED),
                )
                .with(
                    ProducerFlags::URGENT_PRESENT,
                    is_urgent || cdc.flags.contains(ProducerFlags::URGENT_PRESENT),
                );
            cdc.state.insert(older.state);
        }
        self.newest = Some(cdc);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::buffer::SizeClass;
    use crate::conn::{
        Fault,
        Readiness,
        StateFlags,
        UrgentState, //
    };
    use crate::cursor::Cursor;

    /// A gate and a stream behind it, which has taken message 1.
    struct Rig {
        gate: Gate,
        stream: Stream,
    }

    fn data(seq: u16, offset: u32) -> Cdc {
        Cdc {
            seq,
            prod: Cursor { wrap: 0, offset },
            ..Cdc::default()
        }
    }

    fn validation(seq: u16) -> Cdc {
        Cdc {
            seq,
            prod: Cursor {
                wrap: u16::MAX / 2,
                offset: 0,
            },
            flags: ProducerFlags::FAILOVER,
            ..Cdc::default()
        }
    }

    impl Rig {
        fn new() -> Self {
            let mut stream = Stream::new(SizeClass::SMALLEST);
            stream.establish(SizeClass::SMALLEST);
            stream.on_cdc(&data(1, 10)).unwrap();
            let gate = Gate::default();
            Self { gate, stream }
        }

        fn arrive(&mut self, cdc: &Cdc) -> Admission {
            let admission = self.gate.admit(cdc, &mut self.stream, false);
            if admission == Admission::Pass {
                self.stream.on_cdc(cdc).unwrap();
            }
            admission
        }

        fn open(&mut self) -> Result<(), Fault> {
            for cdc in self.gate.open().iter().flatten() {
                self.stream.on_cdc(cdc)?;
            }
            Ok(())
        }
    }

    #[test]
    fn a_validation_of_what_was_taken_passes() {
        let mut rig = Rig::new();
        assert_eq!(rig.arrive(&validation(1)), Admission::Pass);
        assert_eq!(rig.arrive(&data(2, 20)), Admission::Pass);
    }

    #[test]
    fn a_link_that_may_bring_more_closes_the_gate() {
        let mut rig = Rig::new();
        let admission = rig.gate.admit(&validation(1), &mut rig.stream, true);
        assert_eq!(admission, Admission::Drain);
        assert_eq!(rig.arrive(&data(2, 20)), Admission::Hold);
        rig.gate.begin();
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 20);
    }

    #[test]
    fn what_came_by_the_old_link_is_taken_before_what_comes_by_the_new_one() {
        let mut rig = Rig::new();
        assert_eq!(rig.arrive(&validation(3)), Admission::Drain);
        assert_eq!(rig.arrive(&data(5, 50)), Admission::Hold);
        assert_eq!(rig.arrive(&data(2, 20)), Admission::Pass);
        assert_eq!(rig.stream.readable(), 20);
        rig.gate.begin();
        assert_eq!(rig.arrive(&data(3, 30)), Admission::Pass);
        assert_eq!(rig.arrive(&data(6, 60)), Admission::Hold);
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 60);
        assert_eq!(rig.arrive(&data(7, 70)), Admission::Pass);
    }

    #[test]
    fn a_peer_that_moved_is_not_told_what_is_read_while_its_messages_are_looked_for() {
        let mut rig = Rig::new();
        let asking = |seq, offset| Cdc {
            flags: ProducerFlags::UPDATE_REQUESTED,
            ..data(seq, offset)
        };
        let told = |rig: &mut Rig| rig.stream.plan().map(|plan| plan.cdc.cons.offset);
        rig.arrive(&validation(2));
        rig.arrive(&asking(2, 20));
        rig.arrive(&data(3, 30));
        assert_eq!(rig.stream.readable(), 20);
        rig.stream.consume(20);
        assert_eq!(told(&mut rig), Some(0));
        // It knew that the second had arrived, and goes on with the third.
        rig.gate.begin();
        rig.open().unwrap();
        assert_eq!(told(&mut rig), Some(20));
    }

    #[test]
    fn a_message_that_is_nowhere_was_lost() {
        let mut rig = Rig::new();
        rig.arrive(&validation(3));
        rig.arrive(&data(2, 20));
        rig.arrive(&data(4, 40));
        rig.gate.begin();
        assert_eq!(rig.open(), Err(Fault::LostMessages));
        assert_eq!(rig.stream.readable(), 20);
    }

    #[test]
    fn the_end_of_an_earlier_look_opens_nothing() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        rig.open().unwrap();
        assert_eq!(rig.arrive(&data(3, 30)), Admission::Hold);
        rig.gate.begin();
        rig.arrive(&data(2, 20));
        // The peer moves again, to a third link: message 4 may be in the queue of the second.
        assert_eq!(rig.arrive(&validation(4)), Admission::Drain);
        rig.open().unwrap();
        assert_eq!(rig.arrive(&data(4, 40)), Admission::Hold);
        rig.gate.begin();
        rig.open().unwrap();
        assert_eq!(rig.stream.readable(), 40);
    }

    #[test]
    fn a_second_move_says_what_the_first_one_lost() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        rig.arrive(&data(2, 20));
        rig.arrive(&data(3, 30));
        rig.arrive(&validation(4));
        rig.gate.begin();
        assert_eq!(rig.open(), Err(Fault::LostMessages));
    }

    #[test]
    fn nothing_that_is_said_once_gets_lost_behind_the_gate() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        let urgent = Cdc {
            flags: ProducerFlags::URGENT_PRESENT.with(ProducerFlags::UPDATE_REQUESTED, true),
            ..data(3, 30)
        };
        rig.arrive(&urgent);
        let mut done = data(4, 30);
        done.state.insert(StateFlags::DONE_WRITING);
        rig.arrive(&done);
        rig.arrive(&data(2, 20));
        rig.gate.begin();
        rig.open().unwrap();
        assert_eq!(rig.stream.urgent_state(), UrgentState::Valid);
        assert!(rig.stream.has_work(), "the update that was asked for");
        assert!(ready(&rig).contains(Readiness::PRI));
    }

    fn ready(rig: &Rig) -> Readiness {
        rig.stream.readiness(1, true)
    }

    #[test]
    fn an_urgent_byte_with_others_behind_stays_where_it_was() {
        let mut rig = Rig::new();
        rig.arrive(&validation(2));
        let urgent = |seq, offset| Cdc {
            flags: ProducerFlags::URGENT_PRESENT,
            ..data(seq, offset)
        };
        rig.arrive(&urgent(3, 25));
        rig.arrive(&urgent(4, 30));
        rig.arrive(&data(5, 40));
        rig.arrive(&data(6, 50));
        rig.arrive(&data(2, 20));
        rig.gate.begin();
        rig.open().unwrap();
        assert!(ready(&rig).contains(Readiness::PRI));
        // The earlier one is part of the stream again.
        assert_eq!(rig.stream.readable(), 49);
        assert_eq!(rig.stream.queues().map(|queues| queues.inq), Some(29));
    }
}
