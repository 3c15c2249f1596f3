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

use smc_proto::buffer::SizeClass;
use smc_proto::handshake::client::{
    self,
    Contact,
    Means,
    Proposed,
    V1Port,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::select::{
    Address,
    Path, //
};
use smc_proto::handshake::server::{
    Accepted,
    Beginning,
    Chosen,
    Local, //
};
use smc_proto::handshake::{
    self,
    Failure,
    Fatal,
    Then, //
};
use smc_proto::id::{
    Gid,
    Ipv4,
    LinkNum,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex,
    Token, //
};
use smc_proto::lgr::rtoken::Row;
use smc_proto::lgr::{
    token,
    Candidate,
    LinkEnd,
    Role,
    RowId,
    Rtoken,
    Rtokens,
    LINK_SLOTS, //
};
use smc_proto::link::{
    next_number,
    Event as LinkEvent,
    State as LinkState, //
};
use smc_proto::llc::first::FirstLink;
use smc_proto::llc::rkey::Announcement;
use smc_proto::llc::{
    first,
    rkey,
    Action,
    Actions,
    Arrival,
    Finished,
    Llc, //
};
use smc_proto::reason::Reason;
use smc_proto::time::Instant;
use smc_proto::wire::clc::{
    Decline,
    Hostname,
    IpPrefix,
    Limits,
    Message,
    Release,
    SmcR, //
};
use smc_proto::wire::llc::{
    self,
    PeerOrder, //
};
use smc_proto::wire::{
    List,
    Received,
    Version, //
};

use super::net::{
    Event,
    Net, //
};
use super::Side;

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
    pub route: Option<Path>,
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
            route: Some(Path::Direct),
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
    row: Option<RowId>,
    pub outcome: Option<Outcome>,
}

enum Stage {
    /// Server: nothing was received.
    Fresh,
    Proposed(Proposed<'static>),
    /// Server: the buffer is being announced, then the ACCEPT goes out.
    Announcing(Chosen),
    Accepted(Accepted),
    /// Client: the buffer is being announced, then the CONFIRM goes out.
    Confirming(client::Agreed),
    FirstContact,
    /// The link is silent; a DECLINE may come.
    Silence,
    Done,
}

pub struct Group {
    pub llc: Llc,
    role: Role,
    peer: PeerId,
    pub links: [LinkNum; LINK_SLOTS],
    pub end: LinkEnd,
    channel: u8,
    rows: Vec<Row>,
    pub limits: Limits,
    pub is_alive: bool,
    is_out_of_sync: bool,
    /// The connection whose flow is under way, and those that wait for it.
    owner: Option<u8>,
    waiting: VecDeque<u8>,
    conns: usize,
    rmbs: Vec<Rmb>,
    last_token: Token,
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

    fn new_conn(&mut self, id: u8, stage: Stage, net: &mut Wire) {
        let conn = Conn {
            stage,
            deadline: None,
            inbox: VecDeque::new(),
            received: None,
            first: false,
            group: None,
            local: None,
            peer: None,
            row: None,
            outcome: None,
        };
        self.conns.insert(id, conn);
        self.wait(id, handshake::CLC_WAIT, net);
    }

    fn accept(&mut self, id: u8, net: &mut Wire) {
        self.new_conn(id, Stage::Fresh, net);
    }

    fn connect(&mut self, id: u8, net: &mut Wire) {
        self.new_conn(id, Stage::Done, net);
        if self.config.has_ipsec {
            return self.fail(id, Reason::Ipsec.into(), net);
        }
        let config = self.config;
        let means = Means {
            peer_id: config.peer_id,
            v1: config.v1,
            v2: config.v2,
            prefix: config.address.map(|(address, len)| IpPrefix::V4 {
                subnet: address.masked(len),
                len,
            }),
            eids: List::new(config.eids.as_slice()).unwrap(),
            limits: config.limits,
        };
        match means.propose() {
            Ok((proposed, proposal)) => {
                self.conn(id).stage = Stage::Proposed(proposed);
                self.send_clc(id, &Message::Proposal(proposal), net);
            }
            Err(reason) => self.fail(id, reason.into(), net),
        }
    }

    fn on_tcp(&mut self, id: u8, bytes: Vec<u8>, net: &mut Wire) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.inbox.push_back(bytes);
        self.pump(id, net);
    }

    /// Takes the next CLC message if one is waited for.
    fn pump(&mut self, id: u8, net: &mut Wire) {
        let conn = self.conn(id);
        let is_reading = matches!(
            conn.stage,
            Stage::Fresh | Stage::Proposed(_) | Stage::Accepted(_) | Stage::Silence
        );
        if !is_reading {
            return;
        }
        let Some(bytes) = conn.inbox.pop_front() else {
            return;
        };
        let stage = std::mem::replace(&mut conn.stage, Stage::Done);
        conn.deadline = None;
        let result = match Message::parse(&bytes) {
            Ok(message) => {
                conn.received = Some(version_of(&message));
                self.on_clc(id, stage, &message, net)
            }
            Err(error) => Err(error.into()),
        };
        if let Err(failure) = result {
            self.fail(id, failure, net);
        }
    }

    fn on_clc(
        &mut self,
        id: u8,
        stage: Stage,
        message: &Message<'_>,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        match stage {
            Stage::Fresh => match message {
                Message::Proposal(proposal) => {
                    let config = self.config;
                    let local = Local {
                        eids: &config.eids,
                        limits: config.limits,
                        has_ipsec: config.has_ipsec,
                        has_interface: config.has_interface,
                    };
                    let own = config.address;
                    let chosen = local.judge(proposal, |prefix| {
                        own.is_some_and(|(address, len)| Address::V4 { address, len }.is_in(prefix))
                    })?;
                    self.try_way(id, chosen, net)
                }
                Message::Decline(decline) => Err(decline.into()),
                Message::Accept(_) | Message::Confirm(_) => Err(Fatal::Protocol.into()),
            },
            Stage::Proposed(proposed) => {
                let agreed = proposed.on_message(message)?;
                self.join(id, agreed, net)
            }
            Stage::Accepted(accepted) => {
                let agreed = accepted.on_message(message)?;
                self.on_agreed(id, *agreed.client(), net)
            }
            Stage::Silence => Err(handshake::after_silence(Some(message))),
            Stage::Announcing(_) | Stage::Confirming(_) | Stage::FirstContact | Stage::Done => {
                unreachable!("nothing is read now")
            }
        }
    }

    // The server.

    fn try_way(&mut self, id: u8, chosen: Chosen, net: &mut Wire) -> Result<(), Failure> {
        let mut chosen = chosen;
        let has_port = |version| match version {
            Version::V1 => self.config.v1.is_some(),
            Version::V2 => self.config.v2.is_some() && self.config.route.is_some(),
        };
        while !has_port(chosen.version()) {
            chosen = chosen.without_port()?;
        }
        if !self.config.has_memory {
            return self.next_way(id, chosen, Reason::Memory, net);
        }
        let wanted = chosen.wanted(0);
        let found = self
            .groups
            .iter()
            .position(|group| group.is_alive && group.candidate(self.side).matches(&wanted));
        let group = found.unwrap_or_else(|| {
            let channel = self.next_channel;
            self.next_channel += 1;
            self.add_group(
                chosen.version(),
                chosen.wanted(0).peer,
                channel,
                chosen.limits(),
            )
        });
        let conn = self.conn(id);
        conn.first = found.is_none();
        conn.group = Some(group);
        if found.is_none() {
            let last = LinkNum::NONE;
            self.groups[group].links[0] = next_number(last, |_| false).unwrap();
        }
        let is_new = self.take_buffer(id, chosen.version());
        if found.is_some() && is_new {
            self.conn(id).stage = Stage::Announcing(chosen);
            self.queue_flow(id, net);
            return Ok(());
        }
        self.send_accept(id, chosen, net);
        Ok(())
    }

    fn next_way(
        &mut self,
        id: u8,
        chosen: Chosen,
        reason: Reason,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        let next = chosen.failed(reason)?;
        self.try_way(id, next, net)
    }

    fn send_accept(&mut self, id: u8, chosen: Chosen, net: &mut Wire) {
        let is_direct = self.config.route == Some(Path::Direct);
        let conn = &self.conns[&id];
        let beginning = conn.first.then_some(Beginning {
            is_direct,
            hostname: Hostname::new(b"server"),
        });
        let (accepted, accept) = chosen.accept(conn.local.unwrap(), beginning);
        self.conn(id).stage = Stage::Accepted(accepted);
        self.wait(id, handshake::CLC_WAIT, net);
        self.send_clc(id, &Message::Accept(accept), net);
        self.pump(id, net);
    }

    fn on_agreed(&mut self, id: u8, client: SmcR, net: &mut Wire) -> Result<(), Failure> {
        self.conn(id).peer = Some(client);
        let g = self.conns[&id].group.unwrap();
        if !self.groups[g].is_alive {
            return Err(Reason::NoActiveLink.into());
        }
        self.learn_buffer(id, g, &client)?;
        if !self.conns[&id].first {
            self.succeed(id);
            return Ok(());
        }
        self.groups[g].end.peer_qp = client.qp_num;
        self.groups[g].end.peer_gid = client.gid;
        self.groups[g].end.peer_mac = client.mac;
        if !self.config.link_gets_ready {
            return Err(Reason::LinkNotReady.into());
        }
        if !self.config.buffer_registers {
            return Err(Reason::RegistrationFailed.into());
        }
        self.begin_first_contact(id, g, net);
        Ok(())
    }

    // The client.

    fn join(&mut self, id: u8, agreed: client::Agreed, net: &mut Wire) -> Result<(), Failure> {
        let server = *agreed.server();
        self.conn(id).peer = Some(server);
        let g = match agreed.contact() {
            Contact::First(beginning) => {
                beginning.path(|| self.config.route)?;
                let channel = server.qp_num.get() as u8;
                let limits = beginning.limits();
                let g = self.add_group(agreed.version(), server.peer_id, channel, limits);
                self.groups[g].end.peer_qp = server.qp_num;
                self.groups[g].end.peer_gid = server.gid;
                self.groups[g].end.peer_mac = server.mac;
                self.conn(id).first = true;
                g
            }
            Contact::Reuse => {
                let wanted = agreed.wanted(0);
                let found = self.groups.iter().position(|group| {
                    group.is_alive && group.candidate(self.side).matches(&wanted)
                });
                let g = found.ok_or(Reason::SyncError)?;
                let link = self.groups[g].candidate(self.side).named_link(&wanted);
                link.ok_or(Reason::NoServerLink)?;
                g
            }
        };
        self.conn(id).group = Some(g);
        if !self.config.has_memory {
            return Err(Reason::Memory.into());
        }
        let is_new = self.take_buffer(id, agreed.version());
        self.learn_buffer(id, g, &server)?;
        if self.conns[&id].first {
            if !self.config.link_gets_ready {
                return Err(Reason::LinkNotReady.into());
            }
            self.begin_first_contact(id, g, net);
            self.send_confirm(id, &agreed, net);
        } else if is_new {
            self.conn(id).stage = Stage::Confirming(agreed);
            self.queue_flow(id, net);
        } else {
            self.send_confirm(id, &agreed, net);
            self.succeed(id);
        }
        Ok(())
    }

    fn send_confirm(&mut self, id: u8, agreed: &client::Agreed, net: &mut Wire) {
        let local = self.conns[&id].local.unwrap();
        let gids = [local.gid];
        let gids = List::new(&gids).unwrap();
        let confirm = agreed.confirm(local, Hostname::new(b"client"), gids);
        self.send_clc(id, &Message::Confirm(confirm), net);
    }

    // Both.

    fn add_group(&mut self, version: Version, peer: PeerId, channel: u8, limits: Limits) -> usize {
        let role = match self.side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        };
        self.groups.push(Group {
            llc: Llc::new(role, version),
            role,
            peer,
            links: [LinkNum::NONE; LINK_SLOTS],
            end: LinkEnd {
                state: LinkState::Unused.on(LinkEvent::Created).unwrap(),
                is_visible: true,
                peer_qp: QpNum::default(),
                peer_gid: Gid::NONE,
                peer_mac: Mac::NONE,
            },
            channel,
            rows: vec![Row::EMPTY; self.config.rows],
            limits,
            is_alive: true,
            is_out_of_sync: false,
            owner: None,
            waiting: VecDeque::new(),
            conns: 0,
            rmbs: Vec::new(),
            last_token: Token(0),
        });
        self.groups.len() - 1
    }

    /// Takes an element of an RMB; says whether the RMB has yet to be announced.
    fn take_buffer(&mut self, id: u8, version: Version) -> bool {
        let elements = self.config.elements;
        let conn = self.conns.get_mut(&id).unwrap();
        let group = &mut self.groups[conn.group.unwrap()];
        group.conns += 1;
        if group.rmbs.iter().all(|rmb| rmb.used == elements) {
            self.next_key += 1;
            group.rmbs.push(Rmb {
                rtoken: Rtoken {
                    rkey: Rkey(self.next_key),
                    addr: RemoteAddr(u64::from(self.next_key) << 20),
                },
                used: 0,
                is_announced: conn.first,
            });
        }
        let rmb = group
            .rmbs
            .iter_mut()
            .find(|rmb| rmb.used < elements)
            .unwrap();
        rmb.used += 1;
        group.last_token = token::next(group.last_token, |_| false).unwrap();
        let (gid, mac) = match version {
            Version::V1 => self.config.v1.map(|port| (port.gid, port.mac)).unwrap(),
            Version::V2 => self.config.v2.map(|port| (port.gid, port.mac)).unwrap(),
        };
        conn.local = Some(SmcR {
            peer_id: self.config.peer_id,
            gid,
            mac,
            qp_num: QpNum::new(group.channel.into()).unwrap(),
            rkey: rmb.rtoken.rkey,
            rmbe_index: RmbeIndex::new(rmb.used).unwrap(),
            token: group.last_token,
            rmbe_size: SizeClass::SMALLEST,
            mtu: Mtu::B1024,
            rmb_addr: rmb.rtoken.addr,
            psn: Psn::from_low_bits(7),
        });
        !std::mem::replace(&mut rmb.is_announced, true)
    }

    fn learn_buffer(&mut self, id: u8, g: usize, peer: &SmcR) -> Result<(), Failure> {
        let token = Rtoken {
            rkey: peer.rkey,
            addr: peer.rmb_addr,
        };
        let row = Rtokens::new(&mut self.groups[g].rows).add(0, token);
        self.conn(id).row = Some(row.map_err(|_| Reason::NoRtoken)?);
        Ok(())
    }

    fn begin_first_contact(&mut self, id: u8, g: usize, net: &mut Wire) {
        self.conn(id).stage = Stage::FirstContact;
        let local = self.conns[&id].local.unwrap();
        let group = &mut self.groups[g];
        let link = FirstLink {
            slot: 0,
            mac: local.mac,
            gid: local.gid,
            qp_num: local.qp_num,
            link_num: group.links[0],
            group_uid: 0x100,
            release: Release::R1,
            limits: group.limits,
        };
        group.owner = Some(id);
        let actions = group
            .llc
            .begin_first_contact(link, net.now())
            .expect("the group is new");
        self.act(g, actions, net);
    }

    /// Announces the buffer of a connection as soon as no flow is under way.
    fn queue_flow(&mut self, id: u8, net: &mut Wire) {
        let g = self.conns[&id].group.unwrap();
        self.groups[g].waiting.push_back(id);
        self.next_flow(g, net);
    }

    fn next_flow(&mut self, g: usize, net: &mut Wire) {
        let group = &mut self.groups[g];
        if !group.llc.is_idle() || !group.is_alive {
            return;
        }
        let Some(id) = group.waiting.pop_front() else {
            return;
        };
        if self
            .conns
            .get(&id)
            .is_none_or(|conn| conn.outcome.is_some())
        {
            return self.next_flow(g, net);
        }
        let local = self.conns[&id].local.unwrap();
        let here = Rtoken {
            rkey: local.rkey,
            addr: local.rmb_addr,
        };
        let others = List::EMPTY;
        group.owner = Some(id);
        let buffer = Announcement { here, others };
        let actions = group
            .llc
            .begin_confirm_rkey(0, buffer, net.now())
            .expect("it is idle");
        self.act(g, actions, net);
    }

    /// Says whether there is a queue pair that received the message.
    fn on_link(&mut self, channel: u8, bytes: &[u8], net: &mut Wire) -> bool {
        let find = |group: &Group| group.channel == channel && group.is_alive;
        let Some(g) = self.groups.iter().position(find) else {
            return false;
        };
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            return true;
        };
        let group = &mut self.groups[g];
        let mut arrival = Arrival {
            slot: 0,
            links: &group.links,
            rtokens: &mut Rtokens::new(&mut group.rows),
        };
        let actions = group.llc.on_message(&message, &mut arrival, net.now());
        self.act(g, actions, net);
        true
    }

    pub fn act(&mut self, g: usize, actions: Actions<'_>, net: &mut Wire) {
        for action in actions {
            match action {
                Action::Send { message, .. } => self.send_llc(g, &message, net),
                Action::PrepareLink { slot, link_num } => {
                    self.groups[g].links[slot] = link_num;
                    let result = match (self.config.link_gets_ready, self.config.buffer_registers) {
                        (false, _) => Err(Reason::LinkNotReady),
                        (_, false) => Err(Reason::RegistrationFailed),
                        (true, true) => Ok(()),
                    };
                    let next = self.groups[g].llc.on_link_prepared(result, net.now());
                    self.act(g, next, net);
                }
                Action::ActivateLink { .. } => {
                    let end = &mut self.groups[g].end;
                    end.state = end.state.on(LinkEvent::Confirmed).expect("confirmed once");
                }
                Action::TakeDownLink { .. } => self.end_group(g, net),
                Action::TerminateGroup(_) => self.end_group(g, net),
                Action::Finished(finished) => self.on_finished(g, finished, net),
                Action::Ignored(_) => {}
            }
        }
        if let Some(at) = self.groups.get(g).and_then(|group| group.llc.deadline()) {
            net.set_timer(self.side, at, 0);
        }
    }

    fn on_finished(&mut self, g: usize, finished: Finished, net: &mut Wire) {
        // A connection that failed for another reason meanwhile does not care.
        let is_waiting = |id: &u8| {
            self.conns
                .get(id)
                .is_some_and(|conn| conn.outcome.is_none())
        };
        let owner = self.groups[g].owner.take().filter(is_waiting);
        if let Some(id) = owner {
            if let Err(failure) = self.on_flow_end(id, finished, net) {
                self.fail(id, failure, net);
            }
        }
        self.next_flow(g, net);
    }

    fn on_flow_end(&mut self, id: u8, finished: Finished, net: &mut Wire) -> Result<(), Failure> {
        let stage = std::mem::replace(&mut self.conn(id).stage, Stage::Done);
        match (finished, stage) {
            (Finished::FirstContact(Ok(())), Stage::FirstContact) => {
                self.succeed(id);
                Ok(())
            }
            (Finished::FirstContact(Err(first::Error::Silent)), Stage::FirstContact) => {
                self.conn(id).stage = Stage::Silence;
                self.wait(id, handshake::DECLINE_WAIT, net);
                self.pump(id, net);
                Ok(())
            }
            (Finished::FirstContact(Err(first::Error::Failed(reason))), _) => Err(reason.into()),
            (Finished::ConfirmRkey(Ok(())), Stage::Announcing(chosen)) => {
                self.send_accept(id, chosen, net);
                Ok(())
            }
            // The group is gone, which says nothing against the way: begin a new one.
            (Finished::ConfirmRkey(Err(rkey::Error::LinkLost)), Stage::Announcing(chosen)) => {
                self.try_way(id, chosen, net)
            }
            (Finished::ConfirmRkey(Err(_)), Stage::Announcing(chosen)) => {
                self.next_way(id, chosen, Reason::RegistrationFailed, net)
            }
            (Finished::ConfirmRkey(Ok(())), Stage::Confirming(agreed)) => {
                self.send_confirm(id, &agreed, net);
                self.succeed(id);
                Ok(())
            }
            (Finished::ConfirmRkey(Err(_)), Stage::Confirming(_)) => {
                Err(Reason::RegistrationFailed.into())
            }
            (finished, _) => panic!("{finished:?} in a wrong stage"),
        }
    }

    fn on_timer(&mut self, net: &mut Wire) {
        let now = net.now();
        for g in 0..self.groups.len() {
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
                Stage::Fresh | Stage::Proposed(_) | Stage::Accepted(_) => Fatal::TimedOut.into(),
                stage => {
                    conn.stage = stage;
                    continue;
                }
            };
            self.fail(id, failure, net);
        }
    }

    fn succeed(&mut self, id: u8) {
        let conn = &self.conns[&id];
        let g = conn.group.unwrap();
        let group = &mut self.groups[g];
        assert!(
            group.end.state.is_active(),
            "SMC over a link that is not active"
        );
        let target = Rtokens::new(&mut group.rows).get(conn.row.unwrap(), 0);
        let joined = Joined {
            group: g,
            first: conn.first,
            version: match conn.local.unwrap().gid.ipv4() {
                Some(_) => Version::V2,
                None => Version::V1,
            },
            link_num: group.links[0],
            limits: group.limits,
            local: conn.local.unwrap(),
            peer: conn.peer.unwrap(),
            target: target.expect("the peer's buffer is known"),
        };
        let conn = self.conn(id);
        conn.stage = Stage::Done;
        conn.outcome = Some(Outcome::Smc(joined));
    }

    fn fail(&mut self, id: u8, failure: Failure, net: &mut Wire) {
        let verdict = failure.verdict();
        if let Some(reason) = verdict.decline {
            let received = self.conns[&id].received;
            let decline = handshake::decline(reason, received, self.config.peer_id);
            self.declined.push(decline);
            self.send_clc(id, &Message::Decline(decline), net);
        }
        let conn = self.conn(id);
        conn.stage = Stage::Done;
        conn.outcome = Some(match verdict.then {
            Then::Fallback(reason) => Outcome::Fallback(reason),
            Then::Fail(fatal) => Outcome::Failed(fatal),
        });
        let (first, group) = (conn.first, conn.group);
        if let Some(g) = group.filter(|_| first || verdict.ends_group) {
            self.groups[g].is_out_of_sync |= verdict.ends_group;
            self.terminate(g, net);
        }
    }

    /// Ends a group and tells the peer.
    fn terminate(&mut self, g: usize, net: &mut Wire) {
        if !self.groups[g].is_alive {
            return;
        }
        let message = llc::Message {
            version: match self.groups[g].end.peer_gid.ipv4() {
                Some(_) => Version::V2,
                None => Version::V1,
            },
            kind: llc::Kind::Request,
            body: llc::Body::DeleteLink(llc::DeleteLink {
                link_num: None,
                orderly: false,
                reason: llc::DeleteReason::PROGRAM,
            }),
        };
        self.send_llc(g, &message, net);
        self.end_group(g, net);
    }

    /// Ends a group: its connections are lost, its flow ends.
    fn end_group(&mut self, g: usize, net: &mut Wire) {
        let group = &mut self.groups[g];
        if !std::mem::replace(&mut group.is_alive, false) {
            return;
        }
        group.end.state = LinkState::Inactive;
        let waiting = std::mem::take(&mut group.waiting);
        let actions = group.llc.on_link_down(0, net.now());
        for conn in self.conns.values_mut().filter(|conn| conn.group == Some(g)) {
            if matches!(conn.outcome, Some(Outcome::Smc(_))) {
                conn.outcome = Some(Outcome::Aborted);
            }
        }
        for id in waiting
            .into_iter()
            .filter(|id| self.conns[id].outcome.is_none())
            .collect::<Vec<_>>()
        {
            let stage = std::mem::replace(&mut self.conn(id).stage, Stage::Done);
            let result = match stage {
                Stage::Announcing(chosen) => self.try_way(id, chosen, net),
                _ => Err(Reason::NoActiveLink.into()),
            };
            if let Err(failure) = result {
                self.fail(id, failure, net);
            }
        }
        self.act(g, actions, net);
    }

    fn link_failed(&mut self, channel: u8, net: &mut Wire) {
        for g in 0..self.groups.len() {
            if self.groups[g].channel == channel {
                self.end_group(g, net);
            }
        }
    }

    fn tcp_ended(&mut self, id: u8, net: &mut Wire) {
        let is_reading = self
            .conns
            .get(&id)
            .is_some_and(|conn| conn.outcome.is_none());
        if is_reading {
            self.fail(id, Fatal::Reset.into(), net);
        }
    }

    fn conn(&mut self, id: u8) -> &mut Conn {
        self.conns.get_mut(&id).unwrap()
    }

    fn wait(&mut self, id: u8, time: smc_proto::time::Duration, net: &mut Wire) {
        let at = net.now().saturating_add(time);
        self.conn(id).deadline = Some(at);
        net.set_timer(self.side, at, 0);
    }

    fn send_clc(&mut self, id: u8, message: &Message<'_>, net: &mut Wire) {
        let mut buf = [0; smc_proto::wire::clc::MAX_LEN];
        let mut bytes = message.emit(&mut buf).expect("it fits").to_vec();
        (self.config.mangle_clc)(&mut bytes);
        net.send(self.side, id, bytes);
    }

    pub fn send_llc(&mut self, g: usize, message: &llc::Message<'_>, net: &mut Wire) {
        let mut buf = [0; llc::MAX_LEN];
        let emitted = message.emit(PeerOrder::Linux, &mut buf);
        let mut bytes = emitted.expect("it fits").to_vec();
        (self.config.mangle_llc)(&mut bytes);
        net.send(self.side, self.groups[g].channel, bytes);
    }
}

impl Group {
    fn candidate(&self, side: Side) -> Candidate<'_> {
        assert_eq!(self.role == Role::Client, side == Side::Client);
        Candidate {
            role: self.role,
            peer: self.peer,
            vlan: 0,
            is_out_of_sync: self.is_out_of_sync,
            has_room: self.conns < usize::from(self.limits.max_conns),
            links: std::slice::from_ref(&self.end),
        }
    }
}

fn version_of(message: &Message<'_>) -> Version {
    match message {
        Message::Proposal(message) => message.version(),
        Message::Accept(message) => message.mode.version(),
        Message::Confirm(message) => message.mode.version(),
        Message::Decline(_) => Version::V1,
    }
}
