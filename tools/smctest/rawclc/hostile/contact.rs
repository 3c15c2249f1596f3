// SPDX-License-Identifier: GPL-2.0

//! The handshake of a first contact, as client or as server of the kernel.

use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::rawclc::messages::with_byte;
use crate::rawclc::messages::with_bytes;
use crate::rawclc::messages::Messages;
use crate::rawclc::messages::TYPE_DECLINE;
use crate::rawclc::packet::word;
use crate::rawclc::packet::MASK;
use crate::rawclc::peer::diagnosis;
use crate::rawclc::peer::Peer;
use crate::rawclc::tcp::RawTcp;

use super::immediate;
use super::llc;
use super::memory::Memory;
use super::pair::Pair;
use super::session::Element;
use super::session::Session;
use super::wire::RdmaWire;

/// Offsets in ACCEPT and CONFIRM, as in `net/smc/proto/wire/clc/accept/raw.rs`.
pub(super) const FLAGS: usize = 7;
const QP: usize = 38;
pub(super) const RKEY: usize = 41;
pub(super) const ELEMENT: usize = 45;
const TOKEN: usize = 46;
const SIZE_MTU: usize = 50;
const ADDR: usize = 52;
const PSN: usize = 61;
const MAX_LINKS: usize = 141;

/// In [`FLAGS`]: the connection is the first of a link group.
pub(super) const FIRST_CONTACT: u8 = 0x08;

/// The code of [`super::session::MTU`].
const MTU_CODE: u8 = 3;

/// The smallest ring, whose code is 0; each code doubles it.
pub(super) const LEAST_RING: u32 = 16 << 10;

/// Longest wait for what the kernel does at once.
pub(super) const SOON: Duration = Duration::from_secs(10);

/// What this peer says of itself. Each first contact has another identity.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contact {
    pub(super) identity: u16,
    /// Code of the size of our ring.
    pub(super) ring: u8,
    /// Links in a group: with one, a client waits for no second.
    pub(super) links: u8,
    /// Seed of the stream that we send.
    pub(super) seed: u64,
    /// Whether we take immediate data in place of CDC messages, and send them if the kernel takes them.
    pub(super) immediate: bool,
    /// Whether we say that RMBEs can be replaced, which goes with immediate data.
    pub(super) replaces: bool,
}

/// In place of an identity that is chosen later.
pub(super) const ANY: u16 = 0;

/// Our packet sockets: what the one for TCP does not read in time must not fill that of RDMA.
pub(super) struct Wires {
    pub(super) tcp: Socket,
    pub(super) rdma: RdmaWire,
}

impl Wires {
    pub(super) fn open(peer: &Peer<'_>) -> Result<Self> {
        let open = || -> Result<Socket> {
            let wire = peer.wire()?;
            wire.set_option_int(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 8 << 20)?;
            Ok(wire)
        };
        Ok(Self {
            tcp: open()?,
            rdma: RdmaWire::new(open()?),
        })
    }
}

impl Contact {
    fn rkey(&self) -> u32 {
        0x100 | u32::from(self.identity) << 12
    }

    fn addr(&self) -> u64 {
        0x7000_0000_0000 | u64::from(self.identity) << 20
    }

    pub(super) fn token(&self) -> u32 {
        0x5000_0000 | u32::from(self.identity)
    }

    fn own_pair(&self) -> u32 {
        0x10_0000 | u32::from(self.identity)
    }

    /// Returns our ACCEPT or CONFIRM.
    pub(super) fn adapt(&self, message: &[u8]) -> Vec<u8> {
        let message = with_bytes(message, QP, &self.own_pair().to_be_bytes()[1..]);
        let message = with_bytes(&message, RKEY, &self.rkey().to_be_bytes());
        let message = with_bytes(&message, TOKEN, &self.token().to_be_bytes());
        let message = with_byte(&message, SIZE_MTU, self.ring << 4 | MTU_CODE);
        let message = with_bytes(&message, ADDR, &self.addr().to_be_bytes());
        let message = with_bytes(&message, PSN, &[0; 3]);
        let options = match (self.immediate, self.replaces) {
            (true, true) => &immediate::OPTIONS_OF_RMBES,
            (true, false) => &immediate::OPTIONS,
            (false, _) => return message,
        };
        with_bytes(&message, immediate::OPTIONS_AT, options)
    }

    /// Agrees as client with the kernel's server at `port`, up to our CONFIRM.
    pub(super) fn agree_with_server<'a>(
        &self,
        peer: &Peer<'_>,
        wires: &'a Wires,
        port: u16,
    ) -> Result<Session<'a>> {
        let messages = Messages::of(peer.address, self.identity);
        let mut tcp = peer.connect_to(&wires.tcp, port)?;
        tcp.send(&messages.proposal)?;
        let accept = proper(&mut tcp)?;
        tcp.send(&self.adapt(&messages.confirm))?;
        self.session(peer, wires, tcp, &accept)
    }

    /// Agrees as server with the kernel's client on a TCP connection, up to its CONFIRM.
    pub(super) fn agree_with_client<'a>(
        &self,
        peer: &Peer<'_>,
        wires: &'a Wires,
        mut tcp: RawTcp<'a>,
    ) -> Result<Session<'a>> {
        let messages = Messages::of(peer.address, self.identity);
        proper(&mut tcp)?;
        let accept = with_byte(&self.adapt(&messages.accept), MAX_LINKS, self.links);
        tcp.send(&accept)?;
        let confirm = proper(&mut tcp)?;
        self.session(peer, wires, tcp, &confirm)
    }

    /// Creates the session with the kernel's end in its ACCEPT or CONFIRM.
    fn session<'a>(
        &self,
        peer: &Peer<'_>,
        wires: &'a Wires,
        tcp: RawTcp<'a>,
        theirs: &[u8],
    ) -> Result<Session<'a>> {
        let memory = Memory::new(self.rkey(), self.addr(), LEAST_RING << self.ring);
        let mut pair = Pair::new(&wires.rdma, peer.flow_of(0), self.own_pair(), memory);
        let at = |at| word(theirs, at).context("the message is too short");
        pair.connect(at(QP - 1)? & MASK, at(PSN - 1)? & MASK);
        let size = LEAST_RING << (theirs[SIZE_MTU] >> 4);
        let base = u64::from(at(ADDR)?) << 32 | u64::from(at(ADDR + 4)?);
        let offset = u64::from(theirs[ELEMENT]).saturating_sub(1) * u64::from(size);
        let options = theirs.get(immediate::OPTIONS_AT..immediate::OPTIONS_AT + 4);
        let is_taken = options == Some(&immediate::OPTIONS_OF_RMBES);
        let theirs = Element {
            rkey: at(RKEY)?,
            addr: base + offset,
            offset,
            size,
            token: at(TOKEN)?,
        };
        wires.rdma.count_pauses();
        let mut session = Session::new(tcp, pair, theirs, self.token(), self.seed);
        session.takes_immediate = self.immediate;
        session.replaces = self.immediate && self.replaces && is_taken;
        session.sends_immediate = self.immediate && is_taken;
        Ok(session)
    }
}

/// Receives a message that must not be a DECLINE.
fn proper(tcp: &mut RawTcp<'_>) -> Result<Vec<u8>> {
    let message = tcp.message(SOON)?.context("the kernel sent no message")?;
    if message[4] == TYPE_DECLINE {
        bail!("the kernel declined for {:#010x}", diagnosis(&message));
    }
    ensure!(message.len() > PSN, "the kernel sent a short message");
    Ok(message)
}

/// Confirms the link: answers the kernel's request, or, as server, sends it. Returns whether that was done in `time`.
pub(super) fn confirm_link(
    session: &mut Session<'_>,
    is_server: bool,
    time: Duration,
) -> Result<bool> {
    if is_server {
        let request = llc::confirm_link(session.pair.own(), session.link);
        session.pair.send(&request)?;
    }
    let is_confirmed = session.serve_until(time, |session| session.is_confirmed)?;
    if is_server && is_confirmed && session.takes_immediate {
        // A server of the kernel's own kind, for which it takes us, tests the link.
        session.ping(time)?;
    }
    // The kernel's answer is there, or ours has arrived.
    let is_settled = session.serve_until(time, |session| session.pair.is_settled())?;
    Ok(is_confirmed && is_settled && session.pair.given_up == 0)
}
