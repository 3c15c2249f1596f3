// SPDX-License-Identifier: GPL-2.0

//! A reliable queue pair in user space with an RMB, which can also send what no device would.

use std::collections::VecDeque;
use std::mem;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use smc_user::Errno;

use crate::rawclc::frame::Flow;
use crate::rawclc::packet::frame;
use crate::rawclc::packet::Packet;
use crate::rawclc::packet::Reth;
use crate::rawclc::packet::ACKNOWLEDGE;
use crate::rawclc::packet::MASK;
use crate::rawclc::packet::SEND_ONLY;
use crate::rawclc::packet::WRITE_ONLY;

use super::immediate::Immediate;
use super::memory::Memory;
use super::wire::RdmaWire;

/// Opcodes of RDMA WRITEs of several packets, and of an RDMA READ and its answers.
const WRITE_FIRST: u8 = 0x06;
const WRITE_MIDDLE: u8 = 0x07;
const WRITE_LAST: u8 = 0x08;
const WRITE_LAST_IMMEDIATE: u8 = 0x09;
const WRITE_ONLY_IMMEDIATE: u8 = 0x0b;
const READ_REQUEST: u8 = 0x0c;
const READ_ANSWERS: std::ops::RangeInclusive<u8> = 0x0d..=0x10;

/// Syndromes of acknowledgements: positive without credits; a packet is missing.
const POSITIVE: u8 = 0x1f;
const MISSING: u8 = 0x60;

/// Kinds of syndromes, in their upper three bits.
const IS_POSITIVE: u8 = 0;
const IS_NOT_READY: u8 = 1;

/// Time after which a packet without an acknowledgement is sent again, and after which one is that found no receive.
const RESEND: Duration = Duration::from_millis(500);
const NOT_READY: Duration = Duration::from_millis(10);

/// How often a packet is sent again: the kernel may be busy.
const RESENDS: u32 = 20;

/// Requests an acknowledgement, in the word of the packet sequence number.
const REQUEST_ACK: u32 = 1 << 31;

/// What arrived for a receive.
pub(super) enum Arrived {
    Message(Vec<u8>),
    /// Immediate data of an RDMA WRITE of `len` bytes.
    Immediate {
        immediate: Immediate,
        len: u32,
    },
}

/// A packet without an acknowledgement.
struct Unacked {
    number: u32,
    opcode: u8,
    data: Vec<u8>,
}

/// One queue pair, connected to one of the kernel's.
pub(super) struct Pair<'a> {
    wire: &'a RdmaWire,
    flow: Flow,
    own: u32,
    peer: u32,
    /// The next packet sequence number from the kernel, and of ours.
    expected: u32,
    next: u32,
    unacked: VecDeque<Unacked>,
    resend_at: Instant,
    resends: u32,
    /// The rest of an RDMA WRITE of several packets.
    writing: Option<Reth>,
    /// Bytes of it.
    writing_len: u32,
    arrived: VecDeque<Arrived>,
    /// Frames for other queue pairs of this address, if they are wanted.
    strays: Option<Vec<Vec<u8>>>,
    /// What the kernel may write to.
    pub(super) memory: Memory,
    /// The kernel's negative acknowledgement, which ended the queue pair.
    pub(super) refused: Option<u8>,
    /// Receives and acknowledges nothing.
    pub(super) is_mute: bool,
    /// Whether a receive of the kernel was missing.
    pub(super) was_not_ready: bool,
    /// How many packets got no acknowledgement, however often they were sent.
    pub(super) given_up: usize,
}

impl<'a> Pair<'a> {
    /// Creates one whose first packet sequence number is 0.
    pub(super) fn new(wire: &'a RdmaWire, flow: Flow, own: u32, memory: Memory) -> Self {
        Self {
            wire,
            flow,
            own,
            peer: 0,
            expected: 0,
            next: 0,
            unacked: VecDeque::new(),
            resend_at: Instant::now(),
            resends: 0,
            writing: None,
            writing_len: 0,
            arrived: VecDeque::new(),
            strays: None,
            memory,
            refused: None,
            is_mute: false,
            was_not_ready: false,
            given_up: 0,
        }
    }

    /// Connects it to the kernel's queue pair `peer`, whose first packet sequence number is `expected`.
    pub(super) fn connect(&mut self, peer: u32, expected: u32) {
        (self.peer, self.expected) = (peer, expected);
    }

    /// Returns another one of this address, `own`, whose packets arrive here: [`Pair::take_strays`]. The kernel's end
    /// is on the port with this hardware address and IPv4 address.
    pub(super) fn beside(
        &mut self,
        own: u32,
        (mac, address): ([u8; 6], Ipv4Addr),
        memory: Memory,
    ) -> Self {
        self.strays = Some(Vec::new());
        let flow = Flow {
            peer_mac: mac,
            peer: (address, 0),
            ..self.flow
        };
        Self::new(self.wire, flow, own, memory)
    }

    /// Returns the frames for other queue pairs that have arrived.
    pub(super) fn take_strays(&mut self) -> Vec<Vec<u8>> {
        self.strays.as_mut().map(mem::take).unwrap_or_default()
    }

    /// Takes a frame that another queue pair of this address got, if it is for this one.
    pub(super) fn take_stray(&mut self, frame: &[u8]) -> Result<()> {
        match Packet::parse(frame, self.flow.local.0) {
            Some(packet) if packet.pair == self.own => self.take(&packet),
            _ => Ok(()),
        }
    }

    /// Returns what has arrived and was not returned yet.
    pub(super) fn pop(&mut self) -> Option<Arrived> {
        self.arrived.pop_front()
    }

    pub(super) fn own(&self) -> u32 {
        self.own
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.flow.local.0
    }

    /// Sends a message.
    pub(super) fn send(&mut self, message: &[u8]) -> Result<()> {
        self.post(SEND_ONLY, message.to_vec())
    }

    /// Sends an RDMA WRITE of at most a path MTU; its header need not be that of its data.
    pub(super) fn write(&mut self, reth: Reth, data: &[u8]) -> Result<()> {
        self.post(WRITE_ONLY, [&reth.to_bytes(), data].concat())
    }

    /// The same with immediate data.
    pub(super) fn write_immediate(
        &mut self,
        reth: Reth,
        immediate: Immediate,
        data: &[u8],
    ) -> Result<()> {
        let data = [&reth.to_bytes()[..], &immediate.to_bytes(), data].concat();
        self.post(WRITE_ONLY_IMMEDIATE, data)
    }

    /// Sends an RDMA READ, which the kernel has to refuse.
    pub(super) fn read(&mut self, reth: Reth) -> Result<()> {
        self.post(READ_REQUEST, reth.to_bytes())
    }

    fn post(&mut self, opcode: u8, data: Vec<u8>) -> Result<()> {
        if self.refused.is_some() || self.is_mute {
            return Ok(());
        }
        let number = self.next;
        self.next = (self.next + 1) & MASK;
        self.transmit(opcode, number | REQUEST_ACK, &data)?;
        if self.unacked.is_empty() {
            (self.resend_at, self.resends) = (Instant::now() + RESEND, 0);
        }
        self.unacked.push_back(Unacked {
            number,
            opcode,
            data,
        });
        Ok(())
    }

    fn transmit(&self, opcode: u8, number: u32, data: &[u8]) -> Result<()> {
        let frame = frame(&self.flow, opcode, self.peer, number, data);
        self.wire.send(&frame)?;
        Ok(())
    }

    /// Returns whether the kernel has acknowledged everything.
    pub(super) fn is_settled(&self) -> bool {
        self.unacked.is_empty() || self.refused.is_some()
    }

    /// Returns what arrives next until `end`.
    pub(super) fn next(&mut self, end: Instant) -> Result<Option<Arrived>> {
        loop {
            self.take_frames()?;
            if let Some(arrived) = self.arrived.pop_front() {
                return Ok(Some(arrived));
            }
            let now = Instant::now();
            if now >= end {
                return Ok(None);
            }
            if now >= self.resend_at {
                self.resend()?;
            }
            let wake = match self.unacked.is_empty() {
                true => end,
                false => end.min(self.resend_at),
            };
            self.wire
                .wait(wake.saturating_duration_since(now) + Duration::from_millis(1))?;
        }
    }

    fn resend(&mut self) -> Result<()> {
        self.resend_at = Instant::now() + RESEND;
        if self.is_mute || self.refused.is_some() {
            self.unacked.clear();
            return Ok(());
        }
        if self.resends == RESENDS {
            self.given_up += self.unacked.len();
            self.unacked.clear();
            return Ok(());
        }
        self.resends += 1;
        for unacked in &self.unacked {
            let number = unacked.number | REQUEST_ACK;
            self.transmit(unacked.opcode, number, &unacked.data)?;
        }
        Ok(())
    }

    fn take_frames(&mut self) -> Result<()> {
        let mut frame = vec![0; 1 << 14];
        loop {
            match self.wire.recv(&mut frame) {
                Ok(len) => {
                    let bytes = frame.get(..len).unwrap_or_default();
                    let packet = Packet::parse(bytes, self.flow.local.0);
                    match (packet, &mut self.strays) {
                        (Some(packet), _) if packet.pair == self.own => self.take(&packet)?,
                        (Some(_), Some(strays)) => strays.push(bytes.to_vec()),
                        _ => {}
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn take(&mut self, packet: &Packet<'_>) -> Result<()> {
        if self.is_mute {
            return Ok(());
        }
        match packet.opcode {
            ACKNOWLEDGE => self.take_acknowledgement(packet),
            opcode if READ_ANSWERS.contains(&opcode) => {
                self.memory.fault("it answered an RDMA READ".to_string());
                Ok(())
            }
            _ => self.take_request(packet),
        }
    }

    fn take_acknowledgement(&mut self, packet: &Packet<'_>) -> Result<()> {
        let syndrome = packet.data.first().copied().unwrap_or_default();
        let kind = syndrome >> 5;
        let is_past = |unacked: &Unacked| {
            let behind = packet.number.wrapping_sub(unacked.number) & MASK;
            behind <= MASK / 2 && (behind > 0 || kind == IS_POSITIVE)
        };
        while self.unacked.front().is_some_and(is_past) {
            self.unacked.pop_front();
            (self.resend_at, self.resends) = (Instant::now() + RESEND, 0);
        }
        match kind {
            IS_POSITIVE => {}
            IS_NOT_READY => {
                self.was_not_ready = true;
                (self.resend_at, self.resends) = (Instant::now() + NOT_READY, 0);
            }
            _ if syndrome == MISSING => self.resend()?,
            _ => self.refused = Some(syndrome),
        }
        Ok(())
    }

    fn take_request(&mut self, packet: &Packet<'_>) -> Result<()> {
        let ahead = packet.number.wrapping_sub(self.expected) & MASK;
        if ahead != 0 {
            // A packet that arrived before, or one after a packet that was lost.
            let is_before = ahead > MASK / 2;
            let (syndrome, number) = match is_before {
                true => (POSITIVE, self.expected.wrapping_sub(1) & MASK),
                false => (MISSING, self.expected),
            };
            return self.acknowledge(syndrome, number);
        }
        self.expected = (self.expected + 1) & MASK;
        self.acknowledge(POSITIVE, packet.number)?;
        match packet.opcode {
            SEND_ONLY => {
                let message = Arrived::Message(packet.data.to_vec());
                self.arrived.push_back(message);
            }
            WRITE_FIRST | WRITE_ONLY | WRITE_ONLY_IMMEDIATE => {
                if let Some((reth, data)) = packet.write() {
                    self.writing_len = reth.len;
                    self.take_write(packet.opcode, reth, data);
                }
            }
            WRITE_MIDDLE | WRITE_LAST | WRITE_LAST_IMMEDIATE => {
                if let Some(rest) = self.writing.take() {
                    self.take_write(packet.opcode, rest, packet.data);
                }
            }
            opcode => self.memory.fault(format!("it sent opcode {opcode:#x}")),
        }
        Ok(())
    }

    /// Takes a packet of an RDMA WRITE, of which `rest` is missing; `data` may begin with immediate data.
    fn take_write(&mut self, opcode: u8, rest: Reth, data: &[u8]) {
        let has_immediate = [WRITE_LAST_IMMEDIATE, WRITE_ONLY_IMMEDIATE].contains(&opcode);
        let (immediate, data) = match data.split_first_chunk() {
            Some((immediate, data)) if has_immediate => (Some(*immediate), data),
            _ => (None, data),
        };
        self.writing = self.memory.write(rest, data);
        if let Some(immediate) = immediate {
            self.arrived.push_back(Arrived::Immediate {
                immediate: Immediate::parse(immediate),
                len: self.writing_len,
            });
        }
    }

    fn acknowledge(&self, syndrome: u8, number: u32) -> Result<()> {
        let header = u32::from(syndrome) << 24 | number;
        self.transmit(ACKNOWLEDGE, number, &header.to_be_bytes())
    }
}
