// SPDX-License-Identifier: GPL-2.0

//! Adds and deletes links of a group, and moves connections between them (RFC 7609 sections 4.4.3 and 4.6; C functions
//! `smc_llc_add_link_work`, `smc_llc_delete_link_work`). Runs as one work item for each group; may sleep.
//!
//! What is said to the peer and when is decided in `smc_proto::llc`, which links are of use in
//! `smc_proto::lgr::redundancy`; here ports are found, queue pairs made and connections moved.

mod add;

use core::cell::Cell;

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use smc_proto::{
    lgr::{
        balance,
        redundancy::{
            self,
            Occasion, //
        },
        End,
        Role,
        LINK_SLOTS, //
    },
    llc::DeleteLinkParams,
    wire::llc::DeleteReason, //
};

use crate::lgr::{
    link_work_queue::{
        DeleteCause,
        LinkWork, //
    },
    LinkGroup,
    LINK_WORK, //
};

impl WorkItem<LINK_WORK> for LinkGroup {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(work) = this.next_link_work() {
            match work {
                LinkWork::FlushRx => flush_rx(&this),
                LinkWork::DeleteLink(slot, why) => delete_link(&this, slot, why),
                LinkWork::AcceptAddLink { on, slot, link } => add::answer(&this, on, slot, &link),
                LinkWork::ConnectLink(slot, peer) => add::connect(&this, slot, &peer),
                LinkWork::PrepareLink(slot) => add::prepare(&this, slot),
                LinkWork::Rebalance => rebalance(&this),
                LinkWork::AddLink(why) => try_add_link(&this, why),
            }
        }
    }
}

/// Empties the completion queues of all links, for connections that moved and wait for what was received before; links
/// that are down receive nothing more.
fn flush_rx(group: &LinkGroup) {
    group.for_each(|member| member.before_rx_flush());
    for link in group.links().iter().flatten() {
        match link.is_up() {
            true => link.flush_cqs(),
            false => link.stop(),
        }
    }
    group.for_each(|member| member.after_rx_flush());
}

/// Another link may be of use. Before the server adds one it deletes one that is not.
fn try_add_link(group: &Arc<LinkGroup>, why: Occasion) {
    match (group.terms.role, redundancy::superfluous(&group.ports())) {
        (Role::Server, Some(slot)) => delete_link(group, slot, DeleteCause::AsymmetricUnneeded),
        (Role::Server, None) => add::offer(group, why),
        (Role::Client, _) => add::invite(group),
    }
}

/// Connections of links that have more than their share use others, if the peer can do with that. A C peer
/// keeps to its own links, and where it loses one it must not be told by another meanwhile that more was read
/// (see `smc_proto::conn`).
fn rebalance(group: &LinkGroup) {
    if !group.peer().takes_any_link {
        return;
    }
    let carriers = group.carriers();
    let can_carry = |slot: usize| carriers.get(slot).is_some_and(|can| *can);
    for slot in 0..LINK_SLOTS {
        let left = Cell::new(balance::surplus(&group.loads_of(&carriers), slot));
        group.for_each(|member| {
            if left.get() > 0 && member.rebalance_from(slot, &can_carry) {
                left.set(left.get() - 1);
            }
        });
    }
}

/// Deletes the link in a slot: its connections use other links, and the peer is sent a DELETE LINK if it does not know.
fn delete_link(group: &Arc<LinkGroup>, slot: usize, why: DeleteCause) {
    let Some(link) = group.link(slot) else {
        return;
    };
    if matches!(why, DeleteCause::LostPath) && link.is_up() {
        // The link that failed is gone, and this is a new one in its place.
        return;
    }
    let was_active = group.stop_watching(slot);
    link.stop();
    group.note_given_up(&link);
    group.on_llc_link_down(slot);
    let reason = match why {
        DeleteCause::Agreed => None,
        DeleteCause::LostPath => Some(DeleteReason::LOST_PATH),
        DeleteCause::AsymmetricUnneeded => Some(DeleteReason::ASYMMETRIC_UNNEEDED),
    };
    let Some((on, _)) = group.active_link() else {
        // The end of the group takes care of the rest.
        return group.terminate_soon(End::LinkLost);
    };
    group.for_each(|member| member.fail_over_from(slot));
    if let Some(reason) = reason.filter(|_| was_active) {
        let params = DeleteLinkParams {
            on,
            slot,
            link_num: link.number(),
            reason,
        };
        group.run_llc(|llc, _, now| llc.delete_link(params, now));
    }
    // Not in `clear_link`: where an offer was given up for another one, the peer's keys are for that.
    group.with_rtokens(|rtokens| rtokens.delete_link(slot));
    clear_link(group, slot);
    match group.terms.role {
        _ if !was_active => {}
        Role::Server => group.push_link_work(LinkWork::AddLink(Occasion::OwnPort)),
        // The server knows, too, and adds another one; if it does not it is invited to.
        Role::Client => group.add_later(),
    }
}

/// Empties a slot, so that nothing of the link's device is left in the group (C function `smcr_link_clear`).
fn clear_link(group: &LinkGroup, slot: usize) {
    let Some(link) = group.link(slot) else {
        return;
    };
    let device = link.device();
    link.shut_down();
    if let Some(device) = device {
        group.sndbufs.unmap(&device);
    }
    let _ = group.rmbs.try_for_each(|rmb| {
        rmb.unmap(slot);
        Ok(())
    });
    group.take_link(slot);
}
