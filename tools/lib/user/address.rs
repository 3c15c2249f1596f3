// SPDX-License-Identifier: GPL-2.0

//! Socket addresses as bytes, valid or malformed.

use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;

use rustix::net::addr::SocketAddrArg;
use rustix::net::addr::SocketAddrLen;
use rustix::net::addr::SocketAddrOpaque;

/// Largest address that a test passes: `struct sockaddr_in6`.
const MAX_LEN: usize = 28;

/// A `struct sockaddr` of any length up to 28 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl Address {
    /// [`MAX_LEN`] with the type of `addrlen`.
    pub(crate) const MAX_LEN: i32 = MAX_LEN as i32;

    /// Builds an address of `family` with zeroes after it, `len` bytes long (at most 28).
    pub fn of_family(family: u16, len: usize) -> Self {
        let mut bytes = [0; MAX_LEN];
        bytes[..2].copy_from_slice(&family.to_ne_bytes());
        Self {
            bytes,
            len: len.min(MAX_LEN),
        }
    }

    /// Builds the address of no family (`AF_UNSPEC`), with which connect(2) undoes a connection.
    pub fn unspecified() -> Self {
        Self::of_family(libc::AF_UNSPEC as u16, 16)
    }

    /// Builds the address (`struct sockaddr_ll`) of a network device's packets of one protocol.
    pub fn of_link(protocol: u16, index: u32) -> Self {
        let mut this = Self::of_family(libc::AF_PACKET as u16, 20);
        this.bytes[2..4].copy_from_slice(&protocol.to_be_bytes());
        this.bytes[4..8].copy_from_slice(&index.to_ne_bytes());
        this
    }

    /// Truncates the address to `len` bytes.
    pub fn cut(mut self, len: usize) -> Self {
        self.len = self.len.min(len);
        self
    }

    /// Replaces the family.
    pub fn with_family(mut self, family: u16) -> Self {
        self.bytes[..2].copy_from_slice(&family.to_ne_bytes());
        self
    }

    /// Returns the bytes that are passed to the kernel.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns a buffer for the kernel to write an address to.
    pub(crate) fn empty() -> Self {
        Self {
            bytes: [0; MAX_LEN],
            len: 0,
        }
    }

    pub(crate) fn buffer(&mut self) -> &mut [u8; MAX_LEN] {
        &mut self.bytes
    }

    pub(crate) fn set_len(&mut self, len: usize) {
        self.len = len.min(MAX_LEN);
    }

    /// Returns IP address and port; `None` for other families.
    pub fn to_ip(&self) -> Option<SocketAddr> {
        let b = &self.bytes;
        let port = u16::from_be_bytes([b[2], b[3]]);
        let ip = match i32::from(u16::from_ne_bytes([b[0], b[1]])) {
            libc::AF_INET => IpAddr::V4(Ipv4Addr::new(b[4], b[5], b[6], b[7])),
            libc::AF_INET6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&b[8..24]);
                IpAddr::V6(Ipv6Addr::from(octets))
            }
            _ => return None,
        };
        Some(SocketAddr::new(ip, port))
    }
}

// SAFETY: `f` gets the address' own bytes, which are valid for reads of their length while it runs.
unsafe impl SocketAddrArg for Address {
    unsafe fn with_sockaddr<R>(
        &self,
        f: impl FnOnce(*const SocketAddrOpaque, SocketAddrLen) -> R,
    ) -> R {
        // CAST: at most 28.
        f(self.bytes.as_ptr().cast(), self.len as SocketAddrLen)
    }
}

impl From<SocketAddr> for Address {
    fn from(addr: SocketAddr) -> Self {
        let mut this = match addr {
            SocketAddr::V4(_) => Self::of_family(libc::AF_INET as u16, 16),
            SocketAddr::V6(_) => Self::of_family(libc::AF_INET6 as u16, 28),
        };

        this.bytes[2..4].copy_from_slice(&addr.port().to_be_bytes());
        match addr {
            SocketAddr::V4(v4) => this.bytes[4..8].copy_from_slice(&v4.ip().octets()),
            SocketAddr::V6(v6) => {
                this.bytes[4..8].copy_from_slice(&v6.flowinfo().to_be_bytes());
                this.bytes[8..24].copy_from_slice(&v6.ip().octets());
                this.bytes[24..28].copy_from_slice(&v6.scope_id().to_ne_bytes());
            }
        }
        this
    }
}
