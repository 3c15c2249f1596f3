// SPDX-License-Identifier: GPL-2.0

//! What each network namespace has of its own: settings and counters.

use kernel::prelude::*;
use kernel_ext::net::{
    NetNs,
    PerNet,
    Sk,
    Slot, //
};

use crate::{
    config::Config,
    stats::Stats, //
};

static SLOT: Slot<Namespace> = Slot::new();

/// What a namespace has.
pub(crate) struct Namespace {
    pub(crate) config: Config,
    pub(crate) stats: Stats,
}

impl PerNet for Namespace {
    fn slot() -> &'static Slot<Self> {
        &SLOT
    }

    fn new(net: &NetNs) -> Result<KBox<Self>> {
        let this = Self {
            config: Config::new(net)?,
            stats: Stats::new(),
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }
}

/// What the namespace of a socket has. Any context.
pub(crate) fn of(sk: &Sk) -> &Namespace {
    within(sk.netns())
}

/// What a namespace has. Any context.
pub(crate) fn within(net: &NetNs) -> &Namespace {
    // They have theirs from before the first socket or request until after the last.
    net.get()
        .expect("namespaces are served while the module is in use")
}
