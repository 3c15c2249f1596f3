// SPDX-License-Identifier: GPL-2.0

//! RoCE v2 in user space: the subset of a reliable queue pair that receives and answers the
//! messages of a link.
//!
//! IBTA specification, annex A17 (frames, ICRC) and volume 1, chapter 9 (base transport header, ACK).

use std::collections::HashMap;
use std::net::Ipv4Addr;
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
const ICRC_LEN: usize = 4;
const PROTOCOL_UDP: u8 = 17;
const PORT: u16 = 4791;

const SEND_ONLY: u8 = 0x04;
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

/// Type of a CDC message, and the flags of its connection state that end the connection.
const CDC: u8 = 0xfe;
const CDC_STATE: usize = 25;
const CLOSED: u8 = 0x40;
const ABORTED: u8 = 0x20;

/// A queue pair of this peer.
struct QueuePair {
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

/// The queue pairs of one address.
pub(super) struct Adapter {
    flow: Flow,
    /// Does not answer the end of a connection.
    is_silent: bool,
    pairs: Mutex<HashMap<u32, QueuePair>>,
}

impl Adapter {
    /// Creates one between the two addresses of `flow`, whose ports are not used.
    pub(super) fn new(flow: Flow, is_silent: bool) -> Self {
        Self {
            flow,
            is_silent,
            pairs: Mutex::default(),
        }
    }

    pub(super) fn address(&self) -> Ipv4Addr {
        self.flow.local.0
    }

    /// Adds a queue pair `own`, connected to the kernel's `peer`, whose first packet sequence
    /// number is `expected`; ours is 0. `token` is the kernel's alert token of the connection on
    /// it.
    pub(super) fn connect(&self, own: u32, peer: u32, expected: u32, token: [u8; 4]) {
        let pair = QueuePair {
            peer,
            expected,
            next: 0,
            token,
            is_confirmed: false,
        };
        self.pairs.lock().unwrap().insert(own, pair);
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
            SEND_ONLY => {
                let is_new = packet.number == pair.expected;
                if is_new {
                    pair.expected = (pair.expected + 1) & MASK;
                }
                let before = pair.expected.wrapping_sub(1) & MASK;
                let ack = u32::from(ACK_UNLIMITED) << 24 | (before & MASK);
                self.send(wire, ACKNOWLEDGE, pair.peer, before, &ack.to_be_bytes())?;
                let answer = match packet.data.first() {
                    Some(&CDC) if self.is_silent => None,
                    Some(&CDC) => farewell(packet.data, pair.token),
                    _ => response(packet.data, self.address(), packet.pair),
                };
                if let Some(answer) = answer.filter(|_| is_new) {
                    self.send(wire, SEND_ONLY, pair.peer, pair.next | 1 << 31, &answer)?;
                    pair.next = (pair.next + 1) & MASK;
                }
            }
            // RDMA writes are not acknowledged: the kernel retransmits them until the link fails.
            _ => {}
        }
        Ok(())
    }

    fn send(&self, wire: &Socket, opcode: u8, pair: u32, number: u32, data: &[u8]) -> Result<()> {
        let frame = frame(&self.flow, opcode, pair, number, data);
        wire.send(&frame, 0)?;
        Ok(())
    }
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
            answer[4..10].copy_from_slice(&[2, 0, 0, 0, 0, 50]);
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
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(bth.get(at..at + 4)?.try_into().ok()?) & MASK)
        };
        Some(Self {
            opcode: *bth.first()?,
            pair: word(4)?,
            number: word(8)?,
            data: bth.get(BTH_LEN..bth.len().checked_sub(ICRC_LEN)?)?,
        })
    }
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
    fn the_end_of_a_connection_is_answered_by_its_end() {
        let mut message = [0; LLC_LEN];
        message[0] = CDC;
        assert!(farewell(&message, [1; 4]).is_none());
        message[CDC_STATE] = ABORTED;
        let answer = farewell(&message, [1; 4]).unwrap();
        assert_eq!((&answer[4..8], answer[CDC_STATE]), (&[1; 4][..], ABORTED));
    }
}
