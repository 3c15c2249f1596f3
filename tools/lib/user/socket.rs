// SPDX-License-Identifier: GPL-2.0

//! A socket with nothing between the caller and the kernel.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;
use std::ptr;

use crate::check;
use crate::check_len;
use crate::Address;
use crate::Errno;
use crate::Result;

/// What `recvmsg` returned besides the bytes themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Bytes received.
    pub len: usize,
    /// `MSG_*` flags that the kernel set.
    pub flags: i32,
}

/// An owned socket of any family.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// Opens a socket; all three arguments go to the kernel as they are, plus close-on-exec.
    pub fn open(domain: i32, kind: i32, protocol: i32) -> Result<Self> {
        // SAFETY: socket(2) takes three integers and no pointer.
        let fd = check(unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// As [`Self::open`], by a system call of its own: a library that is preloaded does not see it.
    pub fn open_bare(domain: i32, kind: i32, protocol: i32) -> Result<Self> {
        let kind = kind | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes three integers and no pointer.
        let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) };
        // CAST: a descriptor or -1.
        let fd = check(fd as i32)?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Calls `socketpair`; only its error is of interest, so the pair is closed again.
    pub fn open_pair(domain: i32, kind: i32, protocol: i32) -> Result<()> {
        let mut fds: [RawFd; 2] = [-1; 2];
        // SAFETY: `fds` has room for the two descriptors that socketpair(2) writes.
        check(unsafe { libc::socketpair(domain, kind, protocol, fds.as_mut_ptr()) })?;
        for fd in fds {
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            drop(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Ok(())
    }

    /// Binds to `address`.
    pub fn bind(&self, address: impl Into<Address>) -> Result<()> {
        let address = address.into();
        let bytes = address.as_bytes();
        let fd = self.as_raw_fd();
        // SAFETY: `bytes` is valid for reads of its own length.
        check(unsafe { libc::bind(fd, bytes.as_ptr().cast(), bytes.len() as libc::socklen_t) })?;
        Ok(())
    }

    /// Connects to `address`.
    pub fn connect(&self, address: impl Into<Address>) -> Result<()> {
        let address = address.into();
        let bytes = address.as_bytes();
        let fd = self.as_raw_fd();
        // SAFETY: `bytes` is valid for reads of its own length.
        check(unsafe { libc::connect(fd, bytes.as_ptr().cast(), bytes.len() as libc::socklen_t) })?;
        Ok(())
    }

    /// Starts listening.
    pub fn listen(&self, backlog: i32) -> Result<()> {
        // SAFETY: listen(2) takes two integers and no pointer.
        check(unsafe { libc::listen(self.as_raw_fd(), backlog) })?;
        Ok(())
    }

    /// Accepts one connection; `flags` as for `accept4`, close-on-exec added.
    pub fn accept(&self, flags: i32) -> Result<Self> {
        let (fd, flags) = (self.as_raw_fd(), flags | libc::SOCK_CLOEXEC);
        // SAFETY: accept4(2) allows null for an address that is not wanted.
        let fd = check(unsafe { libc::accept4(fd, ptr::null_mut(), ptr::null_mut(), flags) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Sends `data`; a closed peer gives EPIPE, never a signal.
    pub fn send(&self, data: &[u8], flags: i32) -> Result<usize> {
        let (ptr, flags) = (data.as_ptr(), flags | libc::MSG_NOSIGNAL);
        // SAFETY: `ptr` is valid for reads of `data.len()` bytes.
        check_len(unsafe { libc::send(self.as_raw_fd(), ptr.cast(), data.len(), flags) })
    }

    /// Sends `data` to `address`, as the first send of TCP fast open does.
    pub fn send_to(&self, data: &[u8], flags: i32, address: SocketAddr) -> Result<usize> {
        let address = Address::from(address);
        let to = address.as_bytes();
        // SAFETY: `data` and `to` are each valid for reads of their own length.
        check_len(unsafe {
            libc::sendto(
                self.as_raw_fd(),
                data.as_ptr().cast(),
                data.len(),
                flags | libc::MSG_NOSIGNAL,
                to.as_ptr().cast(),
                to.len() as libc::socklen_t,
            )
        })
    }

    /// Receives into `buffer`.
    pub fn recv(&self, buffer: &mut [u8], flags: i32) -> Result<usize> {
        let ptr = buffer.as_mut_ptr();
        // SAFETY: `ptr` is valid for writes of `buffer.len()` bytes.
        check_len(unsafe { libc::recv(self.as_raw_fd(), ptr.cast(), buffer.len(), flags) })
    }

    /// Receives into `buffer` and reports the flags that came with the data.
    pub fn recv_message(&self, buffer: &mut [u8], flags: i32) -> Result<Message> {
        let mut iov = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast(),
            iov_len: buffer.len(),
        };
        // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = &mut iov;
        header.msg_iovlen = 1;

        // SAFETY: `header` names one buffer, valid for writes of its length for the whole call.
        let len = check_len(unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, flags) })?;
        let flags = header.msg_flags;
        Ok(Message { len, flags })
    }

    /// Reads with `read(2)`, which differs from `recv` in its treatment of zero bytes.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize> {
        let ptr = buffer.as_mut_ptr();
        // SAFETY: `ptr` is valid for writes of `buffer.len()` bytes.
        check_len(unsafe { libc::read(self.as_raw_fd(), ptr.cast(), buffer.len()) })
    }

    /// Shuts down; `how` goes to the kernel as it is.
    pub fn shutdown(&self, how: i32) -> Result<()> {
        // SAFETY: shutdown(2) takes two integers and no pointer.
        check(unsafe { libc::shutdown(self.as_raw_fd(), how) })?;
        Ok(())
    }

    /// The local address.
    pub fn local_address(&self) -> Result<Address> {
        self.name(libc::getsockname)
    }

    /// The peer's address.
    pub fn peer_address(&self) -> Result<Address> {
        self.name(libc::getpeername)
    }

    fn name(
        &self,
        call: unsafe extern "C" fn(RawFd, *mut libc::sockaddr, *mut libc::socklen_t) -> i32,
    ) -> Result<Address> {
        let mut address = Address::empty();
        let buffer = address.buffer();
        let mut len = buffer.len() as libc::socklen_t;

        // SAFETY: the buffer is valid for writes of `len` bytes; the kernel writes no more.
        check(unsafe { call(self.as_raw_fd(), buffer.as_mut_ptr().cast(), &mut len) })?;
        address.set_len(len as usize);
        Ok(address)
    }

    /// Calls an ioctl that writes one `int`; any request number, so that unknown ones can be tried.
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

    /// Maps one page of the socket and unmaps it again.
    pub fn map(&self) -> Result<()> {
        let (fd, len) = (self.as_raw_fd(), 4096);
        // SAFETY: no fixed address is asked for, so that nothing mapped before is touched.
        let page = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        // SAFETY: `page` was just mapped with this length and nothing points into it.
        check(unsafe { libc::munmap(page, len) })?;
        Ok(())
    }

    /// Switches non-blocking mode.
    pub fn set_nonblocking(&self, on: bool) -> Result<()> {
        self.set_flag(libc::O_NONBLOCK, on)
    }

    /// Switches signal-driven mode: SIGIO for the owner when something happens.
    pub fn set_signal_driven(&self, on: bool) -> Result<()> {
        self.set_flag(libc::O_ASYNC, on)
    }

    fn set_flag(&self, flag: i32, on: bool) -> Result<()> {
        let fd = self.as_raw_fd();
        // SAFETY: F_GETFL takes no argument.
        let flags = check(unsafe { libc::fcntl(fd, libc::F_GETFL) })?;
        let flags = if on { flags | flag } else { flags & !flag };
        // SAFETY: F_SETFL takes an integer.
        check(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) })?;
        Ok(())
    }

    /// Has the signals of the socket (SIGIO, SIGURG) sent to the calling thread.
    pub fn set_owner_to_this_thread(&self) -> Result<()> {
        /// `struct f_owner_ex` of `fcntl.h`.
        #[repr(C)]
        struct Owner {
            kind: i32,
            pid: libc::pid_t,
        }
        const F_SETOWN_EX: i32 = 15;
        const F_OWNER_TID: i32 = 0;
        // SAFETY: gettid(2) takes no argument.
        let pid = unsafe { libc::gettid() };
        let kind = F_OWNER_TID;
        let owner = Owner { kind, pid };
        // SAFETY: F_SETOWN_EX reads one `struct f_owner_ex`.
        check(unsafe { libc::fcntl(self.as_raw_fd(), F_SETOWN_EX, &owner) })?;
        Ok(())
    }

    /// Another descriptor for the same socket.
    pub fn duplicate(&self) -> Result<Self> {
        self.0
            .try_clone()
            .map(Self)
            .map_err(|error| Errno(error.raw_os_error().unwrap_or(0)))
    }
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

impl io::Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(self.recv(buffer, 0)?)
    }
}

impl io::Write for Socket {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        Ok(self.send(data, 0)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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
