// SPDX-License-Identifier: GPL-2.0

//! `smctest rawclc`: a peer that announces SMC and then sends invalid messages.
//!
//! For each, the kernel must answer as the protocol demands within the time limit of a handshake,
//! must keep serving other peers meanwhile, and must log nothing, which the runner checks. The peer
//! acts as client of a listening SMC socket, and as server of a connecting one.

mod busy;
mod calls;
mod client;
pub(crate) mod crowded;
mod frame;
pub(crate) mod hostile;
mod impostor;
mod iwarp;
mod late;
mod messages;
mod options;
mod other_link;
mod packet;
mod peer;
pub(crate) mod refuse;
mod roce;
mod script;
mod server;
pub(crate) mod strangers;
mod tcp;
mod version_one;

use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::job::Bulk;
use crate::job::Job;
use crate::ktap::Ktap;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

use messages::Messages;
use peer::Peer;
use peer::ANSWER;
use script::Peers;
use script::Script;

/// Addresses of the peer.
#[derive(clap::Args)]
struct Place {
    /// The peer's address, on the client's wire but not of its kernel
    #[arg(long)]
    raw_addr: Ipv4Addr,

    /// Network device of the client's namespace
    #[arg(long)]
    device: String,

    /// Hardware address of the server's end of the wire
    #[arg(long, value_parser = mac)]
    peer_mac: [u8; 6],
}

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,

    /// Random changes to try on each message
    #[arg(long, default_value_t = 20)]
    mutations: u32,

    /// Seed; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,

    /// Only scripts and tests whose name contains this
    #[arg(long, default_value = "")]
    only: String,

    /// Only the tests of links over iWARP; the devices must not support RoCE
    #[arg(long)]
    iwarp: bool,

    /// Only the tests of a peer that uses the identity of another one
    #[arg(long)]
    impostor: bool,

    /// Only the tests of odd options in SYN and SYN-ACK
    #[arg(long)]
    options: bool,

    /// Only the tests of a peer with two links; the server must have two RDMA devices
    #[arg(long)]
    links: bool,
}

/// A test that is not a script.
type Test = (&'static str, fn(&Peer<'_>, &Socket) -> Result<()>);

/// Tests that run before and between the scripts.
const BEFORE: &[Test] = &[(
    "the kernel takes this peer for one that speaks SMC",
    is_taken_for_smc,
)];
const BETWEEN: &[Test] = &[
    ("an ordinary connection afterwards", |peer, _| {
        ordinary(peer.context)
    }),
    ("silent peers do not delay an ordinary one", stall_others),
];
const AFTER: &[Test] = &[("an ordinary connection after all", |peer, _| {
    ordinary(peer.context)
})];

/// Runs all scripts and tests; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    println!("# rawclc: seed {seed}");
    let mut random = Random::new(seed);
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    let peer = Peer::new(context, &arguments.place)?;

    let mut peers = Peers::new(arguments.place.raw_addr);
    let is_wanted = |script: &Script| script.name.contains(&arguments.only);
    let mut as_client = client::scripts(&mut peers, arguments.mutations, &mut random);
    let mut as_server = server::scripts(&mut peers, arguments.mutations, &mut random);
    as_client.retain(is_wanted);
    as_server.retain(is_wanted);

    if arguments.iwarp || arguments.impostor || arguments.links || arguments.options {
        as_client.clear();
        as_server.clear();
    }
    let (between, calls): (&[&[Test]], &[&[Test]]) = match arguments {
        Arguments { iwarp: true, .. } => (&[], &[iwarp::TESTS]),
        Arguments { impostor: true, .. } => (&[impostor::TESTS], &[]),
        Arguments { options: true, .. } => (&[options::TESTS], &[]),
        Arguments { links: true, .. } => (&[other_link::TESTS], &[]),
        _ => (
            &[BETWEEN],
            &[late::TESTS, calls::TESTS, busy::TESTS, version_one::TESTS],
        ),
    };
    let chosen = |tests: &[&[Test]]| -> Vec<Test> {
        let all = tests.iter().copied().flatten().copied();
        all.filter(|(name, _)| name.contains(&arguments.only))
            .collect()
    };
    let parts = [&[BEFORE], between, calls, &[AFTER]].map(chosen);
    let [before, between, calls, after] = &parts;
    let count = parts.iter().map(Vec::len).sum::<usize>();
    let mut ktap = Ktap::start(count + as_client.len() + as_server.len());
    let try_all = |ktap: &mut Ktap, tests: &[Test]| {
        for (name, test) in tests {
            // The receive buffer of a packet socket that was not read for a while is full, and
            // drops frames.
            let result = forget_paths().and_then(|()| test(&peer, &peer.wire()?));
            ktap.result(name, text(result));
        }
    };

    try_all(&mut ktap, before);
    let results = peer.play_all(&as_client, Peer::play_client);
    report(&mut ktap, "client", &as_client, results);
    try_all(&mut ktap, between);
    let results = peer.play_all(&as_server, Peer::play_server);
    report(&mut ktap, "server", &as_server, results);
    try_all(&mut ktap, calls);
    try_all(&mut ktap, after);

    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

/// Makes the kernel forget the paths on which RDMA packets did not get through, by a change of
/// PNETIDs.
fn forget_paths() -> Result<()> {
    static ORDER: Mutex<()> = Mutex::new(());

    let _order = ORDER.lock().expect("no thread panicked");
    for order in [&["add", "RAWCLC", "-I", "lo"][..], &["flush"]] {
        let status = Command::new("smc").arg("pnet").args(order).status()?;
        ensure!(status.success(), "smc pnet {order:?} failed");
    }
    Ok(())
}

fn report(ktap: &mut Ktap, role: &str, scripts: &[Script], results: Vec<Result<()>>) {
    for (script, result) in scripts.iter().zip(results) {
        ktap.result(format!("{role}: {}", script.name), text(result));
    }
}

fn text(result: Result<()>) -> Result<(), String> {
    result.map_err(|error| format!("{error:#}"))
}

fn is_taken_for_smc(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let mut tcp = peer.connect(wire)?;
    ensure!(tcp.peer_has_smc, "the kernel's SYN-ACK has no SMC option");
    tcp.reset()
}

/// Peers that send nothing occupy a handshake for 6 s each. Other peers must be served meanwhile,
/// even if the silent ones are more than the backlog.
fn stall_others(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let listener = calls::listener(peer, |_| Ok(()), 4)?;
    let port = calls::port_of(&listener)?;
    let mut silent = Vec::new();
    for number in 0..20 {
        let mut tcp = peer.connect_to(wire, port)?;
        let messages = Messages::of(peer.address, 0x4000 + number);
        // Half of them stop in the middle of the PROPOSAL of a first contact.
        let part = if number % 2 == 0 { 20 } else { 156 };
        tcp.send(&messages.proposal[..part])?;
        silent.push(tcp);
        // Wait until the kernel has accepted the connection from TCP, whose backlog must not fill
        // up.
        thread::sleep(Duration::from_millis(100));
    }
    let start = Instant::now();
    let client = peer.context.family.open(peer.context.addr)?;
    client.set_timeout(ANSWER)?;
    let result = client.connect(SocketAddr::new(peer.context.addr, port));
    let took = start.elapsed();
    for tcp in &mut silent {
        tcp.reset()?;
    }
    result?;
    ensure!(
        took < Duration::from_secs(5),
        "it took {:.1} s",
        took.as_secs_f32()
    );
    let path = Path::of(&client)?;
    ensure!(path.is_smc(), "the path is {path}");
    Ok(())
}

/// Returns the number of the link group.
fn group_of(socket: &Socket) -> Result<u32> {
    match Path::of(socket)? {
        Path::SmcR(Some(group)) => Ok(group),
        path => bail!("the path is {path}"),
    }
}

/// Opens a connection between the two kernels, and transfers some data.
fn ordinary(context: &Context) -> Result<()> {
    let bulk = Bulk {
        seed: 1,
        up: 50_000,
        down: 50_000,
        chunk: 5_000,
    };
    let socket = context.connect()?;
    Job::Bulk(bulk).send(&socket)?;
    bulk.run_client(&socket)
}

fn mac(text: &str) -> Result<[u8; 6], String> {
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    bytes
        .and_then(|bytes| bytes.try_into().ok())
        .ok_or_else(|| format!("{text} is no hardware address"))
}
