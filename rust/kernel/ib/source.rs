// SPDX-License-Identifier: GPL-2.0

//! Memory that writes read.

use kernel::sync::Arc;

use super::{
    Device,
    Mapping,
    Mr,
    Pd, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// A block that writes read. The device takes addresses of its mapping with the local DMA key, where one address and a
/// length say which range it is; else the block has to be registered.
#[derive(Clone)]
pub enum WriteSource {
    /// A contiguous block.
    Mapped(Arc<Mapping>),
    /// A ring of any kind, as a memory region that is registered: see [`Mr::ring`].
    Registered(Arc<Mr>),
}

impl WriteSource {
    /// Whether both are the same mapping, or the same memory region.
    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Mapped(one), Self::Mapped(other)) => Arc::ptr_eq(one, other),
            (Self::Registered(one), Self::Registered(other)) => Arc::ptr_eq(one, other),
            (Self::Mapped(_), Self::Registered(_)) | (Self::Registered(_), Self::Mapped(_)) => {
                false
            }
        }
    }

    /// Whether queue pairs of this domain can write from it.
    pub fn serves(&self, pd: &Arc<Pd>) -> bool {
        match self {
            Self::Mapped(map) => Arc::ptr_eq(map.device(), pd.device()),
            Self::Registered(mr) => Arc::ptr_eq(mr.pd(), pd),
        }
    }

    /// The device that it is mapped for.
    pub fn device(&self) -> &Arc<Device> {
        match self {
            Self::Mapped(map) => map.device(),
            Self::Registered(mr) => mr.pd().device(),
        }
    }

    /// The mapping, if the device may read it.
    pub(super) fn readable(&self) -> Result<&Arc<Mapping>> {
        let map = match self {
            Self::Mapped(map) => map,
            Self::Registered(mr) => match mr.mappings() {
                [map, again] if Arc::ptr_eq(map, again) => map,
                _ => return Err(EINVAL),
            },
        };
        match map.direction().device_reads() {
            true => Ok(map),
            false => Err(EINVAL),
        }
    }

    /// Fills in the SGEs of one or two ranges, those without a length left out, for a queue pair of that domain;
    /// returns how many there are.
    pub(super) fn gather(
        &self,
        parts: &[(usize, usize); 2],
        pd: &Pd,
        sges: &mut [bindings::ib_sge; 2],
    ) -> Result<i32> {
        let parts = parts.iter().filter(|(_, len)| *len > 0);
        match self {
            Self::Mapped(map) => {
                let mut count = 0;
                for (&(offset, len), sge) in parts.zip(sges) {
                    *sge = map.sge(offset, len, pd.local_dma_lkey())?;
                    count += 1;
                }
                Ok(count)
            }
            Self::Registered(mr) => {
                let (at, len) = in_ring(parts, mr.len() / 2)?;
                let [sge, _] = sges;
                *sge = mr.sge(at, len)?;
                Ok(1)
            }
        }
    }
}

/// Returns the range of a ring of `len` bytes that consists of these, each of which begins where the one before it
/// ends.
fn in_ring<'a>(
    parts: impl Iterator<Item = &'a (usize, usize)>,
    len: usize,
) -> Result<(usize, usize)> {
    let mut whole: Option<(usize, usize)> = None;
    for &(offset, more) in parts {
        whole = match whole {
            None => Some((offset, more)),
            Some((at, before)) if (at + before).checked_rem(len) == Some(offset) => {
                Some((at, before + more))
            }
            Some(_) => return Err(EINVAL),
        };
    }
    whole.ok_or(EINVAL)
}
