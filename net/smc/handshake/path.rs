// SPDX-License-Identifier: GPL-2.0

//! Paths on which RDMA packets of earlier connections did not get through: for a while later connections fall back to
//! TCP at once ([`smc_proto::handshake::paths`]).

use kernel::sync::Arc;
use kernel_ext::net::{
    Sk,
    TcpSocket, //
};
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
    llc::ANSWER_WAIT,
    reason::Reason,
    time::{
        Duration,
        Instant, //
    }, //
};

use super::Session;
use crate::{
    clc::ClcChannel,
    clock::now,
    groups,
    ib::PortGid,
    lgr::{
        LinkGroup,
        LinkRef, //
    },
    link::SetupError,
    namespace, //
};

/// The path of one connection, from a port of ours to the peer.
pub(super) struct ConnPath<'a> {
    sk: &'a Sk,
    tcp: &'a TcpSocket,
    pub(super) port: PortGid,
    /// `None` if the TCP connection has ended.
    path: Option<paths::Path>,
    role: Role,
    /// This connection is the one that tries the path again after it failed.
    is_trial: bool,
}

/// The path failed a short time ago.
pub(super) const AVOIDED: Failure =
    Failure::Declined(Reason::TimeoutConfirmLink, Some(Cause::PathFailed));

/// Another handshake creates a group with the same peer, and takes too long.
pub(super) const BUSY: Failure = Failure::Declined(Reason::Internal, Some(Cause::PeerBusy));

/// No answer on the link of the group to join. The reason is not that of a first contact: the peer would avoid the path
/// then.
const LINK_SILENT: Failure = Failure::Declined(Reason::NoActiveLink, Some(Cause::PathSilent));

/// No answer on that link, for an earlier connection.
const LINK_AVOIDED: Failure = Failure::Declined(Reason::NoActiveLink, Some(Cause::PathFailed));

/// The time for an answer to [`ConnPath::test_link`]: the connection has waited for the server's own attempt before.
const LATE_ANSWER_WAIT: Duration = Duration::from_millis(250);

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        let cause = match error {
            SetupError::LinkNotReady => None,
            SetupError::PeerUnreachable => Some(Cause::PathSilent),
        };
        Self::Declined(Reason::LinkNotReady, cause)
    }
}

impl<'a> ConnPath<'a> {
    /// The path from `port` to the peer's port `theirs`, which a client does not know before the ACCEPT.
    pub(super) fn new(session: &Session<'a>, role: Role, port: PortGid, theirs: Gid) -> Self {
        let ours = port.gid;
        Self {
            sk: session.sk,
            tcp: session.tcp,
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

    /// Checks whether this connection may use the path; may be called again.
    ///
    /// # Errors
    ///
    /// [`AVOIDED`].
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        let Some(path) = self.path.as_ref().filter(|_| !self.is_trial) else {
            return Ok(());
        };
        match namespace::of(self.sk).paths.check(path, now()) {
            Verdict::Usable => {}
            Verdict::Trial => self.is_trial = true,
            Verdict::Avoided(failed_at) if !self.has_recovered(failed_at) => return Err(AVOIDED),
            Verdict::Avoided(_) => namespace::of(self.sk).paths.worked(path),
        }
        Ok(())
    }

    /// Returns whether a client's path works again after a failure: something has arrived since on a link from this
    /// port to the peer.
    fn has_recovered(&self, failed_at: Instant) -> bool {
        self.role == Role::Client
            && self
                .link_as_client()
                .is_some_and(|(_, at)| at.link.last_rx() > failed_at)
    }

    /// Notes for later connections whether this one worked.
    pub(super) fn note<T>(&self, result: &Result<T, Failure>) {
        match (result, &self.path) {
            (Ok(_), Some(path)) => namespace::of(self.sk).paths.worked(path),
            (Err(failure), _) if failure.is_silent_path() => self.suspect(),
            _ => {}
        }
    }

    /// Tests the link from this port that the server may have wanted to use: if it does not answer either, the path is
    /// suspect until something arrives there. A client without such a link, as its device was gone for a while, knows
    /// nothing against the path.
    /// Context: may sleep.
    pub(super) fn test_link(&self) {
        if self
            .link_as_client()
            .is_some_and(|(group, at)| !group.probe(&at, LATE_ANSWER_WAIT))
        {
            self.suspect();
        }
    }

    /// Returns an active link from this port to the peer of this client.
    fn link_as_client(&self) -> Option<(Arc<LinkGroup>, LinkRef)> {
        groups::link_as_client(&super::tcp_ends(self.sk, self.tcp)?, self.port.gid)
    }

    /// Notes that RDMA packets seem not to get through.
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

/// Tests a link before a connection joins its group, unless something was received on it just now. `clc` knows how slow
/// the peer is over TCP. A failure counts for this link alone, and until something is received: the peer may be too
/// busy to answer.
/// Context: may sleep.
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
    // A peer that was slow to answer over TCP has more time.
    let wait = ANSWER_WAIT.saturating_add(clc.round_trip().saturating_mul(4));
    match group.probe(at, wait) {
        true => Ok(()),
        false => Err(LINK_SILENT),
    }
}
