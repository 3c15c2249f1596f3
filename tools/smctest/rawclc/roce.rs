// SPDX-License-Identifier: GPL-2.0

//! RoCE v2 in user space: the subset of a reliable queue pair that receives and answers the
//! messages of a link, and receives short RDMA WRITEs. Its packets are those of [`super::packet`].

use std::collections::HashMap;
use std::mem;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use super::frame::Flow;
use super::packet::frame;
use super::packet::word;
use super::packet::Packet;
use super::packet::Reth;
use super::packet::ACKNOWLEDGE;
use super::packet::MASK;
use super::packet::SEND_ONLY;
use super::packet::WRITE_ONLY;

/// Syndrome of a positive acknowledgement without credits.
const ACK_UNLIMITED: u8 = 0x1f;

/// Syndrome of a receiver that is not ready, for 82 ms.
const RNR_NAK: u8 = 0x3a;

/// Interval of messages of a peer that takes none.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// Types of LLC messages, without the version.
const CONFIRM_LINK: u8 = 1;
const ADD_LINK: u8 = 2;
const CONFIRM_RKEY: u8 = 6;
const RESPONSE: u8 = 0x80;
const REJECT: u8 = 0x40;
const LLC_LEN: usize = 44;

/// This peer's hardware address in LLC messages.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 50];

/// Type of a CDC message, and the flags of its connection state that end the connection.
const CDC: u8 = 0xfe;
const CDC_TOKEN: usize = 4;
const CDC_STATE: usize = 25;
const CLOSED: u8 = 0x40;
const ABORTED: u8 = 0x20;

/// A queue pair of this peer.
struct QueuePair {
    /// The addresses of both ends.
    flow: Flow,
    /// The kernel's queue pair number.
    peer: u32,
    /// The next packet sequence number from the kernel.
    expected: u32,
    /// The next packet sequence number that we send.
    next: u32,
    /// The kernel's alert token of its connection.
    token: [u8; 4],
    /// The kernel has received our response to its CONFIRM LINK.
    is_confirmed: bool,
    /// When [`QueuePair::refuse`] has sent a message.
    lived: Option<Instant>,
}

/// This peer's end of a link: its queue pair, and the key and address of its RMB there.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub(super) pair: u32,
    pub(super) rkey: u32,
    pub(super) addr: u64,
}

/// What a connection of the kernel sent by RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// An RDMA WRITE to this queue pair.
    Write {
        pair: u32,
        rkey: u32,
        addr: u64,
        data: Vec<u8>,
    },
    /// A CDC message to this queue pair, for the connection with our alert token.
    Cdc { pair: u32, token: u32 },
}

/// The queue pairs of one address.
pub(super) struct Adapter {
    flow: Flow,
    /// Does not answer the end of a connection.
    is_silent: bool,
    /// Does not answer CONFIRM_RKEY.
    ignores_keys: AtomicBool,
    /// Takes no messages, and sends one now and then.
    is_unready: AtomicBool,
    /// The ends of the link that there is and of the one that the kernel may add.
    ends: Option<[End; 2]>,
    pairs: Mutex<HashMap<u32, QueuePair>>,
    sent: Mutex<Vec<Sent>>,
}

impl Adapter {
    /// Creates one between the two addresses of `flow`, whose ports are not used. It rejects other
    /// links.
    pub(super) fn new(flow: Flow, is_silent: bool) -> Self {
        Self {
            flow,
            is_silent,
            ignores_keys: AtomicBool::new(false),
            is_unready: AtomicBool::new(false),
            ends: None,
            pairs: Mutex::default(),
            sent: Mutex::default(),
        }
    }

    /// Creates one that accepts a link beside its first one, and does not answer the end of a
    /// connection.
    pub(super) fn with_links(flow: Flow, ends: [End; 2]) -> Self {
        Self {
            ends: Some(ends),
            ..Self::new(flow, true)
        }
    }

    /// Answers no CONFIRM_RKEY from now on.
    pub(super) fn ignore_keys(&self) {
        self.ignores_keys.store(true, Ordering::Relaxed);
    }

    /// Has no receives for messages from now on.
    pub(super) fn post_no_receives(&self) {
        self.is_unready.store(true, Ordering::Relaxed);
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.flow.local.0
    }

    /// Adds a queue pair `own`, connected to the kernel's `peer`, whose first packet sequence
    /// number is `expected`; ours is 0. `token` is the kernel's alert token of the connection on
    /// it.
    pub(super) fn connect(&self, own: u32, peer: u32, expected: u32, token: [u8; 4]) {
        let pair = QueuePair::new(self.flow, peer, expected, token);
        self.pairs.lock().unwrap().insert(own, pair);
    }

    /// Returns the kernel's queue pair that this one is connected to.
    pub(super) fn peer_of(&self, own: u32) -> Option<u32> {
        Some(self.pairs.lock().unwrap().get(&own)?.peer)
    }

    /// Returns what the kernel's connections have sent since the last call.
    pub(super) fn take_sent(&self) -> Vec<Sent> {
        mem::take(&mut self.sent.lock().unwrap())
    }

    /// Returns whether the kernel has received our response to the CONFIRM LINK on that queue pair.
    pub(super) fn is_confirmed(&self, own: u32) -> bool {
        let pairs = self.pairs.lock().unwrap();
        pairs.get(&own).is_some_and(|pair| pair.is_confirmed)
    }

    /// Answers packets that arrive within `time`.
    pub(super) fn serve(&self, wire: &Socket, time: Duration) -> Result<()> {
        let mut frame = vec![0; 1 << 16];
        poll_fd(wire, libc::POLLIN, time)?;
        loop {
            match wire.recv(&mut frame, libc::MSG_DONTWAIT) {
                Ok(len) => {
                    let bytes = frame.get(..len).unwrap_or_default();
                    if let Some(packet) = Packet::parse(bytes, self.address()) {
                        self.answer(wire, &packet)?;
                    }
                }
                Err(Errno::EAGAIN) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn answer(&self, wire: &Socket, packet: &Packet<'_>) -> Result<()> {
        let mut pairs = self.pairs.lock().unwrap();
        let Some(pair) = pairs.get_mut(&packet.pair) else {
            return Ok(());
        };
        match packet.opcode {
            ACKNOWLEDGE => pair.is_confirmed = true,
            SEND_ONLY if self.is_unready.load(Ordering::Relaxed) => pair.refuse(wire, packet)?,
            SEND_ONLY | WRITE_ONLY => {
                let is_new = pair.acknowledge(wire, packet)?;
                let token = pair.token;
                let answer = match is_new {
                    true => self.take(&mut pairs, packet, token),
                    false => None,
                };
                if let Some((answer, pair)) = answer.zip(pairs.get_mut(&packet.pair)) {
                    pair.send_message(wire, &answer)?;
                }
            }
            // An RDMA WRITE of several packets is not acknowledged: the kernel retransmits it until
            // the link fails.
            _ => {}
        }
        Ok(())
    }

    /// Takes a message or an RDMA WRITE; returns the answer if it needs one. `token` is that of the
    /// queue pair.
    fn take(
        &self,
        pairs: &mut HashMap<u32, QueuePair>,
        packet: &Packet<'_>,
        token: [u8; 4],
    ) -> Option<Vec<u8>> {
        self.sent.lock().unwrap().extend(sent(packet));
        match (packet.opcode, packet.data.first()) {
            (WRITE_ONLY, _) => None,
            (_, Some(&CDC)) if self.is_silent => None,
            (_, Some(&CDC)) => closing_message(packet.data, token),
            (_, Some(kind))
                if kind & 0x0f == CONFIRM_RKEY && self.ignores_keys.load(Ordering::Relaxed) =>
            {
                None
            }
            (_, Some(kind)) if kind & 0x0f == ADD_LINK => self.add_link(pairs, packet.data),
            _ => response(packet.data, self.address(), packet.pair),
        }
    }

    /// Answers ADD LINK: connects the queue pair of the new link, or rejects it if this peer has
    /// none.
    fn add_link(&self, pairs: &mut HashMap<u32, QueuePair>, offer: &[u8]) -> Option<Vec<u8>> {
        let Some([first, new]) = self.ends else {
            return response(offer, self.address(), 0);
        };
        let offered = Offered::parse(offer)?;
        let flow = Flow {
            peer_mac: offered.mac,
            peer: (offered.address, 0),
            ..self.flow
        };
        let pair = QueuePair::new(flow, offered.pair, offered.number, [0; 4]);
        pairs.insert(new.pair, pair);
        accepted(offer, self.address(), first, new)
    }
}

impl QueuePair {
    fn new(flow: Flow, peer: u32, expected: u32, token: [u8; 4]) -> Self {
        Self {
            flow,
            peer,
            expected,
            next: 0,
            token,
            is_confirmed: false,
            lived: None,
        }
    }

    /// Has no receive for the message in the packet. Sends one itself now and then, for a connection that there is not.
    fn refuse(&mut self, wire: &Socket, packet: &Packet<'_>) -> Result<()> {
        let nak = u32::from(RNR_NAK) << 24 | self.expected.wrapping_sub(1) & MASK;
        self.send(wire, ACKNOWLEDGE, packet.number, &nak.to_be_bytes())?;
        if self
            .lived
            .is_none_or(|lived| lived.elapsed() > SIGN_OF_LIFE)
        {
            self.lived = Some(Instant::now());
            let mut message = [0; LLC_LEN];
            message[0] = CDC;
            message[1] = LLC_LEN as u8;
            message[CDC_TOKEN..CDC_TOKEN + 4].fill(0xff);
            self.send_message(wire, &message)?;
        }
        Ok(())
    }

    /// Acknowledges what has arrived up to now; returns whether the packet is the next one.
    fn acknowledge(&mut self, wire: &Socket, packet: &Packet<'_>) -> Result<bool> {
        let is_new = packet.number == self.expected;
        if is_new {
            self.expected = (self.expected + 1) & MASK;
        }
        let before = self.expected.wrapping_sub(1) & MASK;
        let ack = u32::from(ACK_UNLIMITED) << 24 | before;
        self.send(wire, ACKNOWLEDGE, before, &ack.to_be_bytes())?;
        Ok(is_new)
    }

    fn send_message(&mut self, wire: &Socket, message: &[u8]) -> Result<()> {
        self.send(wire, SEND_ONLY, self.next | 1 << 31, message)?;
        self.next = (self.next + 1) & MASK;
        Ok(())
    }

    fn send(&self, wire: &Socket, opcode: u8, number: u32, data: &[u8]) -> Result<()> {
        let frame = frame(&self.flow, opcode, self.peer, number, data);
        wire.send(&frame, 0)?;
        Ok(())
    }
}

/// The kernel's end of a link, in its ADD LINK.
pub(super) struct Offered {
    pub(super) mac: [u8; 6],
    pub(super) address: Ipv4Addr,
    pub(super) pair: u32,
    /// The first packet sequence number.
    pub(super) number: u32,
    /// The number of the link.
    pub(super) link: u8,
    /// Of each RMB its key on the link that carries the message, and its key and address on the new one.
    pub(super) keys: Vec<(u32, u32, u64)>,
}

impl Offered {
    /// Parses a request of version 2 for a port with an IPv4 address.
    pub(super) fn parse(offer: &[u8]) -> Option<Self> {
        let address: [u8; 16] = offer.get(12..28)?.try_into().ok()?;
        let keys = |entry: &[u8]| {
            let addr = u64::from(word(entry, 8)?) << 32 | u64::from(word(entry, 12)?);
            Some((word(entry, 0)?, word(entry, 4)?, addr))
        };
        let count = usize::from(u16::from_be_bytes(offer.get(70..72)?.try_into().ok()?));
        let entries = offer.get(72..)?.chunks_exact(16).take(count);
        Some(Self {
            mac: offer.get(4..10)?.try_into().ok()?,
            address: Ipv6Addr::from(address).to_ipv4_mapped()?,
            pair: word(offer, 27)? & MASK,
            number: word(offer, 32)? & MASK,
            link: *offer.get(31)?,
            keys: entries.filter_map(keys).collect(),
        })
    }
}

/// Returns the response to ADD LINK of version 2 that accepts the link: `new` is our end of it,
/// `first` that of the link that carries the message.
pub(super) fn accepted(offer: &[u8], address: Ipv4Addr, first: End, new: End) -> Option<Vec<u8>> {
    let gid = address.to_ipv6_mapped().octets();
    let mut answer = offer.get(..LLC_LEN)?.to_vec();
    answer[3] |= RESPONSE;
    answer[4..10].copy_from_slice(&MAC);
    answer[12..28].copy_from_slice(&gid);
    answer[28..31].copy_from_slice(&new.pair.to_be_bytes()[1..]);
    answer[33..36].fill(0);
    // No gateway; target GID; one key.
    answer.extend([0x80, 0]);
    answer.extend(gid);
    answer.extend([0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    answer.extend(first.rkey.to_be_bytes());
    answer.extend(new.rkey.to_be_bytes());
    answer.extend(new.addr.to_be_bytes());
    let len = u16::try_from(answer.len()).ok()?;
    answer[1..3].copy_from_slice(&len.to_be_bytes());
    Some(answer)
}

/// Returns the response to an LLC message, if it needs one: positive, but ADD LINK is rejected.
fn response(message: &[u8], address: Ipv4Addr, pair: u32) -> Option<Vec<u8>> {
    let mut answer = message.get(..LLC_LEN)?.to_vec();
    if answer[3] & RESPONSE != 0 {
        return None;
    }
    answer[3] |= RESPONSE;
    match answer[0] & 0x0f {
        CONFIRM_LINK => {
            answer[4..10].copy_from_slice(&MAC);
            answer[10..26].copy_from_slice(&address.to_ipv6_mapped().octets());
            answer[26..29].copy_from_slice(&pair.to_be_bytes()[1..]);
        }
        ADD_LINK => answer[3] |= REJECT,
        _ => {}
    }
    Some(answer)
}

/// Returns the answer to a CDC message that ends a connection, which ends our side, too.
fn closing_message(message: &[u8], token: [u8; 4]) -> Option<Vec<u8>> {
    if message.get(CDC_STATE)? & (CLOSED | ABORTED) == 0 {
        return None;
    }
    let mut answer = vec![0; LLC_LEN];
    answer[..4].copy_from_slice(&[CDC, 44, 0, 1]);
    answer[4..8].copy_from_slice(&token);
    answer[CDC_STATE] = ABORTED;
    Some(answer)
}

/// Returns the RDMA WRITE or the CDC message that a packet is.
fn sent(packet: &Packet<'_>) -> Option<Sent> {
    let pair = packet.pair;
    if packet.opcode != WRITE_ONLY {
        let token = word(packet.data, CDC_TOKEN)?;
        return (packet.data.first() == Some(&CDC)).then_some(Sent::Cdc { pair, token });
    }
    let (Reth { addr, rkey, len }, data) = packet.write()?;
    Some(Sent::Write {
        pair,
        rkey,
        addr,
        data: data.get(..usize::try_from(len).ok()?)?.to_vec(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_answered_once() {
        let mut confirm = [0; LLC_LEN];
        confirm[0] = 0x21;
        let address = Ipv4Addr::new(10, 0, 0, 1);
        let answer = response(&confirm, address, 0x0a_0b0c).unwrap();
        assert_eq!(answer[3], RESPONSE);
        assert_eq!(answer[26..29], [0x0a, 0x0b, 0x0c]);
        assert!(response(&answer, address, 0).is_none());
    }

    #[test]
    fn a_link_that_is_offered_is_accepted() {
        let offer = include_bytes!("../../../tests/vectors/L6.bin");
        let offered = Offered::parse(offer).unwrap();
        assert_eq!(offered.mac, [2, 0, 0, 0, 0, 0x12]);
        assert_eq!(offered.address, Ipv4Addr::new(192, 168, 1, 18));
        assert_eq!((offered.pair, offered.number), (0x124, 0x11_1111));
        assert_eq!(offered.link, 2);
        assert_eq!(offered.keys, [(0x1111, 0x3333, 0x9abc_0000)]);

        let [first, new] =
            [(1, 2, 3), (0x0a_0b0c, 5, 6)].map(|(pair, rkey, addr)| End { pair, rkey, addr });
        let answer = accepted(offer, Ipv4Addr::new(10, 0, 0, 1), first, new).unwrap();
        assert_eq!(answer[..4], [0x22, 0, 88, RESPONSE]);
        assert_eq!(answer[28..36], [0x0a, 0x0b, 0x0c, 2, 3, 0, 0, 0]);
        assert_eq!(answer[70..72], [0, 1]);
        assert_eq!(
            answer[72..],
            [0, 0, 0, 2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 6]
        );
    }

    #[test]
    fn an_rdma_write_is_as_long_as_it_says() {
        let mut data = vec![0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 5];
        data.extend(b"bytes and padding");
        let mut packet = Packet {
            opcode: WRITE_ONLY,
            pair: 4,
            number: 0,
            data: &data,
        };
        let write = Sent::Write {
            pair: 4,
            rkey: 3,
            addr: 0x1_0000_0002,
            data: b"bytes".to_vec(),
        };
        assert_eq!(sent(&packet), Some(write));
        packet.data = &data[..20];
        assert_eq!(sent(&packet), None);
    }

    #[test]
    fn the_end_of_a_connection_is_answered_by_its_end() {
        let mut message = [0; LLC_LEN];
        message[0] = CDC;
        assert!(closing_message(&message, [1; 4]).is_none());
        message[CDC_STATE] = ABORTED;
        let answer = closing_message(&message, [1; 4]).unwrap();
        assert_eq!((&answer[4..8], answer[CDC_STATE]), (&[1; 4][..], ABORTED));
    }
}
