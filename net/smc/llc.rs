// SPDX-License-Identifier: GPL-2.0

//! Carries out what the LLC core decides (RFC 7609 section 3.3): messages on the link, waits,
//! and the ends of flows.
//!
//! Messages are answered where they arrive. What may sleep (bringing the queue pair up, registering
//! memory) is left to the thread that runs the handshake and waits here.

use kernel::{
    pr_warn_once,
    prelude::*,
    sync::Arc,
    time::Jiffies, //
};
use kernel_ext::time;
use smc_proto::{
    id::LinkNum,
    lgr::Rtokens,
    lgr::LINK_SLOTS,
    llc::{
        first::{
            self,
            FirstLink, //
        },
        rkey::{
            self,
            Announcement, //
        },
        Action,
        Actions,
        Arrival,
        Finished,
        Llc, //
    },
    reason::Reason,
    time::Instant,
    wire::{
        cdc,
        llc::{
            Message,
            PeerOrder, //
        }, //
    }, //
};

use crate::{
    groups,
    lgr::{
        Conversation,
        LinkGroup,
        SLOT, //
    },
    link::{
        Failure,
        Handler, //
    }, //
};

/// What is to be done without the lock.
#[derive(Default)]
struct Todo {
    wake: bool,
    end: bool,
    broken: bool,
}

impl LinkGroup {
    /// Takes a message of the peer. Does not sleep.
    pub(crate) fn on_llc(self: &Arc<Self>, bytes: &[u8]) {
        let message = match Message::parse(bytes) {
            Ok(Some(message)) => message,
            Ok(None) => return,
            Err(e) => {
                pr_warn_once!("dropped an LLC message that is none: {e:?}\n");
                return;
            }
        };
        let mut links = [LinkNum::NONE; LINK_SLOTS];
        links[SLOT] = self.link.number();
        self.converse(|llc, rtokens, now| {
            let mut arrival = Arrival {
                slot: SLOT,
                links: &links,
                rtokens,
            };
            llc.on_message(&message, &mut arrival, now)
        });
    }

    /// The link is gone: whoever waits for a message on it stops.
    pub(crate) fn on_llc_link_down(self: &Arc<Self>) {
        self.converse(|llc, _, now| llc.on_link_down(SLOT, now));
    }

    /// Runs a step of the core and carries out what it asks for.
    fn converse<'a>(
        self: &Arc<Self>,
        step: impl FnOnce(&mut Llc, &mut Rtokens<'_>, Instant) -> Actions<'a>,
    ) {
        let now = Instant::from_nanos(time::now_ns());
        let mut todo = Todo::default();
        let order = self.peer_order();
        self.with_llc(|conversation, rtokens| {
            let actions = step(&mut conversation.core, rtokens, now);
            for action in actions.iter() {
                self.carry_out(conversation, action, order, &mut todo);
            }
        });
        if todo.wake {
            self.wake_llc();
        }
        if todo.broken {
            self.link.fail(Failure::Post);
        }
        if todo.end {
            groups::end_later(self);
        }
    }

    fn carry_out(
        &self,
        conversation: &mut Conversation,
        action: &Action<'_>,
        order: PeerOrder,
        todo: &mut Todo,
    ) {
        match action {
            Action::Send { message, .. } => todo.broken |= self.send_llc(message, order).is_err(),
            Action::PrepareLink { link_num, .. } => {
                self.link.set_number(*link_num);
                conversation.prepare = true;
                todo.wake = true;
            }
            Action::ActivateLink { peer_uid, .. } => self.link.activate(*peer_uid),
            // There is one link: without it the group ends.
            Action::TakeDownLink { .. } | Action::TerminateGroup(_) => todo.end = true,
            Action::Finished(how) => {
                conversation.finished = Some(*how);
                todo.wake = true;
            }
            Action::Ignored(_) => {}
        }
    }

    /// Writes a message and posts it. Does not sleep.
    fn send_llc(&self, message: &Message<'_>, order: PeerOrder) -> Result {
        let mut buf = [0; 128];
        let bytes = message.emit(order, &mut buf).map_err(|_| EMSGSIZE)?;
        self.link.send_control(bytes)
    }

    // --- Flows of ours. May sleep.

    /// Begins the first contact; the client does so before it sends its CONFIRM.
    pub(crate) fn begin_first_contact(self: &Arc<Self>, link: FirstLink) {
        self.converse(|llc, _, now| llc.begin_first_contact(link, now).unwrap_or_default());
    }

    /// Waits for the end of the first contact; `prepare` brings the link up when it is time.
    pub(crate) fn await_first_contact(
        self: &Arc<Self>,
        prepare: impl Fn() -> Result<(), Reason>,
    ) -> Result<(), first::Error> {
        loop {
            match self.await_llc() {
                Step::Prepare => {
                    let result = prepare();
                    self.converse(|llc, _, now| llc.on_link_prepared(result, now));
                }
                Step::Finished(Finished::FirstContact(result)) => return result,
                Step::Finished(_) => {}
                Step::Gone => return Err(first::Error::Silent),
            }
        }
    }

    /// Tells the peer of a region. One at a time: the caller holds the group's `flow` lock.
    pub(crate) fn confirm_rkey(
        self: &Arc<Self>,
        region: Announcement<'_>,
    ) -> Result<(), rkey::Error> {
        self.converse(|llc, _, now| {
            llc.begin_confirm_rkey(SLOT, region, now)
                .unwrap_or_default()
        });
        loop {
            match self.await_llc() {
                Step::Finished(Finished::ConfirmRkey(result)) => return result,
                Step::Finished(_) | Step::Prepare => {}
                Step::Gone => return Err(rkey::Error::LinkLost),
            }
        }
    }

    /// Sleeps until something is to be done, running the core's timeouts meanwhile.
    fn await_llc(self: &Arc<Self>) -> Step {
        loop {
            let step = self.with_llc(|conversation, _| {
                if core::mem::take(&mut conversation.prepare) {
                    return Some(Step::Prepare);
                }
                if let Some(how) = conversation.finished.take() {
                    return Some(Step::Finished(how));
                }
                conversation.core.is_idle().then_some(Step::Gone)
            });
            if let Some(step) = step {
                return step;
            }
            self.sleep_llc(TICK, |llc| llc.prepare || llc.finished.is_some());
            self.converse(|llc, _, now| llc.on_timeout(now));
        }
    }
}

impl Handler for LinkGroup {
    fn on_message(self: Arc<Self>, bytes: &[u8]) {
        if bytes.first() != Some(&cdc::TYPE) {
            self.on_llc(bytes);
            return;
        }
        match cdc::Message::parse(bytes) {
            Ok(message) => self.on_cdc(message.token, &message.cdc),
            Err(e) => pr_warn_once!("dropped a CDC message that is none: {e:?}\n"),
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.on_free_slot();
    }

    fn on_failure(self: Arc<Self>) {
        self.on_llc_link_down();
        groups::end_later(&self);
    }
}

/// The longest sleep between two looks at the core's deadline, jiffies.
const TICK: Jiffies = time::HZ / 10 + 1;

/// What a waiting thread is woken for.
enum Step {
    Prepare,
    Finished(Finished),
    /// There is no flow any more.
    Gone,
}
