// SPDX-License-Identifier: GPL-2.0

//! The workqueues for what has to sleep for a connection.

use kernel::sync::Arc;
use kernel_ext::{
    global::{
        Global,
        Published, //
    },
    prelude::*,
    workqueue::OwnedWorkqueue, //
};

/// For aborts: they never wait for a peer.
pub(super) static ABORTS: Global<OwnedWorkqueue> = Global::new();

/// For RMBEs that are replaced, which may wait for the peer's answer.
pub(super) static RMBES: Global<OwnedWorkqueue> = Global::new();

/// Holds the workqueues for the life of the module.
pub(crate) struct ConnQueues {
    _aborts: Published<OwnedWorkqueue>,
    _rmbes: Published<OwnedWorkqueue>,
}

impl ConnQueues {
    /// Creates the workqueues.
    pub(crate) fn new() -> Result<Self> {
        let publish = |queue: &'static Global<OwnedWorkqueue>, name| {
            let new = OwnedWorkqueue::unbound(name, 0)?;
            queue.publish(Arc::new(new, GFP_KERNEL)?)
        };
        Ok(Self {
            _aborts: publish(&ABORTS, c"smc_abort")?,
            _rmbes: publish(&RMBES, c"smc_rmbe")?,
        })
    }
}
