// SPDX-License-Identifier: GPL-2.0

//! What the kernel says of a connection, by CDC messages and immediate data: it is checked, and RMBEs that it offers
//! are adopted.

use super::super::cdc;
use super::super::cdc::Cdc;
use super::super::cdc::Cursor;
use super::super::cdc::Rmbes;
use super::super::contact::LEAST_RING;
use super::super::immediate::Immediate;
use super::Element;
use super::Offers;
use super::Session;

/// The kernel's RMBEs that were adopted in place of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(in super::super) struct Adopted {
    /// How many; the lower byte is the number of the one in use.
    pub(in super::super) count: u32,
    /// The position from which on data are in it.
    pub(super) since: u64,
    /// The size of the one before.
    size_before: u32,
    /// No message has said so yet.
    pub(super) is_untold: bool,
}

impl Session<'_> {
    /// Takes immediate data, which stand for a message that follows the last one.
    pub(super) fn take_immediate(&mut self, immediate: Immediate, len: u32) {
        let next = self.their_seq.unwrap_or(0).wrapping_add(1);
        // Those that were lost with the first link are repeated under other numbers.
        let lost = if self.has_failed_over { 16 } else { 0 };
        let numbers = (0..=lost).map(|lost| next.wrapping_add(lost));
        let is_this = |seq: &u16| immediate == Immediate::new(self.token, *seq);
        let seq = numbers.into_iter().find(is_this);
        let Some(seq) = seq.filter(|_| self.takes_immediate) else {
            let fault = format!("{immediate:x?} of {len} bytes, {next:#x} is next");
            return self.pair.memory.fault(fault);
        };
        self.immediates += 1;
        let cdc = Cdc {
            seq,
            token: self.token,
            prod: Cursor::at(self.received + u64::from(len), self.pair.memory.size()),
            cons: Cursor::at(self.acked, self.theirs.size),
            flags: 0,
            state: self.their_state,
            rmbes: Rmbes {
                // CAST: the lower byte.
                cons: self.adopted.count as u8,
                ..Rmbes::default()
            },
        };
        if let Err(what) = self.check(&cdc) {
            self.pair.memory.fault(what);
        }
    }

    pub(super) fn take_cdc(&mut self, message: &[u8]) {
        let fault = match Cdc::parse(message) {
            Some(cdc) => self.check(&cdc).map(|()| self.adopt(&cdc.rmbes)),
            None => Err(format!("it sent {message:02x?} as CDC")),
        };
        if let Err(what) = fault {
            self.pair.memory.fault(what);
        }
    }

    /// Writes to the RMBE that the kernel offers from now on, if all that was sent would fit there.
    fn adopt(&mut self, offered: &Rmbes) {
        let is_offered = self.replaces && offered.index > 0;
        // CAST: the lower byte.
        let is_new = offered.cons == self.adopted.count as u8;
        // Its key on another link is not known here.
        let is_alone = self.offers != Offers::Used && self.second.is_none();
        let size = LEAST_RING.checked_shl(offered.size.into()).unwrap_or(0);
        let fits = self.sent.saturating_sub(self.acked) <= u64::from(size);
        let rmb = self.rmbs.iter().find(|(rkey, _)| *rkey == offered.rkey);
        let Some((rkey, addr)) = rmb.filter(|_| is_offered && is_new && is_alone && fits) else {
            return;
        };
        let offset = u64::from(offered.index - 1) * u64::from(size);
        self.adopted = Adopted {
            count: self.adopted.count + 1,
            since: self.sent,
            size_before: self.theirs.size,
            is_untold: true,
        };
        self.theirs = Element {
            rkey: *rkey,
            addr: addr + offset,
            size,
            offset,
            ..self.theirs
        };
    }

    /// Checks a CDC message of the kernel, which may never be wrong, and takes it.
    fn check(&mut self, cdc: &Cdc) -> Result<(), String> {
        let (ours, theirs) = (self.pair.memory.size(), self.theirs.size);
        if self.has_failed_over && cdc.flags & cdc::VALIDATION != 0 {
            // It has the number of a message, the last one that the kernel knows to have arrived.
            let last = self.their_seq.unwrap_or(0);
            // CAST: a difference of 16 bits, with its sign.
            let is_sound = cdc.token == self.token && (cdc.seq.wrapping_sub(last) as i16) <= 0;
            return is_sound
                .then_some(())
                .ok_or_else(|| format!("after {last:#x} it validates by {cdc:?}"));
        }
        let mut prod = cdc.prod.ahead_of(self.received, ours);
        if self.pair.memory.is_anywhere {
            // Its cursors are for the RMBE that it was told of.
            prod = 0;
        }
        if self.has_failed_over && prod < 0 {
            // It repeats what it does not know to have arrived.
            prod = 0;
        }
        // The kernel may not have heard yet that another RMBE is in use.
        // CAST: the lower byte.
        let theirs = match cdc.rmbes.cons == self.adopted.count as u8 {
            true => theirs,
            false => self.adopted.size_before.max(1),
        };
        let cons = cdc.cons.ahead_of(self.acked, theirs);
        let is_next = self.their_seq.is_none_or(|last| {
            // CAST: a difference, with its sign.
            (cdc.seq.wrapping_sub(last) as i16) > 0
        });
        let is_inside =
            (cdc.prod.offset < ours || self.pair.memory.is_anywhere) && cdc.cons.offset < theirs;
        if cdc.token != self.token || !is_next || !is_inside || prod < 0 || cons < 0 {
            return Err(format!(
                "after sequence number {:?}, {} bytes and {} read it sent {cdc:?}",
                self.their_seq, self.received, self.acked
            ));
        }
        if self.their_state & !cdc.state != 0 {
            return Err(format!("after state {:#x}: {cdc:?}", self.their_state));
        }
        self.received += prod.unsigned_abs();
        self.acked += cons.unsigned_abs();
        (self.their_seq, self.their_state) = (Some(cdc.seq), cdc.state);
        if self.received > self.pair.memory.written {
            let written = self.pair.memory.written;
            return Err(format!("it told of data after {written}: {cdc:?}"));
        }
        if self.acked > self.claimed {
            let claimed = self.claimed;
            return Err(format!("it has read more than {claimed}: {cdc:?}"));
        }
        Ok(())
    }
}
