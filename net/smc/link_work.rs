// SPDX-License-Identifier: GPL-2.0

//! Adds and deletes links of a group, and moves connections between them (RFC 7609 sections 4.4.3 and 4.6; C functions
//! `smc_llc_add_link_work`, `smc_llc_delete_link_work`). Runs as one work item for each group; may sleep.
//!
//! `smc_proto::llc` decides what to do, in which order, and what to send to the peer, `smc_proto::lgr::redundancy`
//! which links are of use; here ports are found, queue pairs created and connections moved.

mod add;

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use smc_proto::{
    lgr::{
        balance,
        redundancy::AddLinkTrigger,
        LinkIdx, //
    },
    llc::{
        link_work::{
            AddPlan,
            DeleteCause,
            LinkWork, //
        },
        DeleteLinkParams, //
    },
    time::Duration, //
};

use crate::{
    clock::now,
    lgr::{
        LinkGroup,
        LinkRef,
        LINK_WORK, //
    }, //
};

/// How long mapping of the send buffers of connections that leave a link is tried again after it failed; for all of
/// them together, as they wait for each other.
const MAP_TIMEOUT: Duration = Duration::from_millis(500);

impl WorkItem<LINK_WORK> for LinkGroup {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        while let Some(work) = this.next_link_work() {
            match work {
                LinkWork::FlushRx => flush_rx(&this),
                LinkWork::DeleteLink(idx, why) => delete_link(&this, idx, why),
                LinkWork::AcceptAddLink { on, idx, link } => add::answer(&this, on, idx, &link),
                LinkWork::ConnectLink(idx, peer) => add::connect(&this, idx, &peer),
                LinkWork::PrepareLink(idx) => add::prepare(&this, idx),
                LinkWork::Rebalance => rebalance(&this),
                LinkWork::AddLink(why) => try_add_link(&this, why),
            }
        }
    }
}

/// Flushes the CQs of all links, for connections that moved and wait for what was received before; links that are down
/// receive nothing more.
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

/// Adds a link if it is of use, or deletes one that has to go first.
fn try_add_link(group: &Arc<LinkGroup>, why: AddLinkTrigger) {
    let ports = group.ports();
    match group.with_llc(|llc, _| llc.core.plan_add_link(&ports)) {
        Some(AddPlan::DeleteFirst(idx)) => {
            delete_link(group, idx, DeleteCause::AsymmetricUnneeded);
        }
        Some(AddPlan::Offer) => add::offer(group, why),
        Some(AddPlan::Invite) => add::invite(group),
        None => {}
    }
}

/// Moves connections away from links with more than their share, if the peer supports that. A C peer keeps to its own
/// links, and while it loses one it must not get a newer consumer cursor on another one (see `smc_proto::conn`).
fn rebalance(group: &LinkGroup) {
    if !group.peer().takes_cdc_on_any_link {
        return;
    }
    let eligible_links = group.eligible_links();
    let can_carry = |idx| eligible_links[idx];
    let is_crowded = |idx| balance::is_crowded(&group.loads_of(&eligible_links), idx);
    for idx in LinkIdx::ALL.into_iter().filter(|idx| is_crowded(*idx)) {
        group.for_each(|member| {
            if is_crowded(idx) {
                member.rebalance_from(idx, &can_carry);
            }
        });
    }
}

/// Deletes a link: moves its connections to other links, and sends DELETE LINK if the peer does not know.
fn delete_link(group: &Arc<LinkGroup>, idx: LinkIdx, cause: DeleteCause) {
    let Some(link) = group.link(idx) else {
        return;
    };
    if cause == DeleteCause::LostPath && link.is_up() {
        // The link that failed is gone, and this is a new one in its place.
        return;
    }
    if !link.is_up() && group.active_link().is_none() {
        // To be deleted once the link that is being added is active, or the group ends.
        return group.delete_lost_link(idx);
    }
    link.stop();
    group.note_retired(&link);
    group.on_llc_link_down(idx);
    let Some(LinkRef { idx: on, .. }) = group.active_link() else {
        // Other links may have failed meanwhile.
        return group.delete_lost_link(idx);
    };
    let was_active = group.with_llc(|llc, _| llc.core.stop_testlink(idx));
    let deadline = now().saturating_add(MAP_TIMEOUT);
    group.for_each(|member| member.fail_over_from(idx, deadline));
    if was_active {
        let params = DeleteLinkParams {
            on,
            idx,
            link_num: link.number(),
            cause,
        };
        group.run_llc(|llc, _, now| llc.delete_link(params, now));
    }
    // Not in `clear_link`: where an offer was given up for another one, the peer's RKeys belong to that.
    group.with_rtokens(|rtokens| rtokens.delete_link(idx));
    // Messages of this link that wait for others are processed now, while what it wrote can be synchronised.
    flush_rx(group);
    clear_link(group, idx);
}

/// Clears the index of a link, so that no resource of its device is left in the group (C function `smcr_link_clear`).
fn clear_link(group: &LinkGroup, idx: LinkIdx) {
    let Some(link) = group.link(idx) else {
        return;
    };
    let device = link.device();
    link.shut_down();
    if let Some(device) = device {
        group.sndbufs.unmap(&device);
    }
    let _ = group.rmbs.try_for_each(|rmb| {
        rmb.unmap(idx);
        Ok(())
    });
    group.remove_link(idx);
    group.log_type();
}
