// SPDX-License-Identifier: GPL-2.0

//! Calls that return an address, with every form of the arguments `addr` and `addrlen`.
//!
//! They are called directly since the tests are about these forms: libraries always pass a buffer
//! for a whole address.

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;

use crate::check;
use crate::check_len;
use crate::Address;
use crate::Result;
use crate::Socket;

/// The buffer for an address: `addr` and `addrlen` of `accept(2)`, `getsockname(2)` and the like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Both pointers are null.
    Null,
    /// A buffer for the address; the pointer to its length is null.
    NoLength,
    /// A length of that many bytes; the pointer to the address is null.
    NoAddress(i32),
    /// A buffer of that many bytes according to `addrlen`, which may be negative.
    Of(i32),
}

/// What a call wrote to a [`Room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name {
    /// The returned length, which may exceed that of the buffer.
    pub len: i32,
    /// Number of bytes that the call changed.
    pub written: usize,
    bytes: [u8; Self::SPACE],
}

impl Name {
    /// Actual size of the buffer, whatever length is passed: `struct sockaddr_storage` twice.
    const SPACE: usize = 256;
    /// Initial content of the buffer. Does not occur in addresses that the tests use.
    const FILL: u8 = 0xa5;

    fn new() -> Self {
        Self {
            len: 0,
            written: 0,
            bytes: [Self::FILL; Self::SPACE],
        }
    }

    /// Returns the address, as far as it was written.
    pub fn address(&self) -> Address {
        let mut address = Address::empty();
        let buffer = address.buffer();
        let len = self.written.min(buffer.len());
        buffer[..len].copy_from_slice(&self.bytes[..len]);
        address.set_len(len);
        address
    }

    /// Calls `call` with the arguments for `room`.
    ///
    /// The pointers are null or valid for writes: that to the address for 256 bytes, and so for any
    /// shorter length, that to the length for an `int`.
    pub(crate) fn with<T>(
        room: Room,
        call: impl FnOnce(*mut libc::sockaddr, *mut libc::socklen_t) -> Result<T>,
    ) -> Result<(T, Self)> {
        let mut this = Self::new();
        let mut len = match room {
            Room::Of(len) | Room::NoAddress(len) => len,
            Room::Null | Room::NoLength => 0,
        };
        let addr = match room {
            Room::Null | Room::NoAddress(_) => ptr::null_mut(),
            Room::NoLength | Room::Of(_) => this.bytes.as_mut_ptr().cast(),
        };
        let len_ptr = match room {
            Room::Null | Room::NoLength => ptr::null_mut(),
            Room::NoAddress(_) | Room::Of(_) => (&raw mut len).cast(),
        };
        let value = call(addr, len_ptr)?;
        this.len = len;
        let untouched = this.bytes.iter().rev().take_while(|b| **b == Self::FILL);
        this.written = Self::SPACE - untouched.count();
        Ok((value, this))
    }
}

impl Socket {
    /// `accept4(2)` with every form of address buffer; `flags` are passed unchanged.
    pub fn accept_name(&self, flags: i32, room: Room) -> Result<(Self, Name)> {
        let fd = self.as_raw_fd();
        Name::with(room, |addr, len| {
            // SAFETY: `addr` and `len` are null or valid for writes, see `Name::with`. The kernel writes no more
            // than an address, which is at most 128 bytes.
            let fd = check(unsafe { libc::accept4(fd, addr, len, flags) })?;
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            Ok(Self::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// `accept(2)`, which has no flags, with every form of address buffer.
    pub fn accept_plain(&self, room: Room) -> Result<(Self, Name)> {
        let fd = self.as_raw_fd();
        Name::with(room, |addr, len| {
            // SAFETY: as in `accept_name`.
            let fd = check(unsafe { libc::accept(fd, addr, len) })?;
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            Ok(Self::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// `getsockname(2)` with every form of address buffer.
    pub fn local_name(&self, room: Room) -> Result<Name> {
        let fd = self.as_raw_fd();
        Name::with(room, |addr, len| {
            // SAFETY: as in `accept_name`.
            check(unsafe { libc::getsockname(fd, addr, len) })
        })
        .map(|x| x.1)
    }

    /// `getpeername(2)` with every form of address buffer.
    pub fn peer_name(&self, room: Room) -> Result<Name> {
        let fd = self.as_raw_fd();
        Name::with(room, |addr, len| {
            // SAFETY: as in `accept_name`.
            check(unsafe { libc::getpeername(fd, addr, len) })
        })
        .map(|x| x.1)
    }

    /// `recvfrom(2)` with every form of address buffer.
    pub fn recv_from(&self, buffer: &mut [u8], flags: i32, room: Room) -> Result<(usize, Name)> {
        let (fd, data, size) = (self.as_raw_fd(), buffer.as_mut_ptr(), buffer.len());
        Name::with(room, |addr, len| {
            // SAFETY: `data` is valid for writes of `size` bytes; the rest as in `accept_name`.
            check_len(unsafe { libc::recvfrom(fd, data.cast(), size, flags, addr, len) })
        })
    }
}
