// SPDX-License-Identifier: GPL-2.0
//! What one machine knows of its links and buffers.

use smc_proto::id::{
    Gid,
    LinkNum,
    Mac,
    QpNum,
    RemoteAddr,
    Rkey, //
};
use smc_proto::lgr::rtoken::RtokenEntry;
use smc_proto::lgr::{
    ActiveLinks,
    LinkIdx,
    LinkMap,
    LinkPorts,
    Port,
    Role,
    Rtoken, //
};
use smc_proto::llc::link_work::{
    LinkWork,
    LostLink, //
};
use smc_proto::llc::{
    Finished,
    Llc,
    LocalEnd,
    Params, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::clc::{
    Limits,
    Release, //
};
use smc_proto::wire::llc::NewLinkRkey;
use smc_proto::wire::Version;

use super::super::Side;
use super::MAX_LINKS;

/// One side's end of a link.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub number: LinkNum,
    pub qp: u8,
    pub peer_qp: Option<u8>,
    pub peer: Port,
    pub port: Port,
    pub is_active: bool,
    /// Nothing is received by it any more.
    pub is_broken: bool,
    /// When something was received last.
    pub heard: Instant,
}

pub struct Machine {
    pub side: Side,
    pub llc: Llc,
    pub version: Version,
    pub links: LinkMap<Option<Link>>,
    pub rows: Vec<RtokenEntry>,
    /// Our buffers that the peer knows.
    pub rmbs: Vec<u32>,
    pub(super) announcing: Option<u32>,
    pub(super) next_rmb: u32,
    pub ports: u8,
    /// What the worker does at the moment.
    pub(super) working: Option<LinkWork>,
    pub is_dead: bool,
    /// When the timer runs.
    pub(super) due: Option<Instant>,
    /// One in so many of the caller's steps fails; 0 for none.
    pub fails: u32,
    /// The server fails to make its end of the next link that it would offer.
    pub fails_to_offer: bool,
    /// How flows ended.
    pub finished: Vec<Finished>,
    pub(super) busy_since: Option<Instant>,
    /// The longest time that one flow took.
    pub longest: Duration,
    pub(super) last_number: LinkNum,
}

/// The key of a buffer on a queue pair: another one for each.
pub fn key(rmb: u32, qp: u8) -> Rkey {
    Rkey(rmb << 8 | u32::from(qp))
}

pub(super) fn token(rmb: u32, qp: u8) -> Rtoken {
    Rtoken {
        rkey: key(rmb, qp),
        addr: RemoteAddr(u64::from(rmb) << 32),
    }
}

pub(super) fn port(side: Side, number: u8) -> Port {
    Port {
        gid: Gid([side.index() as u8 * 16 + number + 1; 16]),
        mac: Mac::NONE,
    }
}

impl Machine {
    pub(super) fn new(side: Side, version: Version, ports: u8, test_after: Duration) -> Self {
        let (role, qp, peer_qp) = match side {
            Side::Client => (Role::Client, 1, 2),
            Side::Server => (Role::Server, 2, 1),
        };
        let mut links = LinkMap::default();
        links[LinkIdx::FIRST] = Some(Link {
            number: LinkNum(1),
            qp,
            peer_qp: Some(peer_qp),
            peer: port(side.peer(), 0),
            port: port(side, 0),
            is_active: false,
            is_broken: false,
            heard: Instant::ZERO,
        });
        Self {
            side,
            llc: Llc::new(Params {
                role,
                version,
                max_links: MAX_LINKS,
                test_after,
            }),
            version,
            links,
            rows: vec![RtokenEntry::EMPTY; 64],
            rmbs: Vec::new(),
            announcing: None,
            next_rmb: 1 + 1000 * side.index() as u32,
            ports,
            working: None,
            is_dead: false,
            due: None,
            fails: 0,
            fails_to_offer: false,
            finished: Vec::new(),
            busy_since: None,
            longest: Duration::ZERO,
            last_number: LinkNum(1),
        }
    }

    pub fn numbers(&self) -> LinkMap<LinkNum> {
        self.links
            .map(|link| match link.filter(|link| !link.is_broken) {
                Some(link) => link.number,
                None => LinkNum::NONE,
            })
    }

    pub fn ends(&self) -> ActiveLinks {
        self.links.map(|link| {
            let link = link.filter(|link| link.is_active)?;
            Some(LinkPorts {
                local: link.port,
                peer: link.peer,
            })
        })
    }

    /// The indexes of active links.
    pub fn active(&self) -> Vec<LinkIdx> {
        let is_active = |idx: &LinkIdx| self.links[*idx].is_some_and(|link| link.is_active);
        LinkIdx::ALL.into_iter().filter(is_active).collect()
    }

    /// Which links have not failed.
    pub(super) fn up(&self) -> LinkMap<bool> {
        self.links
            .map(|link| link.is_some_and(|link| !link.is_broken))
    }

    /// What the module does about a link that has failed.
    pub(super) fn delete_lost_link(&mut self, idx: LinkIdx) {
        let (has_active, up) = (!self.active().is_empty(), self.up());
        let what = self.llc.on_lost_link(idx, has_active, |new| up[new]);
        self.is_dead |= what == LostLink::Last;
    }

    pub(super) fn spare(&self) -> Option<LinkIdx> {
        self.links.position(Option::is_none)
    }

    /// The queue pair of a link breaks; says whether it had not before.
    pub(super) fn break_link(&mut self, idx: LinkIdx) -> bool {
        let link = self.links[idx].as_mut().filter(|link| !link.is_broken);
        let Some(link) = link else {
            return false;
        };
        link.is_broken = true;
        link.is_active = false;
        true
    }

    pub(super) fn unused_port(&self) -> Option<Port> {
        (0..self.ports)
            .map(|number| port(self.side, number))
            .find(|port| !self.links.iter().flatten().any(|link| link.port == *port))
    }

    pub(super) fn keys(&self, on: LinkIdx, qp: u8) -> Vec<NewLinkRkey> {
        let here = self.links[on].map_or(0, |link| link.qp);
        let entry = |rmb: &u32| {
            let there = token(*rmb, qp);
            NewLinkRkey::new(key(*rmb, here), there.rkey, there.addr)
        };
        self.rmbs.iter().map(entry).collect()
    }

    pub(super) fn end(&self, idx: LinkIdx, link: &Link) -> LocalEnd {
        LocalEnd {
            idx,
            mac: link.port.mac,
            gid: link.port.gid,
            qp_num: QpNum::new(link.qp.into()).unwrap(),
            link_num: link.number,
            group_uid: 0x100,
            release: Release::R1,
            limits: Limits {
                max_conns: 255,
                max_links: MAX_LINKS,
            },
            is_direct: true,
        }
    }
}
