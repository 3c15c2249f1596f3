// SPDX-License-Identifier: GPL-2.0

//! RMBEs are replaced by others of another size, between two of this module (`Documentation/rmbe.md`): a connection
//! begins with 16 KiB, gets what SO_RCVBUF asks for when the peer has more to send than fits, still more for a bulk
//! transfer, and gives it back when it has been idle for some time.
//!
//! `smc_proto::conn` has the protocol, and says which size is of use (`rmbe_size`). Another RMBE is taken, registered
//! and announced by a work, as that may sleep: data flow meanwhile.

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    net::{
        memory,
        Charge,
        Sk, //
    },
    prelude::*, //
};
use smc_proto::{
    buffer::SizeClass,
    conn::{
        rmbe_size::{
            RmbeSizes,
            RmbeWatch,
            IDLE, //
        },
        Effects,
        RmbeOffer,
        RmbeRefs, //
    },
    lgr::{
        rtoken::Refused,
        LinkIdx, //
    },
    llc::FLOW_WAIT,
    time::{
        Duration,
        Instant, //
    }, //
};

use super::{
    queues::RMBES,
    Conn,
    ConnInner,
    PeerRmbe, //
};
use crate::{
    clock::now,
    lgr::LinkRef,
    namespace,
    rmb::{
        class_for,
        Rmbe,
        CLEARED_IN_SOFTIRQ, //
    },
    turn::TurnWait, //
};

/// How long to wait before another attempt if there was no memory, or the peer has no room for another RMB.
const RETRY: Duration = Duration::from_secs(1);

/// The work that replaces a connection's RMBE.
pub(super) const RMBE_WORK: u64 = 1;

/// The RMBEs of a connection besides the one in use.
#[derive(Default)]
pub(super) struct OtherRmbes {
    /// Offered to the peer, which may write to it.
    offered: Option<Arc<Rmbe>>,
    /// When the offer was made, or made again.
    offered_at: Option<Instant>,
    /// The one before, while it has unread data. The peer does not write to it any more.
    replaced: Option<Arc<Rmbe>>,
    /// The size that the work is to replace the RMBE by.
    wanted: Option<SizeClass>,
    /// The work is queued or runs.
    is_work_queued: bool,
    /// No attempt before; then the timer makes another one.
    retry_at: Option<Instant>,
    /// Watches the one in use, if it can be replaced.
    watch: Option<RmbeWatch>,
    /// The one in use is smaller than SO_RCVBUF says.
    is_small: bool,
}

impl OtherRmbes {
    /// Returns the one before.
    pub(super) fn replaced(&self) -> Option<&Arc<Rmbe>> {
        self.replaced.as_ref()
    }

    /// Returns the one that was offered.
    pub(super) fn offered(&self) -> Option<&Arc<Rmbe>> {
        self.offered.as_ref()
    }

    /// Takes the one before out: nobody reads from it any more.
    pub(super) fn take_replaced(&mut self) -> impl Sized {
        self.replaced.take()
    }

    /// Takes both out, of a connection that is finished: the peer writes to neither.
    pub(super) fn take_all(&mut self) -> impl Sized {
        (self.offered.take(), self.replaced.take())
    }

    /// Takes both out; the peer may go on writing to the one that was offered.
    pub(super) fn give_up_all(&mut self) -> impl Sized {
        (self.give_up_offered(), self.replaced.take())
    }

    /// Takes the one that was offered out, to which the peer may go on writing.
    pub(super) fn give_up_offered(&mut self) -> impl Sized {
        if let Some(offered) = &self.offered {
            offered.quarantine();
        }
        self.offered.take()
    }
}

/// What the connection does not need any more; dropped without its lock.
#[derive(Default)]
pub(super) struct Unneeded {
    _rmbes: [Option<Arc<Rmbe>>; 2],
    _charge: Option<Charge>,
}

impl ConnInner {
    /// Carries out that the peer has adopted the RMBE offered to it.
    pub(super) fn note_replaced(&mut self, fx: &Effects) -> Unneeded {
        if !fx.replaced {
            return Unneeded::default();
        }
        let offered = self.others.offered.take();
        let replaced = core::mem::replace(&mut self.rmbe, offered);
        if let Some(replaced) = replaced
            .as_ref()
            .filter(|_| self.stream.may_write_replaced())
        {
            replaced.quarantine();
        }
        let before = core::mem::replace(&mut self.others.replaced, replaced);
        self.begin_rmbe_watch();
        // What is unread in the one before is not charged for the short time that it takes to read it.
        let charge = self.charges(|all| core::mem::replace(&mut all.rmbe, all.offered.take()));
        let unneeded = match self.has_large_replaced() {
            // The work does it.
            true => None,
            false => self.unneeded_replaced(),
        };
        Unneeded {
            _rmbes: [before, unneeded],
            _charge: charge.flatten(),
        }
    }

    /// Whether the RMBE before is too large to be cleared in softirq context.
    fn has_large_replaced(&self) -> bool {
        self.others.replaced.as_ref().is_some_and(is_large)
    }

    /// The same of any RMBE of a finished connection. Then the work calls [`Self::take_unneeded`].
    pub(super) fn has_large_unneeded(&self) -> bool {
        let is_closed = self.owner.is_none();
        let all = [
            self.rmbe.as_ref().filter(|_| is_closed),
            self.others.offered(),
            self.others.replaced(),
        ];
        all.into_iter().flatten().any(is_large)
    }

    /// Takes the RMBEs of a finished connection out, the one in use once the application has closed the socket.
    pub(super) fn take_unneeded(&mut self) -> impl Sized {
        let is_closed = self.owner.is_none();
        (self.rmbe.take_if(|_| is_closed), self.others.take_all())
    }

    /// Whether the caller has to queue the work after an event that was processed: a larger RMBE is of use, or one was
    /// replaced that it has to release.
    pub(super) fn needs_rmbe_work(&mut self, fx: &Effects) -> bool {
        let is_due = fx.replaced && (self.needs_larger() || self.has_large_replaced());
        is_due || (fx.wake_readers && (self.wants_larger() || self.is_busy()))
    }

    /// Begins to watch the RMBE if it can be replaced: whether it is idle, or a larger one would be of use.
    /// [`Conn::watch_rmbe`] is to be called then.
    pub(super) fn begin_rmbe_watch(&mut self) {
        let size = self.stream.rmbe_class();
        let owner = self.owner.as_ref().filter(|_| self.stream.replaces_rmbes());
        self.others.is_small = owner.is_some_and(|owner| size < largest(&owner.sk));
        self.others.watch = owner.map(|_| RmbeWatch::new(self.stream.bytes_received(), now()));
    }

    /// Whether a timer looks whether the RMBE is idle.
    fn is_watched(&self) -> bool {
        let size = self.stream.rmbe_class();
        let mut owner = self.owner.iter().filter(|_| self.others.watch.is_some());
        owner.any(|owner| size > smallest(&owner.sk))
    }

    /// Takes the RMBE before out once all data in it were read.
    pub(super) fn unneeded_replaced(&mut self) -> Option<Arc<Rmbe>> {
        let is_needed = self.stream.needs_replaced();
        self.others.replaced.take_if(|_| !is_needed)
    }

    /// Returns the memory that holds the data to be read from `skip` bytes on.
    pub(super) fn rmbe_to_read(&self, skip: u32) -> Option<&Arc<Rmbe>> {
        match self.stream.is_in_replaced(skip) {
            true => self.others.replaced(),
            false => self.rmbe.as_ref(),
        }
    }

    /// What a message of this connection on link `idx` says of RMBEs.
    pub(super) fn refs_on(&self, idx: LinkIdx, refs: RmbeRefs) -> RmbeRefs {
        let rkey = || Some(self.others.offered.as_ref()?.rmb().rtoken(idx)?.rkey);
        let offer = refs
            .offer
            .and_then(|offer| rkey().map(|rkey| RmbeOffer { rkey, ..offer }));
        RmbeRefs { offer, ..refs }
    }

    /// Whether the peer has more to send than fits, and a larger RMBE can be had; the caller queues the work then.
    pub(super) fn wants_larger(&mut self) -> bool {
        if !self.stream.is_rmbe_short() {
            return false;
        }
        let is_bulk = self.is_filled(RmbeWatch::is_bulk);
        self.request_size(|sizes, size| sizes.larger(size, is_bulk))
    }

    /// The same for a socket that needs a larger one than it has whatever the peer does, see [`RmbeSizes::first`].
    fn needs_larger(&mut self) -> bool {
        self.request_size(RmbeSizes::needed)
    }

    /// Whether so much arrives in a small RMBE that a larger one would be of use, and can be had; the caller queues the
    /// work then.
    fn is_busy(&mut self) -> bool {
        self.others.is_small
            && self.is_filled(RmbeWatch::is_busy)
            && self.request_size(|sizes, size| sizes.larger(size, false))
    }

    /// What `how` says of the RMBE in use, if it is watched.
    fn is_filled(
        &mut self,
        how: impl FnOnce(&mut RmbeWatch, SizeClass, u64, fn() -> Instant) -> bool,
    ) -> bool {
        let (size, received) = (self.stream.rmbe_class(), self.stream.bytes_received());
        let watch = self.others.watch.as_mut();
        watch.is_some_and(|watch| how(watch, size, received, now))
    }

    /// Whether an RMBE of that size may be offered: a smaller one only if nothing has come since it was found idle.
    fn may_offer(&self, want: SizeClass) -> bool {
        let (received, readable) = (self.stream.bytes_received(), self.stream.readable());
        let watch = self.others.watch;
        let is_idle = watch.is_some_and(|watch| watch.is_quiet(received, readable));
        self.stream.may_offer_rmbe() && (want > self.stream.rmbe_class() || is_idle)
    }

    /// Notes the size that `choose` finds among those of the socket, for the present one, unless nothing can be offered
    /// now.
    fn request_size(
        &mut self,
        choose: impl FnOnce(&RmbeSizes, SizeClass) -> Option<SizeClass>,
    ) -> bool {
        let is_early = self.others.retry_at.is_some();
        if is_early || self.others.is_work_queued || !self.stream.may_offer_rmbe() {
            return false;
        }
        let Some(owner) = &self.owner else {
            return false;
        };
        self.others.wanted = choose(&sizes(&owner.sk), self.stream.rmbe_class());
        self.others.is_work_queued = self.others.wanted.is_some();
        self.others.is_work_queued
    }
}

/// Whether the data of an RMBE are too many to be cleared in softirq context.
fn is_large(rmbe: &Arc<Rmbe>) -> bool {
    rmbe.used() > CLEARED_IN_SOFTIRQ
}

/// The size of an RMBE that SO_RCVBUF asks for.
pub(crate) fn largest(sk: &Sk) -> SizeClass {
    class_for(sk.rcvbuf() / 2)
}

/// The size that an RMBE begins with if it can be replaced.
pub(crate) fn smallest(sk: &Sk) -> SizeClass {
    sizes(sk).first()
}

/// The sizes that an RMBE of the socket may have.
fn sizes(sk: &Sk) -> RmbeSizes {
    let namespace = namespace::of(sk);
    let may_exceed = !sk.is_rcvbuf_locked() && !memory::is_short();
    RmbeSizes {
        asked: largest(sk),
        min: class_for(namespace.config.rmbe_min_bytes()),
        max: may_exceed.then(|| class_for(namespace.config.rmbe_max_bytes())),
        has_lowat: sk.lowat() > 1,
    }
}

impl Conn {
    /// Writes to the RMBE that the peer offers by a message on link `idx`, if that is possible.
    /// Context: does not sleep; called with the connection's lock held.
    ///
    /// # Errors
    ///
    /// If the peer has not announced it, or another connection uses it.
    pub(super) fn adopt_rmbe(
        &self,
        inner: &mut ConnInner,
        idx: LinkIdx,
        offer: &RmbeOffer,
    ) -> Result<(), Refused> {
        let Some(remote) = inner.remote else {
            return Ok(());
        };
        // The link that it is to move to was chosen for the present RMBE, so the move comes first. The peer makes its
        // offer again.
        if inner.pending_switch.is_some() {
            return Ok(());
        }
        let at = inner.at.idx;
        let row = self.group.with_rtokens(|all| {
            let row = all.claim_by_key(idx, offer.rkey, offer.index)?;
            let is_reached = all.get(row, at).is_some();
            if !is_reached {
                all.release(row, offer.index);
            }
            Ok(is_reached.then_some(row))
        });
        let Some(row) = row? else {
            return Ok(());
        };
        inner.stream.adopt_rmbe(offer.size);
        inner.remote = Some(PeerRmbe {
            row,
            index: offer.index,
            size: offer.size,
            ..remote
        });
        let before = inner.claim.replace((row, offer.index));
        self.release_claim(before);
        Ok(())
    }

    /// Queues the work that replaces the RMBE.
    /// Context: does not sleep.
    pub(super) fn schedule_rmbe_work(self: &Arc<Self>) {
        RMBES.with(|queue| {
            // It may be queued already.
            let _ = queue.enqueue::<Arc<Self>, RMBE_WORK>(self.clone());
        });
    }

    /// Options of the socket were set: with SO_RCVLOWAT it may need a larger RMBE ([`RmbeSizes::first`]), and with a
    /// larger SO_RCVBUF a peer that waits for room gets some.
    /// Context: does not sleep.
    pub(crate) fn grow_for_options(self: &Arc<Self>) {
        if self.with(|inner| inner.needs_larger() || inner.wants_larger()) {
            self.schedule_rmbe_work();
        }
    }

    /// Timer after an attempt that failed: makes another one if it is due and of use, else returns when it will be due.
    /// Context: does not sleep.
    pub(super) fn retry_rmbe(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let inner = self.inner.lock();
        let at = inner.others.retry_at?;
        if !at.is_due(now) {
            return Some(at);
        }
        drop(inner);
        self.retry_rmbe_now();
        None
    }

    /// The keys of another RMB were announced: an attempt that waits need not wait any longer.
    /// Context: does not sleep.
    pub(super) fn retry_rmbe_now(self: &Arc<Self>) {
        let is_wanted = self.with(|inner| {
            let waited = inner.others.retry_at.take().is_some();
            waited && (inner.wants_larger() || inner.needs_larger())
        });
        if is_wanted {
            self.schedule_rmbe_work();
        }
    }

    /// Timer of an offer: makes it again if the peer has not adopted it, else returns when to look again.
    /// Context: does not sleep.
    pub(super) fn look_at_offer(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        let end = inner.others.offered_at?.saturating_add(IDLE);
        let is_open = inner.stream.has_offered_rmbe();
        if is_open && !end.is_due(now) {
            return Some(end);
        }
        let is_repeated = inner.stream.repeat_offer();
        inner.others.offered_at = is_repeated.then_some(now);
        drop(inner);
        if !is_repeated {
            return None;
        }
        self.transmit();
        Some(now.saturating_add(IDLE))
    }

    /// Timer of an RMBE that is not the smallest: replaces it if nothing was received for some time, else returns when
    /// to look again.
    /// Context: does not sleep.
    pub(super) fn look_at_rmbe(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.inner.lock();
        if inner.owner.is_none() || inner.stream.is_peer_done() {
            inner.others.watch = None;
            return None;
        }
        if !inner.is_watched() {
            return None;
        }
        let (received, readable) = (inner.stream.bytes_received(), inner.stream.readable());
        let watch = inner.others.watch.as_mut()?;
        let (is_idle, next) = watch.on_timer(received, readable, now);
        let is_wanted = is_idle && inner.request_size(RmbeSizes::smaller);
        drop(inner);
        if is_wanted {
            self.schedule_rmbe_work();
        }
        Some(next)
    }

    /// Starts the timer of an RMBE that is watched by one.
    /// Context: does not sleep.
    pub(super) fn watch_rmbe(&self) {
        if self.with(|inner| inner.is_watched()) {
            self.group.arm_conn_timer(IDLE);
        }
    }

    /// Takes an RMBE of that size which the peer can write to.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` and others if there is none, or none that is larger, or smaller, than the present one as it should be;
    /// `ENOLINK`.
    fn take_rmbe(
        self: &Arc<Self>,
        sk: &Sk,
        at: &LinkRef,
        want: SizeClass,
    ) -> Result<(Rmbe, Charge)> {
        let group = &self.group;
        // Else each attempt might take an element whose keys cannot be announced now.
        if !group.announcing.is_free(now()) {
            return Err(EBUSY);
        }
        let rmbe = group.rmbs.take_uncounted(at.idx, &at.link, want)?;
        // Where there is little memory it may be smaller than that.
        let present = self.with(|inner| inner.stream.rmbe_class());
        if rmbe.size().cmp(&present) != want.cmp(&present) {
            return Err(ENOMEM);
        }
        let charge = Charge::received_in_work(sk, rmbe.size().bytes())?;
        self.announce(&rmbe, at)?;
        Ok((rmbe, charge))
    }

    /// Makes sure that the peer has the keys of the RMB. One connection of a group at a time asks the peer, which may
    /// be slow to answer or never do so: the others would wait as long. An RMB whose keys the peer did not take is kept
    /// for another attempt.
    /// Context: may sleep.
    fn announce(&self, rmbe: &Rmbe, at: &LinkRef) -> Result {
        if rmbe.rmb().is_rkey_confirmed() {
            return Ok(());
        }
        let group = &self.group;
        if !group.announcing.try_begin(now()) {
            return Err(EBUSY);
        }
        let result = group.confirm_rkey(rmbe.rmb(), at, &TurnWait::at_most(FLOW_WAIT));
        group.announcing.end(result.is_ok(), now());
        if result.is_ok() {
            group.for_each(|member| member.on_rmb_announced());
        }
        result.map_err(|_| ENOLINK)
    }

    /// Takes another RMBE if one is wanted, and offers it to the peer. Returns whether one was.
    fn replace_rmbe(self: &Arc<Self>) -> Result<bool> {
        let Some((sk, at, want)) = self.with(|inner| {
            let want = inner.others.wanted.take()?;
            let sk = inner.sk().filter(|_| inner.may_offer(want));
            Some((sk, inner.at.clone(), want))
        }) else {
            return Ok(false);
        };
        let Some(sk) = sk else {
            return Ok(true);
        };
        let (mut rmbe, charge) = self.take_rmbe(&sk, &at, want)?;
        rmbe.count(want, &namespace::of(&sk).stats.smcr.rmbs);
        let (size, index) = (rmbe.size(), rmbe.index());
        let mut rmbe = Some(Arc::new(rmbe, GFP_KERNEL)?);
        let mut charge = Some(charge);
        self.with(|inner| {
            // The end of the group has released what there was.
            if inner.may_offer(want) && inner.rmbe.is_some() {
                inner.stream.offer_rmbe(size, index);
                inner.others.offered_at = Some(now());
                inner.others.offered = rmbe.take();
                inner.charges(|all| core::mem::swap(&mut all.offered, &mut charge));
            }
        });
        drop((rmbe, charge));
        self.transmit();
        self.group.arm_conn_timer(IDLE);
        Ok(true)
    }
}

/// Releases large RMBEs that are not needed any more, and takes another one.
impl WorkItem<RMBE_WORK> for Conn {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let unneeded = this.with(|inner| {
            let is_finished = inner.stream.is_finished();
            let all = is_finished.then(|| inner.take_unneeded());
            (all, inner.unneeded_replaced())
        });
        drop(unneeded);
        // These, and one that is made and not used.
        this.group.note_rmbe_released();
        let result = this.replace_rmbe();
        if result == Ok(false) {
            // Another run may have a retry before it.
            return;
        }
        this.with(|inner| {
            inner.others.is_work_queued = false;
            inner.others.retry_at = result.is_err().then(|| now().saturating_add(RETRY));
        });
        if result.is_err() {
            this.group.arm_conn_timer(RETRY);
        }
    }
}
