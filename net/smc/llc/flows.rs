// SPDX-License-Identifier: GPL-2.0

//! LLC flows that a thread begins and waits for.

use core::mem;

use kernel::{
    sync::Arc,
    time::Jiffies, //
};
use kernel_ext::{
    prelude::*,
    time, //
};
use smc_proto::{
    id::Rkey,
    lgr::LinkIdx,
    llc::{
        first_contact,
        rkey::{
            ConfirmRkeyParams,
            Deletion, //
        },
        Actions,
        Finished,
        FirstContactError,
        LocalEnd,
        RkeyError,
        FLOW_WAIT, //
    },
    reason::Reason,
    time::Duration,
    wire::{
        llc::{
            LinkRkey,
            WireRkey, //
        },
        List, //
    }, //
};

use crate::{
    clock::{
        self,
        now, //
    },
    lgr::{
        LinkGroup,
        LinkRef,
        LlcState, //
    },
    rmb::{
        Rmb,
        UnusedRmbs, //
    },
    turn::TurnWait, //
};

/// Number of other links in one CONFIRM RKEY message.
const MAX_OTHER_LINKS: usize = 2;

impl LinkGroup {
    /// Begins the first contact; the client does so before it sends its CONFIRM.
    pub(crate) fn begin_first_contact(
        self: &Arc<Self>,
        link: LocalEnd,
        peer: first_contact::PeerModule,
    ) {
        self.run_llc(|llc, _, now| llc.begin_first_contact(link, peer, now).unwrap_or_default());
    }

    /// Waits for the end of the first contact; `prepare` brings the link up when it is time. Fails with
    /// [`FirstContactError::Silent`] if `is_cancelled` returns true; its argument is whether the client has answered.
    pub(crate) fn await_first_contact(
        self: &Arc<Self>,
        prepare: impl Fn() -> Result<(), Reason>,
        is_cancelled: impl Fn(bool) -> bool,
    ) -> Result<(), FirstContactError> {
        while let Some(step) = self.await_llc(&FIRST_CONTACT, || is_cancelled(self.has_answered()))
        {
            match step {
                FirstContactStep::Prepare => {
                    let result = prepare();
                    self.run_llc(|llc, _, now| llc.on_link_prepared(LinkIdx::FIRST, result, now));
                }
                FirstContactStep::Finished(result) => return result,
            }
        }
        // Releases the flow, which must not delay the end of the group.
        self.release();
        Err(FirstContactError::Silent)
    }

    /// Returns whether the client's answer in a first contact was sent and the server's decision is awaited.
    fn has_answered(&self) -> bool {
        self.with_llc(|state, _| state.core.has_answered())
    }

    /// Has a link tested from now on as after a long silence.
    /// Context: does not sleep.
    pub(crate) fn suspect_link(self: &Arc<Self>, at: &LinkRef) {
        let last_rx = at.link.last_rx();
        self.run_llc(|llc, _, now| {
            llc.on_probe_unanswered(at.idx, last_rx, now);
            Actions::default()
        });
    }

    /// Checks with a TEST_LINK, before a connection joins, that a link without recent messages still works. Returns
    /// false if the peer does not answer within `wait`, four seconds at most; from then on the link is tested as after
    /// a long silence. If this host is too busy to tell, returns true.
    /// Context: may sleep.
    pub(crate) fn probe(self: &Arc<Self>, at: &LinkRef, wait: Duration) -> bool {
        if at.is_fresh() {
            return true;
        }
        let (LinkRef { idx, link }, start) = (at, now());
        let before = link.last_rx();
        self.run_llc(|llc, _, _| llc.probe_link(*idx, before, start));
        let end = start.saturating_add(PROBE_MAX);
        let mut left = wait;
        let mut late = Duration::ZERO;
        while link.last_rx() == before && link.is_up() && self.terminating().is_none() {
            if left == Duration::ZERO || end.is_due(now()) {
                if late >= PROBE_LATE {
                    return true;
                }
                link.note_unanswered(before);
                self.run_llc(|llc, _, now| {
                    llc.on_probe_unanswered(*idx, before, now);
                    Actions::default()
                });
                return false;
            }
            let (asleep, tick) = (now(), clock::jiffies(left).min(TICK));
            self.wait_llc_event(tick, |_| link.last_rx() != before);
            let slept = now().saturating_since(asleep);
            late = late.saturating_add(overslept(slept));
            left = left.saturating_sub(slept.saturating_sub(overslept(slept)));
        }
        link.last_rx() != before && link.is_up()
    }

    /// Waits until no flow is under way, and keeps others from beginning until the caller begins one or calls
    /// [`LinkGroup::release`]: links and RMBs stay as they are. Returns false if that takes too long or the group ends.
    /// The caller has its turn.
    /// Context: may sleep.
    fn hold(self: &Arc<Self>, wait: &TurnWait<'_>) -> bool {
        loop {
            if self.with_llc(|state, _| state.core.hold().is_ok()) {
                return true;
            }
            if wait.is_over() || self.terminating().is_some() {
                return false;
            }
            self.wait_llc_event(TICK, |llc| llc.core.is_idle());
            self.run_llc(|llc, _, now| llc.on_timeout(now));
        }
    }

    /// Ends the caller's flow or hold, so that other flows may begin.
    pub(crate) fn release(self: &Arc<Self>) {
        self.run_llc(|llc, _, now| llc.abandon(now));
        self.wake_llc_waiters();
    }

    /// Makes sure that the peer can write to an RMB: registers it on all active links, and sends its RTokens to the
    /// peer. Does nothing if that was done for another connection before.
    /// Context: may sleep, after the end of `wait` only for the answer to a request of its own.
    pub(crate) fn confirm_rkey(
        self: &Arc<Self>,
        rmb: &Rmb,
        at: &LinkRef,
        wait: &TurnWait<'_>,
    ) -> Result<(), RkeyError> {
        let turn = self.rkey_turns.enter(wait, || rmb.is_rkey_confirmed());
        if rmb.is_rkey_confirmed() {
            return Ok(());
        }
        let _turn = turn.ok_or(RkeyError::NoTurn)?;
        let result = self.announce_rmb(rmb, at, wait);
        if result == Err(RkeyError::TimedOut) {
            self.rkey_turns.note_unanswered();
        }
        result
    }

    /// As [`LinkGroup::confirm_rkey`], which has the turn.
    fn announce_rmb(
        self: &Arc<Self>,
        rmb: &Rmb,
        at: &LinkRef,
        wait: &TurnWait<'_>,
    ) -> Result<(), RkeyError> {
        let mut confirmed = KVec::new();
        loop {
            if !self.hold(wait) {
                return Err(RkeyError::NoTurn);
            }
            // Links may be added and deleted between two messages.
            let Ok((mut new, is_on_all)) = self.reg_on_other_links(rmb, at.idx, &confirmed) else {
                self.release();
                return Err(RkeyError::LinkLost);
            };
            let is_last = new.len() <= MAX_OTHER_LINKS;
            new.truncate(MAX_OTHER_LINKS);
            self.send_confirm_rkey(rmb, at, List::new(&new).unwrap_or_default())?;
            if is_last {
                // Otherwise the next connection tries again: a device may be short of something for a while.
                if is_on_all {
                    rmb.set_rkey_confirmed();
                }
                return Ok(());
            }
            let added = confirmed.extend_from_slice(&new, GFP_KERNEL);
            added.map_err(|_| RkeyError::LinkLost)?;
        }
    }

    /// Registers an RMB on the active links except link `idx`, and lists its RTokens on those that are not in
    /// `confirmed`, which the peer knows; returns also whether it is registered on all that are still active. One
    /// message names three links; the peer adds the links of a further one about the same RMB.
    fn reg_on_other_links(
        &self,
        rmb: &Rmb,
        idx: LinkIdx,
        confirmed: &[LinkRkey],
    ) -> Result<(KVec<LinkRkey>, bool)> {
        let (mut keys, mut is_on_all) = (KVec::new(), true);
        let links = self.links();
        for (other, link) in links.present().filter(|(_, link)| link.is_active()) {
            let number = link.number();
            let is_confirmed = confirmed.iter().any(|key| key.link_num() == number);
            if other == idx || is_confirmed {
                continue;
            }
            if rmb.register(other, link).is_err() {
                is_on_all &= !link.is_active();
                continue;
            }
            if let Some(token) = rmb.rtoken(other) {
                let key = LinkRkey::new(number, token.rkey, token.addr);
                keys.push(key, GFP_KERNEL)?;
            }
        }
        Ok((keys, is_on_all))
    }

    /// Sends the RTokens of an RMB to the peer, on the connection's link. The flow is held.
    fn send_confirm_rkey(
        self: &Arc<Self>,
        rmb: &Rmb,
        at: &LinkRef,
        others: List<'_, LinkRkey, MAX_OTHER_LINKS>,
    ) -> Result<(), RkeyError> {
        let here = rmb.register(at.idx, &at.link).ok();
        let Some(here) = here.and_then(|()| rmb.rtoken(at.idx)) else {
            self.release();
            return Err(RkeyError::LinkLost);
        };
        let params = ConfirmRkeyParams { here, others };
        rmb.set_rkey_sent();
        self.run_llc(|llc, _, now| {
            llc.begin_confirm_rkey(at.idx, params, now)
                .unwrap_or_default()
        });
        self.await_flow(|how| match how {
            Finished::ConfirmRkey(result) => Some(result),
            _ => None,
        })
        .unwrap_or(Err(RkeyError::LinkLost))
    }

    /// Frees RMBs that were unused for long, or for which memory is too short, after the peer was notified.
    /// Context: may sleep for as long as the peer takes to answer.
    pub(crate) fn free_unused_rmbs(self: &Arc<Self>) {
        let unused = self.keeps_unused();
        let wait = TurnWait::at_most(FLOW_WAIT);
        let Some(_turn) = self.rkey_turns.enter(&wait, || false) else {
            return self.free_unused_rmbs_at(now().saturating_add(unused));
        };
        let now = now();
        let since = now.saturating_sub(unused);
        let mut shrink_target = self.rmbs.take_shrink_target();
        let next = loop {
            if !self.hold(&wait) {
                // The peer cannot be notified now.
                return self.free_unused_rmbs_at(now.saturating_add(unused));
            }
            let (mut gone, next) = self.rmbs.retire_unused(since, &mut shrink_target);
            if gone.iter().all(Option::is_none) {
                self.release();
                break next;
            }
            let is_told = self.delete_rkeys(&mut gone);
            self.rmbs.remove(&gone, is_told);
            if !is_told {
                break Some(now);
            }
        };
        if self.idle_end().is_some() {
            self.sndbufs.clear();
        }
        if let Some(next) = next {
            self.free_unused_rmbs_at(next.saturating_add(unused));
        }
    }

    /// Sends DELETE RKEY for the RMBs that the peer may know, and waits for its answer: returns whether there are some
    /// to which the peer does not write any more. Takes those out that the peer knows on other links only, as the keys
    /// in a message are those of one link. The flow is held.
    fn delete_rkeys(self: &Arc<Self>, gone: &mut UnusedRmbs) -> bool {
        let links = self.links();
        // One without a key on any link cannot be written to.
        let is_known = |rmb: &Rmb| {
            let is_on = |idx| links[idx].is_some() && rmb.rtoken(idx).is_some();
            rmb.is_rkey_sent() && LinkIdx::ALL.into_iter().any(is_on)
        };
        let is_active = |idx| links[idx].as_ref().is_some_and(|link| link.is_active());
        let has_key = |idx| {
            let mut known = gone.iter().flatten().filter(|rmb| is_known(rmb));
            known.any(|rmb| rmb.rtoken(idx).is_some())
        };
        let mut all = LinkIdx::ALL.into_iter();
        let on = all.find(|idx| is_active(*idx) && has_key(*idx));
        let rtoken = |rmb: &Rmb| on.and_then(|idx| rmb.rtoken(idx));
        for place in gone.iter_mut() {
            place.take_if(|rmb| is_known(rmb) && rtoken(rmb).is_none());
        }
        let mut keys = [WireRkey::from(Rkey(0)); Deletion::MAX];
        let known = gone.iter().flatten().filter(|rmb| is_known(rmb));
        let rtokens = known.filter_map(|rmb| rtoken(rmb));
        let mut count = 0;
        for (key, rtoken) in keys.iter_mut().zip(rtokens) {
            *key = rtoken.rkey.into();
            count += 1;
        }
        // Not kept while the peer answers.
        drop(links);
        let what = keys.get(..count).and_then(Deletion::new);
        let Some((idx, what)) = on.zip(what) else {
            self.release();
            return gone.iter().any(Option::is_some);
        };
        self.run_llc(|llc, _, now| llc.begin_delete_rkey(idx, what, now).unwrap_or_default());
        // After any answer, also a refusal, the peer does not write to them any more.
        let answer = self.await_flow(|how| match how {
            Finished::DeleteRkey(result) => Some(result),
            _ => None,
        });
        matches!(answer, Some(Ok(()) | Err(RkeyError::Refused)))
    }

    /// Waits for the end of a flow that `pick` accepts; returns `None` when there is no flow any more.
    fn await_flow<R>(self: &Arc<Self>, pick: impl Fn(Finished) -> Option<R>) -> Option<R> {
        while let Some(how) = self.await_llc(&OTHER_FLOW, || false) {
            if let Some(result) = pick(how) {
                return Some(result);
            }
        }
        None
    }

    /// Sleeps until there is what the thread waits for, and runs the core's timeouts meanwhile. Returns `None` when
    /// there is no flow any more, or `is_cancelled` returns true.
    fn await_llc<R>(
        self: &Arc<Self>,
        awaited: &Awaited<R>,
        is_cancelled: impl Fn() -> bool,
    ) -> Option<R> {
        loop {
            let (found, is_over) =
                self.with_llc(|state, _| ((awaited.take)(state), state.core.is_idle()));
            if found.is_some() || is_over || is_cancelled() {
                return found;
            }
            self.wait_llc_event(TICK, awaited.is_there);
            self.run_llc(|llc, _, now| {
                llc.on_awake(now);
                llc.on_timeout(now)
            });
        }
    }
}

/// What a thread waits for. Another thread may wait for something else at the same time: once the first contact is
/// over, which its own thread may notice late, other connections announce their RMBs.
struct Awaited<R> {
    is_there: fn(&LlcState) -> bool,
    take: fn(&mut LlcState) -> Option<R>,
}

/// A step of the first contact.
enum FirstContactStep {
    /// The client brings the link up.
    Prepare,
    Finished(Result<(), FirstContactError>),
}

const FIRST_CONTACT: Awaited<FirstContactStep> = Awaited {
    is_there: |llc| llc.prepare || llc.first_contact.is_some(),
    take: |llc| match mem::take(&mut llc.prepare) {
        true => Some(FirstContactStep::Prepare),
        false => llc.first_contact.take().map(FirstContactStep::Finished),
    },
};

/// The end of another flow, of which there is one at a time.
const OTHER_FLOW: Awaited<Finished> = Awaited {
    is_there: |llc| llc.finished.is_some(),
    take: |llc| llc.finished.take(),
};

/// The longest time that a connection that joins a group waits for the response to a TEST_LINK. The client waits six
/// seconds for the ACCEPT.
const PROBE_MAX: Duration = Duration::from_secs(4);

/// If this host's sleeps were late by this much in that time it is too busy to tell.
const PROBE_LATE: Duration = Duration::from_secs(1);

/// Returns how far a sleep exceeded the time that one of [`TICK`] may take.
fn overslept(slept: Duration) -> Duration {
    slept.saturating_sub(first_contact::AWAKE_WITHIN)
}

/// The longest sleep between two checks of the core's deadline, in jiffies.
const TICK: Jiffies = time::HZ / 10 + 1;
