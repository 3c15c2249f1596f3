// SPDX-License-Identifier: GPL-2.0

//! State of each network namespace: settings, counters, PNETIDs, rules, workers for handshakes.

use kernel::{
    new_mutex,
    sync::{
        Arc,
        Mutex,
        SetOnce, //
    }, //
};
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
    prelude::*,
    workqueue::OwnedWorkqueue, //
};

use smc_proto::time::Duration;

#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
use crate::{config, hs_ctrl};
use crate::{
    config::{
        Config,
        QueueDepth, //
    },
    paths::Paths,
    pnet::PnetTable,
    policy::PolicyTable,
    stats::Stats,
    workers::Workers, //
};

/// State of a namespace.
pub(crate) struct Namespace {
    pub(crate) config: Config,
    pub(crate) stats: Arc<Stats>,
    pub(crate) pnet: Pin<KBox<PnetTable>>,
    pub(crate) policy: Pin<KBox<PolicyTable>>,
    pub(crate) paths: Pin<KBox<Paths>>,
    /// Those of SYNs that offer SMC.
    pub(crate) syns: Pin<KBox<Paths>>,
    /// Made with the first socket: most namespaces have none, and a queue has memory for each CPU.
    queues: SetOnce<SocketQueues>,
    /// Held while they are made.
    queues_lock: Pin<KBox<Mutex<()>>>,
}

/// The queues for the work of a namespace's sockets.
pub(crate) struct SocketQueues {
    /// Takes connections from TCP for listeners. Waits for no peer, but for a system call on the listener, which the
    /// application may make long.
    pub(crate) listeners: OwnedWorkqueue,
    /// Workers that wait for peers, which must delay neither other namespaces nor other work in this one.
    pub(crate) workers: Arc<Workers>,
    /// Handles TCP events of connected sockets. Does not wait long for peers.
    pub(crate) events: OwnedWorkqueue,
}

own_record! { Namespace: PerNetKey<Namespace> }

impl PerNet for Namespace {
    fn new(net: &mut NewNetNs) -> Result<KBox<Self>> {
        #[cfg(CONFIG_SMC_HS_CTRL_BPF)]
        hs_ctrl::create(net, config::DIRECTORY)?;
        let this = Self {
            config: Config::new(net)?,
            stats: Arc::new(Stats::new()?, GFP_KERNEL)?,
            pnet: KBox::pin_init(PnetTable::new(), GFP_KERNEL)?,
            policy: KBox::pin_init(PolicyTable::new()?, GFP_KERNEL)?,
            paths: KBox::pin_init(Paths::new()?, GFP_KERNEL)?,
            syns: KBox::pin_init(Paths::new()?, GFP_KERNEL)?,
            queues: SetOnce::new(),
            queues_lock: KBox::pin_init(new_mutex!((), "smc::Namespace::queues_lock"), GFP_KERNEL)?,
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }
}

impl Namespace {
    /// Makes the queues of the namespace `net`, whose state this is, before its first socket.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn provide_queues(&self, net: &NetNs) -> Result {
        let _lock = self.queues_lock.lock();
        if self.queues.as_ref().is_none() {
            self.queues.populate(SocketQueues {
                listeners: OwnedWorkqueue::unbound(c"smc_listen", 0)?,
                workers: Workers::of(net)?,
                events: OwnedWorkqueue::unbound(c"smc_events", 0)?,
            });
        }
        Ok(())
    }

    /// Returns the queues, in a namespace that has, or had, a socket.
    /// Context: any.
    pub(crate) fn queues(&self) -> &SocketQueues {
        self.queues
            .as_ref()
            .expect("a socket is made after the queues of its namespace")
    }
}

/// Returns how long a link group of a socket is kept without connections. Any user may be able to set that in a
/// namespace (of a user namespace), but the memory is shared by all: limited to the value of the initial namespace.
/// Context: any.
pub(crate) fn idle_time(sk: &Sk) -> Duration {
    let first = within(NetNs::initial()).config.idle_time();
    of(sk).config.idle_time().min(first)
}

/// Returns whether connections within this kernel may use shared memory, by the settings of their namespace. That of
/// the initial namespace is for all others, too.
/// Context: any.
pub(crate) fn has_smcd(config: &Config) -> bool {
    config.has_smcd() && within(NetNs::initial()).config.has_smcd()
}

/// Returns the queue depth of a link created by a socket, limited to that of the initial namespace.
/// Context: any.
pub(crate) fn depth(sk: &Sk) -> QueueDepth {
    let first = within(NetNs::initial()).config.depth();
    of(sk).config.depth().at_most(first)
}

/// Returns the state of a socket's namespace.
/// Context: any.
pub(crate) fn of(sk: &Sk) -> PerNetRef<'_, Namespace> {
    within(sk.netns())
}

/// Returns the state of a namespace.
/// Context: any.
pub(crate) fn within(net: &NetNs) -> PerNetRef<'_, Namespace> {
    // The state exists from before the first socket or request until after the last.
    net.get()
        .expect("namespaces are served while the module is in use")
}
