// SPDX-License-Identifier: GPL-2.0
//! Two machines that set up connections: the handshake over TCP, then link groups and their links.
//!
//! A [`Machine`] carries out what the core decides, as the kernel module does: it finds ports and
//! groups, sends bytes, keeps timers. Every message crosses [`super::net`] as bytes. Channels up to
//! 99 are links, the others TCP connections.

use std::collections::{
    BTreeMap,
    VecDeque, //
};

use smc_proto::handshake::client::{
    self,
    Proposed,
    V1Port,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::select::Route;
use smc_proto::handshake::server::{
    AcceptSent,
    Chosen, //
};
use smc_proto::handshake::{
    self,
    Failure,
    Fatal, //
};
use smc_proto::id::{
    AlertToken,
    Gid,
    Ipv4,
    LinkNum,
    Mac,
    PeerId, //
};
use smc_proto::lgr::find::LinkEnds;
use smc_proto::lgr::rtoken::RtokenEntry;
use smc_proto::lgr::{
    LinkMap,
    Role,
    Rtoken,
    RtokenIdx, //
};
use smc_proto::llc::{
    Llc,
    LocalEnd, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Instant;
use smc_proto::wire::clc::{
    Decline,
    Head,
    Limits,
    SmcR, //
};
use smc_proto::wire::Version;

use super::net::{
    Event,
    Net, //
};
use super::Side;

mod clc;
mod group;

/// What a machine has, and which of its steps work.
#[derive(Clone, Debug)]
pub struct Config {
    pub peer_id: PeerId,
    pub v1: Option<V1Port>,
    pub v2: Option<V2Port>,
    /// Address of the interface, and length of its mask; none if it has none.
    pub address: Option<(Ipv4, u8)>,
    pub eids: Ueids,
    pub limits: Limits,
    pub has_ipsec: bool,
    pub has_interface: bool,
    /// How the other machine is reached.
    pub route: Option<Route>,
    pub has_memory: bool,
    pub link_gets_ready: bool,
    pub buffer_registers: bool,
    /// Rows in the table of the peer's buffers.
    pub rows: usize,
    /// Elements in an RMB: so many connections need one announcement.
    pub elements: u8,
    /// Changes every outgoing CLC message.
    pub mangle_clc: fn(&mut Vec<u8>),
    /// Changes every outgoing LLC message.
    pub mangle_llc: fn(&mut Vec<u8>),
}

impl Config {
    /// A machine with a port that can do both versions.
    pub fn new(side: Side) -> Self {
        let number = side.index() as u8 + 1;
        let mac = Mac([2, 0, 0, 0, 0, number]);
        let address = Ipv4([192, 168, 1, number]);
        let mut v1_gid = [0; 16];
        v1_gid[0] = 0xfe;
        v1_gid[1] = 0x80;
        v1_gid[15] = number;
        Self {
            peer_id: PeerId::new([0xa0, number], mac),
            v1: Some(V1Port {
                gid: Gid(v1_gid),
                mac,
            }),
            v2: Some(V2Port {
                gid: Gid::from_ipv4(address),
                mac,
            }),
            address: Some((address, 24)),
            eids: Ueids::DEFAULT,
            limits: Limits {
                max_conns: 255,
                max_links: 1,
            },
            has_ipsec: false,
            has_interface: true,
            route: Some(Route::Direct),
            has_memory: true,
            link_gets_ready: true,
            buffer_registers: true,
            rows: 16,
            elements: 1,
            mangle_clc: |_| {},
            mangle_llc: |_| {},
        }
    }
}

/// How a connection ended up at one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Smc(Joined),
    Fallback(Reason),
    /// The client makes another TCP connection.
    Reconnects(Reason),
    Failed(Fatal),
    /// It used SMC and lost its link group.
    Aborted,
}

/// A connection that uses SMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub group: usize,
    pub first: bool,
    pub version: Version,
    pub link_num: LinkNum,
    pub limits: Limits,
    pub local: SmcR,
    pub peer: SmcR,
    /// Where it writes.
    pub target: Rtoken,
}

pub struct Conn {
    stage: Stage,
    deadline: Option<Instant>,
    inbox: VecDeque<Vec<u8>>,
    received: Option<Version>,
    first: bool,
    group: Option<usize>,
    local: Option<SmcR>,
    peer: Option<SmcR>,
    row: Option<RtokenIdx>,
    /// When a first contact that came to nothing is declined.
    patience: Instant,
    /// A DECLINE of ours left when the peer might send one, too.
    may_cross: bool,
    pub outcome: Option<Outcome>,
}

enum Stage {
    /// Server: nothing was received.
    Fresh,
    Proposed(Proposed<'static>),
    /// Server: the buffer is being announced, then the ACCEPT goes out.
    Announcing(Chosen),
    Accepted(AcceptSent),
    /// Client: the buffer is being announced, then the CONFIRM goes out.
    Confirming(client::Accepted),
    /// A DECLINE may come instead.
    FirstContact,
    /// The link is silent; a DECLINE may come.
    Silence,
    Done,
}

pub struct Group {
    pub llc: Llc,
    link: Option<LocalEnd>,
    role: Role,
    peer: PeerId,
    pub links: LinkMap<LinkNum>,
    pub ends: LinkEnds,
    channel: u8,
    rows: Vec<RtokenEntry>,
    pub limits: Limits,
    pub is_alive: bool,
    /// The connection whose flow is under way, and those that wait for it.
    owner: Option<u8>,
    waiting: VecDeque<u8>,
    conns: usize,
    rmbs: Vec<Rmb>,
    last_token: AlertToken,
    /// When the group's timer is due.
    due: Option<Instant>,
}

struct Rmb {
    rtoken: Rtoken,
    used: u8,
    is_announced: bool,
}

pub type Wire = Net<Vec<u8>>;

pub struct Machine {
    pub side: Side,
    pub config: &'static Config,
    pub groups: Vec<Group>,
    pub conns: BTreeMap<u8, Conn>,
    /// Reasons that went out in DECLINE messages.
    pub declined: Vec<Decline>,
    next_channel: u8,
    next_key: u32,
}

/// Both machines and what is between them.
pub struct World {
    pub net: Wire,
    pub machines: [Machine; 2],
    next_conn: u8,
}

impl World {
    pub fn new(seed: u64, client: Config, server: Config) -> Self {
        Self {
            net: Net::new(seed),
            machines: [
                Machine::new(Side::Client, client),
                Machine::new(Side::Server, server),
            ],
            next_conn: 100,
        }
    }

    /// Two equal machines, after `change`.
    pub fn with(seed: u64, change: impl FnOnce(&mut Config, &mut Config)) -> Self {
        let mut client = Config::new(Side::Client);
        let mut server = Config::new(Side::Server);
        change(&mut client, &mut server);
        Self::new(seed, client, server)
    }

    pub fn machine(&mut self, side: Side) -> &mut Machine {
        &mut self.machines[side.index()]
    }

    /// Opens a TCP connection and starts the handshake on it.
    pub fn connect(&mut self) -> u8 {
        let id = self.next_conn;
        self.next_conn += 1;
        let [client, server] = &mut self.machines;
        server.accept(id, &mut self.net);
        client.connect(id, &mut self.net);
        id
    }

    /// Runs until nothing is under way.
    pub fn run(&mut self) {
        for _ in 0..100_000 {
            if !self.step() {
                return;
            }
        }
        panic!("the machines do not come to rest");
    }

    pub fn step(&mut self) -> bool {
        let Some(event) = self.net.step() else {
            return false;
        };
        match event {
            Event::Arrived(packet) => {
                let machine = &mut self.machines[packet.from.peer().index()];
                if packet.channel < 100 {
                    if !machine.on_link(packet.channel, &packet.message, &mut self.net) {
                        // Nobody acknowledges, so the sender's queue pair fails.
                        let sender = &mut self.machines[packet.from.index()];
                        sender.link_failed(packet.channel, &mut self.net);
                    }
                } else {
                    machine.on_tcp(packet.channel, packet.message, &mut self.net);
                }
            }
            Event::Timer { side, .. } => {
                self.machines[side.index()].on_timer(&mut self.net);
            }
        }
        true
    }

    /// Connects and runs; returns both outcomes, client first.
    pub fn outcomes(&mut self) -> [Outcome; 2] {
        let id = self.connect();
        self.run();
        self.outcomes_of(id)
    }

    pub fn outcomes_of(&self, id: u8) -> [Outcome; 2] {
        [0, 1].map(|side| {
            let conn = &self.machines[side].conns[&id];
            conn.outcome.clone().expect("every handshake ends")
        })
    }

    /// What the application of a side reads from the TCP connection after the handshake.
    pub fn read(&self, id: u8, side: Side) -> Vec<u8> {
        let conn = &self.machines[side.index()].conns[&id];
        let bytes = conn.inbox.iter().flatten().copied().collect::<Vec<u8>>();
        match Head::of(&bytes) {
            Head::Decline(len) if conn.may_cross => bytes[len..].to_vec(),
            _ => bytes,
        }
    }

    /// The link fails: both sides learn it.
    pub fn break_link(&mut self, channel: u8) {
        self.net.cut(channel);
        for machine in &mut self.machines {
            machine.link_failed(channel, &mut self.net);
        }
    }

    /// The machine loses everything it knew, and its TCP connections are reset.
    pub fn crash(&mut self, side: Side) {
        let machine = &mut self.machines[side.index()];
        machine.groups.clear();
        let ids: Vec<u8> = machine.conns.keys().copied().collect();
        machine.conns.clear();
        for channel in 0..=255 {
            self.net.cut(channel);
        }
        let other = &mut self.machines[side.peer().index()];
        for id in ids {
            other.tcp_ended(id, &mut self.net);
        }
    }
}
impl Machine {
    fn new(side: Side, config: Config) -> Self {
        Self {
            side,
            config: Box::leak(Box::new(config)),
            groups: Vec::new(),
            conns: BTreeMap::new(),
            declined: Vec::new(),
            next_channel: 1,
            next_key: 0x100 * (side.index() as u32 + 1),
        }
    }

    fn on_timer(&mut self, net: &mut Wire) {
        let now = net.now();
        for g in 0..self.groups.len() {
            self.groups[g].due.take_if(|due| due.is_due(now));
            let actions = self.groups[g].llc.on_timeout(now);
            self.act(g, actions, net);
        }
        let due: Vec<u8> = self
            .conns
            .iter()
            .filter(|(_, conn)| conn.deadline.is_some_and(|at| at.is_due(now)))
            .map(|(id, _)| *id)
            .collect();
        for id in due {
            let conn = self.conn(id);
            conn.deadline = None;
            let failure = match std::mem::replace(&mut conn.stage, Stage::Done) {
                Stage::Silence => handshake::after_silence(None),
                Stage::Proposed(_) => Failure::from(Fatal::TimedOut).before_answer(),
                Stage::Fresh | Stage::Accepted(_) => Fatal::TimedOut.into(),
                stage => {
                    conn.stage = stage;
                    continue;
                }
            };
            self.fail(id, failure, net);
        }
    }
}
