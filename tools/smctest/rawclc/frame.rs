// SPDX-License-Identifier: GPL-2.0

//! Ethernet, IPv4 and TCP headers: the subset for one peer on one wire.

use std::net::Ipv4Addr;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

const ETHERNET_LEN: usize = 14;
const IP_LEN: usize = 20;
const TCP_LEN: usize = 20;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const PROTOCOL_TCP: u8 = 6;

/// The experimental TCP option that announces SMC (RFC 7609, section 3.1).
const SMC_OPTION: [u8; 6] = [254, 6, 0xe2, 0xd4, 0xc3, 0xd9];

/// Options of a SYN: maximum segment size, two NOPs, and the SMC option.
pub(super) const SYN_OPTIONS: [u8; 12] = [2, 4, 0x05, 0x00, 1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9];

/// Source and destination of frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) local_mac: [u8; 6],
    pub(super) peer_mac: [u8; 6],
    pub(super) local: (Ipv4Addr, u16),
    pub(super) peer: (Ipv4Addr, u16),
}

/// One TCP segment.
#[derive(Clone, Debug, Default)]
pub(super) struct Segment {
    pub(super) source_port: u16,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    /// A multiple of four bytes.
    pub(super) options: Vec<u8>,
    pub(super) data: Vec<u8>,
}

impl Segment {
    /// Returns by how much it advances the sequence number.
    pub(super) fn span(&self) -> u32 {
        let bits = u32::from(self.flags & SYN != 0) + u32::from(self.flags & FIN != 0);
        u32::try_from(self.data.len())
            .unwrap_or(u32::MAX)
            .wrapping_add(bits)
    }

    /// Returns its maximum segment size, if it says one first, as Linux does.
    pub(super) fn mss(&self) -> Option<u16> {
        match self.options.first_chunk() {
            Some([2, 4, high, low]) => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        }
    }

    /// Returns how many SMC options it has.
    pub(super) fn smc_options(&self) -> usize {
        let windows = self.options.windows(SMC_OPTION.len());
        windows.filter(|option| *option == SMC_OPTION).count()
    }

    /// Returns the Ethernet frame.
    pub(super) fn to_frame(&self, flow: &Flow) -> Vec<u8> {
        let options = &self.options;
        let tcp_len = TCP_LEN + options.len() + self.data.len();
        let total = u16::try_from(IP_LEN + tcp_len).unwrap_or(u16::MAX);

        let mut tcp = Vec::with_capacity(tcp_len);
        tcp.extend(flow.local.1.to_be_bytes());
        tcp.extend(flow.peer.1.to_be_bytes());
        tcp.extend(self.seq.to_be_bytes());
        tcp.extend(self.ack.to_be_bytes());
        // CAST: 20 to 60 bytes, counted in words in the upper half.
        tcp.push((((TCP_LEN + options.len()) / 4) as u8) << 4);
        tcp.push(self.flags);
        tcp.extend([0xff, 0xff, 0, 0, 0, 0]);
        tcp.extend(options);
        tcp.extend(&self.data);
        let sum = checksum(&[&pseudo_header(flow, tcp_len), &tcp]);
        tcp[16..18].copy_from_slice(&sum.to_be_bytes());

        let mut ip = vec![0x45, 0];
        ip.extend(total.to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, PROTOCOL_TCP, 0, 0]);
        ip.extend(flow.local.0.octets());
        ip.extend(flow.peer.0.octets());
        let sum = checksum(&[&ip]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());

        [
            &flow.peer_mac[..],
            &flow.local_mac,
            &ETHERTYPE_IPV4,
            &ip,
            &tcp,
        ]
        .concat()
    }

    /// Parses a frame; `None` unless it is TCP to this local address and port.
    ///
    /// Checksums are not verified: the kernel offloads them to the device, which is virtual.
    pub(super) fn parse(frame: &[u8], local: (Ipv4Addr, u16)) -> Option<Self> {
        let ip = frame.get(ETHERNET_LEN..)?;
        if frame.get(12..14)? != ETHERTYPE_IPV4 || *ip.get(9)? != PROTOCOL_TCP {
            return None;
        }
        if ip.get(16..20)? != local.0.octets() {
            return None;
        }
        let total = usize::from(u16::from_be_bytes(ip.get(2..4)?.try_into().ok()?));
        let header = usize::from(ip.first()? & 0x0f) * 4;
        let tcp = ip.get(header..total)?;
        let word = |at: usize| -> Option<u32> {
            Some(u32::from_be_bytes(tcp.get(at..at + 4)?.try_into().ok()?))
        };
        if tcp.get(2..4)? != local.1.to_be_bytes() {
            return None;
        }
        let header = usize::from(tcp.get(12)? >> 4) * 4;
        let options = tcp.get(TCP_LEN..header)?;

        Some(Self {
            source_port: u16::from_be_bytes(tcp.get(..2)?.try_into().ok()?),
            seq: word(4)?,
            ack: word(8)?,
            flags: *tcp.get(13)?,
            options: options.to_vec(),
            data: tcp.get(header..)?.to_vec(),
        })
    }
}

fn pseudo_header(flow: &Flow, tcp_len: usize) -> Vec<u8> {
    let len = u16::try_from(tcp_len).unwrap_or(u16::MAX);
    let mut header = Vec::new();
    header.extend(flow.local.0.octets());
    header.extend(flow.peer.0.octets());
    header.extend([0, PROTOCOL_TCP]);
    header.extend(len.to_be_bytes());
    header
}

/// Returns the Internet checksum of `parts`, of which only the last may have an odd length.
pub(super) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for part in parts {
        for pair in part.chunks(2) {
            let low = pair.get(1).copied().unwrap_or(0);
            sum += u32::from(u16::from_be_bytes([pair[0], low]));
        }
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // CAST: folded to 16 bits above.
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: Flow = Flow {
        local_mac: [2, 0, 0, 0, 0, 1],
        peer_mac: [2, 0, 0, 0, 0, 2],
        local: (Ipv4Addr::new(10, 0, 0, 1), 1000),
        peer: (Ipv4Addr::new(10, 0, 0, 2), 2000),
    };

    #[test]
    fn a_segment_is_read_as_it_was_written() {
        let segment = Segment {
            seq: 7,
            ack: 9,
            flags: SYN | ACK,
            options: SYN_OPTIONS.to_vec(),
            data: b"odd".to_vec(),
            ..Segment::default()
        };
        let read = Segment::parse(&segment.to_frame(&FLOW), FLOW.peer).unwrap();

        assert_eq!((read.seq, read.ack, read.flags), (7, 9, SYN | ACK));
        assert_eq!((read.source_port, read.smc_options()), (1000, 1));
        assert_eq!((read.data, segment.span()), (b"odd".to_vec(), 4));
    }

    #[test]
    fn checksums_make_the_sum_of_all_ones() {
        let segment = Segment {
            flags: ACK | PSH,
            data: b"data".to_vec(),
            ..Segment::default()
        };
        let frame = segment.to_frame(&FLOW);
        assert_eq!(checksum(&[&frame[14..34]]), 0);
        assert_eq!(
            checksum(&[&pseudo_header(&FLOW, frame.len() - 34), &frame[34..]]),
            0
        );
    }

    #[test]
    fn frames_for_others_and_pieces_of_frames_are_ignored() {
        let frame = Segment::default().to_frame(&FLOW);
        assert!(Segment::parse(&frame, FLOW.local).is_none());
        for len in 0..frame.len() {
            assert!(Segment::parse(&frame[..len], FLOW.peer).is_none(), "{len}");
        }
    }
}
