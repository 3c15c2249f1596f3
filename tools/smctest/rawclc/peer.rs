// SPDX-License-Identifier: GPL-2.0

//! The raw peer: its addresses, and the execution of scripts, many in parallel.

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Address;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

use super::frame::Flow;
use super::messages::TYPE_DECLINE;
use super::script::reason;
use super::script::Answer;
use super::script::Script;
use super::script::Step;
use super::script::HANDSHAKE_S;
use super::tcp::End;
use super::tcp::RawTcp;

/// Time for the kernel to answer: its own limit is 6 s, and a debug kernel is slow.
pub(super) const ANSWER: Duration = Duration::from_secs(25);

/// Concurrent handshakes. Most of them wait for a timeout.
const AT_ONCE: usize = 16;

/// Pause between two bytes of a peer that is slow on purpose.
const TRICKLE: Duration = Duration::from_millis(100);

const ETH_P_ALL: u16 = 0x0003;
const ETH_P_IP: u16 = 0x0800;

/// `SOL_PACKET`, `PACKET_IGNORE_OUTGOING`: do not receive frames that other sockets of this test
/// send.
const SOL_PACKET: i32 = 263;
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Sent over TCP in each direction after a fallback.
const PING: &[u8] = b"ping over TCP";
const PONG: &[u8] = b"pong over TCP";

/// Answer of the test server to its shortest request ([`crate::job::Job::One`]).
const ONE: &[u8] = b"1";

/// The peer and its addresses.
pub(super) struct Peer<'a> {
    pub(super) context: &'a Context,
    device_index: u32,
    local_mac: [u8; 6],
    peer_mac: [u8; 6],
    /// An address that no kernel owns.
    pub(super) address: Ipv4Addr,
    server: Ipv4Addr,
    /// Each connection uses a new port, so that none receives late segments of another.
    last_port: AtomicUsize,
}

/// What connect(2) fails with after a message that makes no sense, or not enough of one.
const LOST: &[Errno] = &[Errno::ECONNRESET, Errno::EPROTO, Errno::ETIMEDOUT];

/// How often a script is begun while the kernel avoids the path to the peer, as other scripts name RDMA addresses where
/// nobody is.
const TRIES: u32 = 10;

/// How far a script came.
enum Played {
    Whole,
    /// The kernel avoids the path to the peer, so that it did not look at what the script is for.
    PathAvoided,
}

/// Result of connect(2), and of a transfer on the connection.
pub(super) enum Connected {
    Failed(Errno),
    Exchanged(Result<()>),
}

impl<'a> Peer<'a> {
    pub(super) fn new(context: &'a Context, place: &super::Place) -> Result<Self> {
        let IpAddr::V4(server) = context.addr else {
            bail!("this peer knows IPv4 only");
        };
        let path = format!("/sys/class/net/{}", place.device);
        let address = read(&format!("{path}/address"))?;
        Ok(Self {
            context,
            device_index: read(&format!("{path}/ifindex"))?.parse()?,
            local_mac: super::mac(&address).map_err(anyhow::Error::msg)?,
            peer_mac: place.peer_mac,
            address: place.raw_addr,
            server,
            last_port: AtomicUsize::new(20_000),
        })
    }

    /// Opens a packet socket on the wire.
    pub(super) fn wire(&self) -> Result<Socket> {
        self.packets(ETH_P_IP)
    }

    /// Opens one that also receives what the kernel at this end of the wire sends.
    pub(super) fn tap(&self) -> Result<Socket> {
        self.packets(ETH_P_ALL)
    }

    fn packets(&self, protocol: u16) -> Result<Socket> {
        let wire = Socket::open(libc::AF_PACKET, libc::SOCK_RAW, i32::from(protocol.to_be()))?;
        let ignores_outgoing = i32::from(protocol != ETH_P_ALL);
        wire.set_option_int(SOL_PACKET, PACKET_IGNORE_OUTGOING, ignores_outgoing)?;
        wire.bind(Address::of_link(protocol, self.device_index))?;
        Ok(wire)
    }

    /// Returns a flow from the peer to the server, with a new local port.
    pub(super) fn next_flow(&self, peer_port: u16) -> Flow {
        let port = self.last_port.fetch_add(1, Ordering::Relaxed) + 1;
        let mut flow = self.flow_of(peer_port);
        // CAST: there are not tens of thousands of connections.
        flow.local.1 = port as u16;
        flow
    }

    /// Returns a flow from the peer to the server, without a local port.
    pub(super) fn flow_of(&self, peer_port: u16) -> Flow {
        Flow {
            local_mac: self.local_mac,
            peer_mac: self.peer_mac,
            local: (self.address, 0),
            peer: (self.server, peer_port),
        }
    }

    /// Connects to the server with the SMC option.
    pub(super) fn connect<'w>(&self, wire: &'w Socket) -> Result<RawTcp<'w>> {
        self.connect_to(wire, self.context.port)
    }

    /// The same from an address that a kernel has, which must not answer the segments to it.
    pub(super) fn connect_from<'w>(
        &self,
        wire: &'w Socket,
        address: Ipv4Addr,
    ) -> Result<RawTcp<'w>> {
        let mut flow = self.next_flow(self.context.port);
        flow.local.0 = address;
        RawTcp::connect(wire, flow)
    }

    /// Connects to another port of the server's host.
    pub(super) fn connect_to<'w>(&self, wire: &'w Socket, port: u16) -> Result<RawTcp<'w>> {
        RawTcp::connect(wire, self.next_flow(port))
    }

    /// Connects to a port and closes at once ([`RawTcp::connect_and_close`]).
    pub(super) fn connect_to_and_close(&self, wire: &Socket, port: u16) -> Result<()> {
        RawTcp::connect_and_close(wire, self.next_flow(port))
    }

    /// Acts as a server. Runs `kernel` in the server's namespace with the address to connect to,
    /// and `peer` with the accepted connection.
    pub(super) fn serve<T: Send>(
        &self,
        wire: &Socket,
        kernel: impl FnOnce(SocketAddr) -> Result<T> + Send,
        peer: impl FnOnce(&mut RawTcp<'_>) -> Result<()>,
    ) -> Result<T> {
        self.serve_by(|flow| RawTcp::accept(wire, flow), kernel, peer)
    }

    /// As [`Peer::serve`]; `accept` accepts the connection.
    pub(super) fn serve_by<'w, T: Send>(
        &self,
        accept: impl FnOnce(Flow) -> Result<RawTcp<'w>>,
        kernel: impl FnOnce(SocketAddr) -> Result<T> + Send,
        peer: impl FnOnce(&mut RawTcp<'_>) -> Result<()>,
    ) -> Result<T> {
        let flow = self.next_flow(0);
        let netns = self.context.server_netns.as_deref();
        thread::scope(|scope| {
            let kernel = scope.spawn(move || {
                netns::enter(netns)?;
                kernel(SocketAddr::from(flow.local))
            });
            let played = accept(flow).and_then(|mut tcp| peer(&mut tcp));
            let result = match kernel.join() {
                Ok(result) => result,
                Err(_) => bail!("the connecting thread panicked"),
            };
            played.and(result)
        })
    }

    /// As [`Peer::serve`]; the kernel's side transfers data over TCP in the end.
    pub(super) fn serve_exchange(
        &self,
        wire: &Socket,
        peer: impl FnOnce(&mut RawTcp<'_>) -> Result<()>,
    ) -> Result<Connected> {
        let context = self.context;
        self.serve(wire, |address| connect_and_exchange(context, address), peer)
    }

    /// Accepts a connection of the kernel to another port of this peer.
    pub(super) fn listen_at(
        &self,
        wire: &Socket,
        port: u16,
        peer: impl FnOnce(&mut RawTcp<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut flow = self.next_flow(0);
        flow.local.1 = port;
        RawTcp::accept(wire, flow).and_then(|mut tcp| peer(&mut tcp))
    }

    /// Exchanges a byte with the test server over TCP.
    pub(super) fn one_over_tcp(&self, tcp: &mut RawTcp<'_>) -> Result<()> {
        tcp.send(ONE)?;
        tcp.expect(ONE, ANSWER)
    }

    /// Runs all scripts, several in parallel; returns the results in the order of the scripts.
    pub(super) fn play_all(
        &self,
        scripts: &[Script],
        play: impl Fn(&Self, &Socket, &Script) -> Result<()> + Sync,
    ) -> Vec<Result<()>> {
        let next = AtomicUsize::new(0);
        let results = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            netns::enter(self.context.client_netns.as_deref())?;
            let wire = self.wire()?;
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                let Some(script) = scripts.get(i) else {
                    return Ok(());
                };
                let result = play(self, &wire, script);
                results.lock().unwrap().push((i, result));
            }
        };
        thread::scope(|scope| {
            for _ in 0..AT_ONCE {
                scope.spawn(|| work().expect("the wire can be had"));
            }
        });
        let mut results = results.into_inner().unwrap();
        results.sort_by_key(|(i, _)| *i);
        results.into_iter().map(|(_, result)| result).collect()
    }

    /// Runs a script as client of the kernel's listening socket.
    pub(super) fn play_client(&self, wire: &Socket, script: &Script) -> Result<()> {
        until_path_is_used(|| {
            let mut tcp = self.connect(wire)?;
            play(&mut tcp, script, false, |tcp| self.one_over_tcp(tcp))
        })
    }

    /// Runs a script as server of a connecting socket of the kernel.
    pub(super) fn play_server(&self, wire: &Socket, script: &Script) -> Result<()> {
        until_path_is_used(|| {
            let mut played = Played::Whole;
            let connected = self.serve_exchange(wire, |tcp| {
                played = play(tcp, script, true, answer_exchange)?;
                Ok(())
            })?;
            match (script.answer, connected) {
                (_, Connected::Exchanged(_)) if matches!(played, Played::PathAvoided) => Ok(()),
                (Answer::Lost(errno), Connected::Failed(got)) if got == errno => Ok(()),
                (Answer::OneOf(_), Connected::Failed(got)) if LOST.contains(&got) => Ok(()),
                (
                    Answer::Declined(_) | Answer::OneOf(_) | Answer::Tcp | Answer::Again,
                    Connected::Exchanged(result),
                ) => result,
                (_, Connected::Failed(errno)) => bail!("connect failed with {errno}"),
                (_, Connected::Exchanged(_)) => bail!("connect succeeded"),
            }?;
            Ok(played)
        })
    }
}

/// Plays until the kernel does not avoid the path.
fn until_path_is_used(mut play: impl FnMut() -> Result<Played>) -> Result<()> {
    for _ in 0..TRIES {
        match play()? {
            Played::Whole => return Ok(()),
            Played::PathAvoided => super::forget_paths()?,
        }
    }
    bail!("the kernel avoids the path, {TRIES} times")
}

/// TCP_MAXSEG of the kernel's client.
const MSS: u16 = 1000;

/// Connects the kernel to the peer.
fn connect_and_exchange(context: &Context, address: SocketAddr) -> Result<Connected> {
    let socket = context.family.open(context.addr)?;
    socket.set_timeout(ANSWER)?;
    socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_MAXSEG, MSS.into())?;
    if let Err(errno) = socket.connect(address) {
        return Ok(Connected::Failed(errno));
    }
    Ok(Connected::Exchanged(exchange(&socket)))
}

/// Transfers data over TCP.
pub(super) fn exchange(socket: &Socket) -> Result<()> {
    socket.send(PING, 0)?;
    let mut answer = [0; PONG.len()];
    socket.recv(&mut answer, libc::MSG_WAITALL)?;
    ensure!(answer == PONG, "the peer's data were changed");
    Ok(())
}

/// The peer's side of [`exchange`].
pub(super) fn answer_exchange(tcp: &mut RawTcp<'_>) -> Result<()> {
    tcp.expect(PING, ANSWER)?;
    tcp.send(PONG)
}

/// Executes the steps, then checks the kernel's answer. `reconnects` says whether the kernel is the client, which makes
/// another connection when it has no answer in time; `exchange` verifies that TCP works.
fn play<'w>(
    tcp: &mut RawTcp<'w>,
    script: &Script,
    reconnects: bool,
    exchange: impl Fn(&mut RawTcp<'w>) -> Result<()>,
) -> Result<Played> {
    let mut start = Instant::now();
    for step in &script.steps {
        start = Instant::now();
        match step {
            Step::Send(bytes) => tcp.send(bytes)?,
            Step::Drip(bytes) => drip(tcp, bytes, Duration::ZERO)?,
            Step::Trickle(bytes) => drip(tcp, bytes, TRICKLE)?,
            Step::Receive => {
                let message = tcp.message(ANSWER)?;
                let message = message.context("the kernel sent no message")?;
                if matches!(script.answer, Answer::OneOf(_)) && avoids_path(&message) {
                    tcp.reset()?;
                    return Ok(Played::PathAvoided);
                }
                ensure!(message[4] != TYPE_DECLINE, "it was {}", describe(&message));
            }
            Step::Close => tcp.close()?,
            Step::Reset => return tcp.reset().map(|()| Played::Whole),
        }
    }
    let result = judge(tcp, script, &exchange);
    let took = start.elapsed().as_secs();
    let end = tcp.end;
    tcp.reset()?;
    let played = result.with_context(|| format!("{took} s later, the stream being {end:?}"))?;
    let is_changed = matches!(script.answer, Answer::OneOf(_));
    ensure!(script.takes.contains(&took), "the answer took {took} s");
    let is_no_answer = took >= HANDSHAKE_S || script.is_other_protocol();
    let may_reconnect = reconnects && is_changed && end != End::Open && is_no_answer;
    if matches!(script.answer, Answer::Again) || may_reconnect {
        let mut other = tcp.again()?;
        ensure!(!other.peer_has_smc, "the kernel offers SMC again");
        let (before, now) = (tcp.peer_mss, other.peer_mss);
        ensure!(now == Some(MSS), "segments of {before:?}, then of {now:?}");
        exchange(&mut other)?;
        other.reset()?;
    }
    Ok(played)
}

/// Sends byte by byte, until the kernel closes the connection.
fn drip(tcp: &mut RawTcp<'_>, bytes: &[u8], pause: Duration) -> Result<()> {
    for byte in bytes {
        if tcp.listen(pause)? != End::Open {
            break;
        }
        tcp.send(&[*byte])?;
    }
    Ok(())
}

fn judge<'w>(
    tcp: &mut RawTcp<'w>,
    script: &Script,
    exchange: &impl Fn(&mut RawTcp<'w>) -> Result<()>,
) -> Result<Played> {
    match script.answer {
        Answer::Unseen => {}
        Answer::OneOf(ends) => match tcp.message(ANSWER)? {
            None => ensure!(
                tcp.end != End::Open,
                "the kernel has neither answered nor closed"
            ),
            Some(message) if message[4] == TYPE_DECLINE => {
                let is_due = ends.reasons.contains(&diagnosis(&message));
                if !is_due && avoids_path(&message) {
                    return Ok(Played::PathAvoided);
                }
                ensure!(is_due, "the kernel sent {}", describe(&message));
                if !script.closes() {
                    exchange(tcp)?;
                }
            }
            Some(message) => ensure!(
                ends.next == Some(message[4]),
                "the kernel sent {}",
                describe(&message)
            ),
        },
        Answer::Next(kind) => {
            let message = tcp.message(ANSWER)?.context("the kernel sent nothing")?;
            ensure!(message[4] == kind, "the kernel sent {}", describe(&message));
        }
        Answer::Lost(_) | Answer::Again => {
            if let Some(message) = tcp.message(ANSWER)? {
                bail!("the kernel sent {}", describe(&message));
            }
            ensure!(tcp.end != End::Open, "the kernel has not closed");
        }
        Answer::Declined(code) => {
            let message = tcp.message(ANSWER)?.context("the kernel sent nothing")?;
            let is_out_of_sync = message[7] & 0x08 != 0;
            ensure!(
                message[4] == TYPE_DECLINE
                    && diagnosis(&message) == code
                    && is_out_of_sync == (code == reason::SYNC_ERROR),
                "the kernel sent {} where a DECLINE for {code:#010x} is due",
                describe(&message)
            );
            if !script.crossing.is_empty() {
                tcp.send(&script.crossing)?;
            }
            exchange(tcp)?;
        }
        Answer::Tcp => exchange(tcp)?,
    }
    Ok(Played::Whole)
}

/// Whether this is what the kernel says while it avoids the path, or when nobody answers there.
fn avoids_path(message: &[u8]) -> bool {
    message[4] == TYPE_DECLINE && diagnosis(message) == reason::TIMEOUT_CONFIRM_LINK
}

/// Returns the reason of a DECLINE.
pub(super) fn diagnosis(message: &[u8]) -> u32 {
    let bytes = message.get(16..20).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u32::from_be_bytes)
}

fn describe(message: &[u8]) -> String {
    match message[4] {
        TYPE_DECLINE => format!("a DECLINE for {:#010x}", diagnosis(message)),
        kind => format!("{} bytes of type {kind}", message.len()),
    }
}

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(text.trim().to_string())
}
