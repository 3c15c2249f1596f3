// SPDX-License-Identifier: GPL-2.0

//! A peer that uses the identity (system ID, address) of another one, the victim. Since its address
//! differs, it must get a link group of its own, and must not affect the link group, connections or
//! data of the victim.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_tools::view::Module;
use smc_user::Socket;

use crate::job::Bulk;
use crate::job::Job;
use crate::netns;

use super::frame::Segment;
use super::group_of;
use super::messages::with_bytes;
use super::messages::Messages;
use super::messages::EYE_CATCHER;
use super::messages::PEER_ID;
use super::messages::TYPE_DECLINE;
use super::messages::TYPE_PROPOSAL;
use super::peer::answer_exchange;
use super::peer::diagnosis;
use super::peer::Connected;
use super::peer::Peer;
use super::peer::ANSWER;
use super::script::reason;
use super::Test;

/// Less than a server waits for a silent peer.
const PROMPT: Duration = Duration::from_secs(4);

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(50);

/// More than a server waits for a silent link.
const SILENCE: Duration = Duration::from_secs(12);

/// Offsets in ACCEPT and CONFIRM, as in `net/smc/proto/wire/clc/accept/raw.rs`.
const QP: usize = 38;
const RKEY: usize = 41;
const TOKEN: usize = 46;

/// Offset of the flags, and the flag: first contact in ACCEPT and CONFIRM, out of sync in DECLINE.
const FLAGS: usize = 7;
const FLAG: u8 = 0x08;

pub(super) const TESTS: &[Test] = &[
    // First, while the victim has no link group.
    ("its silence holds up nobody else", silent),
    ("a decline that knows the link group of another", declines),
    ("a confirm with the token of another", confirms),
    ("a server that names the link group of another", serves),
    (
        "a link group that its peer itself gave up is replaced",
        itself,
    ),
];

/// The peer whose identity is used.
struct Victim {
    address: Ipv4Addr,
    identity: Vec<u8>,
}

impl Victim {
    /// Returns the victim: the kernel of this namespace.
    fn find(peer: &Peer<'_>) -> Result<Self> {
        let tap = peer.tap()?;
        let probe = peer.context.connect()?;
        let IpAddr::V4(address) = probe.local_address()?.to_ip().context("no address")?.ip() else {
            bail!("this peer knows IPv4 only");
        };
        Ok(Self {
            address,
            identity: identity(&tap, peer.flow_of(peer.context.port).peer)?,
        })
    }

    /// Returns the messages that the victim would send.
    fn messages(&self) -> Messages {
        let named = |message: &[u8]| with_bytes(message, PEER_ID, &self.identity);
        let messages = Messages::of(self.address, 0);
        Messages {
            proposal: named(&messages.proposal),
            reuse: named(&messages.reuse),
            confirm: named(&messages.confirm),
            ..messages
        }
    }
}

/// Returns the system ID in the last PROPOSAL to the server on the wire. A kernel names another one to each address.
fn identity(tap: &Socket, server: (Ipv4Addr, u16)) -> Result<Vec<u8>> {
    let mut frame = vec![0; 1 << 16];
    let mut identity = None;
    while let Ok(len) = tap.recv(&mut frame, libc::MSG_DONTWAIT) {
        let segment = Segment::parse(frame.get(..len).unwrap_or_default(), server);
        let Some(Segment { data, .. }) = segment else {
            continue;
        };
        if data.starts_with(&EYE_CATCHER) && data.get(EYE_CATCHER.len()) == Some(&TYPE_PROPOSAL) {
            identity = data.get(PEER_ID..PEER_ID + 8).map(<[u8]>::to_vec);
        }
    }
    identity.context("no proposal on the wire")
}

/// Waits until no link group is left; the script has them end soon after their last connection.
fn await_no_groups() -> Result<()> {
    let start = Instant::now();
    while !Module::open()?.groups()?.is_empty() {
        ensure!(start.elapsed() < ANSWER, "link groups stay");
        thread::sleep(LOOK);
    }
    Ok(())
}

fn silent(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let victim = Victim::find(peer)?;
    await_no_groups()?;
    let mut tcp = peer.connect(wire)?;
    tcp.send(&victim.messages().proposal)?;
    let accept = tcp.message(ANSWER)?.context("no accept")?;
    ensure!(accept[FLAGS] & FLAG != 0, "there is a group already");
    let start = Instant::now();
    let socket = peer.context.connect()?;
    let took = start.elapsed();
    let local = socket.local_address()?.to_ip().context("no address")?;
    ensure!(
        local.ip() == victim.address,
        "the victim is at {}",
        local.ip()
    );
    tcp.reset()?;
    println!("# impostor: the victim's first contact took {took:.1?}");
    ensure!(took < PROMPT, "it took {took:.1?}");
    ensure!(Path::of(&socket)?.is_smc(), "it went over TCP");
    Ok(())
}

/// Runs an attack while the victim's connection transfers data; returns its result. Checks that
/// link group, connection and data are unaffected.
fn during_transfer<R>(peer: &Peer<'_>, attack: impl FnOnce(u32) -> Result<R>) -> Result<R> {
    let bulk = Bulk {
        seed: 7,
        up: 2_000_000,
        down: 2_000_000,
        chunk: 20_000,
    };
    let socket = peer.context.connect()?;
    let group = group_of(&socket)?;
    let netns = peer.context.client_netns.as_deref();
    thread::scope(|scope| {
        let transfer = scope.spawn(|| {
            netns::enter(netns)?;
            Job::Bulk(bulk).send(&socket)?;
            bulk.run_client(&socket)
        });
        let result = attack(group);
        let transferred = transfer.join();
        let learnt = result?;
        match transferred {
            Ok(done) => done.context("the victim's transfer")?,
            Err(_) => bail!("the transferring thread panicked"),
        }
        let after = group_of(&peer.context.connect()?)?;
        ensure!(after == group, "group {group} has become {after}");
        println!("# impostor: 4000000 bytes of group {group:#x} arrived whole");
        Ok(learnt)
    })
}

/// Returns the queue pairs of a device that are in state RTS.
fn queue_pairs(device: &str) -> Result<Vec<u32>> {
    let output = Command::new("rdma")
        .args(["resource", "show", "qp", "link", &format!("{device}/1")])
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let up = text.lines().filter(|line| line.contains("state RTS"));
    let numbers = up.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "lqpn")?;
        words.next()?.parse().ok()
    });
    Ok(numbers.collect())
}

pub(super) fn number(message: &[u8], at: usize, len: usize) -> u32 {
    let bytes = &message[at..at + len];
    bytes
        .iter()
        .fold(0, |all, byte| all << 8 | u32::from(*byte))
}

fn declines(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let victim = Victim::find(peer)?;
    let messages = victim.messages();
    during_transfer(peer, |_| {
        let in_use = queue_pairs("rxe_b")?;
        ensure!(!in_use.is_empty(), "no queue pair is up");
        for _ in 0..3 {
            let mut tcp = peer.connect(wire)?;
            tcp.send(&messages.proposal)?;
            let accept = tcp.message(ANSWER)?.context("no accept")?;
            let qp = number(&accept, QP, 3);
            println!(
                "# impostor: told of queue pair {qp}, key {:#x}; those in use are {in_use:?}",
                number(&accept, RKEY, 4)
            );
            // Complete the attack before judging the ACCEPT.
            let is_own = accept[FLAGS] & FLAG != 0 && !in_use.contains(&qp);
            tcp.send(&messages.decline_v1)?;
            peer.one_over_tcp(&mut tcp)?;
            tcp.reset()?;
            ensure!(is_own, "it was told of the victim's link group");
        }
        Ok(())
    })
}

fn confirms(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let victim = Victim::find(peer)?;
    let messages = victim.messages();
    during_transfer(peer, |_| {
        let mut tcp = peer.connect(wire)?;
        tcp.send(&messages.proposal)?;
        let accept = tcp.message(ANSWER)?.context("no accept")?;
        // Both ends are on one machine: the last token is that of the server, the one before of the
        // victim's client.
        let token = number(&accept, TOKEN, 4) - 1;
        let qp = queue_pairs("rxe_a")?.last().copied().unwrap_or_default();
        println!("# impostor: confirms with token {token}, queue pair {qp}");
        let confirm = with_bytes(&messages.confirm, TOKEN, &token.to_be_bytes());
        let confirm = with_bytes(&confirm, RKEY, &[1, 2, 3, 4]);
        let confirm = with_bytes(&confirm, QP, &qp.to_be_bytes()[1..]);
        tcp.send(&confirm)?;
        // This must be a first contact, which fails since nothing arrives on its link. If the
        // kernel took the connection for one of the victim's link group, it would send no DECLINE,
        // but data to that token on that link.
        let answer = tcp.message(SILENCE)?;
        tcp.reset()?;
        let answer = answer.context("the kernel took the confirm")?;
        ensure!(answer[4] == TYPE_DECLINE, "it was no decline");
        Ok(())
    })
}

/// The kernel of the server's namespace connects to the victim in the client's namespace, then to
/// the impostor.
fn serves(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let victim = Victim::find(peer)?;
    let address = SocketAddr::from((victim.address, 7100));
    let family = peer.context.family;
    let listener = family.open(address.ip())?;
    listener.bind(address)?;
    listener.listen(4)?;
    let connect = || {
        netns::inside(peer.context.server_netns.as_deref(), || {
            let socket = family.open(address.ip())?;
            socket.set_timeout(ANSWER)?;
            socket.connect(address)?;
            let group = group_of(&socket)?;
            Ok((socket, group))
        })
    };
    let (client, group) = connect()?;
    let server = listener.accept(0)?;
    // In flight during the attack.
    client.send(&[b'V'; 50_000], 0)?;
    let messages = victim.messages();
    let mut reasons = Vec::new();
    let in_use = queue_pairs("rxe_a")?;
    ensure!(!in_use.is_empty(), "no queue pair is up");
    for qp in in_use {
        let reuse = with_bytes(&messages.reuse, QP, &qp.to_be_bytes()[1..]);
        let connected = peer.serve_exchange(wire, |tcp| {
            tcp.message(ANSWER)?.context("no proposal")?;
            tcp.send(&reuse)?;
            let answer = tcp.message(ANSWER)?.context("no answer")?;
            ensure!(
                answer[4] == TYPE_DECLINE,
                "queue pair {qp}: the kernel joined the victim's group"
            );
            reasons.push((diagnosis(&answer), answer[FLAGS] & FLAG != 0));
            answer_exchange(tcp)
        })?;
        match connected {
            Connected::Exchanged(result) => result?,
            Connected::Failed(errno) => bail!("connect failed with {errno}"),
        }
    }
    println!("# impostor: declined for {reasons:x?}");
    ensure!(
        reasons.contains(&(reason::NO_SERVER_LINK, false)),
        "no queue pair was that of the group"
    );
    let mut received = vec![0; 50_000];
    let mut len = 0;
    while len < received.len() {
        len += server.recv(&mut received[len..], 0)?;
    }
    ensure!(received.iter().all(|byte| *byte == b'V'), "bytes changed");
    server.send(b"still here", 0)?;
    let mut answer = [0; 10];
    client.recv(&mut answer, libc::MSG_WAITALL)?;
    ensure!(&answer == b"still here", "bytes changed");
    let (_, after) = connect()?;
    ensure!(after == group, "group {group} has become {after}");
    Ok(())
}

/// The same messages from the peer's real address are valid. The kernel of that address, which does
/// not know this connection, must not reset it.
fn itself(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let victim = Victim::find(peer)?;
    let messages = victim.messages();
    let before = peer.context.connect()?;
    let group = group_of(&before)?;
    let _quiet = Quiet::begin()?;
    let mut tcp = peer.connect_from(wire, victim.address)?;
    tcp.send(&messages.proposal)?;
    let accept = tcp.message(ANSWER)?.context("no accept")?;
    ensure!(accept[FLAGS] & FLAG == 0, "the group was not found again");
    tcp.send(&messages.decline_v1)?;

    // The link group ends, and with it the connection.
    before.set_timeout(ANSWER)?;
    let _ = before.recv(&mut [0], 0);
    tcp.reset()?;
    let after = peer.context.connect()?;
    ensure!(group_of(&after)? != group, "the group is still in use");
    super::ordinary(peer.context)
}

/// Drops the TCP resets that the kernel of this namespace sends.
struct Quiet;

impl Quiet {
    fn begin() -> Result<Self> {
        let quiet = Self;
        nft("add table inet impostor")?;
        nft("add chain inet impostor out { type filter hook output priority 0 ; }")?;
        nft("add rule inet impostor out tcp sport 20000-30000 tcp flags & rst == rst drop")?;
        Ok(quiet)
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        let _ = nft("delete table inet impostor");
    }
}

fn nft(command: &str) -> Result<()> {
    let status = Command::new("nft").arg(command).status()?;
    ensure!(status.success(), "nft {command}: {status}");
    Ok(())
}
