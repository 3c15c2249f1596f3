// SPDX-License-Identifier: GPL-2.0

//! Every byte that goes over the wire or comes from it.
//!
//! Each message has two levels. A `#[repr(C)]` zerocopy struct, private to its file, mirrors the
//! figure in the specification: big-endian integers, no alignment, any bit pattern, and a size
//! that the compiler checks. From it one function makes the message's domain type, which cannot
//! hold what the protocol does not allow; nothing outside this folder looks at raw bytes. Lists
//! are not copied: a domain type borrows them from the received bytes as a [`List`].
//!
//! Every length, count and offset that a peer sends is checked here against the bytes that did
//! arrive, never the other way round.
//!
//! - [`clc`]: connection layer control, the handshake over TCP (RFC 7609 appendix A.2)
//! - [`llc`]: link layer control, over the links themselves (appendix A.3)
//! - [`cdc`]: connection data control, one connection's cursors and flags (appendix A.4)
//! - [`iwarp`]: what links over iWARP need beside

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
pub mod iwarp;
pub mod llc;

/// Bytes in a CDC message and in every version 1 LLC message.
pub const SEND_LEN: usize = 44;

/// What a receive completion on a link delivers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received<'a> {
    /// A connection's cursors and flags.
    Cdc(cdc::Message),
    /// A message about links or keys.
    Llc(llc::Message<'a>),
    /// A message of a type that nobody has defined, to be ignored; its first byte.
    Unknown(u8),
}

impl<'a> Received<'a> {
    /// Parses `bytes`, exactly those that the completion says have arrived.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if they are not the message that their first byte announces. The C module
    /// drops such a message and keeps the link; so should the caller.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let &kind = bytes.first().ok_or(Malformed::Truncated)?;
        if kind == cdc::TYPE {
            return Ok(Self::Cdc(cdc::Message::parse(bytes)?));
        }
        match llc::Message::parse(bytes)? {
            Some(message) => Ok(Self::Llc(message)),
            None => Ok(Self::Unknown(kind)),
        }
    }
}

/// The protocol version, as far as messages differ by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// Version 1: RFC 7609.
    V1,
    /// Version 2, or a later one that a peer offers: it is understood as version 2.
    V2,
}

impl Version {
    /// The number on the wire.
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
        }
    }

    /// The version of a 4-bit field; `None` for zero.
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

    /// The elements, for as long as what they were borrowed from.
    pub const fn as_slice(&self) -> &'a [T] {
        self.0
    }

    /// Their number as the wire's count byte.
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

/// The buffer handed in is too small for the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSpace;

/// Reads a message from its start, never past its end.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next bytes, seen as a `T`.
    pub(crate) fn take<T>(&mut self) -> Result<&'a T, Malformed>
    where
        T: FromBytes + KnownLayout + Immutable + Unaligned,
    {
        let (value, rest) = T::ref_from_prefix(self.rest).map_err(|_| Malformed::Truncated)?;
        self.rest = rest;
        Ok(value)
    }

    /// The next bytes, seen as `count` elements; [`Malformed::Count`] if that is above `MAX`.
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

    /// Passes over `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Malformed> {
        self.rest = self.rest.get(len..).ok_or(Malformed::Truncated)?;
        Ok(())
    }

    /// How many bytes are left.
    pub(crate) const fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// How many `T` the bytes that are left can hold.
    pub(crate) const fn fits<T>(&self) -> usize {
        match self.rest.len().checked_div(size_of::<T>()) {
            Some(count) => count,
            None => 0,
        }
    }

    /// Says that the message must end here.
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

    /// The message.
    pub(crate) fn finish(self) -> Result<&'b [u8], NoSpace> {
        let buf: &'b [u8] = self.buf;
        buf.get(..self.len).ok_or(NoSpace)
    }
}
