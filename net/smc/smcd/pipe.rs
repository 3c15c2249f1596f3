// SPDX-License-Identifier: GPL-2.0

//! One direction of a connection: its counters and its rings.

use core::mem;

use kernel::{
    new_mutex,
    new_spinlock,
    sync::{
        atomic::{
            Atomic,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    barrier::{
        smp_mb,
        Full, //
    },
    ib::Block,
    net::{
        Charge,
        Sk, //
    },
    prelude::*,
    read_once::ReadOnce, //
};
use smc_proto::{
    buffer::SizeClass,
    smcd::{
        gather::Gather,
        mark::Mark,
        ring::{
            self,
            Fill, //
        }, //
    },
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::{
    clock::now,
    stats::InUse, //
};

/// A ring that was not used for so long is given back.
const IDLE_TIME: Duration = Duration::from_millis(900);

/// Keeps what one side writes off the cache lines that the other side writes.
#[repr(align(64))]
struct CacheLine<T>(T);

/// A ring.
#[pin_data]
pub(super) struct ShmRing {
    pub(super) class: SizeClass,
    pub(super) block: Arc<Block>,
    /// Position in the stream at which it begins.
    pub(super) start: u64,
    /// Position at which the next ring begins; [`ShmRing::OPEN`] if there is none.
    end: Atomic<u64>,
    /// The parts that the writer's and the reader's sockets are charged for, as long as anyone uses the memory. The
    /// writer's part is the reader's as well once the writer has closed, as soon as that is not locked, and its cgroup
    /// may have it. Until then it is the writer's, as what TCP has not delivered when its socket is closed.
    #[pin]
    charges: SpinLock<[Option<Charge>; 2]>,
    /// Accounts it as used, by the reader if there was one when it was made.
    _in_use: Option<InUse>,
    _sum: RingBytes,
}

impl ShmRing {
    const OPEN: u64 = u64::MAX;

    /// Context: may sleep.
    pub(super) fn new(
        class: SizeClass,
        block: Arc<Block>,
        start: u64,
        charges: [Option<Charge>; 2],
        in_use: Option<InUse>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                class,
                block,
                start,
                end: Atomic::new(Self::OPEN),
                charges <- new_spinlock!(charges, "smc::ShmRing::charges"),
                _in_use: in_use,
                _sum: RingBytes::add(class.bytes()),
            }),
            GFP_KERNEL,
        )
    }

    /// Position at which the next ring begins. To be asked after [`Pipe::produced`]: what that includes is in this ring
    /// only up to here.
    pub(super) fn end(&self) -> u64 {
        self.end.read_once()
    }

    /// Charges all of it to the socket of the reader, as far as that can be had just now.
    /// Context: does not sleep.
    fn charge_to_reader(&self, sk: &Sk) {
        let mut charges = self.charges.lock();
        let gone = charges.each_mut().map(|part| {
            let charge = part.as_ref().filter(|charge| !charge.is_of(sk))?;
            let received = Charge::try_received(sk, charge.bytes()).ok()?;
            part.replace(received)
        });
        drop(charges);
        drop(gone);
    }
}

/// A ring's bytes in the sum of all.
struct RingBytes(u32);

impl RingBytes {
    fn add(bytes: u32) -> Self {
        RING_BYTES.fetch_add(bytes.into(), Relaxed);
        Self(bytes)
    }
}

impl Drop for RingBytes {
    fn drop(&mut self) {
        RING_BYTES.fetch_sub(self.0.into(), Relaxed);
    }
}

/// Bytes of all rings.
static RING_BYTES: Atomic<u64> = Atomic::new(0);

/// Returns how many bytes all rings of this kernel have together.
pub(crate) fn ring_bytes() -> u64 {
    RING_BYTES.load(Relaxed)
}

/// The rings, from the one that the reader is in to the one that the writer is in.
#[derive(Default)]
struct Rings {
    /// Has data that were written before `current` was made.
    old: Option<Arc<ShmRing>>,
    current: Option<Arc<ShmRing>>,
}

/// The counters of the writer.
struct Written {
    /// How far the reader may read.
    produced: Atomic<u64>,
    /// How far the writer has written: the rest is held back.
    held: Atomic<u64>,
    /// Position of the reader at which the writer found its ring full, below the limit; [`ShmRing::OPEN`] for none.
    stuck_at: Atomic<u64>,
}

/// What the reader changes while data flow, and the urgent byte, which is seldom there: it takes what is left of the
/// cache line.
#[pin_data]
#[repr(align(64))]
struct ReadSide {
    /// How far the reader has read. Only the holder of [`Pipe::reader`] changes it.
    consumed: Atomic<u64>,
    /// The urgent byte.
    #[pin]
    mark: SpinLock<Option<Mark>>,
}

/// What the writer has, one at a time.
pub(super) struct RingWriter {
    pub(super) ring: Option<Arc<ShmRing>>,
    /// When data that are held back go to the reader; `None` if there are none.
    held_until: Option<Instant>,
    /// When to wake the reader.
    pub(super) gather: Gather,
    /// Position of the reader when the limit was last raised.
    raised_at: u64,
}

/// What the reader has, one at a time.
pub(super) struct RingReader {
    ring: Option<Arc<ShmRing>>,
}

impl RingReader {
    /// The ring that has position `at`, which was written, if the reader is in it.
    pub(super) fn ring_at(&self, at: u64) -> Option<&ShmRing> {
        self.ring.as_deref().filter(|ring| at < ring.end())
    }
}

/// One direction of a connection.
#[pin_data]
pub(super) struct Pipe {
    /// Only the holder of `writer` changes it.
    written: CacheLine<Written>,
    #[pin]
    read: ReadSide,
    /// By how many bytes the limit was raised. Only the holder of `writer` changes it.
    raised: Atomic<u32>,
    /// A writer or poller found no space.
    wants_space: Atomic<bool>,
    /// A task waits until the peer has taken the data (SO_LINGER).
    is_lingering: Atomic<bool>,
    /// There is an urgent byte.
    has_mark: Atomic<bool>,
    /// The timer will wake the reader.
    is_wake_due: Atomic<bool>,
    /// How far the writer had written when a change of that was last seen, and when that was, in ns.
    seen: Atomic<u64>,
    seen_at: Atomic<u64>,
    #[pin]
    rings: SpinLock<Rings>,
    /// Serializes writers; held while data are copied from user space.
    #[pin]
    pub(super) writer: Mutex<RingWriter>,
    /// Serializes readers; held while data are copied to user space.
    #[pin]
    pub(super) reader: Mutex<RingReader>,
}

impl Pipe {
    pub(super) fn new() -> impl PinInit<Self> {
        let writer = RingWriter {
            ring: None,
            held_until: None,
            gather: Gather::default(),
            raised_at: 0,
        };
        pin_init!(Self {
            written: CacheLine(Written {
                produced: Atomic::new(0),
                held: Atomic::new(0),
                stuck_at: Atomic::new(ShmRing::OPEN),
            }),
            read <- pin_init!(ReadSide {
                consumed: Atomic::new(0),
                mark <- new_spinlock!(None, "smc::Pipe::mark"),
            }),
            raised: Atomic::new(0),
            wants_space: Atomic::new(false),
            is_lingering: Atomic::new(false),
            has_mark: Atomic::new(false),
            is_wake_due: Atomic::new(false),
            seen: Atomic::new(0),
            seen_at: Atomic::new(0),
            rings <- new_spinlock!(Rings::default(), "smc::Pipe::rings"),
            writer <- new_mutex!(writer, "smc::Pipe::writer"),
            reader <- new_mutex!(RingReader { ring: None }, "smc::Pipe::reader"),
        })
    }

    /// How far the reader may read. What was written is visible after this.
    pub(super) fn produced(&self) -> u64 {
        self.written.0.produced.read_acquire()
    }

    /// How far the writer has written, with what is held back.
    pub(super) fn written(&self) -> u64 {
        self.written.0.held.read_once()
    }

    /// How far the reader has read. What was read may be overwritten after this.
    pub(super) fn consumed(&self) -> u64 {
        self.read.consumed.read_acquire()
    }

    /// Both counters, with the `limit` of what may lie between them.
    pub(super) fn fill(&self, limit: u32) -> Fill {
        // In this order: what is read meanwhile makes room, and is not counted below zero.
        let consumed = self.consumed();
        Fill {
            produced: self.written(),
            consumed,
            limit,
        }
    }

    /// By how many bytes the limit was raised.
    pub(super) fn raised(&self) -> u32 {
        self.raised.read_once()
    }

    /// As [`Self::fill`], for a writer of `len` bytes, for whom the limit may be raised.
    pub(super) fn fill_for(&self, writer: &mut RingWriter, limit: u32, len: usize) -> Fill {
        let mut fill = self.fill(limit);
        if let Some(more) = fill.raise(len, writer.raised_at) {
            writer.raised_at = fill.consumed;
            self.raised
                .store(self.raised().saturating_add(more), Relaxed);
            fill.limit = fill.limit.saturating_add(more);
        }
        fill
    }

    /// Whether the writer may go on: there is space below `limit`, and it has not found its ring full since the reader
    /// has read.
    pub(super) fn has_space(&self, limit: u32) -> bool {
        let fill = self.fill(limit);
        fill.is_writeable() && self.written.0.stuck_at.read_once() != fill.consumed
    }

    /// The ring is full, below the limit, with the reader at `consumed`. The caller holds `writer`.
    pub(super) fn set_stuck(&self, consumed: u64) {
        self.written.0.stuck_at.store(consumed, Relaxed);
    }

    /// The writer has written up to `position`, which the reader may not read yet. Returns whether that is new.
    pub(super) fn hold(&self, writer: &mut RingWriter, position: u64) -> bool {
        self.written.0.held.store(position, Relaxed);
        let is_new = writer.held_until.is_none();
        writer
            .held_until
            .get_or_insert_with(|| now().saturating_add(ring::CORK_TIME));
        is_new
    }

    /// The reader may read up to `position`, to which the writer has written. The caller wakes the reader.
    pub(super) fn produce(&self, writer: &mut RingWriter, position: u64) {
        writer.held_until = None;
        self.written.0.held.store(position, Relaxed);
        self.written.0.produced.store(position, Release);
    }

    /// The reader may read what was held back; returns whether there was any. The caller wakes the reader.
    pub(super) fn release_held(&self, writer: &mut RingWriter) -> bool {
        let is_held = writer.held_until.is_some();
        if is_held {
            self.produce(writer, self.written());
        }
        is_held
    }

    /// Timer for data that are held back. Returns whether the reader is to be woken, and when to look again.
    /// Context: does not sleep.
    pub(super) fn look_at_held(&self, now: Instant) -> (bool, Option<Instant>) {
        if self.written() == self.produced() {
            return (false, None);
        }
        // Whoever holds it writes just now.
        let Some(mut writer) = self.writer.try_lock() else {
            return (false, Some(now.saturating_add(ring::CORK_TIME)));
        };
        match writer.held_until {
            Some(until) if !until.is_due(now) => (false, Some(until)),
            _ => (self.release_held(&mut writer), None),
        }
    }

    /// The reader has read up to `position`. The caller holds `reader`.
    pub(super) fn consume(&self, position: u64) {
        if self.has_mark() {
            let mut mark = self.read.mark.lock();
            if mark.is_some_and(|mark| mark.is_passed(position)) {
                *mark = None;
                self.has_mark.store(false, Relaxed);
            }
        }
        self.read.consumed.store(position, Release);
    }

    /// Returns whether a writer waits for space, which it then does no more if `is_enough`.
    pub(super) fn take_writer(&self, is_enough: impl FnOnce() -> bool) -> bool {
        // A writer that sets it after this sees what was read.
        smp_mb(Full);
        if self.is_lingering.read_once() {
            return true;
        }
        if !self.wants_space.read_once() || !is_enough() {
            return false;
        }
        self.wants_space.store(false, Relaxed);
        true
    }

    /// Whether the timer will wake the reader for what was produced before.
    pub(super) fn is_wake_due(&self) -> bool {
        // The timer clears it before it wakes the reader, which then sees what was produced.
        smp_mb(Full);
        self.is_wake_due.read_once()
    }

    /// The timer is to wake the reader. The caller starts it.
    pub(super) fn set_wake_due(&self) {
        self.is_wake_due.store(true, Relaxed);
    }

    /// Whether the timer was to wake the reader, which it does no more.
    pub(super) fn take_wake_due(&self) -> bool {
        self.is_wake_due.read_once() && self.is_wake_due.xchg(false, Full)
    }

    /// Notes that a writer waits for space. The caller looks for space again after this.
    pub(super) fn want_space(&self) {
        self.wants_space.store(true, Relaxed);
        smp_mb(Full);
    }

    /// A task waits from now on until the peer has taken the data. It looks again after this.
    pub(super) fn begin_linger(&self) {
        self.is_lingering.store(true, Relaxed);
        smp_mb(Full);
    }

    /// Whether a writer waits for space.
    pub(super) fn is_full(&self) -> bool {
        self.wants_space.read_once()
    }

    /// Whether there may be an urgent byte.
    pub(super) fn has_mark(&self) -> bool {
        self.has_mark.read_once()
    }

    /// The urgent byte.
    pub(super) fn mark(&self) -> Option<Mark> {
        match self.has_mark() {
            true => *self.read.mark.lock(),
            false => None,
        }
    }

    /// The urgent byte, for a reader at `consumed`; there is none of interest to it if nothing was produced.
    pub(super) fn mark_before(&self, consumed: u64, produced: u64) -> Option<Mark> {
        match produced == consumed {
            true => None,
            false => self.mark(),
        }
    }

    /// Notes an urgent byte, before it is produced.
    pub(super) fn set_mark(&self, position: u64, byte: u8, is_inline: bool) {
        let mut mark = self.read.mark.lock();
        *mark = Some(Mark::new(*mark, position, byte, self.consumed(), is_inline));
        self.has_mark.store(true, Relaxed);
    }

    /// The urgent byte was read out of line; one that has come meanwhile was not.
    pub(super) fn take_mark(&self, read: Mark) {
        match &mut *self.read.mark.lock() {
            Some(mark) if *mark == read => mark.take(),
            _ => {}
        }
    }

    /// Whether a writer may make a new ring: what is in the old one has been read.
    pub(super) fn may_grow(&self, consumed: u64) -> bool {
        let rings = self.rings.lock();
        rings.old.as_ref().is_none_or(|old| consumed >= old.end())
    }

    /// The writer goes on in `ring`, which begins where it is.
    pub(super) fn add_ring(&self, writer: &mut RingWriter, ring: Arc<ShmRing>) {
        let before = writer.ring.replace(ring.clone());
        let mut rings = self.rings.lock();
        if let Some(last) = &rings.current {
            last.end.store(ring.start, Relaxed);
        }
        let last = rings.current.replace(ring);
        let gone = (before, mem::replace(&mut rings.old, last));
        drop(rings);
        drop(gone);
    }

    /// The ring that has position `at`, which was written, where the reader is not in it. `consumed` is how far the
    /// reader has read: rings before that are given up.
    pub(super) fn next_ring(
        &self,
        reader: &mut RingReader,
        at: u64,
        consumed: u64,
    ) -> Option<Arc<ShmRing>> {
        let mut rings = self.rings.lock();
        let old = rings.old.take_if(|old| consumed >= old.end());
        let ring = match (&rings.old, &rings.current) {
            (Some(old), _) if at < old.end() => Some(old.clone()),
            (_, Some(current)) if at >= current.start => Some(current.clone()),
            _ => None,
        };
        drop(rings);
        drop(old);
        // A peek may look further than the reader is.
        if ring.as_ref().is_some_and(|ring| consumed >= ring.start) {
            reader.ring.clone_from(&ring);
        }
        ring
    }

    /// Gives the rings back if all was read and nothing was written for [`IDLE_TIME`], or if the reader has closed;
    /// returns whether there are any left.
    /// Context: may sleep.
    pub(super) fn give_back_idle(&self, now: Instant, is_reader_closed: bool) -> bool {
        if is_reader_closed {
            // A writer that had not seen that yet may have made one since. The next one sees it.
            let Some(writer) = self.writer.try_lock() else {
                return true;
            };
            let gone = self.take_rings();
            drop(writer);
            drop(gone);
        }
        if !self.has_rings() {
            // Those who were in a ring when the reader closed.
            let (Some(mut writer), Some(mut reader)) =
                (self.writer.try_lock(), self.reader.try_lock())
            else {
                return true;
            };
            // No writer makes one while its lock is held; it may have before.
            if self.has_rings() {
                return true;
            }
            let gone = (writer.ring.take(), reader.ring.take());
            drop((writer, reader));
            drop(gone);
            return false;
        }
        let written = self.written();
        if self.seen.load(Relaxed) != written {
            self.seen.store(written, Relaxed);
            self.seen_at.store(now.as_nanos(), Relaxed);
            return true;
        }
        let end = Instant::from_nanos(self.seen_at.load(Relaxed)).saturating_add(IDLE_TIME);
        if !end.is_due(now) || self.consumed() != written {
            return true;
        }
        // Whoever holds one of them uses it just now.
        let (Some(mut writer), Some(mut reader)) = (self.writer.try_lock(), self.reader.try_lock())
        else {
            return true;
        };
        if self.written() != self.consumed() {
            return true;
        }
        // With both of them held: whoever waits for one makes a new ring.
        let gone = (writer.ring.take(), reader.ring.take(), self.take_rings());
        drop((writer, reader));
        drop(gone);
        false
    }

    fn has_rings(&self) -> bool {
        self.rings.lock().current.is_some()
    }

    fn take_rings(&self) -> Rings {
        mem::take(&mut *self.rings.lock())
    }

    /// The writer has closed: it writes no more. What the reader has not read is memory of its socket `sk` from now on;
    /// if it has read all, or closed, there is no ring any more.
    /// Context: may sleep.
    pub(super) fn close_writer(&self, sk: Option<&Sk>) {
        let own = self.writer.lock().ring.take();
        drop(own);
        match sk {
            None => drop(self.take_rings()),
            Some(sk) => {
                let reader = self.reader.try_lock();
                let reader = reader.filter(|_| self.written() == self.consumed());
                let gone = reader.map(|mut reader| (reader.ring.take(), self.take_rings()));
                drop(gone);
                self.charge_to_reader(sk);
            }
        }
    }

    /// Charges the rings to the socket of the reader, as the writer has closed.
    /// Context: does not sleep.
    pub(super) fn charge_to_reader(&self, sk: &Sk) {
        let rings = {
            let rings = self.rings.lock();
            [rings.old.clone(), rings.current.clone()]
        };
        for ring in rings.iter().flatten() {
            ring.charge_to_reader(sk);
        }
    }

    /// The reader has closed: what is written is lost.
    /// Context: may sleep.
    pub(super) fn close_reader(&self) {
        let own = self.reader.try_lock().map(|mut reader| reader.ring.take());
        // One who writes just now gives it up at its next call, or the timer does.
        let other = self.writer.try_lock().map(|mut writer| writer.ring.take());
        drop((own, other, self.take_rings()));
    }
}
