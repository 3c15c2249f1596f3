// SPDX-License-Identifier: GPL-2.0

//! Packets of RoCE v2, of at most one path MTU each.
//!
//! IBTA specification, annex A17 (frames, ICRC) and volume 1, chapter 9 (base transport header, ACK).

use std::net::Ipv4Addr;

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

pub(super) const SEND_ONLY: u8 = 0x04;
pub(super) const WRITE_ONLY: u8 = 0x0a;
pub(super) const ACKNOWLEDGE: u8 = 0x11;

/// Packet sequence numbers and queue pair numbers have 24 bits.
pub(super) const MASK: u32 = 0x00ff_ffff;

/// The extended transport header of an RDMA WRITE or READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reth {
    pub(super) addr: u64,
    pub(super) rkey: u32,
    /// Bytes of the whole message.
    pub(super) len: u32,
}

impl Reth {
    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = self.addr.to_be_bytes().to_vec();
        bytes.extend(self.rkey.to_be_bytes());
        bytes.extend(self.len.to_be_bytes());
        bytes
    }
}

/// A packet from the kernel.
pub(super) struct Packet<'a> {
    pub(super) opcode: u8,
    /// The destination queue pair.
    pub(super) pair: u32,
    pub(super) number: u32,
    pub(super) data: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Parses a frame; `None` unless it is RoCE to this address.
    pub(super) fn parse(frame: &'a [u8], address: Ipv4Addr) -> Option<Self> {
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
        let padding = usize::from(bth.get(1)? >> 4 & 3);
        let end = bth.len().checked_sub(ICRC_LEN + padding)?;
        Some(Self {
            opcode: *bth.first()?,
            pair: word(bth, 4)? & MASK,
            number: word(bth, 8)? & MASK,
            data: bth.get(BTH_LEN..end)?,
        })
    }

    /// Returns the extended header of an RDMA WRITE, and its data.
    pub(super) fn write(&self) -> Option<(Reth, &'a [u8])> {
        let reth = Reth {
            addr: u64::from(word(self.data, 0)?) << 32 | u64::from(word(self.data, 4)?),
            rkey: word(self.data, 8)?,
            len: word(self.data, 12)?,
        };
        Some((reth, self.data.get(RETH_LEN..)?))
    }
}

/// Returns the four bytes at `at`.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

/// Builds a frame; bit 31 of `number` requests an acknowledgement.
pub(super) fn frame(flow: &Flow, opcode: u8, pair: u32, number: u32, data: &[u8]) -> Vec<u8> {
    // Data are padded to words.
    let padding = data.len().wrapping_neg() % 4;
    let data = [data, &[0; 3][..padding]].concat();
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

    // CAST: at most 3.
    let mut bth = vec![opcode, 0x40 | (padding as u8) << 4, 0xff, 0xff];
    bth.extend(pair.to_be_bytes());
    bth.extend(number.to_be_bytes());
    let icrc = icrc(&ip, &udp, &bth, &data);
    [
        &flow.peer_mac[..],
        &flow.local_mac,
        &ETHERTYPE_IPV4,
        &ip,
        &udp,
        &bth,
        &data,
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
    use std::net::Ipv4Addr;

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
    fn padding_is_no_data() {
        for len in 0..9 {
            let frame = frame(&FLOW, SEND_ONLY, 1, 2, &[7; 9][..len]);
            let packet = Packet::parse(&frame, FLOW.peer.0).unwrap();
            assert_eq!((packet.data, frame.len() % 4), (&[7; 9][..len], 2));
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
}
