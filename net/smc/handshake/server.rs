// SPDX-License-Identifier: GPL-2.0

//! The listening side (C functions `smc_listen_work`, `smc_listen_find_device`).

use core::cell::Cell;

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
    cause::Cause,
    error::PeerMisbehaved,
    handshake::{
        select,
        server::{
            Beginning,
            Chosen,
            Local as Facts, //
        },
        Failure,
        Fatal,
        CLC_WAIT,
        CONFIRM_SOON,
        TURN_WAIT, //
    },
    id::Gid,
    lgr::{
        self,
        Role, //
    },
    link::Transport,
    reason::Reason,
    wire::clc::Message, //
};

use super::{
    announce,
    begin_group,
    conclude,
    endpoint,
    first,
    internal,
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
    clc::{
        Exchange,
        News, //
    },
    clock::now,
    conn::Conn,
    groups::{
        self,
        Entry,
        Turn, //
    },
    ib::{
        self,
        PortGid, //
    },
    lgr::{
        ConnReservation,
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

/// Runs the handshake on a connection that a listener accepted. May sleep.
///
/// # Errors
///
/// When the TCP connection is lost; the connection is then not shown to accept(2).
pub(crate) fn accept(local: &Local, tcp: &Arc<TcpSocket>, sk: &ARef<Sk>) -> Result<Outcome> {
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
    let chosen = {
        let proposal = match exchange.receive(CLC_WAIT)? {
            Message::Proposal(proposal) => proposal,
            // A client without a port to offer says so at once.
            Message::Decline(decline) => return Err(Failure::from(&decline)),
            Message::Accept(_) | Message::Confirm(_) => {
                return Err(PeerMisbehaved::UnexpectedMessage.into());
            }
        };
        if tcp.has_keys() {
            return Err(Failure::Declined(Reason::Ipsec, Some(Cause::TcpKeys)));
        }
        let ueids = local.ueids.lock().clone();
        let facts = Facts {
            eids: &ueids,
            limits: namespace::of(sk).config.limits(),
            has_ipsec: tcp.has_xfrm_policy(),
            has_interface: tcp.route_device().is_some(),
            iwarp: tcp.peer().ok().and_then(|peer| Gid::of_iwarp(peer.ip)),
        };
        // Version 1 needs RoCE v1 GIDs, which are not looked for: its subnets match nothing.
        facts
            .judge(&proposal, |_| false)
            .map_err(|reason| Failure::Declined(reason, facts.cause(&proposal, reason)))?
    };
    let start = now();
    let (chosen, port) = with_port(tcp, chosen)?;
    // One handshake at a time makes a link group with this peer; others wait, those of other peers
    // do not.
    let ends = join::tcp_ends(tcp, sk)?;
    let wanted = chosen.wanted(port.vlan, ends);
    let mut path = Path::of_server(sk, tcp, port.gid, chosen.peer_gid());
    if let Some(reservation) = groups::find(&wanted, tcp.netns_address()) {
        return reuse(local, (sk, tcp), exchange, chosen, reservation);
    }
    path.check()?;
    let gate = groups::gate(&wanted).map_err(internal)?;
    let has_left = || exchange.news() == News::End;
    let (who, end) = (
        (&wanted, tcp.netns_address()),
        start.saturating_add(TURN_WAIT),
    );
    let entry = exchange.wakeful(|| gate.enter(who, end, has_left));
    if has_left() {
        return Err(Fatal::Reset.into());
    }
    let turn = match entry.ok_or(path::BUSY)? {
        Entry::Reserved(reservation) => {
            return reuse(local, (sk, tcp), exchange, chosen, reservation)
        }
        Entry::Turn(turn) => turn,
    };
    // Another connection may have found out meanwhile.
    path.check()?;
    let turn = Cell::new(Some(turn));
    let conn = begin(
        local,
        (sk, tcp),
        exchange,
        chosen,
        port,
        wanted,
        (&path, &turn),
    );
    path.note(&conn);
    conn
}

/// Finds a port for the way that was chosen, or another way.
fn with_port(tcp: &TcpSocket, mut chosen: Chosen) -> Result<(Chosen, PortGid), Failure> {
    let mut missing = None;
    loop {
        let found = match chosen.transport() {
            Transport::Roce => ib::find_v2(tcp, Some(chosen.peer_gid())),
            Transport::Iwarp => ib::find_iwarp(tcp),
        };
        match found {
            Ok(port) if chosen.eid().is_some() => return Ok((chosen, port)),
            found => {
                missing = missing.max(found.err());
                chosen = chosen
                    .without_port()
                    .map_err(|reason| Failure::Declined(reason, missing))?;
            }
        }
    }
}

fn begin(
    local: &Local,
    (sk, tcp): Ends<'_>,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    port: PortGid,
    wanted: lgr::Wanted,
    (path, turn): (&Path<'_>, &Cell<Option<Turn<'_>>>),
) -> Result<Arc<Conn>, Failure> {
    let is_direct = port.path() == select::Path::Direct;
    let terms = Terms {
        role: Role::Server,
        version: chosen.version(),
        release: chosen.release(),
        limits: chosen.limits(),
        peer: wanted.peer,
        ends: wanted.ends,
        vlan: port.vlan,
        eid: chosen.eid(),
        is_direct,
        net_cookie: sk.netns_cookie(),
        times: Times::of(sk, Role::Server),
        depth: namespace::depth(sk),
        net: tcp.netns_address(),
    };
    begin_group(local, port, terms, (sk, tcp), |conn| {
        first_contact(local, tcp, exchange, chosen, (conn, path, turn))
    })
}

fn first_contact(
    local: &Local,
    tcp: &TcpSocket,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    (conn, path, turn): (&Arc<Conn>, &Path<'_>, &Cell<Option<Turn<'_>>>),
) -> Result<(), Failure> {
    let group = &conn.group;
    let at = conn.link_ref();
    let LinkRef { slot, link } = &at;
    let (peer_gid, peer_mac) = (chosen.peer_gid(), chosen.peer_mac());
    let nonce = chosen.nonce();
    let beginning = Beginning {
        is_direct: group.terms.is_direct,
        hostname: local.hostname,
        listener: match nonce {
            None => 0,
            Some(_) => link.listen(tcp.netns(), peer_gid).unwrap_or(0),
        },
    };
    let (accepted, message) = chosen.accept(endpoint(local, conn, &at)?, Some(beginning));
    exchange.send(&Message::Accept(message))?;
    // A client that says nothing is in nobody's way for long.
    if !exchange.await_news(CONFIRM_SOON) {
        drop(turn.take());
    }
    let agreed = accepted.on_message(&exchange.receive(CLC_WAIT)?)?;
    exchange.set_confirmed();
    let client = agreed.client();
    learn(conn, &at, client)?;
    if let Some(peer) = agreed.peer() {
        group.set_peer(System {
            os: peer.os,
            hostname: peer.hostname,
            takes_any_link: agreed.takes_any_link(),
        });
    }
    let end = PeerEnd {
        gid: peer_gid,
        // A C client that offers version 2 alone leaves the address out of its proposal.
        mac: if peer_mac.is_zero() {
            client.mac
        } else {
            peer_mac
        },
        ..PeerEnd::of(client, agreed.mtu())
    };
    LinkRx::new(group, *slot)
        .and_then(|rx| link.ready_to_receive(end, rx))
        .and_then(|()| match nonce {
            None => link.ready_to_send(),
            Some(_) => Ok(()),
        })
        .map_err(|_| Reason::LinkNotReady)?;
    if let Some(nonce) = nonce {
        let wanted = Wanted::new(nonce, Role::Server, link, client.into())
            .map_err(|_| Reason::LinkNotReady)?;
        Meeting {
            link,
            exchange,
            net: tcp.netns(),
            wanted: &wanted,
            port: agreed.listener(),
        }
        .as_server()
        .map_err(|_| NO_STREAM)?;
    }
    let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
    rmbe.rmb()
        .register(*slot, link)
        .map_err(|_| Reason::RegistrationFailed)?;
    let grace = first::grace(group, exchange);
    group.begin_first_contact(group.local_end(*slot, link), grace);
    first::finish(exchange, conn, path, grace)
}

/// The connection joins a group that both sides have.
fn reuse(
    local: &Local,
    (sk, tcp): Ends<'_>,
    exchange: &mut Exchange<'_>,
    chosen: Chosen,
    mut reservation: ConnReservation,
) -> Result<Arc<Conn>, Failure> {
    let at = reservation.choose_link().ok_or(Reason::NoActiveLink)?;
    // A client of ours tests the link itself, and can say that it does not know the group any more, which a silent
    // link does not.
    if !reservation.group().peer().takes_any_link {
        path::check_link(reservation.group(), &at, exchange)?;
    }
    settle(make_conn(reservation, at.clone(), (sk, tcp))?, |conn| {
        announce(conn, &at)?;
        let (accepted, message) = chosen.accept(endpoint(local, conn, &at)?, None);
        join::while_told(conn, || {
            exchange.send(&Message::Accept(message))?;
            let answer = exchange.receive(CLC_WAIT)?;
            join::on_answer(conn, tcp, accepted, &answer)
        })
    })
}
