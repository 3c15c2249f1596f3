// SPDX-License-Identifier: GPL-2.0

//! io_uring, one call at a time: each is submitted and waited for.
//!
//! Kernel header: `include/uapi/linux/io_uring.h`.

use std::mem;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::Ordering::Release;

use crate::check;
use crate::names::Name;
use crate::names::Room;
use crate::Address;
use crate::Errno;
use crate::Result;
use crate::Socket;

// Operations (`enum io_uring_op`).
const POLL_ADD: u8 = 6;
const SENDMSG: u8 = 9;
const RECVMSG: u8 = 10;
const ACCEPT: u8 = 13;
const CONNECT: u8 = 16;
const READ: u8 = 22;
const WRITE: u8 = 23;
const SEND: u8 = 26;
const RECV: u8 = 27;
const SHUTDOWN: u8 = 34;

/// What the kernel does, `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Entry {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    off: u64,
    addr: u64,
    len: u32,
    op_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// What came of it, `struct io_uring_cqe`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Completion {
    user_data: u64,
    result: i32,
    flags: u32,
}

/// Memory shared with the kernel.
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

impl Mapping {
    fn new(fd: &OwnedFd, len: usize, offset: i64) -> Result<Self> {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: no fixed address is asked for, so that nothing mapped before is touched.
        let base = unsafe { libc::mmap(ptr::null_mut(), len, prot, flags, fd.as_raw_fd(), offset) };
        if base == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        let base = NonNull::new(base.cast()).ok_or(Errno::EINVAL)?;
        Ok(Self { base, len })
    }

    /// The number at an offset in bytes.
    fn number(&self, offset: u32) -> Result<&AtomicU32> {
        let offset = offset as usize;
        if offset % 4 != 0 || offset + 4 > self.len {
            return Err(Errno::EINVAL);
        }
        // SAFETY: inside of the mapping, aligned, and written by the kernel as whole numbers only.
        Ok(unsafe { &*self.base.as_ptr().add(offset).cast::<AtomicU32>() })
    }

    /// Where a `T` at an offset in bytes lies.
    fn place<T>(&self, offset: usize) -> Result<*mut T> {
        if offset % mem::align_of::<T>() != 0 || offset + mem::size_of::<T>() > self.len {
            return Err(Errno::EINVAL);
        }
        // SAFETY: inside of the mapping.
        Ok(unsafe { self.base.as_ptr().add(offset) }.cast())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length, and nothing points into it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// `struct io_uring_params`, in numbers of 32 bits.
type Params = [u32; 30];

// Places in it.
const SQ_TAIL: usize = 11;
const SQ_MASK: usize = 12;
const SQ_ARRAY: usize = 16;
const CQ_HEAD: usize = 20;
const CQ_TAIL: usize = 21;
const CQ_MASK: usize = 22;
const CQ_CQES: usize = 25;

/// A pair of rings.
pub struct Ring {
    fd: OwnedFd,
    params: Params,
    submissions: Mapping,
    completions: Mapping,
    entries: Mapping,
}

impl Ring {
    /// Makes the rings: `ENOSYS` if the kernel has none.
    pub fn new() -> Result<Self> {
        const ENTRIES: u32 = 4;
        let mut params: Params = [0; 30];
        // SAFETY: `params` is valid for reads and writes of `struct io_uring_params`, which has 120 bytes.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, params.as_mut_ptr()) };
        let fd = check(fd as i32)?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let [sq_entries, cq_entries, ..] = params;
        let sq_len = params[SQ_ARRAY] as usize + sq_entries as usize * 4;
        let cq_len = params[CQ_CQES] as usize + cq_entries as usize * mem::size_of::<Completion>();
        let entries_len = sq_entries as usize * mem::size_of::<Entry>();
        Ok(Self {
            submissions: Mapping::new(&fd, sq_len, 0)?,
            completions: Mapping::new(&fd, cq_len, 0x0800_0000)?,
            entries: Mapping::new(&fd, entries_len, 0x1000_0000)?,
            fd,
            params,
        })
    }

    /// Has the kernel carry out one operation and waits for its end.
    ///
    /// # Safety
    ///
    /// The pointers in `entry` must be valid for what the operation does with them.
    unsafe fn run(&mut self, entry: Entry) -> Result<i32> {
        let tail = self.submissions.number(self.params[SQ_TAIL])?;
        let at = tail.load(Acquire) & self.submissions.number(self.params[SQ_MASK])?.load(Acquire);
        let place = self
            .entries
            .place::<Entry>(at as usize * mem::size_of::<Entry>())?;
        // SAFETY: a free entry, since the one before was waited for.
        unsafe { place.write(entry) };
        let array = self.submissions.number(self.params[SQ_ARRAY] + at * 4)?;
        array.store(at, Release);
        tail.store(tail.load(Acquire).wrapping_add(1), Release);
        self.enter(1)?;

        let head = self.completions.number(self.params[CQ_HEAD])?;
        let now = head.load(Acquire);
        while self.completions.number(self.params[CQ_TAIL])?.load(Acquire) == now {
            self.enter(0)?;
        }
        let at = now & self.completions.number(self.params[CQ_MASK])?.load(Acquire);
        let offset = self.params[CQ_CQES] as usize + at as usize * mem::size_of::<Completion>();
        let place = self.completions.place::<Completion>(offset)?;
        // SAFETY: the kernel has written it before it moved the tail.
        let completion = unsafe { place.read() };
        head.store(now.wrapping_add(1), Release);
        match completion.result {
            error @ ..0 => Err(Errno(-error)),
            value => Ok(value),
        }
    }

    /// Submits what is there and waits for an end.
    fn enter(&self, submit: u32) -> Result<()> {
        const GETEVENTS: u32 = 1;
        let (fd, null) = (self.fd.as_raw_fd(), ptr::null::<u8>());
        // SAFETY: no signal mask is passed; entries that are submitted are the caller's to vouch for.
        let done =
            unsafe { libc::syscall(libc::SYS_io_uring_enter, fd, submit, 1, GETEVENTS, null, 0) };
        match check(done as i32) {
            // A signal met the wait, after the submission.
            Err(Errno::EINTR) | Ok(_) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn entry(opcode: u8, socket: &Socket) -> Entry {
        Entry {
            opcode,
            fd: socket.as_raw_fd(),
            ..Entry::default()
        }
    }

    /// `accept4(2)`.
    pub fn accept(&mut self, socket: &Socket, flags: i32, room: Room) -> Result<(Socket, Name)> {
        Name::with(room, |addr, len| {
            let entry = Entry {
                addr: addr as u64,
                off: len as u64,
                // CAST: a set of bits.
                op_flags: flags as u32,
                ..Self::entry(ACCEPT, socket)
            };
            // SAFETY: the pointers are null or valid for writes until the operation has ended.
            let fd = unsafe { self.run(entry) }?;
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            Ok(Socket::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// `connect(2)`.
    pub fn connect(&mut self, socket: &Socket, address: impl Into<Address>) -> Result<()> {
        let address = address.into();
        let bytes = address.as_bytes();
        let entry = Entry {
            addr: bytes.as_ptr() as u64,
            off: bytes.len() as u64,
            ..Self::entry(CONNECT, socket)
        };
        // SAFETY: the address is valid for reads of its length until the operation has ended.
        unsafe { self.run(entry) }.map(|_| ())
    }

    fn send_by(&mut self, opcode: u8, socket: &Socket, data: &[u8], flags: i32) -> Result<usize> {
        let entry = Entry {
            addr: data.as_ptr() as u64,
            // CAST: a test sends little.
            len: data.len() as u32,
            op_flags: flags as u32,
            ..Self::entry(opcode, socket)
        };
        // SAFETY: the data are valid for reads until the operation has ended.
        unsafe { self.run(entry) }.map(|len| len as usize)
    }

    fn recv_by(&mut self, opcode: u8, socket: &Socket, to: &mut [u8], flags: i32) -> Result<usize> {
        let entry = Entry {
            addr: to.as_mut_ptr() as u64,
            // CAST: a test receives little.
            len: to.len() as u32,
            op_flags: flags as u32,
            ..Self::entry(opcode, socket)
        };
        // SAFETY: the buffer is valid for writes until the operation has ended.
        unsafe { self.run(entry) }.map(|len| len as usize)
    }

    /// `send(2)`. Raises no signal.
    pub fn send(&mut self, socket: &Socket, data: &[u8], flags: i32) -> Result<usize> {
        self.send_by(SEND, socket, data, flags | libc::MSG_NOSIGNAL)
    }

    /// `recv(2)`.
    pub fn recv(&mut self, socket: &Socket, buffer: &mut [u8], flags: i32) -> Result<usize> {
        self.recv_by(RECV, socket, buffer, flags)
    }

    /// `write(2)`.
    pub fn write(&mut self, socket: &Socket, data: &[u8]) -> Result<usize> {
        self.send_by(WRITE, socket, data, 0)
    }

    /// `read(2)`.
    pub fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<usize> {
        self.recv_by(READ, socket, buffer, 0)
    }

    /// `sendmsg(2)` of one buffer.
    pub fn send_message(&mut self, socket: &Socket, data: &[u8]) -> Result<usize> {
        let base = data.as_ptr().cast_mut();
        self.message(SENDMSG, socket, base, data.len())
    }

    /// `recvmsg(2)` into one buffer.
    pub fn recv_message(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<usize> {
        self.message(RECVMSG, socket, buffer.as_mut_ptr(), buffer.len())
    }

    /// The callers pass a buffer that is valid for what the operation does with it.
    fn message(&mut self, opcode: u8, socket: &Socket, base: *mut u8, len: usize) -> Result<usize> {
        let mut vector = libc::iovec {
            iov_base: base.cast(),
            iov_len: len,
        };
        // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        let entry = Entry {
            addr: &raw mut header as u64,
            len: 1,
            op_flags: libc::MSG_NOSIGNAL as u32,
            ..Self::entry(opcode, socket)
        };
        // SAFETY: the header and what it names are valid until the operation has ended.
        unsafe { self.run(entry) }.map(|len| len as usize)
    }

    /// Waits for events as `poll(2)` does, without limit, and returns those there are.
    pub fn poll(&mut self, socket: &Socket, events: i16) -> Result<i32> {
        let entry = Entry {
            // CAST: a set of bits.
            op_flags: events as u32,
            ..Self::entry(POLL_ADD, socket)
        };
        // SAFETY: the operation takes no pointer.
        unsafe { self.run(entry) }
    }

    /// `shutdown(2)`.
    pub fn shutdown(&mut self, socket: &Socket, how: i32) -> Result<()> {
        let entry = Entry {
            // CAST: a small number, or one that the kernel refuses.
            len: how as u32,
            ..Self::entry(SHUTDOWN, socket)
        };
        // SAFETY: the operation takes no pointer.
        unsafe { self.run(entry) }.map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_have_the_kernels_sizes() {
        assert_eq!(mem::size_of::<Entry>(), 64);
        assert_eq!(mem::size_of::<Completion>(), 16);
        assert_eq!(mem::size_of::<Params>(), 120);
    }
}
