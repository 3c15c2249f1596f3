// SPDX-License-Identifier: GPL-2.0

//! Posts the stream's write plans as work requests.
//!
//! RDMA writes and the CDC message that announces them are posted under the connection's lock, in any context: the
//! order on the QP is the order in which the cursors were advanced.

use core::mem;

use kernel::{
    pr_warn_once,
    sync::{
        aref::ARef,
        Arc, //
    }, //
};
use kernel_ext::{
    ib::Write,
    net::Sk,
    prelude::*,
    spinlock_bh::SpinLockBhGuard, //
};
use smc_proto::{
    conn::{
        Cdc,
        RdmaWrite,
        WritePlan, //
    },
    lgr::LinkIdx,
    wire::{
        cdc,
        immediate::Immediate, //
    }, //
};

use super::{
    Conn,
    ConnInner, //
};
use crate::{
    lgr::LinkRef,
    link::{
        IbResources,
        Link,
        LinkError,
        Sent,
        Slot, //
    }, //
};

/// What caused a failure to post.
enum PostFault {
    /// The connection: a resource is missing or does not fit.
    Conn,
    /// The link: nothing can be posted on it.
    Link,
}

/// What to do after the lock was released.
#[derive(Default)]
struct PostResult {
    /// Index of the link on which a send slot was taken and is free again.
    freed_on: Option<LinkIdx>,
    /// The socket to wake if tasks wait until all data are sent, and they are.
    flushed: Option<ARef<Sk>>,
    /// The connection was aborted.
    is_killed: bool,
    /// The link, if it failed.
    broken: Option<Arc<Link>>,
    /// An acknowledgement is to be requested on this link.
    ack_request: Option<(AckRequest, Arc<Link>)>,
    /// Index of the link on which to send a TEST_LINK: does the peer send more data?
    echo: Option<LinkIdx>,
}

/// When an acknowledgement is requested.
enum AckRequest {
    Now,
    Later,
}

impl ConnInner {
    /// Returns whether something waits for the acknowledgement of what was posted.
    fn needs_ack(&self) -> bool {
        self.pending_switch.is_some() || self.stream.needs_ack()
    }

    fn when_to_request_ack(&self) -> Option<AckRequest> {
        match self.needs_ack() {
            true => Some(AckRequest::Now),
            false => self
                .stream
                .needs_ack_eventually()
                .then_some(AckRequest::Later),
        }
    }
}

impl Conn {
    /// Sends all that may be sent.
    /// Context: does not sleep.
    pub(crate) fn transmit(self: &Arc<Self>) {
        self.transmit_if(|_| true);
    }

    /// Sends all that may be sent if `begin`, called with the lock held, returns true.
    /// Context: does not sleep.
    pub(crate) fn transmit_if(self: &Arc<Self>, begin: impl FnOnce(&mut ConnInner) -> bool) {
        if let Some(idx) = self.try_transmit(begin) {
            self.group.on_free_slot(idx);
        }
    }

    /// Runs `wait`, during which the socket is woken when all data are sent.
    pub(crate) fn while_flushing(&self, wait: impl FnOnce()) {
        self.inner.lock().linger_waiters += 1;
        wait();
        self.inner.lock().linger_waiters -= 1;
    }

    /// Like [`Conn::transmit_if`], but returns the index of the link on which a send slot is free again, of which
    /// waiting connections were not notified.
    pub(super) fn try_transmit(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut ConnInner) -> bool,
    ) -> Option<LinkIdx> {
        let mut inner = self.inner.lock();
        if !begin(&mut inner) {
            return None;
        }
        self.transmit_locked(inner)
    }

    // Out of line, as most small writes are collected only.
    #[inline(never)]
    fn transmit_locked(self: &Arc<Self>, inner: SpinLockBhGuard<'_, ConnInner>) -> Option<LinkIdx> {
        let outcome = self.post_all(inner);
        if let Some(sk) = outcome.flushed {
            sk.wake_state();
        }
        if outcome.is_killed {
            pr_warn_once!("a connection lacks what it needs to send, and is aborted\n");
            self.announce_kill();
        }
        if let Some(link) = outcome.broken {
            link.fail(LinkError::Post);
        }
        match outcome.ack_request {
            None => {}
            Some((AckRequest::Now, link)) => link.request_ack(),
            Some((AckRequest::Later, link)) => self.group.request_ack_later(&link),
        }
        self.ask_echo(outcome.echo);
        outcome.freed_on
    }

    fn post_all(self: &Arc<Self>, mut inner: SpinLockBhGuard<'_, ConnInner>) -> PostResult {
        let mut outcome = PostResult::default();
        let is_wanted = self.try_switch(&mut inner);
        let at = inner.at.clone();
        let resources = at.link.resources();
        if let Some(resources) = resources.as_ref().filter(|_| is_wanted) {
            self.post_on(&at, resources, &mut inner, &mut outcome);
        }
        if inner.linger_waiters > 0 && !inner.stream.needs_flush() {
            outcome.flushed = inner.sk();
        }
        if at.link.needs_acks() {
            outcome.ack_request = inner.when_to_request_ack().map(|when| (when, at.link));
        }
        outcome.echo = inner.begin_echo();
        outcome
    }

    fn post_on(
        self: &Arc<Self>,
        at: &LinkRef,
        resources: &IbResources,
        inner: &mut ConnInner,
        outcome: &mut PostResult,
    ) {
        while inner.stream.has_work() {
            let Some(slot) = self.take_slot(&at.link, resources, inner) else {
                break;
            };
            let Some(plan) = inner.stream.plan() else {
                outcome.freed_on = Some(at.idx);
                break;
            };
            if at.link.needs_acks() && inner.needs_ack() {
                slot.request_ack();
            }
            let Err(blame) = self.post(inner, at, slot, &plan) else {
                continue;
            };
            outcome.freed_on = Some(at.idx);
            inner.stream.plan_failed(&plan.record);
            match blame {
                // Only the abort is left to send, which needs none of the resources that could be missing.
                PostFault::Conn if !inner.stream.is_killed() => {
                    inner.stream.abort();
                    inner.note_err(ECONNABORTED);
                    outcome.is_killed = true;
                }
                PostFault::Conn | PostFault::Link => {
                    outcome.broken = Some(at.link.clone());
                    break;
                }
            }
        }
    }

    /// Takes a send slot, or queues the connection for one.
    fn take_slot<'a>(
        &self,
        link: &'a Link,
        resources: &'a IbResources,
        inner: &mut ConnInner,
    ) -> Option<Slot<'a>> {
        link.take_slot(resources).or_else(|| {
            if !mem::replace(&mut inner.queued, true) {
                self.group.wait_for_slot(self.token, inner.at.idx);
            }
            // A slot freed before this caused no wake-up.
            link.take_slot(resources)
        })
    }

    /// Posts the work requests of a plan.
    fn post(
        self: &Arc<Self>,
        inner: &ConnInner,
        at: &LinkRef,
        mut slot: Slot<'_>,
        plan: &WritePlan,
    ) -> Result<(), PostFault> {
        let remote = inner.remote.ok_or(PostFault::Conn)?;
        if let Some(seq) = plan.immediate() {
            slot.set_immediate(Immediate::new(remote.token, seq));
        } else {
            let message = cdc::CdcMessage {
                token: remote.token,
                cdc: match plan.cdc.is_validation() {
                    true => self.group.with_retired_links(plan.cdc),
                    false => Cdc {
                        rmbes: inner.refs_on(at.idx, plan.cdc.rmbes),
                        ..plan.cdc
                    },
                },
            };
            slot.write(&message.to_bytes())
                .map_err(|_| PostFault::Conn)?;
        }
        let what = Sent::Data(self.clone(), plan.record);
        let post = |writes: &[Write<'_>]| {
            slot.post(&at.link, what, writes)
                .map_err(|rejected| match rejected.by_driver {
                    true => PostFault::Link,
                    false => PostFault::Conn,
                })
        };
        if plan.is_empty() {
            return post(&[]);
        }
        let source = inner.sndbuf_dma.as_ref().ok_or(PostFault::Conn)?;
        let rtoken = self
            .group
            .rtoken(remote.row, at.idx)
            .ok_or(PostFault::Conn)?;
        let element = rtoken.addr.0.wrapping_add(remote.index.offset(remote.size));
        let write = |write: &RdmaWrite| Write {
            source,
            parts: write
                .src
                .map(|chunk| (chunk.offset as usize, chunk.len as usize)),
            remote_addr: element.wrapping_add(u64::from(write.dst_offset)),
            rkey: rtoken.rkey.0,
        };
        let mut writes = plan.writes();
        match (writes.next(), writes.next()) {
            (Some(first), Some(second)) => post(&[write(first), write(second)]),
            (Some(only), None) => post(&[write(only)]),
            (None, _) => post(&[]),
        }
    }
}
