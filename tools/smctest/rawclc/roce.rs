// SPDX-License-Identifier: GPL-2.0

//! RoCE v2 in user space: the subset of a reliable queue pair that receives and answers the
//! messages of a link, and receives short RDMA WRITEs.
//!
//! IBTA specification, annex A17 (frames, ICRC) and volume 1, chapter 9 (base transport header, ACK).

use std::collections::HashMap;
use std::mem;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use super::frame::checksum;
use super::frame::Flow;

const ETHERNET_LEN: usize = 14;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const IP_LEN: usize = 20;
const UDP_LEN: usize = 8;
const BTH_LEN: usize = 12;
const RETH_LEN: usize = 16;
const ICRC_LEN: usize = 4;
const PROTOCOL_UDP: u8 = 17;
const PORT: u16 = 4791;

const SEND_ONLY: u8 = 0x04;
const WRITE_ONLY: u8 = 0x0a;
const ACKNOWLEDGE: u8 = 0x11;
/// Syndrome of a positive acknowledgement without credits.
const ACK_UNLIMITED: u8 = 0x1f;

/// Packet sequence numbers and queue pair numbers have 24 bits.
const MASK: u32 = 0x00ff_ffff;

/// Types of LLC messages, without the version.
const CONFIRM_LINK: u8 = 1;
const ADD_LINK: u8 = 2;
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
        self.sent.lock().unwrap().extend(packet.sent());
        match (packet.opcode, packet.data.first()) {
            (WRITE_ONLY, _) => None,
            (_, Some(&CDC)) if self.is_silent => None,
            (_, Some(&CDC)) => farewell(packet.data, token),
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
        }
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
struct Offered {
    mac: [u8; 6],
    address: Ipv4Addr,
    pair: u32,
    /// The first packet sequence number.
    number: u32,
}

impl Offered {
    /// Parses a request of version 2 for a port with an IPv4 address.
    fn parse(offer: &[u8]) -> Option<Self> {
        let address: [u8; 16] = offer.get(12..28)?.try_into().ok()?;
        Some(Self {
            mac: offer.get(4..10)?.try_into().ok()?,
            address: Ipv6Addr::from(address).to_ipv4_mapped()?,
            pair: word(offer, 27)? & MASK,
            number: word(offer, 32)? & MASK,
        })
    }
}

/// Returns the response to ADD LINK of version 2 that accepts the link: `new` is our end of it,
/// `first` that of the link that carries the message.
fn accepted(offer: &[u8], address: Ipv4Addr, first: End, new: End) -> Option<Vec<u8>> {
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
fn farewell(message: &[u8], token: [u8; 4]) -> Option<Vec<u8>> {
    if message.get(CDC_STATE)? & (CLOSED | ABORTED) == 0 {
        return None;
    }
    let mut answer = vec![0; LLC_LEN];
    answer[..4].copy_from_slice(&[CDC, 44, 0, 1]);
    answer[4..8].copy_from_slice(&token);
    answer[CDC_STATE] = ABORTED;
    Some(answer)
}

/// A packet from the kernel.
struct Packet<'a> {
    opcode: u8,
    /// The destination queue pair.
    pair: u32,
    number: u32,
    data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a frame; `None` unless it is RoCE to this address.
    fn parse(frame: &'a [u8], address: Ipv4Addr) -> Option<Self> {
        let ip = frame.get(ETHERNET_LEN..)?;
        let is_udp = frame.get(12..14)? == ETHERTYPE_IPV4 && *ip.get(9)? == PROTOCOL_UDP;
        if !is_udp || ip.get(16..20)? != address.octets() {
            return None;
        }
        let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
        let udp = ip.get(IP_LEN..total)?;
        if udp.get(2..4)? != PORT.to_be_bytes() {
            return None;
        }
        let bth = udp.get(UDP_LEN..)?;
        Some(Self {
            opcode: *bth.first()?,
            pair: word(bth, 4)? & MASK,
            number: word(bth, 8)? & MASK,
            data: bth.get(BTH_LEN..bth.len().checked_sub(ICRC_LEN)?)?,
        })
    }

    /// Returns the RDMA WRITE or the CDC message that this is.
    fn sent(&self) -> Option<Sent> {
        let pair = self.pair;
        if self.opcode != WRITE_ONLY {
            let token = word(self.data, CDC_TOKEN)?;
            return (self.data.first() == Some(&CDC)).then_some(Sent::Cdc { pair, token });
        }
        let (high, low) = (word(self.data, 0)?, word(self.data, 4)?);
        let len = usize::try_from(word(self.data, 12)?).ok()?;
        Some(Sent::Write {
            pair,
            rkey: word(self.data, 8)?,
            addr: u64::from(high) << 32 | u64::from(low),
            data: self.data.get(RETH_LEN..)?.get(..len)?.to_vec(),
        })
    }
}

/// Returns the four bytes at `at`.
fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Builds a frame; bit 31 of `number` requests an acknowledgement.
fn frame(flow: &Flow, opcode: u8, pair: u32, number: u32, data: &[u8]) -> Vec<u8> {
    let udp_len = UDP_LEN + BTH_LEN + data.len() + ICRC_LEN;
    let length = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
    let mut ip = vec![0x45, 0];
    ip.extend(length(IP_LEN + udp_len));
    ip.extend([0, 1, 0x40, 0, 64, PROTOCOL_UDP, 0, 0]);
    ip.extend(flow.local.0.octets());
    ip.extend(flow.peer.0.octets());
    let sum = checksum(&[&ip]);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());

    let mut udp = Vec::new();
    udp.extend(0xc000_u16.to_be_bytes());
    udp.extend(PORT.to_be_bytes());
    udp.extend(length(udp_len));
    udp.extend([0, 0]);

    let mut bth = vec![opcode, 0x40, 0xff, 0xff];
    bth.extend(pair.to_be_bytes());
    bth.extend(number.to_be_bytes());
    let icrc = icrc(&ip, &udp, &bth, data);
    [
        &flow.peer_mac[..],
        &flow.local_mac,
        &ETHERTYPE_IPV4,
        &ip,
        &udp,
        &bth,
        data,
        &icrc,
    ]
    .concat()
}

/// Returns the ICRC, which covers the invariant fields; the others count as ones.
fn icrc(ip: &[u8], udp: &[u8], bth: &[u8], data: &[u8]) -> [u8; ICRC_LEN] {
    let (mut ip, mut udp, mut bth) = (ip.to_vec(), udp.to_vec(), bth.to_vec());
    for at in [1, 8, 10, 11] {
        ip[at] = 0xff;
    }
    udp[6..8].fill(0xff);
    bth[4] = 0xff;
    let link = [0xff; 8];
    let parts = [&link[..], &ip, &udp, &bth, data];
    let crc = parts.iter().copied().flatten().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    });
    (!crc).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = Flow {
        local_mac: [2, 0, 0, 0, 0, 1],
        peer_mac: [2, 0, 0, 0, 0, 2],
        local: (Ipv4Addr::new(10, 0, 0, 1), 0),
        peer: (Ipv4Addr::new(10, 0, 0, 2), 0),
    };

    #[test]
    fn a_packet_is_read_as_it_was_written() {
        let frame = frame(&FLOW, SEND_ONLY, 0x12_3456, 7 | 1 << 31, b"data");
        let packet = Packet::parse(&frame, FLOW.peer.0).unwrap();
        assert_eq!((packet.opcode, packet.pair), (SEND_ONLY, 0x12_3456));
        assert_eq!((packet.number, packet.data), (7, &b"data"[..]));
        assert!(Packet::parse(&frame, FLOW.local.0).is_none());
        for len in 0..frame.len() {
            assert!(Packet::parse(&frame[..len], FLOW.peer.0).is_none(), "{len}");
        }
    }

    #[test]
    fn what_changes_on_the_way_is_not_in_the_checksum() {
        let icrc_of = |ttl: u8, data: &[u8]| {
            let mut ip = [0; IP_LEN];
            ip[8] = ttl;
            icrc(&ip, &[0; UDP_LEN], &[0; BTH_LEN], data)
        };
        assert_eq!(icrc_of(64, b"data"), icrc_of(63, b"data"));
        assert_ne!(icrc_of(64, b"data"), icrc_of(64, b"date"));
    }

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
        assert_eq!(packet.sent(), Some(write));
        packet.data = &data[..20];
        assert_eq!(packet.sent(), None);
    }

    #[test]
    fn the_end_of_a_connection_is_answered_by_its_end() {
        let mut message = [0; LLC_LEN];
        message[0] = CDC;
        assert!(farewell(&message, [1; 4]).is_none());
        message[CDC_STATE] = ABORTED;
        let answer = farewell(&message, [1; 4]).unwrap();
        assert_eq!((&answer[4..8], answer[CDC_STATE]), (&[1; 4][..], ABORTED));
    }
}
