// SPDX-License-Identifier: GPL-2.0
//! A machine's link groups: buffers, flows, the end.

use std::collections::VecDeque;

use smc_proto::buffer::SizeClass;
use smc_proto::handshake::Failure;
use smc_proto::id::{
    AlertToken,
    Gid,
    Mac,
    Mtu,
    PeerId,
    Psn,
    QpNum,
    RemoteAddr,
    Rkey,
    RmbeIndex, //
};
use smc_proto::lgr::find::LinkEnds;
use smc_proto::lgr::rtoken::RtokenEntry;
use smc_proto::lgr::{
    token,
    LgrView,
    LinkEnd,
    LinkIdx,
    LinkMap,
    Role,
    Rtoken,
    Rtokens, //
};
use smc_proto::link::{
    LinkEvent,
    LinkState, //
};
use smc_proto::llc::link_work::LinkWork;
use smc_proto::llc::rkey::ConfirmRkeyParams;
use smc_proto::llc::FirstContactError;
use smc_proto::llc::LocalEnd;
use smc_proto::llc::RkeyError;
use smc_proto::llc::{
    first_contact,
    Action,
    Actions,
    Arrival,
    Finished,
    Llc,
    Params, //
};
use smc_proto::reason::Reason;
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::clc::{
    Limits,
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

use super::super::handshake_ops::ENDS;
use super::super::params;
use super::super::Side;
use super::{
    Group,
    Machine,
    Outcome,
    Rmb,
    Stage,
    Wire, //
};

impl Machine {
    pub(super) fn add_group(
        &mut self,
        version: Version,
        peer: PeerId,
        channel: u8,
        limits: Limits,
    ) -> usize {
        let role = match self.side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        };
        self.groups.push(Group {
            llc: Llc::new(Params {
                max_links: limits.max_links,
                ..params(role, version)
            }),
            link: None,
            role,
            peer,
            links: LinkMap::default(),
            ends: only(LinkEnd {
                state: LinkState::Unused.on(LinkEvent::Created).unwrap(),
                is_visible: true,
                peer_qp: QpNum::default(),
                peer_gid: Gid::NONE,
                peer_mac: Mac::NONE,
            }),
            channel,
            rows: vec![RtokenEntry::EMPTY; self.config.rows],
            limits,
            is_alive: true,
            owner: None,
            waiting: VecDeque::new(),
            conns: 0,
            rmbs: Vec::new(),
            last_token: AlertToken(0),
            due: None,
        });
        self.groups.len() - 1
    }

    /// Takes an element of an RMB; says whether the RMB has yet to be announced.
    pub(super) fn take_buffer(&mut self, id: u8, version: Version) -> bool {
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
        !rmb.is_announced
    }

    pub(super) fn learn_buffer(&mut self, id: u8, g: usize, peer: &SmcR) -> Result<(), Failure> {
        let token = Rtoken {
            rkey: peer.rkey,
            addr: peer.rmb_addr,
        };
        let is_first = self.conns[&id].first;
        let mut rtokens = Rtokens::new(&mut self.groups[g].rows);
        if is_first {
            rtokens
                .add(LinkIdx::FIRST, token)
                .map_err(|_| Reason::NoRtoken)?;
        }
        let row = rtokens.claim(LinkIdx::FIRST, token, peer.rmbe_index);
        self.conn(id).row = Some(row.map_err(|_| Reason::RegistrationFailed)?);
        Ok(())
    }

    pub(super) fn begin_first_contact(&mut self, id: u8, g: usize, net: &mut Wire) {
        let role = match self.side {
            Side::Client => Role::Client,
            Side::Server => Role::Server,
        };
        let grace = first_contact::Grace::new(Duration::ZERO);
        let conn = self.conn(id);
        conn.stage = Stage::FirstContact;
        conn.patience = net
            .now()
            .saturating_add(first_contact::wait_limit(role, grace));
        let local = self.conns[&id].local.unwrap();
        let group = &mut self.groups[g];
        let link = LocalEnd {
            idx: LinkIdx::FIRST,
            mac: local.mac,
            gid: local.gid,
            qp_num: local.qp_num,
            link_num: group.links[LinkIdx::FIRST],
            group_uid: 0x100,
            release: Release::R1,
            limits: group.limits,
            is_direct: true,
        };
        group.owner = Some(id);
        group.link = Some(link);
        let actions = group
            .llc
            .begin_first_contact(link, first_contact::PeerModule::Same(grace), net.now())
            .expect("the group is new");
        self.act(g, actions, net);
    }

    /// Announces the buffer of a connection as soon as no flow is under way.
    pub(super) fn queue_flow(&mut self, id: u8, net: &mut Wire) {
        let g = self.conns[&id].group.unwrap();
        self.groups[g].waiting.push_back(id);
        self.next_flow(g, net);
    }

    pub(super) fn next_flow(&mut self, g: usize, net: &mut Wire) {
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
        let buffer = ConfirmRkeyParams { here, others };
        let actions = group
            .llc
            .begin_confirm_rkey(LinkIdx::FIRST, buffer, net.now())
            .expect("it is idle");
        self.act(g, actions, net);
    }

    /// Says whether there is a queue pair that received the message.
    pub(super) fn on_link(&mut self, channel: u8, bytes: &[u8], net: &mut Wire) -> bool {
        let find = |group: &Group| group.channel == channel && group.is_alive;
        let Some(g) = self.groups.iter().position(find) else {
            return false;
        };
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            return true;
        };
        let group = &mut self.groups[g];
        let mut arrival = Arrival {
            idx: LinkIdx::FIRST,
            spare: None,
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
                Action::PrepareLink { idx, link_num } => {
                    self.groups[g].links[idx] = link_num;
                    let result = match (self.config.link_gets_ready, self.config.buffer_registers) {
                        (false, _) => Err(Reason::LinkNotReady),
                        (_, false) => Err(Reason::RegistrationFailed),
                        (true, true) => Ok(()),
                    };
                    let next = self.groups[g].llc.on_link_prepared(idx, result, net.now());
                    self.act(g, next, net);
                }
                Action::ActivateLink { .. } => {
                    let end = self.groups[g].end();
                    end.state = end.state.on(LinkEvent::Confirmed).expect("confirmed once");
                }
                Action::TerminateGroup(_) => self.end_group(g, net),
                Action::Finished(finished) => self.on_finished(g, finished, net),
                // These groups have one link.
                Action::SendKeys { .. } | Action::LinkDead { .. } => panic!("{action:?}"),
                Action::LinkWork(_) | Action::Ignored(_) => {}
            }
        }
        self.do_link_work(g, net);
        self.arm_timer(g, net);
    }

    /// Each group has one timer at most, as in the module.
    fn arm_timer(&mut self, g: usize, net: &mut Wire) {
        let group = &mut self.groups[g];
        let is_earlier = |at: &Instant| group.due.is_none_or(|due| *at < due);
        if let Some(at) = group.llc.deadline().filter(is_earlier) {
            group.due = Some(at);
            net.set_timer(self.side, at, 0);
        }
    }

    /// There is no port for another link.
    fn do_link_work(&mut self, g: usize, net: &mut Wire) {
        let Some(work) = self.groups[g].llc.next_link_work() else {
            return;
        };
        match work {
            LinkWork::DeleteLink(..) => self.end_group(g, net),
            LinkWork::AddLink(why) if self.side == Side::Server => {
                let group = &mut self.groups[g];
                assert!(
                    group.llc.reserve_flow_for_add_link(why),
                    "no flow is under way"
                );
                let actions = group.llc.abandon(net.now());
                self.act(g, actions, net);
                let group = &mut self.groups[g];
                let link = group.link.expect("it had its first contact");
                let actions = group.llc.offer_nothing(&link);
                self.act(g, actions, net);
            }
            LinkWork::AddLink(_) => {}
            _ => panic!("{work:?}"),
        }
    }

    pub(super) fn on_finished(&mut self, g: usize, finished: Finished, net: &mut Wire) {
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

    pub(super) fn on_flow_end(
        &mut self,
        id: u8,
        finished: Finished,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        let stage = std::mem::replace(&mut self.conn(id).stage, Stage::Done);
        match (finished, stage) {
            (Finished::FirstContact(Ok(())), Stage::FirstContact) => {
                self.succeed(id);
                Ok(())
            }
            (Finished::FirstContact(Err(FirstContactError::Silent)), Stage::FirstContact) => {
                self.conn(id).stage = Stage::Silence;
                let end = self.conn(id).patience;
                self.wait(id, end.saturating_since(net.now()), net);
                Ok(())
            }
            (Finished::FirstContact(Err(FirstContactError::Undecided)), _) => {
                Err(Failure::Undecided)
            }
            (Finished::FirstContact(Err(FirstContactError::Failed(reason))), _) => {
                Err(reason.into())
            }
            (Finished::ConfirmRkey(Ok(())), Stage::Announcing(chosen)) => {
                self.note_announced(id);
                self.send_accept(id, chosen, net);
                Ok(())
            }
            // The group is gone, which says nothing against the way: begin a new one.
            (Finished::ConfirmRkey(Err(RkeyError::LinkLost)), Stage::Announcing(chosen)) => {
                self.try_candidate(id, chosen, net)
            }
            (Finished::ConfirmRkey(Err(_)), Stage::Announcing(chosen)) => {
                self.next_candidate(id, chosen, Reason::RegistrationFailed, net)
            }
            (Finished::ConfirmRkey(Ok(())), Stage::Confirming(accepted)) => {
                self.note_announced(id);
                self.send_confirm(id, &accepted, net);
                self.succeed(id);
                Ok(())
            }
            (Finished::ConfirmRkey(Err(_)), Stage::Confirming(_)) => {
                Err(Reason::RegistrationFailed.into())
            }
            (finished, _) => panic!("{finished:?} in a wrong stage"),
        }
    }

    /// The peer knows the connection's buffer.
    fn note_announced(&mut self, id: u8) {
        let conn = &self.conns[&id];
        let rkey = conn.local.unwrap().rkey;
        let rmbs = &mut self.groups[conn.group.unwrap()].rmbs;
        for rmb in rmbs.iter_mut().filter(|rmb| rmb.rtoken.rkey == rkey) {
            rmb.is_announced = true;
        }
    }

    /// Ends a group and tells the peer.
    pub(super) fn terminate(&mut self, g: usize, net: &mut Wire) {
        if !self.groups[g].is_alive {
            return;
        }
        let message = llc::LlcMessage {
            version: match self.groups[g].end().peer_gid.ipv4() {
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
    pub(super) fn end_group(&mut self, g: usize, net: &mut Wire) {
        let group = &mut self.groups[g];
        if !std::mem::replace(&mut group.is_alive, false) {
            return;
        }
        group.end().state = LinkState::Inactive;
        let waiting = std::mem::take(&mut group.waiting);
        let actions = group.llc.on_link_down(LinkIdx::FIRST, net.now());
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
                Stage::Announcing(chosen) => self.try_candidate(id, chosen, net),
                _ => Err(Reason::NoActiveLink.into()),
            };
            if let Err(failure) = result {
                self.fail(id, failure, net);
            }
        }
        self.act(g, actions, net);
    }

    pub(super) fn link_failed(&mut self, channel: u8, net: &mut Wire) {
        for g in 0..self.groups.len() {
            if self.groups[g].channel == channel {
                self.end_group(g, net);
            }
        }
    }

    pub fn send_llc(&mut self, g: usize, message: &llc::LlcMessage<'_>, net: &mut Wire) {
        let mut buf = [0; llc::MAX_LEN];
        let emitted = message.emit(PeerOrder::Linux, &mut buf);
        let mut bytes = emitted.expect("it fits").to_vec();
        (self.config.mangle_llc)(&mut bytes);
        net.send(self.side, self.groups[g].channel, bytes);
    }
}

/// A group's links, of which there is one.
fn only(end: LinkEnd) -> LinkEnds {
    let mut ends = LinkMap::default();
    ends[LinkIdx::FIRST] = Some(end);
    ends
}

impl Group {
    pub fn end(&mut self) -> &mut LinkEnd {
        self.ends[LinkIdx::FIRST].as_mut().expect("it has a link")
    }

    pub(super) fn candidate(&self, side: Side) -> LgrView<'_> {
        assert_eq!(self.role == Role::Client, side == Side::Client);
        LgrView {
            role: self.role,
            peer: self.peer,
            vlan: 0,
            ends: ENDS,
            has_room: self.conns < usize::from(self.limits.max_conns),
            links: &self.ends,
        }
    }
}
