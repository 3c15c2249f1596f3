// SPDX-License-Identifier: GPL-2.0

//! A received message.

use crate::{
    ib::Mapping,
    prelude::*, //
};

/// A received message. A malicious peer may change the part beyond the receive's own memory while it is read.
pub struct RecvMessage<'a> {
    pub(super) map: &'a Mapping,
    pub(super) offset: usize,
    pub(super) own_len: usize,
    pub(super) spill: Option<&'a Mapping>,
    pub(super) len: usize,
}

impl RecvMessage<'_> {
    /// Bytes of the message.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the message is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the message, or as much of it as fits, to the start of `to`, and returns that part.
    pub fn read<'t>(&self, to: &'t mut [u8]) -> Result<&'t [u8]> {
        let len = self.len.min(to.len());
        let (to, _) = to.split_at_mut_checked(len).ok_or(EINVAL)?;
        let own_len = self.own_len.min(len);
        let (own, rest) = to.split_at_mut_checked(own_len).ok_or(EINVAL)?;
        self.map.block().read(self.offset, own)?;
        if !rest.is_empty() {
            let spill = self.spill.ok_or(EINVAL)?;
            spill.block().read(0, rest)?;
        }
        Ok(to)
    }
}
