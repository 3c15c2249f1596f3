// SPDX-License-Identifier: GPL-2.0

//! Memory whose page faults block until user space resolves them: `userfaultfd(2)`.
//!
//! A system call that copies to or from such memory blocks, as it does for a mapped file whose file
//! system does not respond.
//!
//! The `userfaultfd` crate needs libclang to build, hence the three ioctls here.

use std::os::fd::AsRawFd;
use std::os::fd::OwnedFd;
use std::ptr;
use std::time::Duration;

use rustix::mm;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::mm::UserfaultfdFlags;
use rustix::param::page_size;

use crate::check;
use crate::check_len;
use crate::poll_fd;
use crate::Errno;
use crate::Result;
use crate::Socket;

/// `struct uffdio_api` of `linux/userfaultfd.h`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`, and the fields that follow it in the two requests used here.
#[repr(C)]
struct Range {
    start: u64,
    len: u64,
    mode: u64,
    answer: u64,
}

/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`.
const UFFDIO_API: libc::c_ulong = 0xc018_aa3f;
/// `_IOWR(0xaa, 0, struct uffdio_register)`.
const UFFDIO_REGISTER: libc::c_ulong = 0xc020_aa00;
/// `_IOWR(0xaa, 4, struct uffdio_zeropage)`.
const UFFDIO_ZEROPAGE: libc::c_ulong = 0xc020_aa04;
const UFFD_API: u64 = 0xaa;
const MODE_MISSING: u64 = 1;
/// How many bytes at the start of the page are used.
const PART: usize = 4096;

/// A page that is missing until [`Unserved::serve`].
///
/// # Invariants
///
/// `page` is mapped, one page long, and used by system calls only; so is the page of zeroes before it, which is not
/// missing.
pub struct Unserved {
    fd: OwnedFd,
    page: *mut u8,
}

// SAFETY: By the type invariant only system calls use the memory, and they may from any thread.
unsafe impl Send for Unserved {}
// SAFETY: As above; what they write to it at once does not matter to anybody.
unsafe impl Sync for Unserved {}

impl Unserved {
    /// Maps the page. Needs a kernel with userfaultfd, and root.
    pub fn new() -> Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        // SAFETY: the descriptor is asked only for memory that `self` owns.
        let fd = unsafe { mm::userfaultfd(flags) }?;
        let (prot, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: no fixed address is asked for, so that nothing mapped before is touched.
        let before = unsafe { mm::mmap_anonymous(ptr::null_mut(), 2 * page_size(), prot, flags) }?;
        // SAFETY: the second page of those mapped above.
        let page = unsafe { before.cast::<u8>().add(page_size()) };
        let this = Self { fd, page };
        let mut api = Api {
            api: UFFD_API,
            features: 0,
            ioctls: 0,
        };
        this.ask(UFFDIO_API, &mut api)?;
        this.ask(UFFDIO_REGISTER, &mut this.range(MODE_MISSING))?;
        Ok(this)
    }

    /// Calls an ioctl; `T` is the structure of the request.
    fn ask<T>(&self, request: libc::c_ulong, argument: &mut T) -> Result<()> {
        // SAFETY: the request reads and writes one `T`, about a page that is ours.
        check(unsafe { libc::ioctl(self.fd.as_raw_fd(), request, ptr::from_mut(argument)) })?;
        Ok(())
    }

    fn range(&self, mode: u64) -> Range {
        Range {
            start: self.page as u64,
            len: page_size() as u64,
            mode,
            answer: 0,
        }
    }

    /// Receives into the page, at most 4096 bytes, with these flags.
    pub fn recv(&self, socket: &Socket, flags: i32) -> Result<usize> {
        // SAFETY: by the type invariant the page may be written by a system call.
        check_len(unsafe { libc::recv(socket.as_raw_fd(), self.page.cast(), PART, flags) })
    }

    /// Sends the page, with these flags.
    pub fn send(&self, socket: &Socket, flags: i32) -> Result<usize> {
        let (fd, flags) = (socket.as_raw_fd(), flags | libc::MSG_NOSIGNAL);
        // SAFETY: by the type invariant the page may be read by a system call.
        check_len(unsafe { libc::send(fd, self.page.cast(), PART, flags) })
    }

    /// Sets a socket option of `len` bytes, of which the first four are before the page.
    pub fn set_option(&self, socket: &Socket, level: i32, name: i32, len: u32) -> Result<()> {
        let value = self.page.wrapping_sub(4).cast();
        // SAFETY: by the type invariant both pages may be read by a system call.
        check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, value, len) })?;
        Ok(())
    }

    /// Gets a socket option into the page. Returns its length.
    pub fn get_option(&self, socket: &Socket, level: i32, name: i32) -> Result<u32> {
        // CAST: 4096.
        let mut len = PART as libc::socklen_t;
        let fd = socket.as_raw_fd();
        // SAFETY: by the type invariant the page may be read and written by a system call; `len` is its length.
        check(unsafe { libc::getsockopt(fd, level, name, self.page.cast(), &raw mut len) })?;
        Ok(len)
    }

    /// Attaches a filter of one instruction (SO_ATTACH_FILTER), which is in the page: the kernel reads it with the
    /// socket locked. One of zeroes is invalid.
    pub fn attach_filter(&self, socket: &Socket) -> Result<()> {
        let program = libc::sock_fprog {
            len: 1,
            filter: self.page.cast(),
        };
        let (fd, value) = (socket.as_raw_fd(), ptr::from_ref(&program).cast());
        // CAST: 16.
        let len = size_of::<libc::sock_fprog>() as libc::socklen_t;
        // SAFETY: `value` is valid for reads of its length, and by the type invariant the page is for system calls.
        check(unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, len)
        })?;
        Ok(())
    }

    /// Waits for a page fault; returns whether there was one within `timeout`.
    pub fn is_wanted(&self, timeout: Duration) -> Result<bool> {
        Ok(poll_fd(&self.fd, libc::POLLIN, timeout)? & libc::POLLIN != 0)
    }

    /// Resolves the page fault with a page of zeroes.
    pub fn serve(&self) -> Result<()> {
        match self.ask(UFFDIO_ZEROPAGE, &mut self.range(0)) {
            Err(Errno::EEXIST) => Ok(()),
            result => result,
        }
    }
}

impl Drop for Unserved {
    fn drop(&mut self) {
        // SAFETY: by the type invariant the page is ours; no system call borrows `self` any more.
        let _ = unsafe { mm::munmap(self.page.wrapping_sub(page_size()).cast(), 2 * page_size()) };
    }
}
