// SPDX-License-Identifier: GPL-2.0

//! All link groups of this machine, and the job that looks after them.
//!
//! The list is locked for a look only. Making a group is serialised by a gate for each peer, so that
//! a slow or hostile peer holds up nobody but itself.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    delayed::{
        Delayed,
        Job, //
    },
    global::{
        Global,
        Published, //
    },
    ib::Device,
    time, //
};
use smc_proto::{
    id::{
        Gid,
        PeerId, //
    },
    lgr::find::Wanted, //
};

use crate::lgr::{
    LinkGroup,
    Seat, //
};

static GROUPS: Global<Groups> = Global::new();

/// The link groups.
#[pin_data]
struct Groups {
    #[pin]
    list: Mutex<KVec<Arc<LinkGroup>>>,
    #[pin]
    gates: Mutex<KVec<GateUse>>,
    #[pin]
    keeper: Delayed<Keeper>,
}

/// Keeps the list of link groups while the module lives. Dropping it ends them all, and may sleep.
pub(crate) struct Registry(Option<Published<Groups>>);

impl Registry {
    /// Makes the list.
    pub(crate) fn new() -> Result<Self> {
        let groups = Arc::pin_init(
            pin_init!(Groups {
                list <- new_mutex!(KVec::new(), "smc::Groups::list"),
                gates <- new_mutex!(KVec::new(), "smc::Groups::gates"),
                keeper <- Delayed::new(Keeper),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self(Some(GROUPS.publish(groups)?)))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let Some(groups) = GROUPS.get() else {
            return;
        };
        end_where(|_| true);
        groups.keeper.stop();
        // The job held the last other reference, if any; it runs no more.
        self.0 = None;
    }
}

/// Looks for groups that nobody used for long, and ends those that are to end.
struct Keeper;

impl Job for Keeper {
    fn run(&self) -> Option<Jiffies> {
        let now = time::now_ns();
        end_where(|group| group.is_doomed() || group.is_stale(now) || !group.link.is_port_up());
        Some(time::HZ)
    }
}

/// Ends the groups for which `is_due` holds. May sleep.
fn end_where(is_due: impl Fn(&LinkGroup) -> bool) {
    let Some(groups) = GROUPS.get() else {
        return;
    };
    loop {
        let mut list = groups.list.lock();
        let Some(i) = list.iter().position(|group| is_due(group)) else {
            return;
        };
        let group = list.remove(i);
        drop(list);
        if let Ok(group) = group {
            group.end();
        }
    }
}

/// Adds a group. It is found once its link is active. May sleep.
pub(crate) fn add(group: &Arc<LinkGroup>) -> Result {
    let groups = GROUPS.get().ok_or(ENODEV)?;
    groups.list.lock().push(group.clone(), GFP_KERNEL)?;
    groups.keeper.schedule(time::HZ);
    Ok(())
}

/// Takes a group out whose first contact failed. May sleep.
pub(crate) fn remove(group: &Arc<LinkGroup>) {
    if let Some(groups) = GROUPS.get() {
        groups
            .list
            .lock()
            .retain(|other| !Arc::ptr_eq(other, group));
    }
}

/// A place in the oldest group that a new connection may use.
pub(crate) fn find(wanted: &Wanted) -> Option<Seat> {
    let groups = GROUPS.get()?;
    let list = groups.list.lock();
    list.iter()
        .filter(|group| group.matches(wanted))
        .find_map(LinkGroup::seat)
}

/// Ends a group from where sleeping is not allowed.
pub(crate) fn end_later(group: &LinkGroup) {
    group.doom();
    if let Some(groups) = GROUPS.get() {
        groups.keeper.run_soon();
    }
}

/// Ends all groups with a link on `device`. May sleep.
pub(crate) fn end_on(device: &Arc<Device>) {
    end_where(|group| group.link.is_on(device));
}

/// Has the job look at all links soon, because a port went down. Does not sleep.
pub(crate) fn check_ports_soon() {
    if let Some(groups) = GROUPS.get() {
        groups.keeper.run_soon();
    }
}

/// What serialises the making of groups with one peer.
#[pin_data]
struct Gate {
    peer: PeerId,
    gid: Gid,
    #[pin]
    turn: Mutex<()>,
}

/// A gate in the list, and how many use it.
struct GateUse {
    gate: Arc<Gate>,
    users: usize,
}

/// A reference to a peer's gate; the gate goes with the last one.
pub(crate) struct GateRef(Arc<Gate>);

/// Finds or makes the gate of the peer that `wanted` names.
pub(crate) fn gate(wanted: &Wanted) -> Result<GateRef> {
    let groups = GROUPS.get().ok_or(ENODEV)?;
    let mut gates = groups.gates.lock();
    let is_it = |gate: &Gate| gate.peer == wanted.peer && gate.gid == wanted.peer_gid;
    if let Some(found) = gates.iter_mut().find(|g| is_it(&g.gate)) {
        found.users += 1;
        return Ok(GateRef(found.gate.clone()));
    }
    let gate = Arc::pin_init(
        pin_init!(Gate {
            peer: wanted.peer,
            gid: wanted.peer_gid,
            turn <- new_mutex!((), "smc::Gate::turn"),
        }),
        GFP_KERNEL,
    )?;
    let place = GateUse {
        gate: gate.clone(),
        users: 1,
    };
    gates.push(place, GFP_KERNEL)?;
    Ok(GateRef(gate))
}

impl GateRef {
    /// Waits for the turn. May sleep as long as handshakes of the same peer take.
    pub(crate) fn enter(&self) -> MutexGuard<'_, ()> {
        self.0.turn.lock()
    }
}

impl Drop for GateRef {
    fn drop(&mut self) {
        let Some(groups) = GROUPS.get() else {
            return;
        };
        groups.gates.lock().retain(|place| {
            if Arc::ptr_eq(&place.gate, &self.0) {
                place.users -= 1;
            }
            place.users > 0
        });
    }
}
