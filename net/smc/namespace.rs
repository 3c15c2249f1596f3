// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has of its own: settings, counters, PNETIDs, workers for handshakes.

use kernel::prelude::*;
use kernel_ext::{
    net::{
        NetNs,
        NewNetNs,
        PerNet,
        PerNetRef,
        Sk,
        Slot, //
    },
    own_record,
    queue::OwnedQueue, //
};

use crate::{
    config::Config,
    pnet::Table,
    stats::Stats, //
};

/// What a namespace has.
pub(crate) struct Namespace {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    pub(crate) pnet: Pin<KBox<Table>>,
    /// Where handshakes run. A peer can keep a worker waiting for seconds: those of one namespace are
    /// not to be missing in another.
    pub(crate) handshakes: OwnedQueue,
}

/// Handshakes that run at a time: the most that a workqueue can have (`WQ_MAX_ACTIVE`).
const HANDSHAKES: i32 = 2048;

own_record! { Namespace: Slot<Namespace> }

impl PerNet for Namespace {
    fn new(net: &mut NewNetNs) -> Result<KBox<Self>> {
        let this = Self {
            config: Config::new(net)?,
            stats: Stats::new()?,
            pnet: KBox::pin_init(Table::new(), GFP_KERNEL)?,
            handshakes: OwnedQueue::unbound(c"smc_handshake", HANDSHAKES)?,
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }
}

/// What the namespace of a socket has. Any context.
pub(crate) fn of(sk: &Sk) -> PerNetRef<'_, Namespace> {
    within(sk.netns())
}

/// What a namespace has. Any context.
pub(crate) fn within(net: &NetNs) -> PerNetRef<'_, Namespace> {
    // They have theirs from before the first socket or request until after the last.
    net.get()
        .expect("namespaces are served while the module is in use")
}
