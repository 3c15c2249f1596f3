// SPDX-License-Identifier: GPL-2.0

//! The local system: how this host identifies itself to peers.

use kernel::{
    new_spinlock,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};
use kernel_ext::{
    global::Global,
    prelude::*,
    random,
    utsname, //
};
use smc_proto::{
    handshake::eid::Ueids,
    id::{
        Mac,
        PeerId, //
    },
    lgr::TcpEnds,
    wire::clc::Hostname, //
};

/// The local system, while the module is loaded.
pub(crate) static LOCAL: Global<LocalSystem> = Global::new();

/// What this host sends of itself to peers.
#[pin_data]
pub(crate) struct LocalSystem {
    /// Makes the instance ids.
    secret: [u8; 8],
    /// For a port that has no address of its own.
    made_up: Mac,
    #[pin]
    mac: SpinLock<Mac>,
    /// User EIDs, for all namespaces.
    #[pin]
    pub(crate) ueids: SpinLock<Ueids>,
    pub(crate) hostname: Hostname,
    next_group: Atomic<u32>,
    /// Number of the link group of SMC-D; 0 if there was none yet.
    smcd_group: Atomic<u32>,
}

impl LocalSystem {
    /// Draws what instance ids are made from, and takes the host's name as it is now.
    pub(crate) fn new(ueids: Ueids) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                secret: random::bytes(),
                made_up: made_up(),
                mac <- new_spinlock!(Mac::NONE, "smc::LocalSystem::mac"),
                ueids <- new_spinlock!(ueids, "smc::LocalSystem::ueids"),
                hostname: Hostname::new(&utsname::nodename()),
                next_group: Atomic::new(0),
                smcd_group: Atomic::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// The peer id of this host for the peer of a connection: two bytes that change with each start, and the address of
    /// the first active port. Not valid before there was one.
    pub(crate) fn peer_id(&self, ends: &TcpEnds) -> PeerId {
        PeerId::new(ends.instance(self.secret), *self.mac.lock())
    }

    /// The MAC address for a port that has none: a random one.
    pub(crate) fn random_mac(&self) -> Mac {
        self.made_up
    }

    /// A port is active; the first one names the host.
    pub(crate) fn set_system_mac(&self, mac: Mac) {
        let mut known = self.mac.lock();
        if known.is_zero() {
            *known = mac;
        }
    }

    /// A number for a new link group; the low byte is left for its links.
    pub(crate) fn next_group_id(&self) -> u32 {
        self.next_group
            .fetch_add(0x100, Relaxed)
            .wrapping_add(0x100)
    }

    /// The number of the one link group that all connections of SMC-D are in, as user space sees it. Drawn when it is
    /// first asked for, so that no other group has it.
    /// Context: any.
    pub(crate) fn smcd_group_id(&self) -> u32 {
        match self.smcd_group.load(Relaxed) {
            0 => {
                let drawn = self.next_group_id();
                match self.smcd_group.cmpxchg(0, drawn, Relaxed) {
                    Ok(_) => drawn,
                    Err(other) => other,
                }
            }
            id => id,
        }
    }
}

/// A random address, of one station and locally administered.
fn made_up() -> Mac {
    let [first, rest @ ..] = random::bytes::<6>();
    let [a, b, c, d, e] = rest;
    Mac([(first & !1) | 2, a, b, c, d, e])
}
