// SPDX-License-Identifier: GPL-2.0

//! The connecting side (C functions `__smc_connect`, `smc_connect_rdma`).

use kernel::{
    prelude::*,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::{
    net::{
        Sk,
        TcpSocket, //
    },
    random, //
};
use smc_proto::{
    cause::Cause,
    handshake::{
        client::{
            Agreed,
            Beginning,
            Contact,
            Iwarp,
            Means,
            V2Port, //
        },
        select,
        Failure,
        CLC_WAIT, //
    },
    id::Gid,
    lgr::Role,
    link::Transport,
    reason::Reason,
    wire::{
        clc::Message,
        iwarp::Nonce,
        List, //
    }, //
};

use super::{
    announce,
    begin_group,
    conclude,
    endpoint,
    first,
    join,
    learn,
    make_conn,
    path::{
        self,
        Path,
        NO_STREAM, //
    },
    settle,
    stream::Meeting,
    Ends,
    Outcome, //
};
use crate::{
    clc::Exchange,
    clock::now,
    conn::Conn,
    ib::{
        self,
        PortGid, //
    },
    lgr::{
        LinkRef,
        System,
        Terms,
        Times, //
    },
    link::{
        PeerEnd,
        Wanted, //
    },
    llc::LinkRx,
    local::Local,
    namespace, //
};

/// Runs the handshake on an established connection whose peer speaks SMC. May sleep.
///
/// # Errors
///
/// The errno of connect(2) when the TCP connection is lost as well.
pub(crate) fn connect(local: &Local, tcp: &Arc<TcpSocket>, sk: &ARef<Sk>) -> Result<Outcome> {
    if !tcp.syn_smc() {
        return Ok(Outcome::Fallback(Reason::PeerNoSmc.into()));
    }
    let mut exchange = Exchange::new(tcp)?;
    match shake(local, tcp, sk, &mut exchange) {
        Ok(conn) => Ok(Outcome::Smc(conn)),
        Err(failure) => conclude(&exchange, local, failure),
    }
}

fn shake(
    local: &Local,
    tcp: &Arc<TcpSocket>,
    sk: &ARef<Sk>,
    exchange: &mut Exchange<'_>,
) -> Result<Arc<Conn>, Failure> {
    if tcp.has_xfrm_policy() {
        return Err(Reason::Ipsec.into());
    }
    if tcp.has_keys() {
        return Err(Failure::Declined(Reason::Ipsec, Some(Cause::TcpKeys)));
    }
    let usable = |port: PortGid| {
        let mut path = Path::of_client(sk, tcp, port.gid);
        match path.check() {
            Ok(()) => Ok((port, path)),
            Err(_) => Err(Cause::PathFailed),
        }
    };
    let port = ib::find_v2(tcp, None).and_then(usable);
    let ueids = local.ueids.lock().clone();
    let iwarp = ib::find_iwarp(tcp).and_then(usable);
    let ends = iwarp.as_ref().ok().and_then(|(port, _)| {
        let server = Gid::of_iwarp(tcp.peer().ok()?.ip)?;
        Some((port.gid, server))
    });
    let means = Means {
        peer_id: local.peer_id(),
        iwarp: ends.map(|(client, server)| Iwarp {
            nonce: Nonce(random::bytes()),
            client,
            server,
        }),
        v1: None,
        v2: port.as_ref().ok().map(|(port, _)| V2Port {
            gid: port.gid,
            mac: port.mac,
        }),
        prefix: None,
        eids: List::new(ueids.as_slice()).unwrap_or(List::EMPTY),
        limits: namespace::of(sk).config.limits(),
    };
    let cause = match (&port, &iwarp) {
        (Err(Cause::PathFailed), _) | (_, Err(Cause::PathFailed)) => Cause::PathFailed,
        (Ok(_), _) => Cause::NoOwnEid,
        (Err(cause), _) => *cause,
    };
    let (proposed, proposal) = means.propose().map_err(|reason| match cause {
        Cause::PathFailed => path::AVOIDED,
        _ => Failure::Declined(reason, Some(cause)),
    })?;
    exchange.send(&Message::Proposal(proposal))?;
    let agreed = proposed.on_message(&exchange.receive(CLC_WAIT)?);
    if let (Err(_), Ok((_, path))) = (&agreed, &port) {
        path.note(&agreed);
    }
    let agreed = agreed?;
    match agreed.contact() {
        Contact::First(beginning) => {
            let port = match agreed.transport() {
                Transport::Roce => port,
                Transport::Iwarp => iwarp,
            };
            let (port, mut path) =
                port.map_err(|cause| Failure::Declined(Reason::NoSmcDevice, Some(cause)))?;
            // Another connection may have found out meanwhile.
            path.check()?;
            let conn = begin(
                local,
                (sk, tcp),
                exchange,
                (&agreed, beginning),
                port,
                &path,
            );
            path.note(&conn);
            conn
        }
        Contact::Reuse => {
            // The group began with a port of one of these kinds.
            let vlans = [port, iwarp].map(|port| port.ok().map(|(port, _)| port.vlan));
            reuse(local, (sk, tcp), exchange, &agreed, vlans)
        }
    }
}

/// A new link group begins.
fn begin(
    local: &Local,
    (sk, tcp): Ends<'_>,
    exchange: &mut Exchange<'_>,
    (agreed, beginning): (&Agreed, &Beginning),
    mut port: PortGid,
    path_to: &Path<'_>,
) -> Result<Arc<Conn>, Failure> {
    let server = agreed.server();
    let path = beginning.path(|| port.route_to(tcp, server.gid))?;
    let terms = Terms {
        ends: join::tcp_ends(tcp, sk)?,
        role: Role::Client,
        version: agreed.version(),
        release: beginning.release(),
        limits: beginning.limits(),
        peer: server.peer_id,
        vlan: port.vlan,
        eid: agreed.eid(),
        is_direct: path == select::Path::Direct,
        net_cookie: sk.netns_cookie(),
        times: Times::of(sk, Role::Client),
        depth: namespace::depth(sk),
        net: tcp.netns_address(),
    };
    begin_group(local, port, terms, (sk, tcp), |conn| {
        if let Beginning::V2 {
            os,
            hostname,
            takes_any_link,
            ..
        } = beginning
        {
            conn.group.set_peer(System {
                os: *os,
                hostname: *hostname,
                takes_any_link: *takes_any_link,
            });
        }
        first_contact(local, tcp, exchange, agreed, (conn, path_to))
    })
}

fn first_contact(
    local: &Local,
    tcp: &TcpSocket,
    exchange: &mut Exchange<'_>,
    agreed: &Agreed,
    (conn, path): (&Arc<Conn>, &Path<'_>),
) -> Result<(), Failure> {
    let (server, group) = (agreed.server(), &conn.group);
    let at = conn.link_ref();
    let LinkRef { slot, link } = &at;
    learn(conn, &at, server)?;
    let mtu = link.port().mtu.min(server.mtu);
    LinkRx::new(group, *slot)
        .and_then(|rx| link.ready_to_receive(PeerEnd::of(server, mtu), rx))
        .map_err(|_| Reason::LinkNotReady)?;
    // The server's first request may be here before the confirm left.
    let grace = first::grace(group, exchange);
    group.begin_first_contact(group.local_end(*slot, link), grace);
    let Some(iwarp) = agreed.iwarp() else {
        confirm(local, exchange, agreed, conn, &at, None)?;
        exchange.set_confirmed();
        return first::finish(exchange, conn, path, grace);
    };
    let wanted = Wanted::new(iwarp.nonce, Role::Client, link, server.into())
        .map_err(|_| Reason::LinkNotReady)?;
    let port = link
        .await_server(tcp.netns(), &wanted)
        .map_err(|_| Reason::LinkNotReady)?;
    confirm(local, exchange, agreed, conn, &at, Some(port))?;
    exchange.set_confirmed();
    Meeting {
        link,
        exchange,
        net: tcp.netns(),
        wanted: &wanted,
        port: agreed.listener(),
    }
    .as_client()
    .map_err(|_| NO_STREAM)?;
    first::finish(exchange, conn, path, grace)
}

/// The connection joins a group that both sides have.
fn reuse(
    local: &Local,
    ends: Ends<'_>,
    exchange: &mut Exchange<'_>,
    agreed: &Agreed,
    vlans: [Option<u16>; 2],
) -> Result<Arc<Conn>, Failure> {
    let accepted = now();
    let (sk, tcp) = ends;
    let tcp_ends = join::tcp_ends(tcp, sk)?;
    let wanted = vlans.map(|vlan| Some(agreed.wanted(vlan?, tcp_ends)));
    let (reservation, wanted) = join::find_named(&wanted, tcp.netns_address())?;
    let named = reservation.group().named_link(&wanted);
    let (slot, link) = named.ok_or(Reason::NoServerLink)?;
    let at = LinkRef { slot, link };
    settle(make_conn(reservation, at.clone(), ends)?, |conn| {
        join::learn(conn, &at, agreed.server())?;
        announce(conn, &at)?;
        path::check_link(&conn.group, &at, exchange)?;
        join::may_confirm(exchange, accepted)?;
        join::while_told(conn, || confirm(local, exchange, agreed, conn, &at, None))
    })
}

fn confirm(
    local: &Local,
    exchange: &Exchange<'_>,
    agreed: &Agreed,
    conn: &Conn,
    at: &LinkRef,
    listener: Option<u16>,
) -> Result<(), Failure> {
    let ours = endpoint(local, conn, at)?;
    let gids = [ours.gid];
    let gids = List::new(&gids).unwrap_or(List::EMPTY);
    let message = match listener {
        None => agreed.confirm(ours, local.hostname, gids),
        Some(port) => agreed.confirm_iwarp(ours, local.hostname, gids, port),
    };
    exchange.send(&Message::Confirm(message))
}
