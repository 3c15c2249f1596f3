// SPDX-License-Identifier: GPL-2.0

//! LLC (link layer control) messages about keys of remote memory buffers (RMBs).
//!
//! RFC 7609 appendices A.3.5 to A.3.7. A buffer has a different key and address on each link; a message identifies it
//! by the key on the link that carries the message.

use core::fmt;

use zerocopy::byteorder::big_endian::{
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::error::Malformed;
use crate::id::{
    LinkNum,
    RemoteAddr,
    Rkey, //
};
use crate::wire::{
    List,
    NoSpace,
    Version,
    Writer,
    SEND_LEN, //
};

use super::{
    Input,
    Kind,
    RawLlcHeader, //
};

/// CONFIRM_RKEY: the sender's buffer is ready for writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmRkey<'a> {
    /// Its key on this link.
    pub rkey: Rkey,
    /// Its address on this link.
    pub addr: RemoteAddr,
    /// The buffer on other links.
    pub others: List<'a, LinkRkey, 2>,
    /// How many links follow in CONFIRM_RKEY_CONT messages; not written unless `others` is full. Always 0 from peers
    /// with three links or fewer.
    pub following: u8,
    /// Response: the buffer was rejected.
    pub negative: bool,
    /// Response: try again.
    pub retry: bool,
}

/// CONFIRM_RKEY_CONT: the buffer on more links. Linux neither sends nor answers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfirmRkeyCont<'a> {
    /// The buffer on other links.
    pub others: List<'a, LinkRkey, 3>,
    /// How many links follow in later messages; not written unless `others` is full.
    pub following: u8,
}

/// DELETE_RKEY: buffers of the sender are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeleteRkey<'a> {
    /// Their keys on this link. In a version 2 response from Linux they are zero.
    pub rkeys: List<'a, WireRkey, 255>,
    /// Response: at least one was unknown.
    pub negative: bool,
    /// Response: in version 1 a mask of the unknown keys, 0x80 for the first; in version 2 their number.
    pub unknown: u8,
}

/// One buffer on one link.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct LinkRkey {
    link_num: u8,
    rkey: U32,
    addr: U64,
}

/// One buffer on a link being added.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct NewLinkRkey {
    rkey: U32,
    new_rkey: U32,
    new_addr: U64,
}

/// A key in network byte order, so that lists can borrow it.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct WireRkey(U32);

impl<'a> ConfirmRkey<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let (negative, retry) = (input.has_flag(NEGATIVE), input.has_flag(RETRY));
        let raw: &RawConfirmRkey = input.reader.take()?;
        if raw.count > MAX_OTHER_LINKS {
            return Err(Malformed::Count);
        }
        Ok(Self {
            rkey: Rkey(raw.rkey.get()),
            addr: RemoteAddr(raw.addr.get()),
            others: input.reader.list(usize::from(raw.count.min(2)))?,
            following: raw.count.saturating_sub(2),
            negative,
            retry,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        let here = self.others.count();
        let following = if here == 2 { self.following } else { 0 };
        writer.put(&RawConfirmRkey {
            count: here.saturating_add(following),
            rkey: U32::new(self.rkey.0),
            addr: U64::new(self.addr.0),
        })?;
        writer.put(self.others.as_slice())
    }

    pub(super) const fn flags(&self) -> u8 {
        let negative = if self.negative { NEGATIVE } else { 0 };
        let retry = if self.retry { RETRY } else { 0 };
        negative | retry
    }
}

impl<'a> ConfirmRkeyCont<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let &count: &u8 = input.reader.take()?;
        if count > MAX_OTHER_LINKS {
            return Err(Malformed::Count);
        }
        Ok(Self {
            others: input.reader.list(usize::from(count.min(3)))?,
            following: count.saturating_sub(3),
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        let here = self.others.count();
        let following = if here == 3 { self.following } else { 0 };
        writer.put(&here.saturating_add(following))?;
        writer.put(self.others.as_slice())
    }
}

impl<'a> DeleteRkey<'a> {
    pub(super) fn parse(mut input: Input<'a>) -> Result<Self, Malformed> {
        let negative = input.has_flag(NEGATIVE);
        let raw: &RawDeleteRkey = input.reader.take()?;
        let fitting = match input.version {
            Version::V1 => V1_RKEYS,
            Version::V2 => input.reader.fits::<WireRkey>(),
        };
        let count = match (input.kind, usize::from(raw.count)) {
            (Kind::Request, 0) => return Err(Malformed::Count),
            (Kind::Request, count) if count > fitting => return Err(Malformed::Count),
            // A response may repeat the count and omit the keys.
            (Kind::Response, count) => count.min(fitting),
            (Kind::Request, count) => count,
        };
        Ok(Self {
            rkeys: input.reader.list(count)?,
            negative,
            unknown: raw.unknown,
        })
    }

    pub(super) fn emit(&self, writer: &mut Writer<'_>) -> Result<(), NoSpace> {
        writer.put(&RawDeleteRkey {
            count: self.rkeys.count(),
            unknown: self.unknown,
            reserved: [0; 2],
        })?;
        writer.put(self.rkeys.as_slice())
    }

    pub(super) const fn flags(&self) -> u8 {
        if self.negative {
            NEGATIVE
        } else {
            0
        }
    }

    pub(super) fn len(&self) -> usize {
        size_of_val(self.rkeys.as_slice()).saturating_add(DELETE_RKEY_HEAD)
    }
}

impl LinkRkey {
    /// Creates the entry for `link_num`.
    pub const fn new(link_num: LinkNum, rkey: Rkey, addr: RemoteAddr) -> Self {
        Self {
            link_num: link_num.0,
            rkey: U32::new(rkey.0),
            addr: U64::new(addr.0),
        }
    }

    /// Returns the link.
    pub const fn link_num(self) -> LinkNum {
        LinkNum(self.link_num)
    }

    /// Returns the buffer's key on it.
    pub const fn rkey(self) -> Rkey {
        Rkey(self.rkey.get())
    }

    /// Returns the buffer's address on it.
    pub const fn addr(self) -> RemoteAddr {
        RemoteAddr(self.addr.get())
    }
}

impl NewLinkRkey {
    /// Creates the entry for the buffer with `rkey` on the link that carries the message.
    pub const fn new(rkey: Rkey, new_rkey: Rkey, new_addr: RemoteAddr) -> Self {
        Self {
            rkey: U32::new(rkey.0),
            new_rkey: U32::new(new_rkey.0),
            new_addr: U64::new(new_addr.0),
        }
    }

    /// Returns its key on the link that carries the message.
    pub const fn rkey(self) -> Rkey {
        Rkey(self.rkey.get())
    }

    /// Returns its key on the new link.
    pub const fn new_rkey(self) -> Rkey {
        Rkey(self.new_rkey.get())
    }

    /// Returns its address on the new link.
    pub const fn new_addr(self) -> RemoteAddr {
        RemoteAddr(self.new_addr.get())
    }
}

impl WireRkey {
    /// Returns the key.
    pub const fn get(self) -> Rkey {
        Rkey(self.0.get())
    }
}

impl From<Rkey> for WireRkey {
    fn from(rkey: Rkey) -> Self {
        Self(U32::new(rkey.0))
    }
}

impl fmt::Debug for LinkRkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (link, rkey, addr) = (self.link_num().0, self.rkey().0, self.addr().0);
        write!(f, "link {link}: {rkey:08x}@{addr:x}")
    }
}

impl fmt::Debug for NewLinkRkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rkey, new_rkey, addr) = (self.rkey().0, self.new_rkey().0, self.new_addr().0);
        write!(f, "{rkey:08x} -> {new_rkey:08x}@{addr:x}")
    }
}

impl fmt::Debug for WireRkey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.get().0)
    }
}

/// CONFIRM_RKEY before its other links.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawConfirmRkey {
    count: u8,
    rkey: U32,
    addr: U64,
}

const _: () = assert!(
    size_of::<RawLlcHeader>() + size_of::<RawConfirmRkey>() + 2 * size_of::<LinkRkey>() + 1
        == SEND_LEN
);
const _: () = assert!(size_of::<RawLlcHeader>() + 1 + 3 * size_of::<LinkRkey>() == SEND_LEN);

/// DELETE_RKEY before its keys.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDeleteRkey {
    count: u8,
    unknown: u8,
    reserved: [u8; 2],
}

const DELETE_RKEY_HEAD: usize = size_of::<RawLlcHeader>() + size_of::<RawDeleteRkey>();
/// Keys in a version 1 DELETE_RKEY, before four reserved bytes.
const V1_RKEYS: usize = 8;
const _: () = assert!(DELETE_RKEY_HEAD + V1_RKEYS * size_of::<WireRkey>() + 4 == SEND_LEN);

/// Links of a link group other than the one that carries a message.
const MAX_OTHER_LINKS: u8 = 7;
/// CONFIRM_RKEY, DELETE_RKEY response.
const NEGATIVE: u8 = 0x20;
/// CONFIRM_RKEY response.
const RETRY: u8 = 0x10;
