// SPDX-License-Identifier: GPL-2.0

//! The listening side (C functions `smc_listen_work`, `smc_listen_find_device`).

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::net::{
    Sk,
    TcpSocket, //
};
use smc_proto::{
    handshake::{
        server::{
            Beginning,
            Chosen,
            Local as Facts, //
        },
        select::Path,
        Failure,
        Fatal,
        CLC_WAIT, //
    },
    lgr::Role,
    reason::Reason,
    wire::clc::Message, //
};

use super::{
    abandon,
    announce,
    conclude,
    endpoint,
    first,
    internal,
    learn,
    make_conn,
    Outcome, //
};
use crate::{
    clc::Exchange,
    config,
    conn::Conn,
    groups,
    ib::{
        self,
        PortGid, //
    },
    lgr::{
        LinkGroup,
        Terms, //
    },
    link::{
        Link,
        PeerEnd, //
    },
    local::Local, //
};

/// Runs the handshake on a connection that a listener accepted. May sleep.
///
/// # Errors
///
/// When the TCP connection is lost; the connection is then not shown to accept(2).
pub(crate) fn accept(local: &Local, tcp: &TcpSocket, sk: &ARef<Sk>) -> Result<Outcome> {
    if !tcp.syn_smc() {
        return Ok(Outcome::Fallback(Reason::PeerNoSmc, 0));
    }
    let mut exchange = Exchange::new(tcp)?;
    match shake(local, tcp, sk, &mut exchange) {
        Ok(conn) => Ok(Outcome::Smc(conn)),
        Err(failure) => conclude(&exchange, local, failure),
    }
}

fn shake(
    local: &Local,
    tcp: &TcpSocket,
    sk: &ARef<Sk>,
    exchange: &mut Exchange<'_>,
) -> Result<Arc<Conn>, Failure> {
    let chosen = {
        let Message::Proposal(proposal) = exchange.receive(CLC_WAIT)? else {
            return Err(Fatal::Protocol.into());
        };
        let ueids = local.ueids.lock().clone();
        let facts = Facts {
            eids: &ueids,
            limits: config::limits(),
            has_ipsec: tcp.has_xfrm_policy(),
            has_interface: tcp.route_device().is_some(),
        };
        // Version 1 needs RoCE v1 GIDs, which are not looked for: its subnets match nothing.
        facts.judge(&proposal, |_| false)?
    };
    let (chosen, port) = with_port(tcp, chosen)?;
    // One handshake at a time makes a link group with this peer; others wait, those of other peers
    // do not.
    let gate = groups::gate(&chosen.wanted(0)).map_err(internal)?;
    let turn = gate.enter();
    if let Some(group) = groups::find(&chosen.wanted(0)) {
        drop(turn);
        return reuse(local, sk, exchange, chosen, &group);
    }
    begin(local, sk, exchange, chosen, port)
}

/// Finds a port for the way that was chosen, or another way.
fn with_port(tcp: &TcpSocket, mut chosen: Chosen) -> Result<(Chosen, PortGid), Reason> {
    loop {
        match ib::find_v2(tcp, Some(chosen.peer_gid())) {
            Some(port) if chosen.eid().is_some() => return Ok((chosen, port)),
            _ => chosen = chosen.without_port()?,
        }
    }
}

fn begin(
    local: &Local,
    sk: &ARef<Sk>,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    port: PortGid,
) -> Result<Arc<Conn>, Failure> {
    let is_direct = port.path() == Path::Direct;
    let link = Link::new(port).map_err(internal)?;
    let terms = Terms {
        role: Role::Server,
        version: chosen.version(),
        release: chosen.release(),
        limits: chosen.limits(),
        peer: chosen.wanted(0).peer,
        vlan: 0,
        eid: chosen.eid(),
        is_direct,
    };
    let group = LinkGroup::new(local.next_group_id(), terms, link).map_err(internal)?;
    let result = begin_in(local, sk, exchange, chosen, is_direct, &group);
    match &result {
        Ok(_) => groups::add(&group).map_err(internal)?,
        Err(_) => group.end(),
    }
    result
}

fn begin_in(
    local: &Local,
    sk: &ARef<Sk>,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    is_direct: bool,
    group: &Arc<LinkGroup>,
) -> Result<Arc<Conn>, Failure> {
    let link = &group.link;
    let conn = make_conn(group, sk.clone())?;
    let ours = endpoint(local, &conn)?;
    let beginning = Beginning {
        is_direct,
        hostname: local.hostname,
    };
    let (peer_gid, peer_mac) = (chosen.peer_gid(), chosen.peer_mac());
    let (accepted, message) = chosen.accept(ours, Some(beginning));
    exchange.send(&Message::Accept(message))?;
    let agreed = accepted.on_message(&exchange.receive(CLC_WAIT)?)?;
    let client = agreed.client();
    learn(&conn, client)?;
    if let Some(peer) = agreed.peer() {
        group.set_peer_os(peer.os);
    }
    let end = PeerEnd {
        gid: peer_gid,
        mac: if peer_mac.is_zero() { client.mac } else { peer_mac },
        ..PeerEnd::of(client, agreed.mtu())
    };
    link.ready_to_receive(end, group.clone())
        .and_then(|()| link.ready_to_send())
        .map_err(|_| Reason::LinkNotReady)?;
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    link.register(rmbe.rmb().mr())
        .map_err(|_| Reason::RegistrationFailed)?;
    group.begin_first_contact(first::link_of(group, link));
    first::finish(exchange, &conn)?;
    conn.establish();
    Ok(conn)
}

fn reuse(
    local: &Local,
    sk: &ARef<Sk>,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    group: &Arc<LinkGroup>,
) -> Result<Arc<Conn>, Failure> {
    let conn = make_conn(group, sk.clone())?;
    let done = reuse_in(local, exchange, chosen, &conn);
    match done {
        Ok(()) => {
            conn.establish();
            Ok(conn)
        }
        Err(failure) => {
            abandon(&conn);
            Err(failure)
        }
    }
}

fn reuse_in(
    local: &Local,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    conn: &Arc<Conn>,
) -> Result<(), Failure> {
    announce(conn)?;
    let ours = endpoint(local, conn)?;
    let (accepted, message) = chosen.accept(ours, None);
    exchange.send(&Message::Accept(message))?;
    let agreed = accepted.on_message(&exchange.receive(CLC_WAIT)?)?;
    learn(conn, agreed.client())?;
    Ok(())
}
