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
    Occasion, //
};
use smc_proto::lgr::Port;
use smc_proto::link::next_number;
use smc_proto::llc::rkey::{
    Announcement,
    Deletion, //
};
use smc_proto::llc::{
    Action,
    DeleteLinkParams,
    NewEnd, //
};
use smc_proto::wire::llc::{
    DeleteReason,
    LinkRkey,
    NewLink,
    RejectReason,
    WireRkey, //
};
use smc_proto::wire::List;

use super::super::Side;
use super::{
    key,
    port,
    token,
    Link,
    World,
    MAX_LINKS, //
};

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
        }
    }

    /// The client answers an offer.
    pub(super) fn answer(
        &mut self,
        side: Side,
        (on, slot): (usize, usize),
        offer: NewLink,
        fails: bool,
    ) {
        let now = self.net.now();
        let machine = self.machine(side);
        let peer = Port {
            gid: offer.gid,
            mac: Mac::NONE,
        };
        let unused = machine.unused_port();
        let which = redundancy::answer(&machine.ends(), MAX_LINKS, peer, unused.is_some());
        let here = machine.links[on].map(|link| link.port);
        let port = match which {
            Ok(redundancy::Which::Unused) if !fails => unused,
            Ok(redundancy::Which::Same) if !fails => here,
            _ => None,
        };
        let Some(port) = port else {
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
        machine.links[slot] = Some(link);
        let keys = machine.keys(on, link.qp);
        let new = NewEnd {
            end: machine.end(slot, &link),
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
            self.machine(side).links[slot] = None;
        }
    }

    /// The server offers a link if it can.
    pub fn offer(&mut self, on: usize) {
        self.offer_because(on, Occasion::OwnPort);
    }

    pub(super) fn offer_because(&mut self, on: usize, why: Occasion) {
        let now = self.net.now();
        let side = Side::Server;
        let machine = self.machine(side);
        let is_up = machine.links[on].is_some_and(|link| link.is_active);
        if machine.is_dead || !is_up || !machine.llc.is_idle() {
            return;
        }
        let unused = machine.unused_port();
        let which = redundancy::offer(&machine.ends(), MAX_LINKS, unused.is_some(), why);
        let here = machine.links[on].map(|link| link.port);
        let port = match which {
            Some(redundancy::Which::Unused) => unused,
            Some(redundancy::Which::Same) => here,
            None => None,
        };
        let numbers = machine.numbers();
        let number = next_number(machine.last_number, |n| numbers.contains(&n)).unwrap();
        let (Some(port), Some(slot)) = (port, machine.spare()) else {
            return;
        };
        machine.last_number = number;
        let link = self.new_link(port, number);
        let machine = self.machine(side);
        machine.links[slot] = Some(link);
        let keys = machine.keys(on, link.qp);
        let new = NewEnd {
            end: machine.end(slot, &link),
            mtu: Mtu::B1024,
            psn: Psn::default(),
            listen_addr: None,
            keys: List::new(&keys).unwrap(),
        };
        machine.llc.hold().expect("it is idle");
        let actions = machine
            .llc
            .begin_add_link(on, &new, now)
            .expect("it is held");
        self.act(side, actions);
    }

    /// The client says that it could add a link.
    pub fn invite(&mut self, on: usize) {
        let machine = self.machine(Side::Client);
        if machine.is_dead || machine.links[on].is_none() {
            return;
        }
        let gids = [port(Side::Client, 0).gid, port(Side::Client, 1).gid];
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let actions = machine.llc.invite(on, mac, List::new(&gids).unwrap());
        self.act(Side::Client, actions);
    }

    /// Announces a buffer on all active links, if no flow is under way.
    pub fn announce(&mut self, side: Side) {
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
        let links = slots.iter().filter_map(|slot| machine.links[*slot]);
        let others: Vec<LinkRkey> = links
            .skip(1)
            .take(2)
            .map(|link| LinkRkey::new(link.number, key(rmb, link.qp), token(rmb, 0).addr))
            .collect();
        let here = token(rmb, machine.links[on].unwrap().qp);
        let others = List::new(&others).unwrap();
        let region = Announcement { here, others };
        let actions = machine.llc.begin_confirm_rkey(on, region, now).unwrap();
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
    pub fn lose(&mut self, side: Side, slot: usize) {
        self.delete(side, slot, DeleteReason::LOST_PATH);
        self.take_down(side, slot);
    }

    pub(super) fn delete(&mut self, side: Side, slot: usize, reason: DeleteReason) {
        let machine = self.machine(side);
        let other = machine.active().into_iter().find(|other| *other != slot);
        let (Some(on), Some(link)) = (other, machine.links[slot]) else {
            return;
        };
        let params = DeleteLinkParams {
            on,
            slot,
            link_num: link.number,
            reason,
        };
        if link.is_active {
            self.run_llc(side, |llc, now| llc.delete_link(params, now));
        }
    }
}
