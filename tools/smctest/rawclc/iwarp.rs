// SPDX-License-Identifier: GPL-2.0

//! A peer that agrees to a link over iWARP and then violates the protocol. The queue pair must use
//! no TCP connection but the one that the handshake named, and both sides must fall back to TCP.

use std::cell::Cell;
use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use super::late;
use super::messages::with_bytes;
use super::messages::Messages;
use super::messages::TYPE_DECLINE;
use super::peer::answer_exchange;
use super::peer::diagnosis;
use super::peer::Connected;
use super::peer::Peer;
use super::peer::ANSWER;
use super::script::reason;
use super::tcp::End;
use super::tcp::RawTcp;
use super::Test;

/// Offsets in a PROPOSAL, and in an ACCEPT or CONFIRM of a first contact.
const OUI: usize = 52;
const NONCE: usize = 56;
const RELEASE: usize = 83;
const GID: usize = 16;
const QP: usize = 38;
const PSN: usize = 61;
const OPTIONS: usize = 144;
const PORT: usize = 146;

/// First byte of the options: over iWARP.
const IWARP: u8 = 0x81;

/// MPA request and reply frames (RFC 5044) up to the private data.
const REQUEST: &[u8] = b"MPA ID Req Frame\0\x01";
const REPLY: &[u8] = b"MPA ID Rep Frame";
const REPLY_LEN: usize = 20;
const REJECTED: u8 = 0x20;

/// Longest duration of what need not wait for a peer, on a debug kernel.
const PROMPT: Duration = Duration::from_secs(10);

// Timeouts of the kernel from the CONFIRM on (`Documentation/iwarp.md`), each less 200 ms.
/// A client waits for the server's MPA connection.
const CLIENT_ACCEPTS: Duration = Duration::from_millis(1_700);
/// A client waits for the reply to its own MPA request.
const CLIENT_CONNECTS: Duration = Duration::from_millis(2_500);
/// A server waits for the client's MPA connection.
const SERVER_ACCEPTS: Duration = Duration::from_millis(2_800);
/// A server waits for the reply to its own MPA request.
const SERVER_CONNECTS: Duration = Duration::from_millis(1_300);

pub(super) const TESTS: &[Test] = &[
    // Soft iWARP waits long here; the tests run in parallel.
    (
        "client: a stream without an answer to its request",
        no_reply,
    ),
    ("server: no stream where one was promised", never_connects),
    ("server: requests with a wrong token", wrong_tokens),
    (
        "server: requests without a whole token, then the right one, and that again",
        replayed,
    ),
    (
        "server: connections that end before they are accepted, then the right token",
        ends_unaccepted,
    ),
    (
        "server: the right token from another address",
        other_requester,
    ),
    ("server: an end at another address", other_address),
    ("client: a stream that nobody answers", silent_listener),
    ("client: a stream that is reset", reset),
    ("client: no port", no_port),
    ("server: the client opens the stream", opened_by_client),
    (
        "client: the stream is opened too early, with a wrong token, then rightly",
        opens_itself,
    ),
];

/// Returns the GID of the peer's iWARP device.
fn gid(peer: &Peer<'_>) -> Vec<u8> {
    let mut gid = vec![0; 10];
    gid.extend([0xff, 0xfe]);
    gid.extend(peer.address.octets());
    gid
}

/// Returns an ACCEPT or CONFIRM over iWARP with a port.
fn over_iwarp(peer: &Peer<'_>, message: &[u8], port: u16) -> Vec<u8> {
    let [high, low] = port.to_be_bytes();
    let message = with_bytes(message, GID, &gid(peer));
    with_bytes(&message, OPTIONS, &[IWARP, 0, high, low])
}

/// Receives a message that must not be a DECLINE.
fn proper(tcp: &mut RawTcp<'_>) -> Result<Vec<u8>> {
    let message = tcp.message(ANSWER)?.context("the kernel sent no message")?;
    ensure!(
        message[4] != TYPE_DECLINE,
        "the kernel declined for {:#010x}",
        diagnosis(&message)
    );
    Ok(message)
}

/// Receives a DECLINE with this reason, within `time`.
fn declined(tcp: &mut RawTcp<'_>, code: u32, time: Duration) -> Result<()> {
    let start = Instant::now();
    let message = tcp.message(ANSWER)?.context("the kernel sent nothing")?;
    ensure!(message[4] == TYPE_DECLINE, "the kernel did not decline");
    let got = diagnosis(&message);
    ensure!(got == code, "the kernel declined for {got:#010x}");
    let took = start.elapsed();
    ensure!(took < time, "it took {:.1} s", took.as_secs_f32());
    Ok(())
}

/// The kernel connects, and the peer acts as server up to the CONFIRM. `rest` gets that, and the
/// token that the MPA connection must present, and ends while the kernel accepts one. Then the peer
/// declines, whereupon both fall back to TCP.
fn as_server(
    peer: &Peer<'_>,
    wire: &Socket,
    number: u16,
    rest: impl Fn(&[u8], [u8; 28]) -> Result<()>,
) -> Result<()> {
    let decline = Messages::of(peer.address, number).decline;
    late::in_time(CLIENT_ACCEPTS, |agreed| {
        until_confirm(peer, wire, (number, 0), agreed, |tcp, confirm, token| {
            rest(confirm, token)?;
            tcp.send(&decline)?;
            answer_exchange(tcp)?;
            late::soon(agreed, CLIENT_ACCEPTS)
        })
    })
}

/// The same, with a port at which the peer claims to accept the MPA connection; `rest` also gets
/// the TCP connection, and leads to the fallback itself. Stores in `agreed` when the kernel can
/// have begun to wait at the earliest.
fn until_confirm(
    peer: &Peer<'_>,
    wire: &Socket,
    (number, port): (u16, u16),
    agreed: &Cell<Instant>,
    rest: impl FnOnce(&mut RawTcp<'_>, &[u8], [u8; 28]) -> Result<()>,
) -> Result<()> {
    let accept = over_iwarp(peer, &Messages::of(peer.address, number).accept, port);
    let connected = peer.serve_exchange(wire, |tcp| {
        let proposal = proper(tcp)?;
        ensure!(
            proposal[OUI..NONCE] == *b"RSM\x81",
            "the kernel does not offer iWARP"
        );
        agreed.set(Instant::now());
        tcp.send(&accept)?;
        let confirm = proper(tcp)?;
        let token = token(&proposal[NONCE..NONCE + 4], &confirm, &accept);
        let played = rest(tcp, &confirm, token);
        if played.is_err() {
            // The kernel need not wait for this peer.
            tcp.reset()?;
        }
        played
    })?;
    match connected {
        Connected::Exchanged(result) => result,
        Connected::Failed(errno) => anyhow::bail!("connect failed with {errno}"),
    }
}

/// Returns the token of the MPA connection between the queue pairs of two messages.
fn token(nonce: &[u8], client: &[u8], server: &[u8]) -> [u8; 28] {
    let mut token = [0; 28];
    token[..8].copy_from_slice(b"SMCi\x01\0\0\0");
    token[8..12].copy_from_slice(nonce);
    for (at, message) in [(12, client), (20, server)] {
        token[at + 1..at + 4].copy_from_slice(&message[QP..QP + 3]);
        token[at + 5..at + 8].copy_from_slice(&message[PSN..PSN + 3]);
    }
    token
}

fn never_connects(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let agreed = Cell::new(Instant::now());
    until_confirm(peer, wire, (0x5000, 0), &agreed, |tcp, _, _| {
        declined(tcp, reason::LINK_NOT_READY, PROMPT)?;
        answer_exchange(tcp)
    })
}

/// Returns the token if the client is the MPA initiator.
fn by_client(mut token: [u8; 28]) -> [u8; 28] {
    token[5] = 1;
    token
}

/// Returns the port at which the kernel accepts the MPA connection.
fn port_of(message: &[u8]) -> u16 {
    u16::from_be_bytes([message[PORT], message[PORT + 1]])
}

/// Returns an MPA request with this private data.
fn request(data: &[u8]) -> Result<Vec<u8>> {
    let mut request = REQUEST.to_vec();
    request.extend(u16::try_from(data.len())?.to_be_bytes());
    request.extend(data);
    Ok(request)
}

/// Sends an MPA request with this private data to the port of an ACCEPT or CONFIRM; returns whether
/// it was accepted.
fn ask(peer: &Peer<'_>, wire: &Socket, message: &[u8], data: &[u8]) -> Result<bool> {
    let mut stream = peer.connect_to(wire, port_of(message))?;
    stream.send(&request(data)?)?;
    let reply = stream.take_bytes(REPLY_LEN, PROMPT)?;
    let is_taken = match &reply {
        Some(reply) => {
            ensure!(reply.starts_with(REPLY), "no reply but {reply:02x?}");
            reply[16] & REJECTED == 0
        }
        None => {
            ensure!(stream.end != End::Open, "no answer to the request");
            false
        }
    };
    if !is_taken {
        stream.reset()?;
    }
    Ok(is_taken)
}

fn wrong_tokens(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    as_server(peer, wire, 0x5001, |confirm, token| {
        for (what, at) in [
            ("another kind", 0),
            ("another nonce", 8),
            ("another queue pair of the client", 15),
            ("another packet number of the server", 27),
        ] {
            let mut wrong = token;
            wrong[at] ^= 1;
            ensure!(!ask(peer, wire, confirm, &wrong)?, "{what} was taken");
        }
        Ok(())
    })
}

fn replayed(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    as_server(peer, wire, 0x5007, |confirm, token| {
        let longer = [token, token].concat();
        for (what, data) in [("none", &[][..]), ("half", &token[..14]), ("two", &longer)] {
            ensure!(!ask(peer, wire, confirm, data)?, "{what} was taken");
        }
        ensure!(ask(peer, wire, confirm, &token)?, "the token was rejected");
        ensure!(!ask(peer, wire, confirm, &token)?, "it was taken twice");
        Ok(())
    })
}

/// Who opens and closes a connection must not close the kernel's listener by that, as it does in soft iWARP without
/// `siw-listener-close.patch`.
fn ends_unaccepted(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    as_server(peer, wire, 0x500b, |confirm, token| {
        for _ in 0..3 {
            peer.connect_to_and_close(wire, port_of(confirm))?;
        }
        ensure!(ask(peer, wire, confirm, &token)?, "the token was rejected");
        Ok(())
    })
}

/// A request with the right token, but from the address of the client namespace's kernel.
fn other_requester(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    as_server(peer, wire, 0x5008, |confirm, token| {
        let mut stream = TcpStream::connect((peer.context.addr, port_of(confirm)))?;
        stream.set_read_timeout(Some(PROMPT))?;
        stream.write_all(&request(&token)?)?;
        let mut reply = [0; REPLY_LEN];
        stream.read_exact(&mut reply)?;
        ensure!(reply.starts_with(REPLY), "no reply but {reply:02x?}");
        ensure!(reply[16] & REJECTED != 0, "it was taken");
        Ok(())
    })
}

fn other_address(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let accept = over_iwarp(peer, &Messages::of(peer.address, 0x5002).accept, 0);
    let accept = with_bytes(&accept, GID + 15, &[77]);
    let connected = peer.serve_exchange(wire, |tcp| {
        proper(tcp)?;
        tcp.send(&accept)?;
        declined(tcp, reason::MODE_UNSUPPORTED, PROMPT)?;
        answer_exchange(tcp)
    })?;
    match connected {
        Connected::Exchanged(result) => result,
        Connected::Failed(errno) => anyhow::bail!("connect failed with {errno}"),
    }
}

/// Without an MPA connection by the peer, the kernel becomes the initiator, and sends first: an
/// empty message.
fn opened_by_client(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    /// Limits of outstanding RDMA reads (IRD and ORD), before the token (RFC 6581).
    const READS: &[u8] = &[0, 1, 0, 1];
    /// Bytes: length, headers, four bytes of data and a CRC (RFC 5044, RFC 5041).
    const FIRST: usize = 2 + 18 + 4 + 4;
    let decline = Messages::of(peer.address, 0x5009).decline;
    late::in_time(CLIENT_CONNECTS, |agreed| {
        until_confirm(peer, wire, (0x5009, 54009), agreed, |tcp, _, token| {
            peer.listen_at(wire, 54009, |stream| {
                let len = request(&[READS, &token].concat())?.len();
                let request = stream.take_bytes(len, PROMPT)?.context("no request")?;
                let is_right = request.ends_with(&by_client(token));
                ensure!(is_right, "the request is {request:02x?}");
                stream.send(&[REPLY, &[0x10, 2, 0, 4], READS].concat())?;
                let first = stream.take_bytes(FIRST, PROMPT)?.context("no message")?;
                ensure!(first[..2] == [0, 22], "the message is {first:02x?}");
                Ok(())
            })?;
            tcp.send(&decline)?;
            answer_exchange(tcp)?;
            late::soon(agreed, CLIENT_CONNECTS)
        })
    })
}

/// The peer does not accept the kernel's MPA connection; only then the kernel accepts one of the
/// peer.
fn opens_itself(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let open = |accept: &[u8], confirm: &[u8]| {
        let token = token(b"nonc", confirm, accept);
        let rightly = by_client(token);
        ensure!(
            !ask(peer, wire, accept, &rightly)?,
            "it was taken too early"
        );
        thread::sleep(Duration::from_millis(1800));
        ensure!(
            !ask(peer, wire, accept, &token)?,
            "the server's token was taken"
        );
        ensure!(ask(peer, wire, accept, &rightly)?, "the token was rejected");
        Ok(())
    };
    late::in_time(SERVER_ACCEPTS, |agreed| {
        as_client_with(peer, wire, (0x500a, 54010), agreed, open, NO_STREAM)
    })
}

/// Connects to the kernel as a client that offers iWARP only, and confirms with this port. `rest`
/// runs before the kernel declines; `declined` is the expected reason and the longest time until
/// then.
fn as_client(
    peer: &Peer<'_>,
    wire: &Socket,
    (number, port): (u16, u16),
    rest: impl Fn() -> Result<()>,
    declined: (u32, Duration),
) -> Result<()> {
    late::in_time(SERVER_CONNECTS, |agreed| {
        as_client_with(peer, wire, (number, port), agreed, |_, _| rest(), declined)
    })
}

/// The same, once; `rest` also gets the ACCEPT and the CONFIRM. Stores in `agreed` when the CONFIRM was sent.
fn as_client_with(
    peer: &Peer<'_>,
    wire: &Socket,
    (number, port): (u16, u16),
    agreed: &Cell<Instant>,
    rest: impl FnOnce(&[u8], &[u8]) -> Result<()>,
    (code, time): (u32, Duration),
) -> Result<()> {
    let messages = Messages::of(peer.address, number);
    let mut tcp = peer.connect(wire)?;
    let proposal = with_bytes(&messages.proposal, OUI, b"RSM\x81nonc");
    let proposal = with_bytes(&proposal, RELEASE, &[0x10]);
    tcp.send(&proposal)?;
    let accept = proper(&mut tcp)?;
    ensure!(accept[OPTIONS] == IWARP, "the kernel did not choose iWARP");
    let confirm = over_iwarp(peer, &messages.confirm, port);
    agreed.set(Instant::now());
    tcp.send(&confirm)?;
    rest(&accept, &confirm)?;
    declined(&mut tcp, code, time)?;
    peer.one_over_tcp(&mut tcp)?;
    tcp.reset()
}

/// Reason of the DECLINE if no MPA connection is established, and the longest time until then.
const NO_STREAM: (u32, Duration) = (reason::LINK_NOT_READY, PROMPT);

fn silent_listener(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    as_client(peer, wire, (0x5003, 54000), || Ok(()), NO_STREAM)
}

fn reset(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let reset = || peer.listen_at(wire, 54001, |tcp| tcp.reset());
    as_client(peer, wire, (0x5004, 54001), reset, NO_STREAM)
}

fn no_reply(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let hear = || {
        peer.listen_at(wire, 54002, |tcp| {
            let request = tcp.take_bytes(REQUEST.len() + 2 + 28, PROMPT)?;
            let request = request.context("no request")?;
            ensure!(request.starts_with(&REQUEST[..16]), "not a request");
            Ok(())
        })
    };
    as_client(peer, wire, (0x5005, 54002), hear, NO_STREAM)
}

fn no_port(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let judged = (reason::MODE_UNSUPPORTED, PROMPT);
    as_client(peer, wire, (0x5006, 0), || Ok(()), judged)
}
