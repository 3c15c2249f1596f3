// SPDX-License-Identifier: GPL-2.0

//! Adds attributes to a netlink message.

use core::{
    marker::PhantomData,
    mem::size_of,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::error::to_result;

use crate::{
    bindings,
    prelude::*, //
};

/// A message to which attributes are added. Attribute numbers are those of the family's header; adding does not sleep,
/// and fails with `EMSGSIZE` when the message is full.
///
/// # Invariants
///
/// `skb` is a message under construction, used by nothing else for `'a`.
pub struct Attrs<'a> {
    skb: NonNull<bindings::sk_buff>,
    _message: PhantomData<&'a mut bindings::sk_buff>,
}

impl Attrs<'_> {
    /// # Safety
    ///
    /// `skb` must be a message under construction, used by nothing else while the result lives.
    pub(crate) unsafe fn new(skb: NonNull<bindings::sk_buff>) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            skb,
            _message: PhantomData,
        }
    }

    /// Adds raw bytes.
    pub fn bytes(&mut self, attr: u32, bytes: &[u8]) -> Result {
        let (attr, len) = (number(attr)?, length(bytes.len())?);
        // SAFETY: By the type invariant; the bytes are valid.
        to_result(unsafe { bindings::nla_put(self.skb.as_ptr(), attr, len, bytes.as_ptr().cast()) })
    }

    /// Adds a one-byte number.
    pub fn u8(&mut self, attr: u32, value: u8) -> Result {
        self.bytes(attr, &[value])
    }

    /// Adds a two-byte number.
    pub fn u16(&mut self, attr: u32, value: u16) -> Result {
        self.bytes(attr, &value.to_ne_bytes())
    }

    /// Adds a four-byte number.
    pub fn u32(&mut self, attr: u32, value: u32) -> Result {
        self.bytes(attr, &value.to_ne_bytes())
    }

    /// Adds an eight-byte number; `pad` is the attribute that may precede it for alignment.
    pub fn u64(&mut self, attr: u32, value: u64, pad: u32) -> Result {
        let (attr, pad) = (number(attr)?, number(pad)?);
        // SAFETY: By the type invariant.
        to_result(unsafe { bindings::nla_put_u64_64bit(self.skb.as_ptr(), attr, value, pad) })
    }

    /// Adds a number of four bytes if it fits, else of eight.
    pub fn uint(&mut self, attr: u32, value: u64) -> Result {
        // SAFETY: By the type invariant.
        to_result(unsafe { bindings::nla_put_uint(self.skb.as_ptr(), number(attr)?, value) })
    }

    /// Adds bytes and a trailing NUL.
    pub fn string(&mut self, attr: u32, text: &[u8]) -> Result {
        let len = length(text.len())?.checked_add(1).ok_or(EMSGSIZE)?;
        // SAFETY: By the type invariant.
        let place = unsafe { bindings::nla_reserve(self.skb.as_ptr(), number(attr)?, len) };
        let place = NonNull::new(place).ok_or(EMSGSIZE)?;
        // SAFETY: The attribute has room for `len` bytes after its header.
        let data = unsafe {
            place
                .as_ptr()
                .cast::<u8>()
                .add(size_of::<bindings::nlattr>())
        };
        // SAFETY: As above, and nothing else writes there.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), data, text.len()) };
        // SAFETY: As above.
        unsafe { data.add(text.len()).write(0) };
        Ok(())
    }

    /// Adds a nested attribute; nothing is added if `fill` fails.
    pub fn nest(&mut self, attr: u32, fill: impl FnOnce(&mut Self) -> Result) -> Result {
        // SAFETY: By the type invariant.
        let start = unsafe { bindings::nla_nest_start(self.skb.as_ptr(), number(attr)?) };
        let start = NonNull::new(start).ok_or(EMSGSIZE)?;
        let result = fill(self);
        match result {
            // SAFETY: By the type invariant; begun above, and only attributes were added since.
            Ok(()) => unsafe {
                bindings::nla_nest_end(self.skb.as_ptr(), start.as_ptr());
            },
            // SAFETY: As above.
            Err(_) => unsafe { bindings::nla_nest_cancel(self.skb.as_ptr(), start.as_ptr()) },
        }
        result
    }
}

fn number(attr: u32) -> Result<i32> {
    i32::try_from(attr).map_err(|_| EINVAL)
}

fn length(len: usize) -> Result<i32> {
    i32::try_from(len).map_err(|_| EMSGSIZE)
}
