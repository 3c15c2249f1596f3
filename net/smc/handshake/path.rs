// SPDX-License-Identifier: GPL-2.0

//! Whether RDMA packets get through to a peer, as far as earlier connections found: a path that failed is
//! avoided for a while, by TCP at once ([`smc_proto::handshake::paths`]).

use kernel::sync::Arc;
use kernel_ext::net::Sk;
use smc_proto::{
    cause::Cause,
    handshake::{
        paths::{
            self,
            Verdict,
            CLIENT_AVOIDS,
            SERVER_AVOIDS, //
        },
        Failure, //
    },
    id::Gid,
    lgr::Role,
    reason::Reason, //
};

use super::Session;
use crate::{
    clc::ClcChannel,
    clock::now,
    ib::PortGid,
    lgr::{
        LinkGroup,
        LinkRef, //
    },
    namespace, //
};

/// The path from a port of ours to the peer of a TCP connection, as one connection sees it.
pub(super) struct Path<'a> {
    sk: &'a Sk,
    pub(super) port: PortGid,
    /// `None` when TCP has no peer any more.
    path: Option<paths::Path>,
    role: Role,
    /// This connection tries it, after it had failed.
    is_trial: bool,
}

/// Why a connection does not use a path that has failed.
pub(super) const AVOIDED: Failure =
    Failure::Declined(Reason::TimeoutConfirmLink, Some(Cause::PathFailed));

/// Another connection makes a group with the same peer, and that takes too long.
pub(super) const BUSY: Failure = Failure::Declined(Reason::Internal, Some(Cause::PeerBusy));

/// The link that a connection was to join did not answer. The reason is not that of a first contact, by which the
/// peer would avoid the path.
const LINK_SILENT: Failure = Failure::Declined(Reason::NoActiveLink, Some(Cause::PathSilent));

/// It did not answer an earlier connection.
const LINK_AVOIDED: Failure = Failure::Declined(Reason::NoActiveLink, Some(Cause::PathFailed));

/// Over iWARP the stream of the first link could be opened from neither side.
pub(super) const NO_STREAM: Failure =
    Failure::Declined(Reason::LinkNotReady, Some(Cause::PathSilent));

impl<'a> Path<'a> {
    /// The path from `port` to the peer's port `theirs`, which a client does not know before the ACCEPT.
    pub(super) fn new(session: &Session<'a>, role: Role, port: PortGid, theirs: Gid) -> Self {
        let ours = port.gid;
        Self {
            sk: session.sk,
            path: session.tcp.peer().ok().map(|peer| paths::Path {
                peer: peer.ip,
                ours,
                theirs,
            }),
            port,
            role,
            is_trial: false,
        }
    }

    /// Looks whether this connection may use it, for the first time or again.
    ///
    /// # Errors
    ///
    /// It has failed a moment ago.
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let Some(path) = self.path.as_ref().filter(|_| !self.is_trial) else {
            return Ok(());
        };
        match namespace::of(self.sk).paths.ask(path, now()) {
            Verdict::Usable => {}
            Verdict::Trial => self.is_trial = true,
            Verdict::Avoided => return Err(AVOIDED),
        }
        Ok(())
    }

    /// Takes note of how a connection fared on it.
    pub(super) fn note<T>(&self, result: &Result<T, Failure>) {
        match (result, &self.path) {
            (Ok(_), Some(path)) => namespace::of(self.sk).paths.worked(path),
            (Err(failure), _) if failure.is_silent_path() => self.suspect(),
            _ => {}
        }
    }

    /// RDMA packets seem not to get through.
    pub(super) fn suspect(&self) {
        let avoids = match self.role {
            Role::Client => CLIENT_AVOIDS,
            Role::Server => SERVER_AVOIDS,
        };
        if let Some(path) = &self.path {
            namespace::of(self.sk).paths.failed(path, avoids, now());
        }
    }
}

/// Tests a link before a connection joins its group, if nothing was heard there just now. `clc` says how slow the
/// peer is over TCP. What is found counts for this link only, and until something is heard: a machine may be too busy to
/// answer for a while. May sleep.
///
/// # Errors
///
/// The peer does not answer, or has not for an earlier connection.
pub(super) fn check_link(
    group: &Arc<LinkGroup>,
    at: &LinkRef,
    clc: &ClcChannel<'_>,
) -> Result<(), Failure> {
    if at.is_fresh() {
        return Ok(());
    }
    if at.link.is_suspect() {
        return Err(LINK_AVOIDED);
    }
    match group.probe(at, clc.round_trip()) {
        true => Ok(()),
        false => Err(LINK_SILENT),
    }
}
