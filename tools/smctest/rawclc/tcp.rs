// SPDX-License-Identifier: GPL-2.0

//! TCP in user space, for a peer that announces SMC and then sends arbitrary data.
//!
//! The kernel sets the SMC option only in the SYN of its own SMC sockets, which then send valid
//! messages. This peer has an address that no kernel owns, on a wire that neither loses nor
//! reorders packets. Therefore it retransmits nothing but its SYN, which a listener that is just
//! being closed drops without an answer.

use std::mem;
use std::net::Ipv4Addr;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use super::frame::Flow;
use super::frame::Segment;
use super::frame::ACK;
use super::frame::FIN;
use super::frame::PSH;
use super::frame::RST;
use super::frame::SYN;
use super::frame::SYN_OPTIONS;

/// Maximum segment size, bytes: that in our SYN; the kernel's is larger.
const SEGMENT_LEN: usize = 1280;

/// Longest wait for an answer of the kernel's TCP, which may have to retransmit.
const ANSWER: Duration = Duration::from_secs(10);

/// Time after which an unanswered SYN is retransmitted.
const REPEAT: Duration = Duration::from_millis(200);

/// Initial sequence number.
const FIRST: u32 = 0x1000;

/// Length of a CLC message header, bytes.
const HEADER_LEN: usize = 8;

/// State of the stream from the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// More may come.
    Open,
    /// The peer closed.
    Closed,
    /// The peer reset the connection.
    Reset,
}

/// A TCP connection, or a listener before its [`RawTcp::accept`].
pub(super) struct RawTcp<'a> {
    wire: &'a Socket,
    flow: Flow,
    seq: u32,
    ack: u32,
    received: Vec<u8>,
    /// Of our SYN or SYN-ACK.
    options: Vec<u8>,
    pub(super) end: End,
    /// Whether the peer's SYN carried the SMC option.
    pub(super) peer_has_smc: bool,
    /// The maximum segment size in the peer's SYN.
    pub(super) peer_mss: Option<u16>,
}

impl<'a> RawTcp<'a> {
    /// Opens a connection with the SMC option.
    pub(super) fn connect(wire: &'a Socket, flow: Flow) -> Result<Self> {
        Self::connect_by(wire, flow, &[&SYN_OPTIONS], &[])
    }

    /// Opens a connection. Sends a SYN with data and each of these options in turn, whatever was answered, and uses the
    /// last answer; all have to be alike.
    pub(super) fn connect_by(
        wire: &'a Socket,
        flow: Flow,
        attempts: &[&[u8]],
        data: &[u8],
    ) -> Result<Self> {
        let mut tcp = Self::new(wire, flow);
        let mut numbers = Vec::new();
        for options in attempts {
            tcp.options = options.to_vec();
            let answer = tcp.ask(data)?;
            if answer.flags & RST != 0 {
                bail!("the kernel refused the connection");
            }
            numbers.push(answer.smc_options());
            tcp.ack = answer.seq.wrapping_add(1);
            tcp.seq = answer.ack;
        }
        let first = numbers.first().copied().unwrap_or(0);
        ensure!(
            numbers.iter().all(|number| *number == first && *number < 2),
            "the SYN-ACKs have {numbers:?} SMC options"
        );
        tcp.peer_has_smc = first > 0;
        tcp.transmit(ACK, &[])?;
        Ok(tcp)
    }

    /// Opens a connection and closes it by the very segment that establishes it, so that no listener has accepted it
    /// when its FIN arrives.
    pub(super) fn connect_and_close(wire: &'a Socket, flow: Flow) -> Result<()> {
        let mut tcp = Self::new(wire, flow);
        let answer = tcp.ask(&[])?;
        ensure!(answer.flags & RST == 0, "the kernel refused the connection");
        tcp.ack = answer.seq.wrapping_add(1);
        tcp.seq = answer.ack;
        tcp.close()
    }

    /// Sends a SYN, until it is answered.
    fn ask(&mut self, data: &[u8]) -> Result<Segment> {
        let start = Instant::now();
        while start.elapsed() < ANSWER {
            self.seq = FIRST;
            self.transmit(SYN, data)?;
            let is_answer = |segment: &Segment| segment.flags & (SYN | RST) != 0;
            if let Some(answer) = self.wait_for(is_answer, REPEAT)? {
                return Ok(answer);
            }
        }
        bail!("no answer from the kernel's TCP")
    }

    /// Waits for a connection to the flow's local port and accepts it with the SMC option.
    pub(super) fn accept(wire: &'a Socket, flow: Flow) -> Result<Self> {
        Self::accept_by(wire, flow, &SYN_OPTIONS)
    }

    /// As [`Self::accept`]. `None` if the kernel has given the attempt up, as this process was too slow to answer; the
    /// next one, which offers no SMC, is refused then.
    pub(super) fn accept_in_time(wire: &'a Socket, flow: Flow) -> Result<Option<Self>> {
        let mut tcp = Self::requested(wire, flow, &SYN_OPTIONS)?;
        tcp.transmit(SYN | ACK, &[])?;
        let answer = tcp.answer(|segment| segment.flags & (ACK | RST) != 0)?;
        if answer.flags & RST == 0 {
            return Ok(Some(tcp));
        }
        Self::requested(wire, flow, &[])?.reset()?;
        Ok(None)
    }

    /// Waits for a connection to the flow's local port and accepts it with these options.
    pub(super) fn accept_by(wire: &'a Socket, flow: Flow, options: &[u8]) -> Result<Self> {
        let mut tcp = Self::requested(wire, flow, options)?;
        tcp.transmit(SYN | ACK, &[])?;
        tcp.answer(|segment| segment.flags & ACK != 0)?;
        Ok(tcp)
    }

    /// Waits for a connection to the flow's local port, and connects at the same time.
    pub(super) fn cross(wire: &'a Socket, flow: Flow, options: &[u8]) -> Result<Self> {
        let mut tcp = Self::requested(wire, flow, options)?;
        let ack = mem::take(&mut tcp.ack);
        tcp.transmit(SYN, &[])?;
        tcp.answer(|segment| segment.flags & (SYN | ACK) == SYN | ACK)?;
        (tcp.seq, tcp.ack) = (FIRST, ack);
        tcp.transmit(SYN | ACK, &[])?;
        Ok(tcp)
    }

    /// Waits for a SYN to the flow's local port.
    fn requested(wire: &'a Socket, flow: Flow, options: &[u8]) -> Result<Self> {
        let mut tcp = Self::new(wire, flow);
        tcp.options = options.to_vec();
        let request = tcp.answer(|segment| segment.flags & SYN != 0)?;
        tcp.flow.peer.1 = request.source_port;
        tcp.ack = request.seq.wrapping_add(1);
        tcp.peer_has_smc = request.smc_options() > 0;
        tcp.peer_mss = request.mss();
        Ok(tcp)
    }

    /// Waits for another connection to the same port.
    pub(super) fn again(&self) -> Result<Self> {
        let mut flow = self.flow;
        flow.peer.1 = 0;
        Self::accept(self.wire, flow)
    }

    /// The same, as [`Self::accept_in_time`].
    pub(super) fn again_in_time(&self) -> Result<Option<Self>> {
        let mut flow = self.flow;
        flow.peer.1 = 0;
        Self::accept_in_time(self.wire, flow)
    }

    /// Takes what has come, and refuses other connections to the same port, which a client may try afterwards.
    pub(super) fn refuse_others(&mut self) -> Result<()> {
        let (flow, port) = (self.flow, self.flow.peer.1);
        self.flow.peer.1 = 0;
        let mut segments = Vec::new();
        while let Some(segment) = self.next(Duration::ZERO)? {
            segments.push(segment);
        }
        self.flow = flow;
        for segment in segments {
            if segment.source_port == port {
                self.take(&segment)?;
            } else if segment.flags & SYN != 0 {
                let mut other = Self::new(self.wire, flow);
                other.flow.peer.1 = segment.source_port;
                other.ack = segment.seq.wrapping_add(1);
                other.reset()?;
            }
        }
        Ok(())
    }

    fn new(wire: &'a Socket, flow: Flow) -> Self {
        Self {
            wire,
            flow,
            seq: FIRST,
            ack: 0,
            received: Vec::new(),
            options: SYN_OPTIONS.to_vec(),
            end: End::Open,
            peer_has_smc: false,
            peer_mss: None,
        }
    }

    /// Sends data, in as many segments as necessary.
    pub(super) fn send(&mut self, data: &[u8]) -> Result<()> {
        for part in data.chunks(SEGMENT_LEN) {
            self.transmit(ACK | PSH, part)?;
        }
        Ok(())
    }

    /// Sends a FIN.
    pub(super) fn close(&mut self) -> Result<()> {
        self.transmit(ACK | FIN, &[])
    }

    /// Sends data and a FIN, which the peer gets both at once: the FIN goes first.
    pub(super) fn send_last(&mut self, data: &[u8]) -> Result<()> {
        let seq = self.seq;
        // CAST: a message.
        self.seq = seq.wrapping_add(data.len() as u32);
        self.close()?;
        let end = mem::replace(&mut self.seq, seq);
        self.send(data)?;
        self.seq = end;
        Ok(())
    }

    /// Returns address and port of this end.
    pub(super) fn local(&self) -> (Ipv4Addr, u16) {
        self.flow.local
    }

    /// Resets the connection.
    pub(super) fn reset(&mut self) -> Result<()> {
        self.transmit(ACK | RST, &[])
    }

    /// Receives the next CLC message; `None` if the stream ends before it is complete, or on
    /// timeout.
    pub(super) fn message(&mut self, time: Duration) -> Result<Option<Vec<u8>>> {
        let start = Instant::now();
        if !self.receive(HEADER_LEN, time)? {
            return Ok(None);
        }
        let len = u16::from_be_bytes([self.received[5], self.received[6]]).into();
        self.take_bytes(len, time.saturating_sub(start.elapsed()))
    }

    /// Receives exactly these bytes.
    pub(super) fn expect(&mut self, wanted: &[u8], time: Duration) -> Result<()> {
        self.receive(wanted.len(), time)?;
        ensure!(
            self.received.starts_with(wanted),
            "{:02x?} came where {wanted:02x?} is due",
            self.received
        );
        self.received.drain(..wanted.len());
        Ok(())
    }

    /// Receives `len` bytes; `None` if the stream ends before, or on timeout.
    pub(super) fn take_bytes(&mut self, len: usize, time: Duration) -> Result<Option<Vec<u8>>> {
        if !self.receive(len, time)? {
            return Ok(None);
        }
        let rest = self.received.split_off(len);
        Ok(Some(mem::replace(&mut self.received, rest)))
    }

    /// Waits until the stream ends, at most for `time`; returns its state.
    pub(super) fn listen(&mut self, time: Duration) -> Result<End> {
        self.receive(usize::MAX, time)?;
        Ok(self.end)
    }

    /// Receives until there are `len` bytes, the peer ends the stream, or on timeout; returns
    /// whether there are `len` bytes.
    fn receive(&mut self, len: usize, time: Duration) -> Result<bool> {
        let start = Instant::now();
        while self.received.len() < len && self.end == End::Open {
            let Some(left) = time.checked_sub(start.elapsed()) else {
                break;
            };
            if let Some(segment) = self.next(left)? {
                self.take(&segment)?;
            }
        }
        Ok(self.received.len() >= len)
    }

    fn take(&mut self, segment: &Segment) -> Result<()> {
        if segment.flags & RST != 0 {
            self.end = End::Reset;
            return Ok(());
        }
        if segment.span() == 0 {
            return Ok(());
        }
        if segment.seq == self.ack {
            self.ack = self.ack.wrapping_add(segment.span());
            self.received.extend(&segment.data);
            if segment.flags & FIN != 0 {
                self.end = End::Closed;
            }
        }
        // Retransmitted segments are acknowledged again.
        self.transmit(ACK, &[])
    }

    fn answer(&mut self, wanted: impl Fn(&Segment) -> bool) -> Result<Segment> {
        let answer = self.wait_for(wanted, ANSWER)?;
        answer.context("no answer from the kernel's TCP")
    }

    /// Returns the next segment that `wanted` accepts, `None` on timeout.
    fn wait_for(
        &mut self,
        wanted: impl Fn(&Segment) -> bool,
        time: Duration,
    ) -> Result<Option<Segment>> {
        let start = Instant::now();
        while let Some(left) = time.checked_sub(start.elapsed()) {
            match self.next(left)? {
                Some(segment) if wanted(&segment) => return Ok(Some(segment)),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Returns the next segment of this connection, `None` on timeout.
    fn next(&mut self, time: Duration) -> Result<Option<Segment>> {
        let start = Instant::now();
        let mut frame = vec![0; 1 << 16];
        loop {
            let left = time.saturating_sub(start.elapsed());
            match self.wire.recv(&mut frame, libc::MSG_DONTWAIT) {
                Ok(len) => {
                    let bytes = frame.get(..len).unwrap_or_default();
                    let segment = Segment::parse(bytes, self.flow.local);
                    // A listener accepts any remote port, a connection only its own.
                    let is_ours = |segment: &Segment| {
                        self.flow.peer.1 == 0 || segment.source_port == self.flow.peer.1
                    };
                    if let Some(segment) = segment.filter(is_ours) {
                        return Ok(Some(segment));
                    }
                }
                Err(Errno::EAGAIN) if left.is_zero() => return Ok(None),
                Err(Errno::EAGAIN) => drop(poll_fd(self.wire, libc::POLLIN, left)),
                Err(error) => bail!("wire: {error}"),
            }
        }
    }

    fn transmit(&mut self, flags: u8, data: &[u8]) -> Result<()> {
        let options: &[u8] = match flags & SYN {
            0 => &[],
            _ => &self.options,
        };
        let segment = Segment {
            seq: self.seq,
            ack: self.ack,
            flags,
            options: options.to_vec(),
            data: data.to_vec(),
            ..Segment::default()
        };
        self.wire.send(&segment.to_frame(&self.flow), 0)?;
        self.seq = self.seq.wrapping_add(segment.span());
        Ok(())
    }
}
