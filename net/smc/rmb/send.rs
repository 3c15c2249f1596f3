// SPDX-License-Identifier: GPL-2.0

//! Send buffers: memory read by the devices of a group's links.

use core::ops::Deref;

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc, //
};
use kernel_ext::{
    ib::{
        Block,
        BlockKind,
        Device,
        DmaDirection,
        Mapping,
        Mr,
        WriteSource, //
    },
    net::memory::{
        self,
        CountedPages, //
    },
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    buffer::SizeClass,
    lgr::LinkMap, //
};

use super::{
    ring_block,
    used::Unused,
    LEAST, //
};
use crate::{
    link::{
        Link,
        LinkError, //
    },
    stats::{
        Buffers,
        Gauge,
        InUse, //
    }, //
};

/// Idle send buffers kept for each size class of a group.
const IDLE_SEND_BUFS: usize = 4;

/// A send buffer.
#[pin_data]
pub(crate) struct SendBuf {
    size: SizeClass,
    block: Arc<Block>,
    /// As the device sees it that reads it, or read it last.
    #[pin]
    source: SpinLockBh<Option<WriteSource>>,
    /// Accounts it among the buffers of its group.
    _counted: InUse,
}

/// A send buffer in use by a connection, until it is given back.
pub(crate) struct SndbufGuard {
    buf: Arc<SendBuf>,
    /// [`SendPool::epoch`] when it was taken.
    epoch: u32,
    /// Accounts it as used.
    _counted: InUse,
}

impl Deref for SndbufGuard {
    type Target = Arc<SendBuf>;

    fn deref(&self) -> &Arc<SendBuf> {
        &self.buf
    }
}

impl SendBuf {
    fn new(size: SizeClass, pool: &SendPool, counted: CountedPages) -> Result<Arc<Self>> {
        let block = ring_block(size, pool.buf_type, counted)?;
        Arc::pin_init(
            pin_init!(Self {
                size,
                block,
                source <- new_spinlock_bh!(None, "smc::SendBuf::source"),
                _counted: Gauge::hold(&pool.all, size.bytes().into()),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns its size.
    pub(crate) fn size(&self) -> SizeClass {
        self.size
    }

    /// Returns its memory.
    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// Maps the memory for the device of a link, and for no other device; registers it on the link if the device needs
    /// more than one address for it.
    /// Context: may sleep.
    pub(crate) fn map(&self, link: &Arc<Link>) -> Result<WriteSource> {
        let resources = link.resources().ok_or(ENOLINK)?;
        let pd = &resources.pd;
        let there = self.source.lock().clone();
        if let Some(source) = there.filter(|source| source.serves(pd)) {
            return Ok(source);
        }
        let map = Mapping::new(pd.device(), &self.block, DmaDirection::ToDevice)?;
        let source = match self.block.is_virtual() {
            false => WriteSource::Mapped(map),
            true => {
                // Whatever the driver says: it has no room for another one now, and has later.
                let mr = Mr::ring(pd, &map).map_err(|_| ENOMEM)?;
                // The queue pair that refused it takes nothing else either.
                let refused = |_: &Error| link.fail(LinkError::Register);
                link.register(&mr).inspect_err(refused)?;
                WriteSource::Registered(mr)
            }
        };
        let old = self.source.lock().replace(source.clone());
        drop(old);
        Ok(source)
    }

    /// Drops a mapping that is not used any more, which removal of its device would wait for.
    /// Context: does not sleep.
    pub(crate) fn forget(&self, source: &WriteSource) {
        let mut there = self.source.lock();
        let gone = there.take_if(|there| there.is_same(source));
        drop(there);
        drop(gone);
    }

    /// Drops the mapping for any device: the buffer is not sent any more, though a writer may still fill it.
    /// Context: does not sleep.
    pub(crate) fn release_device(&self) {
        let gone = self.source.lock().take();
        drop(gone);
    }

    /// Drops the mapping if it is for this device, which is not used any more.
    /// Context: does not sleep.
    fn unmap(&self, device: &Arc<Device>) {
        let is_it = |source: &mut WriteSource| Arc::ptr_eq(source.device(), device);
        let gone = self.source.lock().take_if(is_it);
        drop(gone);
    }
}

/// An unused send buffer.
struct IdleSendBuf {
    buf: Arc<SendBuf>,
    _counted: Unused,
}

impl IdleSendBuf {
    fn new(buf: Arc<SendBuf>) -> Self {
        Self {
            _counted: Unused::new(buf.size.bytes().into()),
            buf,
        }
    }
}

struct Idle {
    bufs: KVec<IdleSendBuf>,
    /// The group has ended, and no buffer is kept.
    is_closed: bool,
}

/// The idle send buffers of a link group.
#[pin_data]
pub(crate) struct SendPool {
    #[pin]
    idle: SpinLockBh<Idle>,
    /// How often a device has gone. What was taken before may be mapped for it, though its connection uses another one.
    epoch: Atomic<u32>,
    /// Bytes of all buffers, idle and in use.
    all: Arc<Gauge>,
    buf_type: BlockKind,
}

impl SendPool {
    /// Creates an empty pool of that kind of buffers.
    pub(crate) fn new(buf_type: BlockKind) -> impl PinInit<Self, Error> {
        let idle = Idle {
            bufs: KVec::new(),
            is_closed: false,
        };
        try_pin_init!(Self {
            idle <- new_spinlock_bh!(idle, "smc::SendPool::idle"),
            epoch: Atomic::new(0),
            all: Gauge::new()?,
            buf_type,
        }? Error)
    }

    /// Returns the maximum size of a buffer that can be mapped for the device of a link, bytes; of one that has to be
    /// registered, for those of all `links` of the group, by any of which it may have to be sent again.
    pub(crate) fn max_bytes(
        &self,
        link: &Link,
        links: impl FnOnce() -> LinkMap<Option<Arc<Link>>>,
    ) -> usize {
        if self.buf_type == BlockKind::Contiguous {
            return link.max_map_bytes();
        }
        let of = |link: &Link| match self.buf_type {
            BlockKind::Contiguous | BlockKind::Either => {
                link.max_map_bytes().min(link.max_ring_bytes())
            }
            BlockKind::Virtual => link.max_ring_bytes(),
        };
        let links = links();
        let others = links.iter().flatten().map(|link| of(link));
        others.fold(of(link), usize::min)
    }

    /// Takes a buffer of size class `want` or the next smaller available one, and returns whether it is new. Accounted
    /// as used until it is given back.
    /// Context: may sleep.
    pub(crate) fn take(&self, want: SizeClass, stats: &Buffers) -> Result<(SndbufGuard, bool)> {
        // ORDERING: Before the buffer is taken out of the list, or its link looked at for a device: both take a lock
        // that is taken before the next epoch begins.
        let epoch = self.epoch.load(Relaxed);
        let (buf, is_new) = self.take_any(want)?;
        let guard = SndbufGuard {
            _counted: stats.hold(buf.size.bytes()),
            epoch,
            buf,
        };
        Ok((guard, is_new))
    }

    fn take_any(&self, want: SizeClass) -> Result<(Arc<SendBuf>, bool)> {
        let make = |size: SizeClass| {
            let counted = CountedPages::new(size.bytes() as usize)?;
            SendBuf::new(size, self, counted)
        };
        let take = |size: SizeClass| match self.take_idle(size) {
            Some(buf) => Some((buf, false)),
            None => Some((make(size).ok()?, true)),
        };
        if let Some(taken) = want.downwards_to(LEAST).find_map(take) {
            return Ok(taken);
        }
        // Existing connections continue, if slowly.
        if let Some(buf) = SizeClass::LARGEST
            .downwards()
            .find_map(|size| self.take_idle(size))
        {
            return Ok((buf, false));
        }
        let counted = CountedPages::force(LEAST.bytes() as usize)?;
        Ok((SendBuf::new(LEAST, self, counted)?, true))
    }

    fn take_idle(&self, size: SizeClass) -> Option<Arc<SendBuf>> {
        let mut idle = self.idle.lock();
        let bufs = &mut idle.bufs;
        let i = bufs.iter().position(|idle| idle.buf.size == size)?;
        Some(bufs.remove(i).ok()?.buf)
    }

    /// Returns the size of all buffers, idle and in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.all.get()
    }

    /// Frees the idle buffers.
    /// Context: may sleep.
    pub(crate) fn clear(&self) {
        let idle = core::mem::replace(&mut self.idle.lock().bufs, KVec::new());
        drop(idle);
    }

    /// Frees the idle buffers, and those in use when they are given back: the group has ended.
    /// Context: may sleep.
    pub(crate) fn close(&self) {
        self.idle.lock().is_closed = true;
        self.clear();
    }

    /// Drops the mappings for a device, which no link uses any more, of the idle buffers, and of those in use when they
    /// are given back.
    /// Context: does not sleep.
    pub(crate) fn unmap(&self, device: &Arc<Device>) {
        let idle = self.idle.lock();
        self.epoch.fetch_add(1, Relaxed);
        idle.bufs.iter().for_each(|idle| idle.buf.unmap(device));
    }

    /// Frees idle buffers of at least `bytes`, or all; returns the bytes freed.
    /// Context: does not sleep: called from memory allocation.
    pub(crate) fn shrink(&self, bytes: u64) -> u64 {
        let mut freed = 0u64;
        while freed < bytes {
            let Some(idle) = self.idle.lock().bufs.pop() else {
                break;
            };
            freed = freed.saturating_add(idle.buf.size.bytes().into());
            drop(idle);
        }
        freed
    }

    /// Gives a buffer back. Kept are only a few of each size, and none while the memory for sockets is short.
    /// Context: does not sleep.
    pub(crate) fn release(&self, guard: SndbufGuard) {
        let SndbufGuard {
            buf,
            epoch,
            _counted,
        } = guard;
        let mut idle = self.idle.lock();
        if self.epoch.load(Relaxed) != epoch {
            buf.release_device();
        }
        let Idle { bufs, is_closed } = &mut *idle;
        let same = bufs.iter().filter(|idle| idle.buf.size == buf.size);
        if same.count() < IDLE_SEND_BUFS && !*is_closed && !memory::is_short() {
            // Without memory for the list the buffer is freed, which is as good.
            let _ = bufs.push(IdleSendBuf::new(buf), GFP_NOWAIT);
        }
    }
}
