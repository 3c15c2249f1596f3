// SPDX-License-Identifier: GPL-2.0

//! A C peer may send data after its close flag (see `smc_proto::conn`), until it has freed the connection.

use kernel::sync::Arc;
use smc_proto::lgr::LinkIdx;

use super::Conn;

impl Conn {
    /// Called after the peer deleted RKeys: if those of the RMB for this connection are among them, a C peer has freed
    /// the connection.
    pub(super) fn look_at_row(self: &Arc<Self>) {
        let mut inner = self.inner.lock();
        let Some(remote) = inner.remote else {
            return;
        };
        let has_row = self.group.with_rtokens(|rtokens| {
            LinkIdx::ALL
                .into_iter()
                .any(|idx| rtokens.get(remote.row, idx).is_some())
        });
        if has_row {
            return;
        }
        let fx = inner.stream.on_peer_freed();
        let after = inner.after(fx);
        drop(inner);
        self.follow_up(&after);
    }
}
