// SPDX-License-Identifier: GPL-2.0
//! What a machine does of its own accord, and its answer to an offer.

use smc_proto::id::{
    Gid,
    LinkNum,
    Mac,
    Mtu,
    Psn, //
};
use smc_proto::lgr::redundancy::{
    self,
    AddLinkTrigger, //
};
use smc_proto::lgr::{
    LinkIdx,
    Port,
    Rtokens, //
};
use smc_proto::link::next_number;
use smc_proto::llc::link_work::DeleteCause;
use smc_proto::llc::rkey::{
    ConfirmRkeyParams,
    Deletion, //
};
use smc_proto::llc::{
    Action,
    Actions,
    DeleteLinkParams,
    NewEnd, //
};
use smc_proto::wire::llc::{
    LinkRkey,
    NewLink,
    RejectReason,
    WireRkey, //
};
use smc_proto::wire::List;

use super::super::Side;
use super::{
    key,
    token,
    Link,
    World,
    MAX_LINKS, //
};

/// The server could not make its end of a link.
#[derive(PartialEq)]
struct NotMade;

impl World {
    fn new_link(&mut self, port: Port, number: LinkNum) -> Link {
        let qp = self.next_qp;
        self.next_qp += 1;
        Link {
            number,
            qp,
            peer_qp: None,
            peer: Port {
                gid: Gid::NONE,
                mac: Mac::NONE,
            },
            port,
            is_active: false,
            is_broken: false,
            heard: self.net.now(),
        }
    }

    /// The client answers an offer.
    pub(super) fn answer(&mut self, side: Side, (on, idx): (LinkIdx, LinkIdx), offer: NewLink) {
        let now = self.net.now();
        let fails = self.fails(side) || self.machine(side).links[idx].is_some();
        let machine = self.machine(side);
        let peer = Port {
            gid: offer.gid,
            mac: Mac::NONE,
        };
        let unused = machine.unused_port();
        let which = redundancy::answer(&machine.ends(), MAX_LINKS, peer, unused.is_some());
        let here = machine.links[on].map(|link| link.port);
        let port = match which {
            Ok(redundancy::PortChoice::Unused) if !fails => unused,
            Ok(redundancy::PortChoice::Same) if !fails => here,
            _ => None,
        };
        let Some(port) = port else {
            if which.is_ok() {
                let llc = &mut machine.llc;
                llc.on_add_link_failed(AddLinkTrigger::OwnPort, now);
            }
            let reason = which.err().unwrap_or(RejectReason::NO_ALTERNATE_PATH);
            self.run_llc(side, |llc, now| {
                llc.on_offer_answered(offer, Err(reason), now)
            });
            return;
        };
        let mut link = self.new_link(port, offer.link_num);
        link.peer_qp = Some(offer.qp_num.get() as u8);
        link.peer = peer;
        let machine = self.machine(side);
        machine.links[idx] = Some(link);
        let keys = machine.keys(on, link.qp);
        let new = NewEnd {
            end: machine.end(idx, &link),
            mtu: Mtu::B1024,
            psn: Psn::default(),
            listen_addr: None,
            keys: List::new(&keys).unwrap(),
        };
        let actions = machine.llc.on_offer_answered(offer, Ok(new), now);
        let is_late = actions.iter().any(|a| matches!(a, Action::Ignored(_)));
        self.act(side, actions);
        if is_late {
            // The flow is over: nobody needs what was made for it.
            self.machine(side).links[idx] = None;
        }
    }

    /// A port of a side became active.
    pub fn port_up(&mut self, side: Side) {
        self.machine(side).llc.on_port();
        self.wake_worker(side);
    }

    /// The server offers a link if one is of use.
    pub(super) fn offer(&mut self, why: AddLinkTrigger) {
        let side = Side::Server;
        let is_held = self.machine(side).llc.reserve_flow_for_add_link(why);
        if !is_held {
            return;
        }
        let begun = self.begin_offer(why);
        if begun == Ok(true) {
            return;
        }
        self.run_llc(side, |llc, now| llc.abandon(now));
        if begun.is_err() {
            self.run_llc(side, |llc, now| {
                llc.on_add_link_failed(why, now);
                Actions::default()
            });
        }
        let machine = self.machine(side);
        if let Some(&idx) = machine.active().first() {
            let end = machine.end(idx, &machine.links[idx].unwrap());
            self.run_llc(side, |llc, _| llc.offer_nothing(&end));
        }
    }

    /// Begins to offer a link; `false` if none is of use. The flow is held.
    fn begin_offer(&mut self, why: AddLinkTrigger) -> Result<bool, NotMade> {
        let now = self.net.now();
        let side = Side::Server;
        let machine = self.machine(side);
        let active = machine.active();
        let port_of = |idx: LinkIdx| machine.links[idx].map(|link| link.port);
        let unused = machine.unused_port();
        let first = *active.first().ok_or(NotMade)?;
        let port = match redundancy::offer(&machine.ends(), MAX_LINKS, unused.is_some(), why) {
            Some(redundancy::PortChoice::Unused) => unused,
            Some(redundancy::PortChoice::Same) => port_of(first),
            None => return Ok(false),
        };
        let beside = |idx: &&LinkIdx| port_of(**idx) != port;
        let on = *active.iter().find(beside).unwrap_or(&first);
        let (port, idx) = (port.ok_or(NotMade)?, machine.spare().ok_or(NotMade)?);
        let numbers = machine.numbers();
        let number = next_number(machine.last_number, |n| numbers.0.contains(&n)).ok_or(NotMade)?;
        if std::mem::take(&mut machine.fails_to_offer) {
            return Err(NotMade);
        }
        machine.last_number = number;
        let link = self.new_link(port, number);
        let machine = self.machine(side);
        machine.links[idx] = Some(link);
        let keys = machine.keys(on, link.qp);
        let new = NewEnd {
            end: machine.end(idx, &link),
            mtu: Mtu::B1024,
            psn: Psn::default(),
            listen_addr: None,
            keys: List::new(&keys).unwrap(),
        };
        let actions = machine.llc.begin_add_link(on, &new, now);
        self.act(side, actions.expect("it is held"));
        Ok(true)
    }

    /// The client says that it has a port for another link, if it has.
    pub(super) fn invite(&mut self) {
        let now = self.net.now();
        let machine = self.machine(Side::Client);
        let active = machine.active();
        let Some((unused, &on)) = machine.unused_port().zip(active.first()) else {
            return;
        };
        let gids = [machine.links[on].unwrap().port.gid, unused.gid];
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let actions = machine.llc.invite(on, mac, List::new(&gids).unwrap(), now);
        self.act(Side::Client, actions);
    }

    /// Announces a buffer on all active links, if no flow is under way.
    pub fn confirm_rkey(&mut self, side: Side) {
        let now = self.net.now();
        let machine = self.machine(side);
        let slots = machine.active();
        let (false, Some(&on)) = (machine.is_dead, slots.first()) else {
            return;
        };
        if machine.llc.hold().is_err() {
            return;
        }
        let rmb = machine.next_rmb;
        machine.next_rmb += 1;
        machine.announcing = Some(rmb);
        let links = slots.iter().filter_map(|idx| machine.links[*idx]);
        let others: Vec<LinkRkey> = links
            .skip(1)
            .take(2)
            .map(|link| LinkRkey::new(link.number, key(rmb, link.qp), token(rmb, 0).addr))
            .collect();
        let here = token(rmb, machine.links[on].unwrap().qp);
        let others = List::new(&others).unwrap();
        let announcement = ConfirmRkeyParams { here, others };
        let actions = machine
            .llc
            .begin_confirm_rkey(on, announcement, now)
            .unwrap();
        self.act(side, actions);
    }

    /// Takes a buffer back that the peer knows.
    pub fn take_back(&mut self, side: Side) {
        let now = self.net.now();
        let machine = self.machine(side);
        let slots = machine.active();
        let (false, Some(&on)) = (machine.is_dead, slots.first()) else {
            return;
        };
        if machine.rmbs.is_empty() || machine.llc.hold().is_err() {
            return;
        }
        let rmb = machine.rmbs.remove(0);
        let keys = [WireRkey::from(key(rmb, machine.links[on].unwrap().qp))];
        let actions = machine
            .llc
            .begin_delete_rkey(on, Deletion::new(&keys).unwrap(), now)
            .unwrap();
        self.act(side, actions);
    }

    /// A side finds that a link is broken.
    pub fn lose(&mut self, side: Side, idx: LinkIdx) {
        if !self.machine(side).break_link(idx) {
            return;
        }
        self.run_llc(side, |llc, now| llc.on_link_down(idx, now));
        self.machine(side).delete_lost_link(idx);
        self.wake_worker(side);
    }

    pub(super) fn delete_link(&mut self, side: Side, idx: LinkIdx, cause: DeleteCause) {
        let machine = self.machine(side);
        let Some(link) = machine.links[idx] else {
            return;
        };
        if cause == DeleteCause::LostPath && !link.is_broken {
            return;
        }
        if link.is_broken && machine.active().is_empty() {
            machine.delete_lost_link(idx);
            return;
        }
        machine.break_link(idx);
        self.run_llc(side, |llc, now| llc.on_link_down(idx, now));
        let machine = self.machine(side);
        let Some(&on) = machine.active().first() else {
            machine.delete_lost_link(idx);
            return;
        };
        let was_active = machine.llc.stop_testlink(idx);
        if was_active {
            let params = DeleteLinkParams {
                on,
                idx,
                link_num: link.number,
                cause,
            };
            self.run_llc(side, |llc, now| llc.delete_link(params, now));
        }
        let machine = self.machine(side);
        Rtokens::new(&mut machine.rows).delete_link(idx);
        machine.links[idx] = None;
    }
}
