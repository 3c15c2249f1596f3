// SPDX-License-Identifier: GPL-2.0

//! `smctest strangers`: first contacts, each with another identity, whose link groups remain
//! unused.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::view::Module;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

use super::messages::with_bytes;
use super::messages::Messages;
use super::messages::TYPE_DECLINE;
use super::peer::diagnosis;
use super::peer::Peer;
use super::peer::ANSWER;
use super::roce::Adapter;
use super::tcp::RawTcp;
use super::Place;

/// Offsets in ACCEPT and CONFIRM: queue pair number, alert token, and first packet sequence number.
const QUEUE_PAIR: usize = 38;
const TOKEN: usize = 46;
const FIRST_NUMBER: usize = 61;

/// The reason when too many link groups are declined: out of memory.
const DECLINE_MEMORY: u32 = 0x0101_0000;

/// Concurrent first contacts.
const AT_ONCE: usize = 4;

/// Time from our last message of a first contact until the kernel's side has accepted the
/// connection.
const SETTLED: Duration = Duration::from_millis(50);

/// Interval between counts of the kernel's link groups.
const LOOK: Duration = Duration::from_millis(200);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,

    /// First contacts
    #[arg(long, default_value_t = 200)]
    count: usize,

    /// Number of consecutive source addresses, beginning with the peer's own
    #[arg(long, default_value_t = 1)]
    addresses: u8,

    /// Do not answer the end of a connection
    #[arg(long)]
    silent: bool,

    /// The most link groups that there may be at any time
    #[arg(long)]
    most: usize,

    /// A shell command, run while the first connection that is declined lasts; there has to be one
    #[arg(long, value_name = "COMMAND")]
    declined: Option<String>,
}

/// Results of the first contacts.
#[derive(Default)]
struct Counts {
    next: AtomicUsize,
    begun: AtomicUsize,
    declined: AtomicUsize,
    is_over: AtomicBool,
}

/// Runs all first contacts; fails if there were too many link groups at any time, or one fails for
/// another reason than their number.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    let places = (0..arguments.addresses).map(|i| {
        let first = u32::from(arguments.place.raw_addr);
        Place {
            raw_addr: Ipv4Addr::from(first + u32::from(i)),
            device: arguments.place.device.clone(),
            ..arguments.place
        }
    });
    let peers = places
        .map(|place| Peer::new(context, &place))
        .collect::<Result<Vec<_>>>()?;
    let adapters: Vec<_> = peers
        .iter()
        .map(|peer| Adapter::new(peer.flow_of(0), arguments.silent))
        .collect();
    let counts = Counts::default();
    let start = Instant::now();
    let most = thread::scope(|scope| {
        for (peer, adapter) in peers.iter().zip(&adapters) {
            let is_over = &counts.is_over;
            scope.spawn(move || serve(peer, adapter, is_over));
        }
        let counter = scope.spawn(|| count_groups(&counts.is_over));
        let workers = [(); AT_ONCE].map(|()| {
            let (peers, adapters, counts) = (&peers, &adapters, &counts);
            scope.spawn(move || contacts(peers, adapters, arguments, counts))
        });
        let results = workers.map(|worker| worker.join());
        counts.is_over.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("a thread panicked")?;
        }
        counter.join().expect("a thread panicked")
    })?;
    println!(
        "# {} first contacts from {} addresses in {:.1} s: {} made a link group, {} went over TCP; \
         at most {most} groups at a time, {} allowed",
        arguments.count,
        arguments.addresses,
        start.elapsed().as_secs_f32(),
        counts.begun.load(Ordering::Relaxed),
        counts.declined.load(Ordering::Relaxed),
        arguments.most,
    );
    ensure!(
        counts.begun.load(Ordering::Relaxed) > 0,
        "not one made a link group"
    );
    ensure!(most <= arguments.most, "there were too many link groups");
    ensure!(
        arguments.declined.is_none() || counts.declined.load(Ordering::Relaxed) > 0,
        "not one was declined"
    );
    Ok(())
}

/// Answers for the RDMA device of an address, until the test is over.
pub(super) fn serve(peer: &Peer<'_>, adapter: &Adapter, is_over: &AtomicBool) -> Result<()> {
    netns::enter(peer.context.client_netns.as_deref())?;
    let wire = peer.wire()?;
    while !is_over.load(Ordering::Relaxed) {
        adapter.serve(&wire, LOOK)?;
    }
    Ok(())
}

/// Makes first contacts, until all threads together have made as many as wanted.
fn contacts(
    peers: &[Peer<'_>],
    adapters: &[Adapter],
    arguments: &Arguments,
    counts: &Counts,
) -> Result<()> {
    let context = peers.first().context("no peer")?.context;
    netns::enter(context.client_netns.as_deref())?;
    loop {
        let number = counts.next.fetch_add(1, Ordering::Relaxed);
        if number >= arguments.count {
            return Ok(());
        }
        let i = number % peers.len();
        if let Some((peer, adapter)) = peers.get(i).zip(adapters.get(i)) {
            let wire = peer.wire()?;
            let at_decline = arguments.declined.as_deref();
            contact(peer, adapter, &wire, number, counts, at_decline)
                .with_context(|| format!("first contact {number}"))?;
        }
    }
}

/// Counts the link groups periodically; returns the maximum.
fn count_groups(is_over: &AtomicBool) -> Result<usize> {
    let mut most = 0;
    while !is_over.load(Ordering::Relaxed) {
        most = most.max(Module::open()?.groups()?.len());
        thread::sleep(LOOK);
    }
    Ok(most)
}

/// Makes one first contact, whose connection is reset once it is established.
fn contact(
    peer: &Peer<'_>,
    adapter: &Adapter,
    wire: &Socket,
    number: usize,
    counts: &Counts,
    at_decline: Option<&str>,
) -> Result<()> {
    let identity = u16::try_from(number + 1)?;
    let own = 0x01_0000 + u32::from(identity);
    let messages = Messages::of(peer.address, identity);
    let mut tcp = peer.connect(wire)?;
    tcp.send(&messages.proposal)?;
    let accept = tcp.message(ANSWER)?.context("no answer to the proposal")?;
    if accept[4] == TYPE_DECLINE {
        ensure!(
            diagnosis(&accept) == DECLINE_MEMORY,
            "declined for {:#010x}",
            diagnosis(&accept)
        );
        let is_first = counts.declined.fetch_add(1, Ordering::Relaxed) == 0;
        if let Some(command) = at_decline.filter(|_| is_first) {
            thread::sleep(SETTLED);
            let status = Command::new("sh").args(["-c", command]).status()?;
            ensure!(status.success(), "{command}: {status}");
        }
        return tcp.reset();
    }
    confirm(&mut tcp, adapter, own, &accept, &messages)?;
    thread::sleep(SETTLED);
    counts.begun.fetch_add(1, Ordering::Relaxed);
    tcp.reset()
}

/// Confirms a first contact on queue pair `own`; returns when the kernel has our CONFIRM LINK.
pub(super) fn confirm(
    tcp: &mut RawTcp<'_>,
    adapter: &Adapter,
    own: u32,
    accept: &[u8],
    messages: &Messages,
) -> Result<()> {
    let number = |at: usize| u32::from_be_bytes([0, accept[at], accept[at + 1], accept[at + 2]]);
    let token = accept[TOKEN..TOKEN + 4].try_into()?;
    adapter.connect(own, number(QUEUE_PAIR), number(FIRST_NUMBER), token);
    let confirm = with_bytes(&messages.confirm, QUEUE_PAIR, &own.to_be_bytes()[1..]);
    let confirm = with_bytes(&confirm, FIRST_NUMBER, &[0; 3]);
    tcp.send(&confirm)?;
    let start = Instant::now();
    while !adapter.is_confirmed(own) {
        ensure!(start.elapsed() < ANSWER, "no CONFIRM_LINK over RDMA");
        thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}
