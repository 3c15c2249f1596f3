// SPDX-License-Identifier: GPL-2.0
//! What both machines have in the end, for tests to compare.

use smc_proto::lgr::Rtokens;

use super::super::Side;
use super::{
    key,
    token,
    World, //
};

impl World {
    /// Says which links a side takes for active, by both queue pairs.
    pub fn view(&self, side: Side) -> Vec<(u8, u8, u8)> {
        let machine = &self.machines[side.index()];
        let mut view: Vec<_> = machine
            .links
            .iter()
            .flatten()
            .filter(|link| link.is_active)
            .map(|link| {
                let peer_qp = link.peer_qp.unwrap_or(0);
                let (client, server) = match side {
                    Side::Client => (link.qp, peer_qp),
                    Side::Server => (peer_qp, link.qp),
                };
                (link.number.0, client, server)
            })
            .collect();
        view.sort_unstable();
        view
    }

    /// Checks that what a side knows of the other's buffers is right, and says how many places of
    /// those that it should know are missing.
    pub fn missing_keys(&self, side: Side) -> usize {
        let machine = &self.machines[side.index()];
        let peer = &self.machines[side.peer().index()];
        let mut rows = machine.rows.clone();
        let rtokens = Rtokens::new(&mut rows);
        let mut missing = 0;
        for rmb in &peer.rmbs {
            let active = machine.links.present().filter(|(_, link)| link.is_active);
            let links: Vec<_> = active
                .filter_map(|(idx, link)| Some((idx, link.peer_qp?)))
                .collect();
            let mut found = links
                .iter()
                .map(|(idx, qp)| rtokens.find(*idx, key(*rmb, *qp)));
            let Some(row) = found.find_map(|row| row) else {
                missing += links.len();
                continue;
            };
            for (idx, qp) in &links {
                match rtokens.get(row, *idx) {
                    Some(there) => assert_eq!(there, token(*rmb, *qp), "{side:?} link {idx:?}"),
                    None => missing += 1,
                }
            }
        }
        missing
    }
}
