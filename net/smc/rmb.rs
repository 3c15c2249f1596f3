// SPDX-License-Identifier: GPL-2.0

//! Receive and send buffers of a link group (RFC 7609 section 4.4; sizes: `smc_proto::buffer`).
//!
//! A remote memory buffer (RMB) is one registered region cut into equal elements, one for each
//! connection. A new connection takes a free element of a region whose key the peer has already:
//! no registration, no exchange of keys. Send buffers are lent while data are in flight.

use kernel::{
    new_mutex,
    new_spinlock,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex,
        SpinLock, //
    }, //
};
use kernel_ext::{
    ib::{
        Block,
        Direction,
        Mapping,
        Mr, //
    },
    random,
    time, //
};
use smc_proto::{
    buffer::SizeClass,
    id::{
        RemoteAddr,
        Rkey,
        RmbeIndex, //
    },
    time::Instant, //
};

use crate::link::Link;

/// Elements of the first region of a size class in a group; each further one doubles, up to what
/// the device registers at once.
const FIRST_ELEMENTS: usize = 2;

/// Most elements of one region: the index is one byte and 0 is not used.
const MAX_ELEMENTS: usize = 255;

/// Idle send buffers that a group keeps for each size class.
const IDLE_SEND_BUFS: usize = 4;

/// One registered region of equal elements.
#[pin_data]
pub(crate) struct Rmb {
    size: SizeClass,
    elements: usize,
    mr: Arc<Mr>,
    #[pin]
    used: SpinLock<Used>,
    /// The peer has the key.
    is_known: Atomic<bool>,
}

/// Which elements of a region are in use.
struct Used {
    /// One bit for each element.
    bits: [u64; 4],
    /// When the last one became free.
    idle_since: Instant,
}

impl Used {
    fn take(&mut self, elements: usize) -> Option<usize> {
        let free = (0..elements).find(|i| !bit(&self.bits, *i))?;
        set_bit(&mut self.bits, free, true);
        Some(free)
    }

    fn give_back(&mut self, element: usize) {
        set_bit(&mut self.bits, element, false);
        self.idle_since = now();
    }

    /// Since when no element has been in use; `None` while one is.
    fn idle_since(&self) -> Option<Instant> {
        (self.bits == [0; 4]).then_some(self.idle_since)
    }
}

fn now() -> Instant {
    Instant::from_nanos(time::now_ns())
}

impl Rmb {
    fn new(link: &Link, size: SizeClass, elements: usize) -> Result<Arc<Self>> {
        let hardware = link.hardware().ok_or(ENOLINK)?;
        let device = hardware.pd.device();
        let mut maps = KVec::with_capacity(elements, GFP_KERNEL)?;
        for _ in 0..elements {
            let block = Block::new(size.bytes() as usize)?;
            let map = Mapping::new(device, &block, Direction::FromDevice)?;
            maps.push(map, GFP_KERNEL)?;
        }
        let used = Used {
            bits: [0; 4],
            idle_since: now(),
        };
        // The address is only a name for the peer, so it need not tell where our memory is.
        let iova = u64::from(u32::from_ne_bytes(random::bytes())) << 24;
        let mr = Mr::new(&hardware.pd, &maps, iova)?;
        Arc::pin_init(
            pin_init!(Self {
                size,
                elements,
                mr,
                used <- new_spinlock!(used, "smc::Rmb::used"),
                is_known: Atomic::new(false),
            }),
            GFP_KERNEL,
        )
    }

    fn take(self: &Arc<Self>) -> Option<Rmbe> {
        let element = self.used.lock().take(self.elements)?;
        Some(Rmbe {
            rmb: self.clone(),
            element,
        })
    }

    /// The key that the peer needs.
    pub(crate) fn rkey(&self) -> Rkey {
        Rkey(self.mr.rkey())
    }

    /// The region's address for that key.
    pub(crate) fn addr(&self) -> RemoteAddr {
        RemoteAddr(self.mr.iova())
    }

    /// The region, to register it.
    pub(crate) fn mr(&self) -> &Arc<Mr> {
        &self.mr
    }

    /// Whether the peer has the key.
    pub(crate) fn is_known(&self) -> bool {
        self.is_known.load(Relaxed)
    }

    /// The peer has the key from now on.
    pub(crate) fn set_known(&self) {
        self.is_known.store(true, Relaxed);
    }
}

fn bit(words: &[u64; 4], i: usize) -> bool {
    words
        .get(i / 64)
        .is_some_and(|word| word & (1 << (i % 64)) != 0)
}

fn set_bit(words: &mut [u64; 4], i: usize, on: bool) {
    if let Some(word) = words.get_mut(i / 64) {
        let mask = 1 << (i % 64);
        *word = if on { *word | mask } else { *word & !mask };
    }
}

/// A connection's element of a region; free again when dropped.
pub(crate) struct Rmbe {
    rmb: Arc<Rmb>,
    element: usize,
}

impl Rmbe {
    /// The region.
    pub(crate) fn rmb(&self) -> &Arc<Rmb> {
        &self.rmb
    }

    /// Its size.
    pub(crate) fn size(&self) -> SizeClass {
        self.rmb.size
    }

    /// Its number for the peer: from 1.
    pub(crate) fn index(&self) -> RmbeIndex {
        u8::try_from(self.element + 1)
            .ok()
            .and_then(RmbeIndex::new)
            .unwrap_or(RmbeIndex::FIRST)
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> Option<&Arc<Mapping>> {
        self.rmb.mr.mappings().get(self.element)
    }
}

impl Drop for Rmbe {
    fn drop(&mut self) {
        // The next connection must not see what this one received.
        if let Some(memory) = self.memory() {
            let block = memory.block();
            let _ = block.zero(0, block.len());
        }
        self.rmb.used.lock().give_back(self.element);
    }
}

/// The regions of a link group.
#[pin_data]
pub(crate) struct RmbPool {
    /// Connections that the group may have.
    max_conns: usize,
    #[pin]
    rmbs: Mutex<KVec<Arc<Rmb>>>,
}

impl RmbPool {
    /// No region yet, for a group of at most `max_conns` connections.
    pub(crate) fn new(max_conns: usize) -> impl PinInit<Self> {
        pin_init!(Self {
            max_conns,
            rmbs <- new_mutex!(KVec::new(), "smc::RmbPool::rmbs"),
        })
    }

    /// Takes an element of size class `want` or the next smaller one that can be had, from a region
    /// that the peer knows if there is one. May sleep.
    pub(crate) fn take(&self, link: &Link, want: SizeClass) -> Result<Rmbe> {
        let mut rmbs = self.rmbs.lock();
        for size in want.downwards() {
            let of_size = || rmbs.iter().filter(|rmb| rmb.size == size);
            let known = of_size().filter(|rmb| rmb.is_known()).find_map(Rmb::take);
            if let Some(rmbe) = known.or_else(|| of_size().find_map(Rmb::take)) {
                return Ok(rmbe);
            }
            let last = of_size().map(|rmb| rmb.elements).max();
            let have: usize = of_size().map(|rmb| rmb.elements).sum();
            let most = (link.max_mr_bytes() / size.bytes() as usize).min(MAX_ELEMENTS);
            // Not more than the group can ever use.
            let most = most.min(self.max_conns.saturating_sub(have)).max(1);
            let wanted = last.map_or(FIRST_ELEMENTS, |n| n * 2).min(most);
            let made = Rmb::new(link, size, wanted).or_else(|_| Rmb::new(link, size, 1));
            if let Ok(rmb) = made {
                let rmbe = rmb.take().ok_or(ENOMEM)?;
                rmbs.push(rmb, GFP_KERNEL)?;
                return Ok(rmbe);
            }
        }
        Err(ENOMEM)
    }

    /// Takes out regions that have not been used since `since`, at most `max`. When the others that
    /// are not in use will have been unused for as long is said by the earliest time of theirs. May
    /// sleep.
    pub(crate) fn take_unused(
        &self,
        since: Instant,
        max: usize,
    ) -> Result<(KVec<Arc<Rmb>>, Option<Instant>)> {
        let mut taken = KVec::with_capacity(max, GFP_KERNEL)?;
        let mut next: Option<Instant> = None;
        self.rmbs.lock().retain(|rmb| {
            let Some(idle_since) = rmb.used.lock().idle_since() else {
                return true;
            };
            if idle_since <= since && taken.push_within_capacity(rmb.clone()).is_ok() {
                return false;
            }
            next = Some(next.map_or(idle_since, |at| at.min(idle_since)));
            true
        });
        Ok((taken, next))
    }

    /// Forgets all regions; each goes with its last element. May sleep.
    pub(crate) fn clear(&self) {
        let rmbs = core::mem::replace(&mut *self.rmbs.lock(), KVec::new());
        drop(rmbs);
    }

    /// Forgets a region that could not be registered or announced; it goes with its last element.
    pub(crate) fn forget(&self, rmb: &Arc<Rmb>) {
        self.rmbs.lock().retain(|r| !Arc::ptr_eq(r, rmb));
    }
}

/// A send buffer: memory that the device reads.
pub(crate) struct SendBuf {
    size: SizeClass,
    memory: Arc<Mapping>,
}

impl SendBuf {
    /// Its size.
    pub(crate) fn size(&self) -> SizeClass {
        self.size
    }

    /// Its memory.
    pub(crate) fn memory(&self) -> &Arc<Mapping> {
        &self.memory
    }
}

/// The idle send buffers of a link group.
#[pin_data]
pub(crate) struct SendPool {
    #[pin]
    idle: SpinLock<KVec<Arc<SendBuf>>>,
}

impl SendPool {
    /// No buffer yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            idle <- new_spinlock!(KVec::new(), "smc::SendPool::idle"),
        })
    }

    /// Lends a buffer of size class `want` or the next smaller one that can be had. May sleep.
    pub(crate) fn take(&self, link: &Link, want: SizeClass) -> Result<Arc<SendBuf>> {
        let mut idle = self.idle.lock();
        if let Some(i) = idle.iter().position(|buf| buf.size == want) {
            if let Ok(buf) = idle.remove(i) {
                return Ok(buf);
            }
        }
        drop(idle);
        let hardware = link.hardware().ok_or(ENOLINK)?;
        let device = hardware.pd.device();
        for size in want.downwards() {
            let memory = Block::new(size.bytes() as usize)
                .and_then(|block| Mapping::new(device, &block, Direction::ToDevice));
            if let Ok(memory) = memory {
                return Ok(Arc::new(SendBuf { size, memory }, GFP_KERNEL)?);
            }
        }
        Err(ENOMEM)
    }

    /// Frees the idle buffers. May sleep.
    pub(crate) fn clear(&self) {
        let idle = core::mem::replace(&mut *self.idle.lock(), KVec::new());
        drop(idle);
    }

    /// Takes a buffer back. Does not sleep: beyond a few of a size they are freed.
    pub(crate) fn give_back(&self, buf: Arc<SendBuf>) {
        let mut idle = self.idle.lock();
        let same = idle.iter().filter(|b| b.size == buf.size).count();
        if same < IDLE_SEND_BUFS {
            // Without memory for the list the buffer is freed, which is as good.
            let _ = idle.push(buf, GFP_NOWAIT);
        }
    }
}
