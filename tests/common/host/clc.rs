// SPDX-License-Identifier: GPL-2.0
//! A machine's handshakes over TCP.

use std::collections::VecDeque;

use smc_proto::handshake::client::{
    self,
    ClientCaps, //
};
use smc_proto::handshake::select::{
    Address,
    Route, //
};
use smc_proto::handshake::server::{
    Chosen,
    ServerCaps, //
};
use smc_proto::handshake::{
    self,
    Disposition,
    Failure,
    Fatal,
    OwnInfo, //
};
use smc_proto::id::LinkNum;
use smc_proto::lgr::{
    find,
    LinkIdx,
    Rtokens, //
};
use smc_proto::link::next_number;
use smc_proto::reason::Reason;
use smc_proto::wire::clc::{
    ClcMessage,
    Hostname,
    IpPrefix,
    SmcR, //
};
use smc_proto::wire::{
    List,
    Version, //
};

use super::super::handshake_ops::ENDS;

use super::{
    Conn,
    Joined,
    Machine,
    Outcome,
    Stage,
    Wire, //
};

impl Machine {
    pub(super) fn new_conn(&mut self, id: u8, stage: Stage, net: &mut Wire) {
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
            patience: net.now(),
            may_cross: false,
            outcome: None,
        };
        self.conns.insert(id, conn);
        self.wait(id, handshake::CLC_WAIT, net);
    }

    pub(super) fn accept(&mut self, id: u8, net: &mut Wire) {
        self.new_conn(id, Stage::Fresh, net);
    }

    pub(super) fn connect(&mut self, id: u8, net: &mut Wire) {
        self.new_conn(id, Stage::Done, net);
        if self.config.has_ipsec {
            return self.fail(id, Reason::Ipsec.into(), net);
        }
        let config = self.config;
        let caps = ClientCaps {
            smcd: None,
            peer_id: config.peer_id,
            v1: config.v1,
            v2: config.v2,
            iwarp: None,
            prefix: config.address.map(|(address, len)| IpPrefix::V4 {
                subnet: address.masked(len),
                len,
            }),
            eids: List::new(config.eids.as_slice()).unwrap(),
            limits: config.limits,
        };
        match caps.propose() {
            Ok((proposed, proposal)) => {
                self.conn(id).stage = Stage::Proposed(proposed);
                self.send_clc(id, &ClcMessage::Proposal(proposal), net);
            }
            Err(reason) => self.fail(id, reason.into(), net),
        }
    }

    pub(super) fn on_tcp(&mut self, id: u8, bytes: Vec<u8>, net: &mut Wire) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.inbox.push_back(bytes);
        self.pump(id, net);
    }

    /// Takes the next CLC message if one is waited for.
    pub(super) fn pump(&mut self, id: u8, net: &mut Wire) {
        let conn = self.conn(id);
        let is_reading = matches!(
            conn.stage,
            Stage::Fresh
                | Stage::Proposed(_)
                | Stage::Accepted(_)
                | Stage::FirstContact
                | Stage::Silence
        );
        if !is_reading {
            return;
        }
        let Some(bytes) = conn.inbox.pop_front() else {
            return;
        };
        let stage = std::mem::replace(&mut conn.stage, Stage::Done);
        conn.deadline = None;
        let result = match ClcMessage::parse(&bytes) {
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

    pub(super) fn on_clc(
        &mut self,
        id: u8,
        stage: Stage,
        message: &ClcMessage<'_>,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        match stage {
            Stage::Fresh => match message {
                ClcMessage::Proposal(proposal) => {
                    let config = self.config;
                    let caps = ServerCaps {
                        eids: &config.eids,
                        limits: config.limits,
                        has_ipsec: config.has_ipsec,
                        has_interface: config.has_interface,
                        iwarp: None,
                    };
                    let own = config.address;
                    let chosen = caps.evaluate(proposal, |prefix| {
                        own.is_some_and(|(address, len)| Address::V4 { address, len }.is_in(prefix))
                    })?;
                    self.try_candidate(id, chosen, net)
                }
                other => Err(Failure::not_awaited(other)),
            },
            Stage::Proposed(proposed) => {
                let accepted = proposed.on_message(message)?;
                self.join(id, accepted, net)
            }
            Stage::Accepted(accepted) => {
                let confirmed = accepted.on_message(message)?;
                self.on_confirmed(id, *confirmed.client(), net)
            }
            Stage::FirstContact | Stage::Silence => Err(handshake::after_silence(Some(message))),
            Stage::Announcing(_) | Stage::Confirming(_) | Stage::Done => {
                unreachable!("nothing is read now")
            }
        }
    }

    // The server.

    pub(super) fn try_candidate(
        &mut self,
        id: u8,
        chosen: Chosen,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        let mut chosen = chosen;
        let has_port = |version| match version {
            Version::V1 => self.config.v1.is_some(),
            Version::V2 => self.config.v2.is_some() && self.config.route.is_some(),
        };
        while !has_port(chosen.version()) {
            chosen = chosen.next_without_port()?;
        }
        if !self.config.has_memory {
            return self.next_candidate(id, chosen, Reason::Memory, net);
        }
        let wanted = chosen.wanted(0, ENDS);
        let found = self
            .groups
            .iter()
            .position(|group| group.is_alive && group.candidate(self.side).matches(&wanted));
        let group = found.unwrap_or_else(|| {
            let channel = self.next_channel;
            self.next_channel += 1;
            self.add_group(
                chosen.version(),
                chosen.wanted(0, ENDS).peer,
                channel,
                chosen.new_lgr(true).limits,
            )
        });
        let conn = self.conn(id);
        conn.first = found.is_none();
        conn.group = Some(group);
        if found.is_none() {
            let last = LinkNum::NONE;
            self.groups[group].links[LinkIdx::FIRST] = next_number(last, |_| false).unwrap();
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

    pub(super) fn next_candidate(
        &mut self,
        id: u8,
        chosen: Chosen,
        reason: Reason,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        let next = chosen.next_after(reason)?;
        self.try_candidate(id, next, net)
    }

    pub(super) fn send_accept(&mut self, id: u8, chosen: Chosen, net: &mut Wire) {
        let is_direct = self.config.route == Some(Route::Direct);
        let conn = &self.conns[&id];
        let new = conn
            .first
            .then_some((chosen.new_lgr(is_direct), named(b"server")));
        let (accepted, accept) = chosen.accept(conn.local.unwrap(), new);
        self.conn(id).stage = Stage::Accepted(accepted);
        self.wait(id, handshake::CLC_WAIT, net);
        self.send_clc(id, &ClcMessage::Accept(accept), net);
        self.pump(id, net);
    }

    pub(super) fn on_confirmed(
        &mut self,
        id: u8,
        client: SmcR,
        net: &mut Wire,
    ) -> Result<(), Failure> {
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
        self.groups[g].end().peer_qp = client.qp_num;
        self.groups[g].end().peer_gid = client.gid;
        self.groups[g].end().peer_mac = client.mac;
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

    pub(super) fn join(
        &mut self,
        id: u8,
        accepted: client::Accepted,
        net: &mut Wire,
    ) -> Result<(), Failure> {
        let server = *accepted.server();
        self.conn(id).peer = Some(server);
        let g = match accepted.new_lgr() {
            Some(new) => {
                new.path(|| self.config.route)?;
                let channel = server.qp_num.get() as u8;
                let g = self.add_group(new.version(), new.peer, channel, new.limits);
                self.groups[g].end().peer_qp = server.qp_num;
                self.groups[g].end().peer_gid = server.gid;
                self.groups[g].end().peer_mac = server.mac;
                self.conn(id).first = true;
                g
            }
            None => {
                let wanted = accepted.wanted(0, ENDS);
                let found = self.groups.iter().position(|group| {
                    group.is_alive && group.candidate(self.side).matches(&wanted)
                });
                let g = found.ok_or(Reason::SyncError)?;
                let link = find::named_link(&self.groups[g].ends, &wanted);
                link.ok_or(Reason::NoServerLink)?;
                g
            }
        };
        self.conn(id).group = Some(g);
        if !self.config.has_memory {
            return Err(Reason::Memory.into());
        }
        let is_new = self.take_buffer(id, accepted.version());
        self.learn_buffer(id, g, &server)?;
        if self.conns[&id].first {
            if !self.config.link_gets_ready {
                return Err(Reason::LinkNotReady.into());
            }
            self.begin_first_contact(id, g, net);
            self.send_confirm(id, &accepted, net);
        } else if is_new {
            self.conn(id).stage = Stage::Confirming(accepted);
            self.queue_flow(id, net);
        } else {
            self.send_confirm(id, &accepted, net);
            self.succeed(id);
        }
        Ok(())
    }

    pub(super) fn send_confirm(&mut self, id: u8, accepted: &client::Accepted, net: &mut Wire) {
        let local = self.conns[&id].local.unwrap();
        let gids = [local.gid];
        let gids = List::new(&gids).unwrap();
        let confirm = accepted.confirm(local, named(b"client"), gids);
        self.send_clc(id, &ClcMessage::Confirm(confirm), net);
    }

    pub(super) fn succeed(&mut self, id: u8) {
        let conn = &self.conns[&id];
        let g = conn.group.unwrap();
        let group = &mut self.groups[g];
        if !group.is_alive {
            // A client that answered, and heard of no decision while the group ended.
            let conn = self.conn(id);
            conn.stage = Stage::Done;
            conn.outcome = Some(Outcome::Aborted);
            return;
        }
        assert!(
            group.end().state.is_active(),
            "SMC over a link that is not active"
        );
        let target = Rtokens::new(&mut group.rows).get(conn.row.unwrap(), LinkIdx::FIRST);
        let joined = Joined {
            group: g,
            first: conn.first,
            version: match conn.local.unwrap().gid.ipv4() {
                Some(_) => Version::V2,
                None => Version::V1,
            },
            link_num: group.links[LinkIdx::FIRST],
            limits: group.limits,
            local: conn.local.unwrap(),
            peer: conn.peer.unwrap(),
            target: target.expect("the peer's buffer is known"),
        };
        let conn = self.conn(id);
        conn.stage = Stage::Done;
        conn.outcome = Some(Outcome::Smc(joined));
    }

    pub(super) fn fail(&mut self, id: u8, failure: Failure, net: &mut Wire) {
        let actions = failure.actions();
        if let Some(reason) = actions.decline {
            // Nobody looks at TCP on this side any more.
            self.conn(id).may_cross = true;
            let received = self.conns[&id].received;
            let decline = handshake::decline(reason, received, self.config.peer_id);
            self.declined.push(decline);
            self.send_clc(id, &ClcMessage::Decline(decline), net);
        }
        let conn = self.conn(id);
        conn.stage = Stage::Done;
        conn.outcome = Some(match actions.disposition {
            Disposition::Fallback(reason) => Outcome::Fallback(reason),
            Disposition::Reconnect(reason) => Outcome::Reconnects(reason),
            Disposition::Fail(fatal) => Outcome::Failed(fatal),
        });
        let (first, group) = (conn.first, conn.group);
        if let Some(g) = group.filter(|_| first || actions.ends_group) {
            self.terminate(g, net);
        }
    }

    pub(super) fn tcp_ended(&mut self, id: u8, net: &mut Wire) {
        let is_reading = self
            .conns
            .get(&id)
            .is_some_and(|conn| conn.outcome.is_none());
        if is_reading {
            self.fail(id, Fatal::Reset.into(), net);
        }
    }

    pub(super) fn conn(&mut self, id: u8) -> &mut Conn {
        self.conns.get_mut(&id).unwrap()
    }

    pub(super) fn wait(&mut self, id: u8, time: smc_proto::time::Duration, net: &mut Wire) {
        let at = net.now().saturating_add(time);
        self.conn(id).deadline = Some(at);
        net.set_timer(self.side, at, 0);
    }

    pub(super) fn send_clc(&mut self, id: u8, message: &ClcMessage<'_>, net: &mut Wire) {
        let mut buf = [0; smc_proto::wire::clc::MAX_LEN];
        let mut bytes = message.emit(&mut buf).expect("it fits").to_vec();
        (self.config.mangle_clc)(&mut bytes);
        net.send(self.side, id, bytes);
    }
}

fn named(name: &[u8]) -> OwnInfo {
    OwnInfo {
        hostname: Hostname::new(name),
        listener: None,
    }
}

fn version_of(message: &ClcMessage<'_>) -> Version {
    match message {
        ClcMessage::Proposal(message) => message.version(),
        ClcMessage::Accept(message) => message.mode.version(),
        ClcMessage::Confirm(message) => message.mode.version(),
        ClcMessage::Decline(_) => Version::V1,
    }
}
