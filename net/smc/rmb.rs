// SPDX-License-Identifier: GPL-2.0

//! Receive and send buffers of a link group (RFC 7609 section 4.4; sizes: `smc_proto::buffer`).
//!
//! A remote memory buffer (RMB) is one registered memory region divided into equal elements, one for each connection. A
//! new connection uses a free element of an RMB whose key the peer already has: no registration, no exchange of keys.
//! Send buffers are assigned to a connection only while its data are in flight. Unused buffers are kept for later
//! connections, for some time or until memory is short.

mod announcing;
mod quarantine;
mod send;
mod unused;
mod used;

use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    ib::{
        Block,
        BlockKind,
        DmaDirection,
        Mapping,
        Mr, //
    },
    net::memory::{
        self,
        CountedPages, //
    },
    prelude::*,
    random,
    spinlock_bh::{
        is_softirq,
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    buffer::SizeClass,
    cursor::Chunks,
    id::{
        RemoteAddr,
        Rkey,
        RmbeIndex, //
    },
    lgr::{
        LinkIdx,
        LinkMap,
        Rtoken, //
    },
};

use crate::{
    link::Link,
    stats::{
        Buffers,
        Gauge,
        InUse, //
    }, //
};
pub(crate) use announcing::Announcing;
use quarantine::Quarantine;
pub(crate) use send::{
    SendBuf,
    SendPool,
    SndbufGuard, //
};
pub(crate) use unused::UnusedRmbs;
pub(crate) use used::unused_bytes;
use used::RmbeBitmap;

/// Elements of the first RMB of a size class in a group; each further RMB has twice as many, up to the device's
/// limit for one registration.
const FIRST_ELEMENTS: usize = 2;

/// The smallest ring of this kernel. Memory comes in whole pages, and an RMB is registered as its elements lie one
/// after another: with smaller ones the peer would write elsewhere (kernels with pages of 64 KiB).
pub(crate) const LEAST: SizeClass = class_for(0);

/// Returns the size class of a ring of `bytes` in memory of this kernel.
pub(crate) const fn class_for(bytes: u32) -> SizeClass {
    // CAST: A page is smaller.
    let page = PAGE_SIZE as u32;
    SizeClass::for_bytes(if bytes < page { page } else { bytes })
}

/// Allocates the memory of a ring, and no more: it is registered as it is.
///
/// # Errors
///
/// `EINVAL` for a ring smaller than [`LEAST`], and those of [`Block::counted`].
fn ring_block(size: SizeClass, kind: BlockKind, counted: CountedPages) -> Result<Arc<Block>> {
    if size < LEAST {
        return Err(EINVAL);
    }
    Block::counted(size.bytes() as usize, kind, counted)
}

/// Maximum elements of one RMB: the index is one byte and 0 is not used.
const MAX_ELEMENTS: usize = 255;

/// Bytes of an element that are cleared in softirq context at most.
pub(crate) const CLEARED_IN_SOFTIRQ: u32 = 64 << 10;

/// One RMB of equal elements, registered on every link of the group under a separate key.
#[pin_data]
pub(crate) struct Rmb {
    size: SizeClass,
    /// The elements.
    blocks: KVec<Arc<Block>>,
    /// The address for the peer: an arbitrary value, so that it does not reveal our memory addresses.
    iova: u64,
    /// The memory region (MR) on each link, by index.
    #[pin]
    mrs: SpinLockBh<LinkMap<Option<OnLink>>>,
    #[pin]
    used: SpinLockBh<RmbeBitmap>,
    /// The peer has the key.
    is_rkey_confirmed: Atomic<bool>,
    /// It may have it.
    is_rkey_sent: Atomic<bool>,
    /// Set if the device of any link, now or earlier, requires DMA synchronisation.
    needs_sync: Atomic<bool>,
}

/// The memory region on one link.
struct OnLink {
    mr: Arc<Mr>,
    /// Registered: the peer can use the key.
    is_registered: bool,
}

impl Rmb {
    /// Allocates an RMB of a pool.
    fn new(size: SizeClass, elements: usize, pool: &RmbPool) -> Result<Arc<Self>> {
        let mut blocks = KVec::with_capacity(elements, GFP_KERNEL)?;
        for _ in 0..elements {
            let bytes = size.bytes() as usize;
            let block = ring_block(size, pool.buf_type, CountedPages::new(bytes)?)?;
            blocks.push(block, GFP_KERNEL)?;
        }
        let bytes = elements as u64 * u64::from(size.bytes());
        let used = RmbeBitmap::new(bytes, &pool.unused, Quarantine::new(&pool.quarantined));
        Arc::pin_init(
            pin_init!(Self {
                size,
                blocks,
                iova: u64::from(random::number_u32()) << 24,
                mrs <- new_spinlock_bh!(LinkMap::default(), "smc::Rmb::mrs"),
                used <- new_spinlock_bh!(used, "smc::Rmb::used"),
                is_rkey_confirmed: Atomic::new(false),
                is_rkey_sent: Atomic::new(false),
                needs_sync: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    fn take(self: &Arc<Self>) -> Option<Rmbe> {
        let element = self.used.lock().take(self.blocks.len())?;
        let rmbe = Rmbe {
            rmb: self.clone(),
            element,
            is_quarantined: Atomic::new(false),
            used: Atomic::new(self.size.bytes()),
            is_new: false,
            counted: None,
        };
        if cfg!(debug_assertions) && !rmbe.is_clear() {
            // No warning: a peer that announces other bytes than it wrote can do this to its own next connection.
            kernel::pr_err!("an RMBE holds data of an earlier connection\n");
        }
        Some(rmbe)
    }

    /// Returns the number of quarantined elements, which are not given to connections: see [`Rmbe::quarantine`].
    fn quarantined(&self) -> usize {
        self.used.lock().quarantined()
    }

    /// Gives no more elements to connections: it could not be registered, or the peer did not take its key. Connections
    /// that have one may still try. It is freed with other unused ones.
    /// Context: any.
    pub(crate) fn retire(&self) {
        self.used.lock().retire();
    }

    /// Returns the size of all elements, bytes.
    fn bytes(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(self.size.bytes())
    }

    /// Returns how many elements connections can have, in use or not.
    fn usable(&self) -> usize {
        let used = self.used.lock();
        match used.is_retired() {
            true => 0,
            false => self.blocks.len().saturating_sub(used.quarantined()),
        }
    }

    fn mr(&self, idx: LinkIdx) -> Option<Arc<Mr>> {
        Some(self.mrs.lock()[idx].as_ref()?.mr.clone())
    }

    /// Creates the memory region on a link, unless it exists. Its key is valid after registration.
    /// Context: may sleep.
    pub(crate) fn map(&self, idx: LinkIdx, link: &Link) -> Result<Arc<Mr>> {
        if let Some(mr) = self.mr(idx) {
            return Ok(mr);
        }
        let resources = link.resources().ok_or(ENOLINK)?;
        let device = resources.pd.device();
        let mut maps = KVec::with_capacity(self.blocks.len(), GFP_KERNEL)?;
        for block in &self.blocks {
            let map = Mapping::new(device, block, DmaDirection::FromDevice)?;
            if map.needs_sync() {
                self.needs_sync.store(true, Relaxed);
            }
            maps.push(map, GFP_KERNEL)?;
        }
        let mr = Mr::new(&resources.pd, &maps, self.iova)?;
        let mut mrs = self.mrs.lock();
        // Another task may have been faster.
        let there = mrs[idx].get_or_insert_with(|| OnLink {
            mr: mr.clone(),
            is_registered: false,
        });
        let there = there.mr.clone();
        drop(mrs);
        if link.resources().is_none() {
            // The link went down meanwhile, and does not unmap this RMB any more.
            self.unmap(idx);
            return Err(ENOLINK);
        }
        Ok(there)
    }

    /// Creates the memory region on a link and registers it, unless that has been done. Of two callers at the same time
    /// one would fail: the caller has the LLC flow of the group.
    /// Context: may sleep.
    pub(crate) fn register(&self, idx: LinkIdx, link: &Arc<Link>) -> Result {
        let mr = self.map(idx, link)?;
        let is_registered = |on: &OnLink| on.is_registered && Arc::ptr_eq(&on.mr, &mr);
        if self.mrs.lock().iter().flatten().any(is_registered) {
            return Ok(());
        }
        link.register(&mr)?;
        let mut mrs = self.mrs.lock();
        if let Some(on) = &mut mrs[idx] {
            on.is_registered = Arc::ptr_eq(&on.mr, &mr);
        }
        Ok(())
    }

    /// Releases the memory region on a link: data that its device wrote and [`Rmbe::sync_for_cpu`] did not synchronise
    /// are lost.
    /// Context: does not sleep.
    pub(crate) fn unmap(&self, idx: LinkIdx) {
        let gone = self.mrs.lock()[idx].take();
        drop(gone);
    }

    /// Releases the memory region on all links.
    /// Context: does not sleep.
    pub(crate) fn unmap_all(&self) {
        LinkIdx::ALL.into_iter().for_each(|idx| self.unmap(idx));
    }

    /// Returns the key and address for the peer's writes to the RMB on a link.
    pub(crate) fn rtoken(&self, idx: LinkIdx) -> Option<Rtoken> {
        Some(Rtoken {
            rkey: Rkey(self.mr(idx)?.rkey()),
            addr: RemoteAddr(self.iova),
        })
    }

    /// Returns true if the peer has the key.
    pub(crate) fn is_rkey_confirmed(&self) -> bool {
        self.is_rkey_confirmed.load(Relaxed)
    }

    /// Records that the peer has the key.
    pub(crate) fn set_rkey_confirmed(&self) {
        self.set_rkey_sent();
        self.is_rkey_confirmed.store(true, Relaxed);
    }

    /// Returns true if the peer may have the key.
    pub(crate) fn is_rkey_sent(&self) -> bool {
        self.is_rkey_sent.load(Relaxed)
    }

    /// Records that the key is sent to the peer, whatever it answers.
    pub(crate) fn set_rkey_sent(&self) {
        self.is_rkey_sent.store(true, Relaxed);
    }
}

/// A connection's element of an RMB. Returned when dropped, unless it is quarantined.
pub(crate) struct Rmbe {
    rmb: Arc<Rmb>,
    element: usize,
    /// It is not returned to the RMB.
    is_quarantined: Atomic<bool>,
    /// Bytes from its start that may hold data.
    used: Atomic<u32>,
    /// Its RMB was allocated for it.
    is_new: bool,
    /// Accounts it as used.
    counted: Option<InUse>,
}

impl Rmbe {
    /// Returns the RMB.
    pub(crate) fn rmb(&self) -> &Arc<Rmb> {
        &self.rmb
    }

    /// Returns its size.
    pub(crate) fn size(&self) -> SizeClass {
        self.rmb.size
    }

    /// Counts it as the buffer of a connection that asked for size `want`, and as used from now on.
    pub(crate) fn count(&mut self, want: SizeClass, stats: &Buffers) {
        let got = self.size().bytes();
        stats.count(want.bytes(), got, self.is_new);
        self.counted = Some(stats.hold(got));
    }

    /// Returns its index as sent to the peer, from 1.
    pub(crate) fn index(&self) -> RmbeIndex {
        u8::try_from(self.element + 1)
            .ok()
            .and_then(RmbeIndex::new)
            .unwrap_or(RmbeIndex::FIRST)
    }

    /// Returns its memory.
    pub(crate) fn memory(&self) -> Option<&Arc<Block>> {
        self.rmb.blocks.get(self.element)
    }

    /// Quarantines the element, as the peer may go on writing to it after the end of the connection: the peer knows the
    /// element, and has neither closed nor declined the connection. From its drop on no connection gets the element
    /// until the peer has deleted the RMB's key, or the group has ended. A second call does nothing.
    /// Context: any.
    pub(crate) fn quarantine(&self) {
        self.is_quarantined.store(true, Relaxed);
    }

    /// Sets how many bytes from its start may hold data, if not all: only those are cleared.
    /// Context: any.
    pub(crate) fn set_used(&self, bytes: u32) {
        self.used.store(bytes, Relaxed);
    }

    /// Returns how many bytes from its start may hold data.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// Returns true if it holds no data.
    fn is_clear(&self) -> bool {
        let mut bytes = [0; 256];
        let len = self.size().bytes() as usize;
        self.memory().is_none_or(|block| {
            (0..len)
                .step_by(bytes.len())
                .all(|at| block.read(at, &mut bytes).is_ok() && bytes == [0; 256])
        })
    }

    /// Returns true if received data must be synchronised before they are read.
    /// Context: any.
    pub(crate) fn needs_sync(&self) -> bool {
        // ORDERING: Set before the peer had the key, without which nothing arrives.
        self.rmb.needs_sync.load(Relaxed)
    }

    /// Makes data written through link `idx` visible to the CPU. Each link has a DMA mapping of its own, so the data
    /// must have arrived on this one.
    /// Context: does not sleep.
    pub(crate) fn sync_for_cpu(&self, idx: LinkIdx, chunks: &Chunks) {
        let Some(mr) = self.rmb.mr(idx) else {
            return;
        };
        let Some(map) = mr.mappings().get(self.element) else {
            return;
        };
        for chunk in chunks.iter().filter(|chunk| chunk.len > 0) {
            // Chunks of the ring lie within the block.
            let _ = map.sync_for_cpu(chunk.offset as usize, chunk.len as usize);
        }
    }

    /// Makes CPU writes to the first `len` bytes visible to the devices of all links.
    /// Context: does not sleep.
    fn sync_for_devices(&self, len: usize) {
        for mr in LinkIdx::ALL.into_iter().filter_map(|idx| self.rmb.mr(idx)) {
            if let Some(map) = mr.mappings().get(self.element) {
                let _ = map.sync_for_device(0, len);
            }
        }
    }
}

impl Drop for Rmbe {
    fn drop(&mut self) {
        if self.is_quarantined.load(Relaxed) {
            return self.rmb.used.lock().quarantine(self.element);
        }
        if cfg!(debug_assertions) && self.used() > CLEARED_IN_SOFTIRQ && is_softirq() {
            kernel::pr_err!("a large RMBE is cleared in softirq context\n");
        }
        // The next connection must not see data of this one.
        let used = self.used() as usize;
        if let Some(block) = self.memory() {
            let _ = block.zero(0, used);
        }
        if self.needs_sync() {
            // Otherwise caches may write the zeroes back later, over data received by the next connection.
            self.sync_for_devices(used);
        }
        self.rmb.used.lock().give_back(self.element);
    }
}

/// The RMBs of a link group.
#[pin_data]
pub(crate) struct RmbPool {
    /// Maximum connections of the group.
    max_conns: usize,
    buf_type: BlockKind,
    #[pin]
    rmbs: Mutex<KVec<Arc<Rmb>>>,
    /// Bytes of unused RMBs.
    unused: Arc<Gauge>,
    /// Bytes of unused RMBs to free because memory is short.
    shrink_target: Atomic<u64>,
    /// Quarantined elements of all RMBs.
    quarantined: Arc<Gauge>,
}

impl RmbPool {
    /// Creates an empty pool, of that kind of buffers, for a group of at most `max_conns` connections.
    pub(crate) fn new(max_conns: usize, buf_type: BlockKind) -> impl PinInit<Self, Error> {
        try_pin_init!(Self {
            max_conns,
            buf_type,
            rmbs <- new_mutex!(KVec::new(), "smc::RmbPool::rmbs"),
            unused: Gauge::new()?,
            shrink_target: Atomic::new(0),
            quarantined: Gauge::new()?,
        }? Error)
    }

    /// Takes an element of size class `want` or the next smaller available one, preferably from an RMB that the peer
    /// knows, and accounts it. A new RMB is mapped on link `idx`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the memory limit for sockets of this host is reached; `ENOSPC` if the device has no memory region
    /// left; `ENOMEM`, also if too many elements are quarantined.
    pub(crate) fn take(
        &self,
        idx: LinkIdx,
        link: &Link,
        want: SizeClass,
        stats: &Buffers,
    ) -> Result<Rmbe> {
        let mut rmbe = self.take_uncounted(idx, link, want)?;
        rmbe.count(want, stats);
        Ok(rmbe)
    }

    /// As [`RmbPool::take`]; [`Rmbe::count`] follows once the element is used.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of [`RmbPool::take`].
    pub(crate) fn take_uncounted(
        &self,
        idx: LinkIdx,
        link: &Link,
        want: SizeClass,
    ) -> Result<Rmbe> {
        let (mut rmbe, is_new) = self.take_any(idx, link, want)?;
        rmbe.is_new = is_new;
        Ok(rmbe)
    }

    /// Takes an element, and returns whether its RMB is new.
    fn take_any(&self, idx: LinkIdx, link: &Link, want: SizeClass) -> Result<(Rmbe, bool)> {
        if !self.has_room() {
            return Err(ENOMEM);
        }
        let mut rmbs = self.rmbs.lock();
        let mut error = ENOMEM;
        for size in want.downwards_to(LEAST) {
            let of_size = || rmbs.iter().filter(|rmb| rmb.size == size);
            let known = || of_size().filter(|rmb| rmb.is_rkey_confirmed());
            // So that RMBs with quarantined elements become unused.
            let mut clean = known().filter(|rmb| rmb.quarantined() == 0);
            let found = clean.find_map(Rmb::take);
            let found = found.or_else(|| known().find_map(Rmb::take));
            if let Some(rmbe) = found.or_else(|| of_size().find_map(Rmb::take)) {
                return Ok((rmbe, false));
            }
            let of_use = || of_size().filter(|rmb| rmb.usable() > 0);
            let last = of_use().map(|rmb| rmb.blocks.len()).max();
            let have: usize = of_use().map(|rmb| rmb.usable()).sum();
            let most = (link.max_mr_bytes() / size.bytes() as usize).min(MAX_ELEMENTS);
            // Not more than the group can ever use.
            let most = most.min(self.max_conns.saturating_sub(have)).max(1);
            let wanted = match memory::is_short() {
                true => 1,
                false => last.map_or(FIRST_ELEMENTS, |n| n * 2).min(most),
            };
            let make = |elements| {
                let rmb = Rmb::new(size, elements, self)?;
                rmb.map(idx, link).map(|_| rmb)
            };
            match make(wanted).or_else(|_: Error| make(1)) {
                Ok(rmb) => {
                    let rmbe = rmb.take().ok_or(ENOMEM)?;
                    rmbs.push(rmb, GFP_KERNEL)?;
                    return Ok((rmbe, true));
                }
                Err(e) => error = e,
            }
        }
        Err(error)
    }

    /// Returns false if too many elements are quarantined for another connection to join.
    /// Context: any.
    pub(crate) fn has_room(&self) -> bool {
        self.quarantined.get() < quarantine::limit(self.max_conns) as u64
    }

    /// Requests unused RMBs of about `bytes` to be freed, when memory is short; returns the bytes available, at most
    /// `bytes`. [`RmbPool::retire_unused`] chooses them.
    /// Context: any.
    pub(crate) fn request_shrink(&self, bytes: u64) -> u64 {
        let part = self.unused.get().min(bytes);
        self.shrink_target.fetch_add(part, Relaxed);
        part
    }

    /// Returns the bytes requested since the last call.
    /// Context: any.
    pub(crate) fn take_shrink_target(&self) -> u64 {
        self.shrink_target.xchg(0, Relaxed)
    }

    /// Returns the size of all RMBs, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let rmbs = self.rmbs.lock();
        rmbs.iter().map(|rmb| rmb.bytes()).sum()
    }

    /// Removes all RMBs, which no device uses any more; the memory is freed with the last element, which a reader
    /// may hold indefinitely.
    /// Context: may sleep.
    pub(crate) fn clear(&self) {
        let rmbs = core::mem::replace(&mut *self.rmbs.lock(), KVec::new());
        rmbs.iter().for_each(|rmb| rmb.unmap_all());
        drop(rmbs);
    }

    /// Calls `f` for all RMBs.
    /// Context: may sleep.
    pub(crate) fn try_for_each(&self, f: impl FnMut(&Arc<Rmb>) -> Result) -> Result {
        self.rmbs.lock().iter().try_for_each(f)
    }
}
