// SPDX-License-Identifier: GPL-2.0

//! One connection of the peer over RDMA, the first of its link group: a protocol machine that keeps to RFC 7609,
//! unless it is told to lie.

mod receive;

use std::mem;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;

use crate::data::Stream;
use crate::rawclc::packet::Reth;
use crate::rawclc::roce;
use crate::rawclc::roce::End;
use crate::rawclc::roce::Offered;
use crate::rawclc::tcp::RawTcp;

use super::cdc;
use super::cdc::Cdc;
use super::cdc::Cursor;
use super::cdc::Rmbes;
use super::immediate::Immediate;
use super::llc;
use super::memory::Memory;
use super::pair::Arrived;
use super::pair::Pair;
use receive::Adopted;

/// Data of one RDMA WRITE: the path MTU of the handshake's recorded messages.
pub(super) const MTU: usize = 1024;

/// What a queue pair number that does not exist has beside that of the first link.
const NOWHERE: u32 = 0x80_0000;

/// What that of a second link has beside it.
const BESIDE: u32 = 0x40_0000;

/// Interval between two looks at what is waited for.
const LOOK: Duration = Duration::from_millis(20);

/// The kernel's element, in its ACCEPT or CONFIRM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element {
    pub(super) rkey: u32,
    pub(super) addr: u64,
    pub(super) size: u32,
    pub(super) token: u32,
    /// Where in its RMB it is.
    pub(super) offset: u64,
}

/// What becomes of further links that the kernel offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Offers {
    Rejected,
    /// There is no answer.
    Ignored,
    /// The link is accepted, but the queue pair of this end does not exist.
    Accepted,
    /// The first one is accepted, and there.
    Used,
}

/// A link beside the first one.
struct Second<'a> {
    pair: Pair<'a>,
    link: u8,
    /// The kernel's key and address of its RMB there.
    rkey: u32,
    addr: u64,
    is_confirmed: bool,
}

/// A connection.
pub(super) struct Session<'a> {
    pub(super) tcp: RawTcp<'a>,
    pub(super) pair: Pair<'a>,
    pub(super) theirs: Element,
    /// Our alert token.
    pub(super) token: u32,
    /// The number of the link, from CONFIRM_LINK.
    pub(super) link: u8,
    pub(super) is_confirmed: bool,
    /// Whether LLC requests and data of the kernel are answered.
    pub(super) answers_llc: bool,
    pub(super) answers_cdc: bool,
    pub(super) offers: Offers,
    /// How many links the kernel has offered.
    pub(super) offered: u32,
    second: Option<Second<'a>>,
    /// Whether the first link has failed, and this is the second one.
    pub(super) has_failed_over: bool,
    /// Stream positions: what was written to the kernel, and what it says it has read of that.
    pub(super) sent: u64,
    acked: u64,
    /// Of the other direction: what the kernel says it has written, and what is read of that.
    received: u64,
    pub(super) consumed: u64,
    pub(super) seq: u16,
    pub(super) state: u8,
    their_seq: Option<u16>,
    pub(super) their_state: u8,
    /// The most that the kernel's application may read, whatever was told.
    pub(super) claimed: u64,
    /// What it reads before this position has to be right.
    pub(super) trusted: u64,
    /// Whether the kernel was told, in any way, that its stream ends.
    pub(super) told_end: bool,
    /// The number in the last TEST_LINK of ours, and in the last answer to one.
    ping: u64,
    pong: u64,
    stream: Stream,
    /// What the kernel has to write, if that is known.
    pub(super) expected: Option<Stream>,
    /// Whether the kernel was told that immediate data may take the place of CDC messages, and how often they did.
    pub(super) takes_immediate: bool,
    pub(super) immediates: u64,
    /// Whether they are sent to the kernel.
    pub(super) sends_immediate: bool,
    /// Whether both ends have said that RMBEs can be replaced.
    pub(super) replaces: bool,
    /// RMBs that the kernel has announced on the link: keys and addresses.
    rmbs: Vec<(u32, u64)>,
    /// Its RMBEs that were adopted.
    pub(super) adopted: Adopted,
}

/// The kernel's connection ends with it, whatever happened.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        let _ = self.tcp.reset();
    }
}

impl<'a> Session<'a> {
    /// Creates one on `pair`, which sends the stream of `seed`.
    pub(super) fn new(
        tcp: RawTcp<'a>,
        pair: Pair<'a>,
        theirs: Element,
        token: u32,
        seed: u64,
    ) -> Self {
        Self {
            tcp,
            pair,
            theirs,
            token,
            link: 1,
            is_confirmed: false,
            answers_llc: true,
            answers_cdc: true,
            offers: Offers::Rejected,
            offered: 0,
            second: None,
            has_failed_over: false,
            sent: 0,
            acked: 0,
            received: 0,
            consumed: 0,
            seq: 0,
            state: 0,
            their_seq: None,
            their_state: 0,
            claimed: 0,
            trusted: u64::MAX,
            told_end: false,
            ping: 0,
            pong: 0,
            stream: Stream::new(seed),
            expected: None,
            takes_immediate: false,
            immediates: 0,
            sends_immediate: false,
            replaces: false,
            rmbs: Vec::new(),
            adopted: Adopted::default(),
        }
    }

    /// Returns the true CDC message of now, with the sequence number of the last one.
    pub(super) fn truth(&self) -> Cdc {
        Cdc {
            seq: self.seq,
            token: self.theirs.token,
            prod: Cursor::at(self.sent, self.theirs.size),
            cons: Cursor::at(self.consumed, self.pair.memory.size()),
            flags: 0,
            state: self.state,
            rmbes: Rmbes {
                // CAST: the lower parts.
                prod: self.adopted.count as u8,
                since: self.adopted.since as u32,
                ..Rmbes::default()
            },
        }
    }

    /// Sends a CDC message, true or not, and notes what the kernel may take from it.
    pub(super) fn post(&mut self, cdc: Cdc) -> Result<()> {
        if cdc.token == self.theirs.token {
            self.note(&cdc);
        }
        self.pair.send(&cdc.to_bytes())
    }

    /// Notes what a message claims: a cursor may move by a ring at most, and an urgent byte is no part of the stream.
    pub(super) fn note(&mut self, cdc: &Cdc) {
        let ahead = cdc.prod.ahead_of(self.claimed, self.theirs.size);
        if (1..=i64::from(self.theirs.size)).contains(&ahead) {
            self.claimed = self.claimed.saturating_add(ahead.unsigned_abs());
        }
        let memory = &mut self.pair.memory;
        let ahead = cdc.cons.ahead_of(memory.read, memory.size());
        if (1..=i64::from(memory.size())).contains(&ahead) {
            memory.read += ahead.unsigned_abs();
        }
        if memory.read > self.consumed {
            // The kernel may write over what was not read.
            self.expected = None;
        }
        if cdc.flags & cdc::URGENT_PRESENT != 0 {
            self.distrust();
        }
        self.told_end |= cdc.state & (cdc::DONE | cdc::CLOSED | cdc::ABORTED) != 0;
    }

    /// From here on the kernel's application may read other bytes than those of the stream.
    pub(super) fn distrust(&mut self) {
        self.trusted = self.trusted.min(self.acked);
    }

    /// The kernel's application may read anything: by TCP.
    pub(super) fn distrust_all(&mut self) {
        (self.trusted, self.claimed, self.told_end) = (0, u64::MAX, true);
    }

    /// Sends the true CDC message.
    pub(super) fn tell(&mut self, flags: u8) -> Result<()> {
        self.seq = self.seq.wrapping_add(1);
        self.adopted.is_untold = false;
        self.post(Cdc {
            flags,
            ..self.truth()
        })
    }

    /// Writes the next bytes of the stream, as far as the kernel's ring has room and up to position `end`. Returns how
    /// many.
    pub(super) fn produce(&mut self, end: u64) -> Result<u64> {
        let size = u64::from(self.theirs.size);
        let until = end.min(self.acked + size);
        let from = self.sent;
        // A message has to name another RMBE first.
        let is_immediate = self.sends_immediate && !self.adopted.is_untold;
        while self.sent < until {
            let at = self.sent % size;
            let len = (until - self.sent).min(size - at).min(MTU as u64);
            // CAST: at most the MTU.
            let mut data = vec![0; len as usize];
            self.stream.fill(&mut data);
            let reth = Reth {
                addr: self.theirs.addr + at,
                rkey: self.theirs.rkey,
                len: len as u32,
            };
            self.sent += len;
            if is_immediate {
                self.seq = self.seq.wrapping_add(1);
                // They follow what was claimed last, be it true or not.
                self.claimed = self.claimed.saturating_add(len);
                let immediate = Immediate::new(self.theirs.token, self.seq);
                self.pair.write_immediate(reth, immediate, &data)?;
            } else {
                self.pair.write(reth, &data)?;
            }
        }
        let is_blocked = self.sent < end;
        if self.sent > from && (is_blocked || !is_immediate) {
            self.tell(if is_blocked { cdc::WRITE_BLOCKED } else { 0 })?;
        }
        Ok(self.sent - from)
    }

    /// Returns what the kernel has written and was not read yet, and tells the kernel that it was.
    pub(super) fn consume(&mut self) -> Result<Vec<u8>> {
        let data = self.pair.memory.stream(self.consumed, self.received);
        if !data.is_empty() {
            self.compare(&data);
            self.consumed = self.received;
            self.tell(0)?;
        }
        Ok(data)
    }

    fn compare(&mut self, data: &[u8]) {
        let Some(expected) = &mut self.expected else {
            return;
        };
        let mut wanted = vec![0; data.len()];
        expected.fill(&mut wanted);
        if let Some(at) = data.iter().zip(&wanted).position(|(a, b)| a != b) {
            let at = self.consumed + at as u64;
            self.pair
                .memory
                .fault(format!("it wrote a wrong byte at {at}"));
        }
    }

    /// Handles one message, if one arrives within `time`; returns whether it does.
    pub(super) fn serve_one(&mut self, time: Duration) -> Result<bool> {
        let arrived = self.pair.next(Instant::now() + time)?;
        let is_there = arrived.is_some();
        match arrived {
            Some(Arrived::Message(message)) => self.handle(&message)?,
            Some(Arrived::Immediate { immediate, len }) => self.take_immediate(immediate, len),
            None => {}
        }
        self.serve_second()?;
        Ok(is_there)
    }

    /// Handles what has arrived by the second link.
    fn serve_second(&mut self) -> Result<()> {
        let Some(second) = &mut self.second else {
            return Ok(());
        };
        for frame in self.pair.take_strays() {
            second.pair.take_stray(&frame)?;
        }
        while let Some(arrived) = second.pair.pop() {
            let Arrived::Message(message) = arrived else {
                // The kernel goes on by it when a lie has made the first link fail.
                if self.pair.refused.is_none() {
                    self.pair.memory.fault("it used another link".to_string());
                }
                continue;
            };
            second.is_confirmed |= llc::is_request(&message, llc::CONFIRM_LINK);
            let answer = llc::answer(&message, second.pair.own());
            if let Some(answer) = answer.filter(|_| self.answers_llc) {
                second.pair.send(&answer)?;
            }
        }
        Ok(())
    }

    /// Has the first link fail at the kernel, by a write with a key that there is not, when all that was sent has
    /// arrived, and goes on by the second one. Returns whether there is one.
    pub(super) fn fail_over(&mut self, time: Duration) -> Result<bool> {
        let has_second = |session: &Self| {
            let second = session.second.as_ref();
            second.is_some_and(|second| second.is_confirmed && second.pair.is_settled())
        };
        let is_ready = self.serve_until(time, |session| {
            has_second(session) && session.pair.is_settled()
        })?;
        if !is_ready {
            return Ok(false);
        }
        let reth = Reth {
            addr: self.theirs.addr,
            rkey: !self.theirs.rkey,
            len: 8,
        };
        let Some(second) = self.second.take() else {
            return Ok(false);
        };
        self.pair.write(reth, &[0; 8])?;
        // What the kernel sends by the second link from now on, which may be before the refusal is seen, is for the
        // memory of the connection: it waits until that is there.
        self.serve_until(time, |session| session.pair.refused.is_some())?;
        let strays = self.pair.take_strays();
        let Memory { rkey, addr, .. } = second.pair.memory;
        let first = mem::replace(&mut self.pair, second.pair);
        self.pair.memory = first.memory.on_link(rkey, addr);
        for frame in strays {
            self.pair.take_stray(&frame)?;
        }
        self.link = second.link;
        self.theirs.rkey = second.rkey;
        self.theirs.addr = second.addr + self.theirs.offset;
        self.has_failed_over = true;
        // The number of the last message, which has arrived. The kernel's own kind has it in the cursor, too.
        let validation = Cdc {
            flags: cdc::VALIDATION,
            prod: Cursor {
                wrap: self.seq,
                offset: 0,
            },
            ..self.truth()
        };
        self.pair.send(&validation.to_bytes())?;
        Ok(true)
    }

    /// Handles messages and reads data for so long.
    pub(super) fn serve(&mut self, time: Duration) -> Result<()> {
        self.serve_until(time, |_| false).map(drop)
    }

    /// The same until something is so; returns whether it is.
    pub(super) fn serve_until(
        &mut self,
        time: Duration,
        is_so: impl Fn(&Self) -> bool,
    ) -> Result<bool> {
        let end = Instant::now() + time;
        while !is_so(self) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            self.serve_one(left.min(LOOK))?;
            if self.answers_cdc {
                self.consume()?;
            }
        }
        Ok(true)
    }

    fn handle(&mut self, message: &[u8]) -> Result<()> {
        if message.first() == Some(&cdc::TYPE) {
            self.take_cdc(message);
            return Ok(());
        }
        if llc::is_request(message, llc::CONFIRM_LINK) || llc::is_answer(message, llc::CONFIRM_LINK)
        {
            self.link = message.get(llc::CONFIRM_LINK_NUMBER).copied().unwrap_or(1);
            self.is_confirmed = self.answers_llc;
        }
        if llc::is_request(message, llc::CONFIRM_RKEY) {
            self.rmbs.extend(llc::first_rtoken(message));
        }
        if llc::is_answer(message, llc::TEST_LINK) {
            self.pong = llc::test_number(message);
        }
        let answer = match llc::is_request(message, llc::ADD_LINK) {
            true => self.take_offer(message),
            false => llc::answer(message, self.pair.own()),
        };
        if let Some(answer) = answer.filter(|_| self.answers_llc) {
            self.pair.send(&answer)?;
        }
        Ok(())
    }

    /// Returns the answer to a link that the kernel offers.
    fn take_offer(&mut self, offer: &[u8]) -> Option<Vec<u8>> {
        self.offered += 1;
        let Memory { rkey, addr, .. } = self.pair.memory;
        let pair = self.pair.own();
        match self.offers {
            Offers::Rejected => llc::answer(offer, pair),
            Offers::Used if self.has_failed_over || self.second.is_some() => {
                llc::answer(offer, pair)
            }
            Offers::Used => self.use_link(offer),
            Offers::Ignored => None,
            Offers::Accepted => {
                let first = End { pair, rkey, addr };
                let new = End {
                    pair: pair | NOWHERE,
                    ..first
                };
                roce::accepted(offer, self.pair.address(), first, new)
            }
        }
    }

    /// Accepts a link that the kernel offers.
    fn use_link(&mut self, offer: &[u8]) -> Option<Vec<u8>> {
        let offered = Offered::parse(offer)?;
        let (_, rkey, addr) = offered
            .keys
            .into_iter()
            .find(|(first, ..)| *first == self.theirs.rkey)?;
        let first = End {
            pair: self.pair.own(),
            rkey: self.pair.memory.rkey,
            addr: self.pair.memory.addr,
        };
        let new = End {
            pair: first.pair | BESIDE,
            rkey: first.rkey | 1,
            addr: first.addr | 1 << 40,
        };
        let memory = Memory::new(new.rkey, new.addr, self.pair.memory.size());
        let place = (offered.mac, offered.address);
        let mut pair = self.pair.beside(new.pair, place, memory);
        pair.connect(offered.pair, offered.number);
        self.second = Some(Second {
            pair,
            link: offered.link,
            rkey,
            addr,
            is_confirmed: false,
        });
        roce::accepted(offer, self.pair.address(), first, new)
    }

    /// Returns whether the kernel answers a TEST_LINK within `time`, and so has taken all that was sent before.
    pub(super) fn ping(&mut self, time: Duration) -> Result<bool> {
        self.ping += 1;
        let (ping, is_answering) = (self.ping, self.answers_llc);
        self.pair.send(&llc::test_link(ping))?;
        self.answers_llc = true;
        let result = self.serve_until(time, |session| {
            session.pong == ping || session.pair.refused.is_some()
        });
        self.answers_llc = is_answering;
        Ok(result? && self.pong == ping)
    }

    /// All queue pairs of this end are no more.
    pub(super) fn vanish(&mut self) {
        self.pair.is_mute = true;
        if let Some(second) = &mut self.second {
            second.pair.is_mute = true;
        }
    }

    /// How far both directions have come, for a report.
    pub(super) fn progress(&self) -> String {
        format!(
            "the kernel has read {}, written {}, of which {} were read",
            self.acked, self.received, self.consumed
        )
    }

    /// Returns what the kernel says it has read.
    pub(super) fn acked(&self) -> u64 {
        self.acked
    }

    /// Ends the connection in order: tells that it is closed, and waits at most `time` for the kernel's end.
    pub(super) fn close(&mut self, time: Duration) -> Result<bool> {
        self.state |= cdc::CLOSED;
        self.tell(0)?;
        self.serve_until(time, |session| {
            session.their_state & (cdc::CLOSED | cdc::ABORTED) != 0
        })
    }
}
