// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has of its own: settings, counters, PNETIDs, workers for handshakes.

use kernel::prelude::*;
use kernel_ext::{
    net::{
        NetNs,
        NewNetNs,
        PerNet,
        PerNetKey,
        PerNetRef,
        Sk, //
    },
    own_record,
    workqueue::OwnedWorkqueue, //
};

use smc_proto::time::Duration;

use crate::{
    config::{
        Config,
        Depth, //
    },
    paths::Paths,
    pnet::Table,
    stats::Stats, //
};

/// What a namespace has.
pub(crate) struct Namespace {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
    pub(crate) pnet: Pin<KBox<Table>>,
    pub(crate) paths: Pin<KBox<Paths>>,
    /// Where handshakes of listeners run. A peer can keep a worker waiting for seconds: those of one
    /// namespace are not to be missing in another, nor for what else is to be done in this one.
    pub(crate) handshakes: OwnedWorkqueue,
    /// Where handshakes of sockets that connect run.
    pub(crate) connects: OwnedWorkqueue,
    /// What TCP tells of sockets that are connected. Nothing here waits for a peer for long.
    pub(crate) events: OwnedWorkqueue,
}

/// Handshakes of a queue that run at a time: the most that a workqueue can have (`WQ_MAX_ACTIVE`).
const HANDSHAKES: i32 = 2048;

own_record! { Namespace: PerNetKey<Namespace> }

impl PerNet for Namespace {
    fn new(net: &mut NewNetNs) -> Result<KBox<Self>> {
        let this = Self {
            config: Config::new(net)?,
            stats: Stats::new()?,
            pnet: KBox::pin_init(Table::new(), GFP_KERNEL)?,
            paths: KBox::pin_init(Paths::new()?, GFP_KERNEL)?,
            handshakes: OwnedWorkqueue::unbound(c"smc_handshake", HANDSHAKES)?,
            connects: OwnedWorkqueue::unbound(c"smc_connect", HANDSHAKES)?,
            events: OwnedWorkqueue::unbound(c"smc_events", 0)?,
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }
}

/// How long a link group of a socket without connections is kept. Who may set that in a namespace may be any user
/// (of a user namespace); what it keeps is the memory of all: nowhere longer than in the first namespace. Any
/// context.
pub(crate) fn idle_time(sk: &Sk) -> Duration {
    let first = within(NetNs::initial()).config.idle_time();
    of(sk).config.idle_time().min(first)
}

/// How deep the queues of a link are that a socket begins: nowhere deeper than in the first namespace. Any context.
pub(crate) fn depth(sk: &Sk) -> Depth {
    let first = within(NetNs::initial()).config.depth();
    of(sk).config.depth().at_most(first)
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
