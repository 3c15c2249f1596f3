// SPDX-License-Identifier: GPL-2.0

//! Adds links: finds ports, creates queue pairs, registers RMBs (RFC 7609 section 4.4.3; C functions
//! `smc_llc_srv_add_link`, `smc_llc_cli_add_link`).

use kernel::{
    pr_warn_once,
    sync::Arc, //
};
use kernel_ext::{
    ib::Device,
    prelude::*, //
};
use smc_proto::{
    id::{
        Gid,
        LinkNum, //
    },
    lgr::{
        redundancy::{
            self,
            AddLinkTrigger,
            PortChoice, //
        },
        LinkIdx,
        Port, //
    },
    link::Transport,
    llc::{
        Actions,
        NewEnd, //
    },
    reason::Reason,
    wire::{
        iwarp::IwListenAddr,
        llc::{
            NewLink,
            NewLinkRkey,
            RejectReason, //
        },
        List,
        Version, //
    }, //
};

use super::clear_link;
use crate::{
    ib::{
        self,
        PeerPort,
        PortGid, //
    },
    lgr::{
        LinkGroup,
        LinkRef, //
    },
    link::{
        Link,
        PeerQp,
        PortInfo, //
    },
    llc::LinkRx, //
};

/// Maximum of RMBs that one message can name, which is as many as a peer remembers.
const MAX_KEYS: usize = 255;

/// A port for another link: its device and properties.
struct LocalPort {
    device: Arc<Device>,
    info: PortInfo,
}

impl LocalPort {
    fn of(port: &PortGid) -> Self {
        Self {
            device: port.device().clone(),
            info: port.info,
        }
    }
}

/// Finds a port for `transport` that no link of the group uses, on the same physical network as that of `link`, and
/// from which the peer's port is reachable.
fn unused_port(
    group: &LinkGroup,
    link: &Link,
    transport: Transport,
    peer: PeerPort,
) -> Option<PortGid> {
    let links = group.links();
    let is_used = |device: &Arc<Device>, port: u32| {
        let mut links = links.iter().flatten();
        links.any(|link| link.is_on(device) && link.port().port == port)
    };
    let wanted = ib::PortQuery {
        net: group.params.net,
        transport,
        version: group.params.version,
        peer,
        is_direct: group.params.is_direct,
        pnetid: link.port().pnetid,
        vlan: group.params.vlan,
    };
    ib::find_port(&wanted, is_used)
}

/// Finds an unused port for another link beside `link`, for the same transport if possible. A peer that keeps to RFC
/// 7609 does not know the other transport.
fn find_alt_port(group: &LinkGroup, link: &Link) -> Option<PortGid> {
    let peer = PeerPort::Other(link.end().peer_gid);
    let find = |transport| unused_port(group, link, transport, peer);
    let (same, other) = (link.port().transport, link.port().transport.other());
    find(same).or_else(|| {
        let is_known = other.is_standard() || group.peer().takes_cdc_on_any_link;
        is_known.then(|| find(other))?
    })
}

/// No unused port was found. If another link is of use, and this side has a port for it, the peer's is not reached from
/// that: there may be a route, or an answer of its gateway, later.
fn retry_unreached(group: &Arc<LinkGroup>, link: &Link, why: AddLinkTrigger) {
    let find = || unused_port(group, link, link.port().transport, PeerPort::Any);
    let max_links = group.params.limits.max_links;
    if redundancy::wants_link(&group.ports(), max_links) && find().is_some() {
        try_later(group, why);
    }
}

/// Returns the port for a new link, to the peer's port `peer` if that is known. If a port in use is taken it is that of
/// the link with the fewest connections: if the new link makes another one superfluous, it is that one.
fn place(
    group: &LinkGroup,
    which: PortChoice,
    unused: Option<PortGid>,
    peer: Option<Gid>,
) -> Option<LocalPort> {
    match which {
        PortChoice::Unused => unused.as_ref().map(LocalPort::of),
        PortChoice::Same => {
            let transport = peer.map(|gid| Transport::of(gid, group.params.version));
            let link = group.least_loaded_link(|link| {
                transport.is_none_or(|transport| link.port().transport == transport)
            })?;
            let device = link.device()?;
            let info = match peer {
                Some(peer) => way(group, &device, &link, peer)?,
                None => ib::current(&device, link.port())?,
            };
            Some(LocalPort { device, info })
        }
    }
}

/// Returns the port of `link` with the path from it to the peer's port `peer`: that of an existing link, or a new one
/// of the same kind.
fn way(group: &LinkGroup, device: &Arc<Device>, link: &Link, peer: Gid) -> Option<PortInfo> {
    let port = link.port();
    let links = group.links();
    let mut known = links
        .iter()
        .flatten()
        .filter(|other| other.is_active() && other.is_on(device) && other.port().port == port.port);
    if let Some(other) = known.find(|other| other.end().peer_gid == peer) {
        return ib::current(device, other.port());
    }
    let port = ib::current(device, port)?;
    let (net, is_direct) = (group.params.net, group.params.is_direct);
    ib::toward(device, &port, net, peer, is_direct)
}

/// Creates a link with its number and puts it into a slot.
fn make(group: &LinkGroup, idx: LinkIdx, place: &LocalPort, number: LinkNum) -> Result<Arc<Link>> {
    let link = Link::new(&place.device, place.info, group.params.link)?;
    // Before others can look it up.
    link.set_number(number);
    group
        .put_link(idx, &link)
        .inspect_err(|_| link.shut_down())?;
    if !ib::is_there(&place.device) {
        // The removal of the device took its links down before and missed this one.
        clear_link(group, idx);
        return Err(ENODEV);
    }
    Ok(link)
}

/// Maps the RMBs that the peer may know on a new link, and lists their RTokens there by their RKeys on link `on`. The
/// peer ignores RMBs that it does not know. In version 1 the group keeps the list until the link was added.
fn map_rmbs(
    group: &LinkGroup,
    on: LinkIdx,
    idx: LinkIdx,
    link: &Link,
) -> Result<Arc<KVec<NewLinkRkey>>> {
    let mut keys = KVec::new();
    group.rmbs.try_for_each(|rmb| {
        let here = match rmb.rtoken(on) {
            Some(here) if !rmb.is_useless() => here,
            Some(_) | None => return Ok(()),
        };
        rmb.map(idx, link)?;
        let there = rmb.rtoken(idx).ok_or(ENOLINK)?;
        if keys.len() == MAX_KEYS {
            pr_warn_once!("a link group has too many buffers for a further link\n");
            return Err(E2BIG);
        }
        keys.push(
            NewLinkRkey::new(here.rkey, there.rkey, there.addr),
            GFP_KERNEL,
        )?;
        Ok(())
    })?;
    let keys = Arc::new(keys, GFP_KERNEL)?;
    if group.params.version == Version::V1 {
        group.with_llc(|llc, _| llc.new_rkeys = Some(keys.clone()));
    }
    Ok(keys)
}

/// Registers the RMBs that are mapped on a link.
fn register_rmbs(group: &LinkGroup, idx: LinkIdx, link: &Arc<Link>) -> Result {
    group.rmbs.try_for_each(|rmb| match rmb.rtoken(idx) {
        Some(_) => rmb.register(idx, link),
        None => Ok(()),
    })
}

fn ready_to_receive(
    group: &Arc<LinkGroup>,
    idx: LinkIdx,
    link: &Arc<Link>,
    peer: &NewLink,
) -> Result {
    let end = PeerQp {
        qp: peer.qp_num,
        gid: peer.gid,
        mac: peer.mac,
        psn: peer.psn,
        mtu: peer.mtu.ok_or(EINVAL)?.min(link.mtu()),
    };
    link.ready_to_receive(end, LinkRx::new(group, idx)?)
}

/// Client: answers the server's offer of a link, which becomes link `idx`.
pub(super) fn answer(group: &Arc<LinkGroup>, on: LinkIdx, idx: LinkIdx, offer: &NewLink) {
    let made = choose_answer(group, on, offer).and_then(|place| {
        make_answer(group, on, idx, offer, place).map_err(|_| {
            try_later(group, AddLinkTrigger::OwnPort);
            RejectReason::NO_ALTERNATE_PATH
        })
    });
    let is_taken = match &made {
        Ok(ClientLink {
            link,
            keys,
            listen_addr,
        }) => {
            let end = group.local_end(idx, link);
            let new = NewEnd {
                end,
                mtu: link.mtu().min(offer.mtu.unwrap_or(link.mtu())),
                psn: link.psn(),
                listen_addr: *listen_addr,
                keys: List::new(keys).unwrap_or_default(),
            };
            group.run_llc(|llc, _, now| llc.on_offer_answered(*offer, Ok(new), now))
        }
        Err(reason) => {
            group.run_llc(|llc, _, now| llc.on_offer_answered(*offer, Err(*reason), now))
        }
    };
    if made.is_ok() && !is_taken {
        // The flow is over: the new link is not needed.
        clear_link(group, idx);
    }
}

/// The client's end of a link that was offered.
struct ClientLink {
    link: Arc<Link>,
    keys: Arc<KVec<NewLinkRkey>>,
    /// Where the client listens for the server's connection, if the link needs one.
    listen_addr: Option<IwListenAddr>,
}

/// Chooses the port for a link that was offered; `None` if it is gone, or has no path to the peer's port.
///
/// # Errors
///
/// The reason for the rejection of an offer that is of no use.
fn choose_answer(
    group: &Arc<LinkGroup>,
    on: LinkIdx,
    offer: &NewLink,
) -> Result<Option<LocalPort>, RejectReason> {
    let link = group.link(on).ok_or(RejectReason::NO_ALTERNATE_PATH)?;
    let transport = Transport::of(offer.gid, group.params.version);
    let unused = unused_port(group, &link, transport, PeerPort::Known(offer.gid));
    if unused.is_none() {
        retry_unreached(group, &link, AddLinkTrigger::OwnPort);
    }
    let port = Port {
        gid: offer.gid,
        mac: group.mac_for_match(offer.mac),
    };
    let max_links = group.params.limits.max_links;
    let which = redundancy::answer(&group.ports(), max_links, port, unused.is_some())?;
    Ok(place(group, which, unused, Some(offer.gid)))
}

fn make_answer(
    group: &Arc<LinkGroup>,
    on: LinkIdx,
    idx: LinkIdx,
    offer: &NewLink,
    place: Option<LocalPort>,
) -> Result<ClientLink> {
    let link = make(group, idx, &place.ok_or(EHOSTUNREACH)?, offer.link_num)?;
    let made = ready_to_receive(group, idx, &link, offer)
        .and_then(|()| map_rmbs(group, on, idx, &link))
        .and_then(|keys| Ok((keys, link.listen_added(group.params.net)?)));
    match made {
        Ok((keys, listen_addr)) => Ok(ClientLink {
            link,
            keys,
            listen_addr,
        }),
        Err(e) => {
            clear_link(group, idx);
            Err(e)
        }
    }
}

/// This side cannot make its end of a link that is of use, or not on a port of its own.
fn try_later(group: &Arc<LinkGroup>, why: AddLinkTrigger) {
    group.run_llc(|llc, _, now| {
        llc.on_add_link_failed(why, now);
        Actions::default()
    });
}

/// Server: connects a link that the client accepted. The client checks that its port is reachable; the check here fails
/// sooner than waiting for an answer on the new link.
pub(super) fn connect(group: &Arc<LinkGroup>, idx: LinkIdx, peer: &NewLink) {
    let result = group.link(idx).ok_or(ENOLINK).and_then(|link| {
        let device = link.device().ok_or(ENOLINK)?;
        way(group, &device, &link, peer.gid).ok_or(EHOSTUNREACH)?;
        ready_to_receive(group, idx, &link, peer)?;
        link.connect_added(group.params.net, peer)?;
        link.ready_to_send()?;
        register_rmbs(group, idx, &link)
    });
    let result = result.map_err(|_| Reason::LinkNotReady);
    group.run_llc(|llc, _, now| llc.on_link_prepared(idx, result, now));
    if let Some(link) = group.link(idx) {
        // The first message may be overlooked: see `link::transport::iwarp::connect`.
        group.request_ack_later(&link);
    }
}

/// Client: brings the new link up after the server's CONFIRM LINK.
pub(super) fn prepare(group: &Arc<LinkGroup>, idx: LinkIdx) {
    let result = group.link(idx).ok_or(ENOLINK).and_then(|link| {
        link.ready_to_send()?;
        register_rmbs(group, idx, &link)
    });
    let result = result.map_err(|_| Reason::LinkNotReady);
    group.run_llc(|llc, _, now| llc.on_link_prepared(idx, result, now));
}

/// Server: offers a link if one is of use.
pub(super) fn offer(group: &Arc<LinkGroup>, why: AddLinkTrigger) {
    let is_held = group.with_llc(|llc, _| llc.core.reserve_flow_for_add_link(why));
    if !is_held {
        return;
    }
    let begun = begin_offer(group, why);
    if begun == Ok(true) {
        return;
    }
    group.release();
    if begun.is_err() {
        try_later(group, why);
    }
    if let Some(LinkRef { idx, link }) = group.active_link() {
        let end = group.local_end(idx, &link);
        group.run_llc(|llc, _, _| llc.offer_nothing(&end));
    }
}

/// Begins to offer a link; returns `false` if none is of use. The flow is held.
fn begin_offer(group: &Arc<LinkGroup>, why: AddLinkTrigger) -> Result<bool> {
    let LinkRef { idx: on, link } = group.active_link().ok_or(ENOLINK)?;
    let unused = find_alt_port(group, &link);
    if unused.is_none() {
        retry_unreached(group, &link, why);
    }
    let max_links = group.params.limits.max_links;
    let Some(which) = redundancy::offer(&group.ports(), max_links, unused.is_some(), why) else {
        return Ok(false);
    };
    let place = place(group, which, unused, None).ok_or(ENODEV)?;
    // To the C module a port of ours that is offered again is new if the offer comes on a link of another port.
    let on = group
        .find_active(|link| link.port().gid != place.info.gid)
        .map_or(on, |other| other.idx);
    let idx = group.spare_idx().ok_or(EBUSY)?;
    let number = group.next_link_number().ok_or(EBUSY)?;
    let new = make(group, idx, &place, number)?;
    let keys = map_rmbs(group, on, idx, &new).inspect_err(|_| clear_link(group, idx))?;
    let offer = NewEnd {
        end: group.local_end(idx, &new),
        mtu: new.mtu(),
        psn: new.psn(),
        listen_addr: None,
        keys: List::new(&keys).unwrap_or_default(),
    };
    Ok(group.run_llc(|llc, _, now| llc.begin_add_link(on, &offer, now).unwrap_or_default()))
}

/// Client: informs the server that it has a port for another link, if it has one.
pub(super) fn invite(group: &Arc<LinkGroup>) {
    let Some(LinkRef { idx: on, link }) = group.active_link() else {
        return;
    };
    let Some(port) = find_alt_port(group, &link) else {
        return retry_unreached(group, &link, AddLinkTrigger::OwnPort);
    };
    let gids = [link.port().gid, port.gid];
    let gids = List::new(&gids).unwrap_or_default();
    group.run_llc(|llc, _, now| llc.invite(on, port.mac, gids, now));
}
