// SPDX-License-Identifier: GPL-2.0

//! The connecting side (C functions `__smc_connect`, `smc_connect_rdma`).

use kernel::sync::Arc;
use kernel_ext::{
    prelude::*,
    random, //
};
use smc_proto::{
    cause::Cause,
    handshake::{
        client::{
            Accepted,
            ClientCaps,
            IwarpParams,
            V1Port,
            V2Port, //
        },
        Failure,
        Fatal,
        OwnInfo,
        CLC_WAIT,
        CONFIRM_WAIT, //
    },
    id::{
        Eid,
        Gid, //
    },
    lgr::Role,
    link::Transport,
    reason::Reason,
    smcd::DeviceGid,
    wire::{
        clc::{
            ClcMessage,
            Ipv6Prefix, //
        },
        iwarp::Nonce,
        List,
        Version, //
    }, //
};

use super::{
    check_policy,
    confirm_rkey,
    first_contact,
    join,
    path::{
        self,
        ConnPath, //
    },
    prefix::{
        self,
        MAX_PREFIXES, //
    },
    smcd,
    Session, //
};
use crate::{
    carrier::Carrier,
    clc::TcpActivity,
    clock::now,
    conn::Conn,
    ib,
    lgr::LinkRef,
    link::{
        PeerQp,
        Setup, //
    },
    namespace,
    turn::TurnWait, //
};

/// The handshake of connect(2).
/// Context: may sleep.
pub(super) fn connect(session: &mut Session<'_>) -> Result<Carrier, Failure> {
    let namespace = namespace::of(session.sk);
    let running = namespace.queues().workers.begin_connect();
    if session.tcp.is_simultaneous_open() {
        return Err(match running {
            Some(_) => both_clients(session),
            // The peer's message cannot be taken from the stream, as that would wait for it.
            None => Fatal::Reset.into(),
        });
    }
    let _running = running.ok_or(Failure::Declined(Reason::Memory, Some(Cause::Handshakes)))?;
    check_propose(session)?;
    let ports = Ports::find(session);
    let eids = session.local.ueids.lock().clone();
    let mut prefixes = [Ipv6Prefix::default(); MAX_PREFIXES];
    let smcd = smcd::offered(session).map(DeviceGid::entries);
    let caps = ClientCaps {
        smcd: smcd.as_ref(),
        ..ports.caps(session, eids.as_slice(), &mut prefixes)
    };
    let (proposed, proposal) = caps.propose().map_err(|reason| ports.failure(reason))?;
    session.clc.send(&ClcMessage::Proposal(proposal))?;
    let answer = session
        .clc
        .receive(CLC_WAIT)
        .map_err(Failure::before_answer)?;
    if let Some(accepted) = proposed.accepted_smcd(&answer) {
        return smcd::connect(session, &accepted).map(Carrier::SmcD);
    }
    let accepted = proposed.on_message(&answer);
    if let Err(failure) = &accepted {
        ports.note_failure(*failure);
    }
    let accepted = accepted?;
    let Some(new) = accepted.new_lgr() else {
        return reuse(session, &accepted, ports.vlans()).map(Carrier::SmcR);
    };
    let mut path = ports.path(accepted.version(), accepted.transport())?;
    // Another connection may have failed on it meanwhile.
    path.check()?;
    new.path(|| path.port.route_to(session.tcp, accepted.server().gid))?;
    let conn = session.create_lgr(new, &path, |session, conn| {
        first_contact(session, conn, &accepted, &path)
    })?;
    Ok(Carrier::SmcR(conn))
}

/// Fails if the connection may not use SMC, whatever ports there are.
fn check_propose(session: &Session<'_>) -> Result<(), Failure> {
    check_policy(Role::Client, session.sk, session.tcp)?;
    if session.tcp.has_ipsec() {
        return Err(Reason::Ipsec.into());
    }
    match session.tcp.has_keys() {
        true => Err(Failure::Declined(Reason::Ipsec, Some(Cause::TcpKeys))),
        false => Ok(()),
    }
}

/// Two clients have connected to each other. Each sends one message, a PROPOSAL or a DECLINE, whatever it knows of the
/// other: it is taken from the stream, or an application would read it.
/// Context: may sleep.
fn both_clients(session: &mut Session<'_>) -> Failure {
    let declined = session.clc.decline(Reason::PeerNoSmc, session.peer_id());
    let received = declined.and_then(|()| session.clc.receive(CLC_WAIT));
    match received {
        Ok(ClcMessage::Proposal(_) | ClcMessage::Decline(_)) => Failure::BothClients,
        Ok(other) => Failure::not_awaited(&other),
        Err(failure) => failure,
    }
}

/// The ports to propose, each with the path from it, or why there is none.
struct Ports<'a> {
    v1: Result<ConnPath<'a>, Cause>,
    v2: Result<ConnPath<'a>, Cause>,
    iwarp: Result<ConnPath<'a>, Cause>,
}

impl<'a> Ports<'a> {
    fn find(session: &Session<'a>) -> Self {
        let usable = |port| {
            let mut path = ConnPath::new(session, Role::Client, port, Gid::NONE);
            path.check().map_err(|_| Cause::PathFailed)?;
            Ok(path)
        };
        let v2 = ib::find_roce_v2(session.tcp, None).and_then(usable);
        // The PROPOSAL has one MAC.
        let near = v2.as_ref().ok().map(|path| &path.port);
        Self {
            v1: ib::find_roce_v1(session.tcp, near).and_then(usable),
            v2,
            iwarp: ib::find_iwarp(session.tcp).and_then(usable),
        }
    }

    /// What to propose; `prefixes` takes those of the connection's network device.
    fn caps<'e>(
        &self,
        session: &Session<'_>,
        eids: &'e [Eid],
        prefixes: &'e mut [Ipv6Prefix; MAX_PREFIXES],
    ) -> ClientCaps<'e> {
        let iwarp = self.iwarp.as_ref().ok().and_then(|path| {
            Some(IwarpParams {
                nonce: Nonce(random::bytes()),
                client: path.port.gid,
                server: Gid::of_iwarp(session.tcp.peer().ok()?.ip)?,
            })
        });
        ClientCaps {
            peer_id: session.peer_id(),
            iwarp,
            smcd: None,
            v1: self.v1.as_ref().ok().map(|path| V1Port {
                gid: path.port.gid,
                mac: path.port.mac,
            }),
            v2: self.v2.as_ref().ok().map(|path| V2Port {
                gid: path.port.gid,
                mac: path.port.mac,
            }),
            prefix: self
                .v1
                .as_ref()
                .ok()
                .and_then(|_| prefix::of(session.tcp, prefixes)),
            eids: List::new(eids).unwrap_or(List::EMPTY),
            limits: namespace::of(session.sk).config.limits(),
        }
    }

    /// The failure of a client that has nothing to propose.
    fn failure(&self, reason: Reason) -> Failure {
        let is_avoided = |path: &Result<_, _>| matches!(path, Err(Cause::PathFailed));
        if self.all().into_iter().any(is_avoided) {
            return path::AVOIDED;
        }
        let cause = match (&self.v2, &self.iwarp) {
            (Ok(_), _) => Cause::NoOwnEid,
            (Err(cause), Ok(_)) => *cause,
            (Err(cause), Err(other)) => cause.nearer(*other),
        };
        Failure::Declined(reason, Some(cause))
    }

    /// Notes for later connections that the server declined because of a path on which nothing gets through.
    fn note_failure(&self, failure: Failure) {
        for path in [&self.v2, &self.v1].into_iter().flatten() {
            path.note::<()>(&Err(failure));
        }
        if failure.may_be_silent_link() {
            let paths = self.all().into_iter().flatten();
            paths.for_each(|path| path.test_link());
        }
    }

    /// The VLANs of the ports: a group to reuse has one of them.
    fn vlans(&self) -> [Option<u16>; 3] {
        self.all().map(|path| Some(path.as_ref().ok()?.port.vlan))
    }

    fn all(&self) -> [&Result<ConnPath<'a>, Cause>; 3] {
        [&self.v2, &self.v1, &self.iwarp]
    }

    /// The path from the port that the server chose.
    fn path(self, version: Version, transport: Transport) -> Result<ConnPath<'a>, Failure> {
        let path = match (version, transport) {
            (Version::V1, _) => self.v1,
            (Version::V2, Transport::Roce) => self.v2,
            (Version::V2, Transport::Iwarp) => self.iwarp,
        };
        path.map_err(|cause| Failure::Declined(Reason::NoSmcDevice, Some(cause)))
    }
}

fn first_contact(
    session: &mut Session<'_>,
    conn: &Arc<Conn>,
    accepted: &Accepted,
    path: &ConnPath<'_>,
) -> Result<(), Failure> {
    let (server, at) = (accepted.server(), conn.link_ref());
    let (link, net) = (&at.link, session.tcp.netns());
    first_contact::save_peer(conn, server, accepted.peer())?;
    let mtu = link.mtu().min(server.mtu);
    first_contact::ready_to_receive(conn, PeerQp::of(server, mtu))?;
    // Before the CONFIRM: the server's first LLC request may arrive while that is being sent.
    let grace = first_contact::begin(&session.clc, conn);
    let nonce = accepted.iwarp().map(|iwarp| iwarp.nonce);
    let listener = link
        .listen_for_server(net, nonce)
        .map_err(|_| Reason::LinkNotReady)?;
    confirm(session, conn, &at, accepted, listener)?;
    session.clc.set_confirmed();
    link.connect_as_client(&Setup {
        net,
        nonce,
        peer_port: accepted.listener(),
        is_cancelled: &|| session.clc.tcp_activity() != TcpActivity::None,
    })?;
    // The first message may be overlooked: see `link::transport::iwarp::connect`.
    conn.group.request_ack_later(link);
    first_contact::finish(&mut session.clc, conn, path, grace)
}

/// The connection joins a group that both sides have, on one of the `vlans`.
fn reuse(
    session: &mut Session<'_>,
    accepted: &Accepted,
    vlans: [Option<u16>; 3],
) -> Result<Arc<Conn>, Failure> {
    let accepted_at = now();
    let ends = session.tcp_ends()?;
    let wanted = vlans.map(|vlan| Some(accepted.wanted(vlan?, ends)));
    let (reservation, wanted) = join::find_named(&wanted, session.tcp.netns_id())?;
    let named = reservation.group().named_link(&wanted);
    let at = named.ok_or(Reason::NoServerLink)?;
    let conn = session.create_conn(reservation, at.clone())?;
    let conn = session.complete(conn, |session, conn| {
        join::save_peer_rmbe(conn, &at, accepted.server())?;
        let announced = session.clc.wake_on_tcp(|| {
            let wait = TurnWait {
                end: accepted_at.saturating_add(CONFIRM_WAIT),
                is_cancelled: &|| session.clc.tcp_activity() != TcpActivity::None,
            };
            confirm_rkey(conn, &at, &wait)
        });
        if announced.is_err() {
            // The server may have declined meanwhile.
            join::may_confirm(&mut session.clc, accepted_at)?;
        }
        announced?;
        path::check_link(&conn.group, &at, &session.clc)?;
        join::may_confirm(&mut session.clc, accepted_at)?;
        join::while_rmbe_is_known(conn, || confirm(session, conn, &at, accepted, None))
    })?;
    conn.group.balance_after_join();
    Ok(conn)
}

fn confirm(
    session: &Session<'_>,
    conn: &Conn,
    at: &LinkRef,
    accepted: &Accepted,
    listener: Option<u16>,
) -> Result<(), Failure> {
    let ours = session.endpoint(conn, at)?;
    let gids = [ours.gid];
    let gids = List::new(&gids).unwrap_or(List::EMPTY);
    let own = OwnInfo {
        hostname: session.local.hostname,
        listener,
    };
    let message = accepted.confirm(ours, own, gids);
    session.clc.send(&ClcMessage::Confirm(message))
}
