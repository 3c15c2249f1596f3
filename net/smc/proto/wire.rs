// SPDX-License-Identifier: GPL-2.0

//! Encoding and decoding of all messages on the wire.
//!
//! Each message has two levels. A `#[repr(C)]` zerocopy struct, private to its file, mirrors the figure in the
//! specification: big-endian integers, no alignment, any bit pattern, and a size checked at compile time. One function
//! converts it to the message's domain type, which cannot represent what the protocol does not allow; raw bytes are not
//! accessed outside this folder. Lists are not copied: a domain type borrows them from the received bytes as a
//! [`List`].
//!
//! Every length, count and offset from a peer is checked here against the bytes received, never the reverse.
//!
//! - [`clc`]: connection layer control, the handshake over TCP (RFC 7609 appendix A.2)
//! - [`llc`]: link layer control, over the links themselves (appendix A.3)
//! - [`cdc`]: connection data control, one connection's cursors and flags (appendix A.4)
//! - [`immediate`]: immediate data in place of a CDC message
//! - [`iwarp`]: additions for links over iWARP

use core::ops::Deref;

use zerocopy::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;

pub mod cdc;
pub mod clc;
pub mod immediate;
pub mod iwarp;
pub mod llc;

/// Bytes of a CDC message and of every version 1 LLC message.
pub const SEND_LEN: usize = 44;

/// A message from a receive completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A connection's cursors and flags.
    Cdc(cdc::CdcMessage),
    /// A message about links or keys.
    Llc(llc::LlcMessage<'a>),
    /// A message of an undefined type, to be ignored; its first byte.
    Unknown(u8),
}

impl<'a> Received<'a> {
    /// Parses `bytes`, exactly those that the completion reported.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if they are not a message of the type in their first byte. The C module drops such a message and
    /// keeps the link; so should the caller.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let &kind = bytes.first().ok_or(Malformed::Truncated)?;
        if kind == cdc::TYPE {
            return Ok(Self::Cdc(cdc::CdcMessage::parse(bytes)?));
        }
        match llc::LlcMessage::parse(bytes)? {
            Some(message) => Ok(Self::Llc(message)),
            None => Ok(Self::Unknown(kind)),
        }
    }
}

/// The protocol version, as far as message formats depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1: RFC 7609.
    V1,
    /// Version 2, or a later one offered by a peer, which is treated as version 2.
    V2,
}

impl Version {
    /// Returns the number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// Returns the version of a 4-bit field; `None` for zero.
    pub(crate) const fn from_nibble(nibble: u8) -> Option<Self> {
        match nibble {
            0 => None,
            1 => Some(Self::V1),
            _ => Some(Self::V2),
        }
    }
}

/// A list of at most `MAX` elements, borrowed from a received message or from the sender's table.
///
/// # Invariants
///
/// No more than `MAX` elements.
#[derive(Debug)]
pub struct List<'a, T, const MAX: usize>(&'a [T]);

impl<'a, T, const MAX: usize> List<'a, T, MAX> {
    /// No elements.
    pub const EMPTY: Self = Self(&[]);

    /// Makes a list; `None` if there are more than `MAX` elements.
    pub const fn new(elements: &'a [T]) -> Option<Self> {
        if elements.len() > MAX {
            return None;
        }
        // INVARIANT: just checked.
        Some(Self(elements))
    }

    /// Returns the elements, with the lifetime of the borrowed memory.
    pub const fn as_slice(&self) -> &'a [T] {
        self.0
    }

    /// Returns their number as the count byte on the wire.
    pub(crate) fn count(&self) -> u8 {
        const { assert!(MAX <= 255) };
        // By the invariant it fits.
        u8::try_from(self.0.len()).unwrap_or(u8::MAX)
    }
}

impl<T, const MAX: usize> Clone for List<'_, T, MAX> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const MAX: usize> Copy for List<'_, T, MAX> {}

impl<T, const MAX: usize> Default for List<'_, T, MAX> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<T, const MAX: usize> Deref for List<'_, T, MAX> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.0
    }
}

impl<T: PartialEq, const MAX: usize> PartialEq for List<'_, T, MAX> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<T: Eq, const MAX: usize> Eq for List<'_, T, MAX> {}

/// The caller's buffer is too small for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

/// Reads a message sequentially, never past its end.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the next bytes as a `T`.
    pub(crate) fn take<T>(&mut self) -> Result<&'a T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| Malformed::Truncated)?;
        self.rest = rest;
        Ok(value)
    }

    /// Returns the next bytes as `count` elements; [`Malformed::Count`] if `count` exceeds `MAX`.
    pub(crate) fn list<T, const MAX: usize>(
        &mut self,
        count: usize,
    ) -> Result<List<'a, T, MAX>, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        if count > MAX {
            return Err(Malformed::Count);
        }
        let (elements, rest) = <[T]>::ref_from_prefix_with_elems(self.rest, count)
            .map_err(|_| Malformed::Truncated)?;
        self.rest = rest;
        List::new(elements).ok_or(Malformed::Count)
    }

    /// Skips `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.rest = self.rest.get(len..).ok_or(Malformed::Truncated)?;
        Ok(())
    }

    /// Returns the number of bytes left.
    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Returns how many `T` fit in the bytes left.
    pub(crate) const fn fits<T>(&self) -> usize {
        match self.rest.len().checked_div(size_of::<T>()) {
            Some(count) => count,
            None => 0,
        }
    }

    /// Fails unless the end of the message is reached.
    pub(crate) const fn finish(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(Malformed::LengthMismatch)
        }
    }
}

/// Writes a message into the caller's buffer, never past its end.
pub(crate) struct Writer<'b> {
    buf: &'b mut [u8],
    len: usize,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(buf: &'b mut [u8]) -> Self {
        Self { buf, len: 0 }
    }

    /// Appends the bytes of `value`.
    pub(crate) fn put<T>(&mut self, value: &T) -> Result<(), NoSpace>
    where
        T: IntoBytes + Immutable + ?Sized,
    {
        let bytes = value.as_bytes();
        let end = self.len.checked_add(bytes.len()).ok_or(NoSpace)?;
        self.buf
            .get_mut(self.len..end)
            .ok_or(NoSpace)?
            .copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Appends zeros until the message has `len` bytes.
    pub(crate) fn pad_to(&mut self, len: usize) -> Result<(), NoSpace> {
        if len > self.len {
            self.buf.get_mut(self.len..len).ok_or(NoSpace)?.fill(0);
            self.len = len;
        }
        Ok(())
    }

    /// Returns the message.
    pub(crate) fn finish(self) -> Result<&'b [u8], NoSpace> {
        let buf: &'b [u8] = self.buf;
        buf.get(..self.len).ok_or(NoSpace)
    }
}
