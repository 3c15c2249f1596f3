// SPDX-License-Identifier: GPL-2.0

//! `smctest rawclc`: a peer that agrees to SMC and then sends nonsense.
//!
//! Whatever it sends, the kernel must answer with a message or the end of the connection within
//! the handshake's time limit, give other peers their connections meanwhile, and take no harm; the
//! runner looks at the kernel's log for the latter. The peer plays the client towards a listening
//! SMC socket, and the server towards a connecting one.

mod frame;
mod messages;
mod scripts;
mod tcp;

use std::fs;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
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
use crate::data::Random;
use crate::job::Bulk;
use crate::job::Job;
use crate::ktap::Ktap;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

use frame::Flow;
use messages::Messages;
use scripts::client_scripts;
use scripts::server_scripts;
use scripts::Script;
use scripts::Step;
use tcp::End;
use tcp::RawTcp;

/// Time for the kernel to answer: its own limit is 6 s, and a debug kernel is slow.
const ANSWER: Duration = Duration::from_secs(20);

/// Length of a message's header: what makes an answer.
const HEADER_LEN: usize = 8;

const ETH_P_IP: u16 = 0x0800;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The peer's address, on the client's wire but not of its kernel
    #[arg(long)]
    raw_addr: Ipv4Addr,

    /// Network device of the client's namespace
    #[arg(long)]
    device: String,

    /// Hardware address of the server's end of the wire
    #[arg(long, value_parser = mac)]
    peer_mac: [u8; 6],

    /// Random changes to try on each message
    #[arg(long, default_value_t = 30)]
    mutations: u32,

    /// Seed; a random one is taken and printed otherwise
    #[arg(long)]
    seed: Option<u64>,
}

/// The peer's place on the wire.
struct Peer<'a> {
    context: &'a Context,
    wire: Socket,
    flow: Flow,
    messages: Messages,
}

/// Plays all parts; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let seed = arguments.seed.unwrap_or_else(Random::fresh_seed);
    println!("# rawclc: seed {seed}");
    let mut random = Random::new(seed);
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    let mut peer = Peer::new(context, arguments)?;

    let messages = &peer.messages;
    let as_client = client_scripts(messages, arguments.mutations, &mut random);
    let as_server = server_scripts(messages, arguments.mutations, &mut random);
    let mut ktap = Ktap::start(as_client.len() + as_server.len() + 4);

    let result = peer.is_taken_for_smc();
    ktap.result(
        "the kernel takes this peer for one that speaks SMC",
        text(result),
    );
    for (name, script) in &as_client {
        ktap.result(format!("client: {name}"), text(peer.play_client(script)));
    }
    ktap.result("an ordinary connection afterwards", text(ordinary(context)));
    ktap.result(
        "silent peers do not delay an ordinary one",
        text(peer.stall_others()),
    );
    for (name, script) in &as_server {
        ktap.result(format!("server: {name}"), text(peer.play_server(script)));
    }
    ktap.result("an ordinary connection after all", text(ordinary(context)));

    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn text(result: Result<()>) -> Result<(), String> {
    result.map_err(|error| format!("{error:#}"))
}

impl<'a> Peer<'a> {
    fn new(context: &'a Context, arguments: &Arguments) -> Result<Self> {
        let IpAddr::V4(server) = context.addr else {
            bail!("this peer knows IPv4 only");
        };
        let path = format!("/sys/class/net/{}", arguments.device);
        let index: u32 = read(&format!("{path}/ifindex"))?.parse()?;
        let address = read(&format!("{path}/address"))?;
        let local_mac = mac(&address).map_err(anyhow::Error::msg)?;

        let protocol = i32::from(ETH_P_IP.to_be());
        let wire = Socket::open(libc::AF_PACKET, libc::SOCK_RAW, protocol)?;
        wire.bind(Address::of_link(ETH_P_IP, index))?;
        Ok(Self {
            context,
            wire,
            flow: Flow {
                local_mac,
                peer_mac: arguments.peer_mac,
                local: (arguments.raw_addr, 20_000),
                peer: (server, context.port),
            },
            messages: Messages::of(arguments.raw_addr),
        })
    }

    /// A port of its own for each connection, so that none takes another's late segments.
    fn next_flow(&mut self) -> Flow {
        self.flow.local.1 += 1;
        self.flow
    }

    fn is_taken_for_smc(&mut self) -> Result<()> {
        let flow = self.next_flow();
        let mut tcp = RawTcp::connect(&self.wire, flow)?;
        ensure!(tcp.peer_has_smc, "the kernel's SYN-ACK has no SMC option");
        tcp.reset()
    }

    fn play_client(&mut self, script: &Script) -> Result<()> {
        let flow = self.next_flow();
        let mut tcp = RawTcp::connect(&self.wire, flow)?;
        play(&mut tcp, script)
    }

    /// Connects a kernel socket of the server's namespace to this peer.
    fn play_server(&mut self, script: &Script) -> Result<()> {
        let mut flow = self.next_flow();
        flow.peer.1 = 0;
        let address = SocketAddr::from(flow.local);
        let context = self.context;
        let wire = &self.wire;

        thread::scope(|scope| {
            let kernel = scope.spawn(move || {
                netns::enter(context.server_netns.as_deref())?;
                connect_and_close(context, address)
            });
            let played = RawTcp::accept(wire, flow).and_then(|mut tcp| play(&mut tcp, script));
            match kernel.join() {
                Ok(result) => result?,
                Err(_) => bail!("the connecting thread panicked"),
            }
            played
        })
    }

    /// Peers that say nothing occupy the kernel for 6 s each; others must not notice.
    fn stall_others(&mut self) -> Result<()> {
        let mut silent = Vec::new();
        for _ in 0..20 {
            let mut flow = self.flow;
            flow.local.1 += 1;
            self.flow = flow;
            let mut tcp = RawTcp::connect(&self.wire, flow)?;
            tcp.send(&self.messages.proposal[..20])?;
            silent.push(tcp);
        }
        let start = Instant::now();
        let result = ordinary(self.context);
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
        Ok(())
    }
}

/// Plays the steps, then waits for the kernel's answer: a message or the end.
fn play(tcp: &mut RawTcp<'_>, script: &Script) -> Result<()> {
    let mut is_over = false;
    for step in script {
        match step {
            Step::Send(bytes) => tcp.send(bytes)?,
            Step::Drip(bytes) => {
                for byte in bytes {
                    tcp.send(&[*byte])?;
                    thread::sleep(Duration::from_millis(2));
                }
            }
            Step::Receive => drop(tcp.receive(HEADER_LEN, ANSWER)?.len()),
            Step::Close => tcp.close()?,
            Step::Reset => {
                tcp.reset()?;
                is_over = true;
            }
        }
    }
    if is_over {
        return Ok(());
    }
    let answer = tcp.receive(usize::MAX, ANSWER)?.len();
    let end = tcp.end;
    tcp.reset()?;
    ensure!(
        answer >= HEADER_LEN || end != End::Open,
        "{} s later the kernel has neither answered nor closed",
        ANSWER.as_secs()
    );
    Ok(())
}

/// The kernel's side of a connection to the peer: an error, TCP, or a closed connection.
fn connect_and_close(context: &Context, address: SocketAddr) -> Result<()> {
    let socket = context.family.open(context.addr)?;
    socket.set_timeout(ANSWER)?;
    let start = Instant::now();
    if socket.connect(address).is_ok() {
        // The peer's closing ends the connection, whatever it had become.
        match socket.recv(&mut [0; 100], 0) {
            Err(Errno::EAGAIN) => {}
            Ok(_) | Err(_) => return Ok(()),
        }
    }
    let took = start.elapsed();
    ensure!(
        took < 2 * ANSWER,
        "the connection took {} s",
        took.as_secs()
    );
    Ok(())
}

/// A connection of two kernels, with some data.
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

fn read(path: &str) -> Result<String> {
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    Ok(text.trim().to_string())
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
