// SPDX-License-Identifier: GPL-2.0
//! What has to be so when nothing can happen any more.

use smc_proto::conn::ConnState;

use super::Pair;
use crate::common::Side;

impl Pair {
    /// Runs to the end and checks that both ends got everything and hold nothing.
    pub fn run_to_the_end(mut self) -> Self {
        self.run();
        for side in Side::BOTH {
            let sent = self.hosts[side.peer().index()].written;
            let host = &self.hosts[side.index()];
            let detail = format!(
                "{side:?}: {:?}",
                self.hosts.each_ref().map(|host| host.stream)
            );
            assert_eq!(host.fault, None, "{detail}");
            assert_eq!(host.written, host.plan.send, "{detail}");
            assert_eq!(host.place(), sent, "{detail}");
            assert!(host.ended && !host.reset, "{detail}");
            assert_eq!(host.stream.state(), ConnState::Closed, "{detail}");
            assert!(host.stream.is_finished(), "{detail}");
            assert!(
                host.stream.needs_sndbuf() || host.stream.may_release_sndbuf(),
                "{detail}"
            );
        }
        self
    }
}
