// SPDX-License-Identifier: GPL-2.0

//! What a socket needs of its network namespace.

use kernel::sync::Arc;
use kernel_ext::{
    net::Sk,
    prelude::*, //
};

use super::list::SocketTree;
use crate::{
    config::Config,
    namespace,
    stats::Stats, //
};

/// What the sockets of a network namespace share. It is looked up once, as that takes longer than many a call.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) config: Config,
    pub(super) stats: Arc<Stats>,
    pub(super) sockets: Arc<SocketTree>,
}

impl Shared {
    /// Looks it up for the first socket of a connection, or of a listener.
    /// Context: may sleep.
    pub(super) fn of(sk: &Sk) -> Result<Self> {
        let namespace = namespace::of(sk);
        namespace.provide_queues(sk.netns())?;
        Ok(Self {
            config: namespace.config.clone(),
            stats: namespace.stats.clone(),
            sockets: SocketTree::of(sk)?,
        })
    }
}
