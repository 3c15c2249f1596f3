// SPDX-License-Identifier: GPL-2.0

//! Direct access to the socket calls of the kernel.

use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::ptr;

use rustix::fs::fcntl_getfl;
use rustix::fs::fcntl_setfl;
use rustix::fs::OFlags;
use rustix::mm;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::net;
use rustix::net::AddressFamily;
use rustix::net::Protocol;
use rustix::net::RecvFlags;
use rustix::net::SendFlags;
use rustix::net::SocketFlags;
use rustix::net::SocketType;
use rustix::thread::gettid;

use crate::check;
use crate::Address;
use crate::Received;
use crate::Result;
use crate::Room;

/// An owned socket of any family.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket; the arguments are passed unchanged, except that close-on-exec is set.
    ///
    /// Uses libc's function, which a preloaded library can replace; rustix would call the kernel
    /// directly.
    pub fn open(domain: i32, kind: i32, protocol: i32) -> Result<Self> {
        // SAFETY: socket(2) takes three integers and no pointer.
        let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// As [`Self::open`], but by a direct system call, which bypasses preloaded libraries.
    pub fn open_bare(domain: i32, kind: i32, protocol: i32) -> Result<Self> {
        let (family, kind, protocol) = typed(domain, kind, protocol);
        let fd = net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol)?;
        Ok(Self(fd))
    }

    /// Calls `socketpair(2)` and closes the pair: only the error is of interest.
    pub fn open_pair(domain: i32, kind: i32, protocol: i32) -> Result<()> {
        let (family, kind, protocol) = typed(domain, kind, protocol);
        net::socketpair(family, kind, SocketFlags::empty(), protocol)?;
        Ok(())
    }

    /// Binds to `address`.
    pub fn bind(&self, address: impl Into<Address>) -> Result<()> {
        Ok(net::bind(self, &address.into())?)
    }

    /// Connects to `address`.
    pub fn connect(&self, address: impl Into<Address>) -> Result<()> {
        Ok(net::connect(self, &address.into())?)
    }

    /// Starts listening.
    pub fn listen(&self, backlog: i32) -> Result<()> {
        Ok(net::listen(self, backlog)?)
    }

    /// Accepts a connection; `flags` as for `accept4(2)`, plus close-on-exec.
    pub fn accept(&self, flags: i32) -> Result<Self> {
        // CAST: a set of bits.
        let flags = SocketFlags::from_bits_retain(flags as u32) | SocketFlags::CLOEXEC;
        Ok(Self(net::accept_with(self, flags)?))
    }

    /// Sends `data`; returns EPIPE without raising SIGPIPE.
    pub fn send(&self, data: &[u8], flags: i32) -> Result<usize> {
        Ok(net::send(self, data, send_flags(flags))?)
    }

    /// Sends `data` to `address`, as for TCP Fast Open.
    pub fn send_to(&self, data: &[u8], flags: i32, address: SocketAddr) -> Result<usize> {
        let (flags, address) = (send_flags(flags), Address::from(address));
        Ok(net::sendto(self, data, flags, &address)?)
    }

    /// Receives into `buffer`.
    pub fn recv(&self, buffer: &mut [u8], flags: i32) -> Result<usize> {
        // CAST: a set of bits.
        let (_, len) = net::recv(self, buffer, RecvFlags::from_bits_retain(flags as u32))?;
        Ok(len)
    }

    /// Receives into `buffer`; also returns the message flags.
    pub fn recv_message(&self, buffer: &mut [u8], flags: i32) -> Result<Received> {
        self.recv_parts(&mut [buffer], 0, None, flags)
    }

    /// Reads with `read(2)`, which differs from `recv(2)` for a length of 0.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        Ok(rustix::io::read(self, buffer)?)
    }

    /// Shuts down; `how` is passed unchanged.
    pub fn shutdown(&self, how: i32) -> Result<()> {
        // SAFETY: shutdown(2) takes two integers and no pointer.
        check(unsafe { libc::shutdown(self.as_raw_fd(), how) })?;
        Ok(())
    }

    /// Returns the local address.
    pub fn local_address(&self) -> Result<Address> {
        Ok(self.local_name(Room::Of(Address::MAX_LEN))?.address())
    }

    /// Returns the peer's address.
    pub fn peer_address(&self) -> Result<Address> {
        Ok(self.peer_name(Room::Of(Address::MAX_LEN))?.address())
    }

    /// Calls an ioctl that writes one `int`. The request may be unknown.
    ///
    /// The buffer is larger than an `int`, for requests that write a structure.
    pub fn ioctl_int(&self, request: u64) -> Result<i32> {
        let mut buffer = [0u64; 32];
        let fd = self.as_raw_fd();
        // SAFETY: the socket ioctls defined write at most a `struct ifreq` (40 bytes); the buffer
        // is 256 bytes long and aligned for any of their fields.
        check(unsafe { libc::ioctl(fd, request, buffer.as_mut_ptr()) })?;
        Ok(buffer[0] as i32)
    }

    /// Calls an ioctl whose argument is at the address 0. The request may be unknown.
    pub fn ioctl_null(&self, request: u64) -> Result<()> {
        let (fd, null) = (self.as_raw_fd(), ptr::null_mut::<libc::c_void>());
        // SAFETY: the kernel checks the address, and touches nothing of this program's.
        check(unsafe { libc::ioctl(fd, request, null) })?;
        Ok(())
    }

    /// Maps one page of the socket with mmap(2), and unmaps it.
    pub fn map(&self) -> Result<()> {
        let (null, len) = (ptr::null_mut(), 4096);
        // SAFETY: no fixed address is asked for, so that nothing mapped before is touched.
        let page = unsafe { mm::mmap(null, len, ProtFlags::READ, MapFlags::SHARED, self, 0) }?;
        // SAFETY: `page` was just mapped with this length and nothing points into it.
        Ok(unsafe { mm::munmap(page, len) }?)
    }

    /// Sets or clears O_NONBLOCK.
    pub fn set_nonblocking(&self, on: bool) -> Result<()> {
        self.set_flag(OFlags::NONBLOCK, on)
    }

    /// Sets or clears O_ASYNC: SIGIO is sent to the owner on events.
    pub fn set_signal_driven(&self, on: bool) -> Result<()> {
        // CAST: a set of bits.
        self.set_flag(OFlags::from_bits_retain(libc::O_ASYNC as u32), on)
    }

    fn set_flag(&self, flag: OFlags, on: bool) -> Result<()> {
        let mut flags = fcntl_getfl(self)?;
        flags.set(flag, on);
        Ok(fcntl_setfl(self, flags)?)
    }

    /// Makes the calling thread the receiver of the socket's signals (SIGIO, SIGURG).
    pub fn set_owner_to_this_thread(&self) -> Result<()> {
        /// `struct f_owner_ex` of `fcntl.h`, which libc lacks.
        #[repr(C)]
        struct Owner {
            kind: i32,
            pid: libc::pid_t,
        }
        const F_SETOWN_EX: i32 = 15;
        const F_OWNER_TID: i32 = 0;
        let (kind, pid) = (F_OWNER_TID, gettid().as_raw_pid());
        let owner = Owner { kind, pid };
        // SAFETY: F_SETOWN_EX reads one `struct f_owner_ex`.
        check(unsafe { libc::fcntl(self.as_raw_fd(), F_SETOWN_EX, &owner) })?;
        Ok(())
    }

    /// Returns another descriptor for the same socket.
    pub fn duplicate(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone()?))
    }
}

/// Converts the arguments of `socket(2)` to the types of rustix, unchanged.
fn typed(domain: i32, kind: i32, protocol: i32) -> (AddressFamily, SocketType, Option<Protocol>) {
    (
        // CAST: numbers of the kernel's, none of them negative.
        AddressFamily::from_raw(domain as u16),
        SocketType::from_raw(kind as u32),
        NonZeroU32::new(protocol as u32).map(Protocol::from_raw),
    )
}

/// Converts the flags of a send, plus MSG_NOSIGNAL.
pub(crate) fn send_flags(flags: i32) -> SendFlags {
    // CAST: a set of bits.
    SendFlags::from_bits_retain(flags as u32) | SendFlags::NOSIGNAL
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0
    }
}

impl From<OwnedFd> for Socket {
    fn from(fd: OwnedFd) -> Self {
        Self(fd)
    }
}

impl io::Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv(buffer, 0)?)
    }
}

impl io::Write for &Socket {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.send(data, 0)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
