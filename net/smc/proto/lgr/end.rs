// SPDX-License-Identifier: GPL-2.0

//! Why a link group ends, and what is sent to the peer then (RFC 7609 section 4.4.1 and appendix A.3.4; C functions
//! `smc_lgr_free_work`, `smc_lgr_cleanup`).

use super::Role;
use crate::wire::llc::{
    DeleteLink,
    DeleteReason, //
};

/// Why a link group ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminateReason {
    /// Unused for its idle time.
    Idle,
    /// Module unload or system shutdown.
    Shutdown,
    /// Its last link, or a resource of that link, failed.
    LinkLost,
    /// The peer reported in a handshake that it does not have the group (out of sync).
    OutOfSync,
    /// The peer ended it, for this reason.
    ByPeer(DeleteReason),
}

impl TerminateReason {
    /// Returns the DELETE LINK for all links to send to the peer. `None` if none is needed: a client requests the
    /// deletion and the server performs it; the server's request is not answered.
    ///
    /// Not orderly where connections may be lost.
    pub const fn delete_all(self, role: Role) -> Option<DeleteLink> {
        let (reason, orderly) = match self {
            Self::Idle => (DeleteReason::PROGRAM, true),
            Self::Shutdown => (DeleteReason::OPERATOR, false),
            Self::LinkLost => (DeleteReason::LOST_PATH, false),
            Self::OutOfSync => (DeleteReason::PROGRAM, false),
            Self::ByPeer(reason) if matches!(role, Role::Server) => (reason, true),
            Self::ByPeer(_) => return None,
        };
        Some(DeleteLink {
            link_num: None,
            orderly,
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_group_ends_in_order() {
        for (why, orderly, reason) in [
            (TerminateReason::Idle, true, DeleteReason::PROGRAM),
            (TerminateReason::Shutdown, false, DeleteReason::OPERATOR),
            (TerminateReason::LinkLost, false, DeleteReason::LOST_PATH),
            (TerminateReason::OutOfSync, false, DeleteReason::PROGRAM),
        ] {
            for role in [Role::Client, Role::Server] {
                let what = why.delete_all(role).unwrap();
                assert_eq!((what.orderly, what.reason), (orderly, reason));
                assert_eq!(what.link_num, None);
            }
        }
    }

    #[test]
    fn what_the_client_asks_for_the_server_does() {
        let asked = TerminateReason::ByPeer(DeleteReason(7));
        assert_eq!(asked.delete_all(Role::Client), None);
        let done = asked.delete_all(Role::Server).unwrap();
        assert_eq!((done.orderly, done.reason), (true, DeleteReason(7)));
    }
}
