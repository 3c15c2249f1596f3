// SPDX-License-Identifier: GPL-2.0

//! io_uring: [`Ring`] with one operation at a time, which is submitted and waited for, and [`Queue`] with many.

mod command;
mod queue;

use std::io;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::ptr;

use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::types::Fd;
use io_uring::IoUring;

pub use command::Command;
pub use queue::End;
pub use queue::How;
pub use queue::Queue;
pub use queue::Tag;

use crate::messages::header;
use crate::names::Name;
use crate::names::Room;
use crate::Address;
use crate::Errno;
use crate::Result;
use crate::Socket;

/// An io_uring instance.
pub struct Ring(IoUring);

impl Ring {
    /// Creates the rings; `ENOSYS` if the kernel does not support io_uring.
    pub fn new() -> Result<Self> {
        Ok(Self(IoUring::new(4)?))
    }

    /// Submits an operation and waits for its completion.
    ///
    /// # Safety
    ///
    /// The pointers in `entry` must be valid for what the operation does with them.
    unsafe fn run(&mut self, entry: &Entry) -> Result<i32> {
        // SAFETY: as the caller has it.
        unsafe { self.run_flags(entry) }.map(|(value, _)| value)
    }

    /// As [`Self::run`]; returns the flags of the completion, too.
    ///
    /// # Safety
    ///
    /// As there.
    unsafe fn run_flags(&mut self, entry: &Entry) -> Result<(i32, u32)> {
        // SAFETY: what is in the entry is the caller's to vouch for, and is used until this returns only.
        unsafe { self.0.submission().push(entry) }.map_err(|_| Errno::EBUSY)?;
        loop {
            match self.0.submit_and_wait(1) {
                // A signal interrupted the wait; the entry was submitted.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => drop(done?),
            }
            let end = self.0.completion().next();
            match end.map(|end| (end.result(), end.flags())) {
                Some((error @ ..0, _)) => return Err(Errno(-error)),
                Some(end) => return Ok(end),
                None => {}
            }
        }
    }

    /// As [`Self::run`], for operations that return a length.
    ///
    /// # Safety
    ///
    /// As for [`Self::run`].
    unsafe fn run_len(&mut self, entry: &Entry) -> Result<usize> {
        // SAFETY: as the caller has it.
        unsafe { self.run(entry) }.map(|len| len as usize)
    }

    /// `accept4(2)`.
    pub fn accept(&mut self, socket: &Socket, flags: i32, room: Room) -> Result<(Socket, Name)> {
        Name::with(room, |addr, len| {
            let entry = opcode::Accept::new(fd(socket), addr, len).flags(flags);
            // SAFETY: the pointers are null or valid for writes until the operation has ended.
            let fd = unsafe { self.run(&entry.build()) }?;
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            Ok(Socket::from(unsafe { OwnedFd::from_raw_fd(fd) }))
        })
    }

    /// `accept(2)`; returns as well whether the kernel says that more connections wait (`IORING_CQE_F_SOCK_NONEMPTY`).
    pub fn accept_next(&mut self, socket: &Socket) -> Result<(Socket, bool)> {
        let entry = opcode::Accept::new(fd(socket), ptr::null_mut(), ptr::null_mut());
        // SAFETY: there are no pointers but null.
        let (fd, flags) = unsafe { self.run_flags(&entry.build()) }?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        let accepted = Socket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        Ok((accepted, cqueue::sock_nonempty(flags)))
    }

    /// `connect(2)`.
    pub fn connect(&mut self, socket: &Socket, address: impl Into<Address>) -> Result<()> {
        let address = address.into();
        let bytes = address.as_bytes();
        // CAST: at most 28.
        let (ptr, len) = (bytes.as_ptr().cast(), bytes.len() as u32);
        let entry = opcode::Connect::new(fd(socket), ptr, len).build();
        // SAFETY: the address is valid for reads of its length until the operation has ended.
        unsafe { self.run(&entry) }.map(drop)
    }

    /// `send(2)`; does not raise SIGPIPE.
    pub fn send(&mut self, socket: &Socket, data: &[u8], flags: i32) -> Result<usize> {
        // CAST: a test sends little.
        let entry = opcode::Send::new(fd(socket), data.as_ptr(), data.len() as u32);
        let entry = entry.flags(flags | libc::MSG_NOSIGNAL).build();
        // SAFETY: the data are valid for reads until the operation has ended.
        unsafe { self.run_len(&entry) }
    }

    /// `recv(2)`.
    pub fn recv(&mut self, socket: &Socket, buffer: &mut [u8], flags: i32) -> Result<usize> {
        // CAST: a test receives little.
        let entry = opcode::Recv::new(fd(socket), buffer.as_mut_ptr(), buffer.len() as u32);
        // SAFETY: the buffer is valid for writes until the operation has ended.
        unsafe { self.run_len(&entry.flags(flags).build()) }
    }

    /// `write(2)`.
    pub fn write(&mut self, socket: &Socket, data: &[u8]) -> Result<usize> {
        // CAST: a test sends little.
        let entry = opcode::Write::new(fd(socket), data.as_ptr(), data.len() as u32);
        // SAFETY: the data are valid for reads until the operation has ended.
        unsafe { self.run_len(&entry.build()) }
    }

    /// `read(2)`.
    pub fn read(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<usize> {
        // CAST: a test receives little.
        let entry = opcode::Read::new(fd(socket), buffer.as_mut_ptr(), buffer.len() as u32);
        // SAFETY: the buffer is valid for writes until the operation has ended.
        unsafe { self.run_len(&entry.build()) }
    }

    /// `sendmsg(2)` of one buffer.
    pub fn send_message(&mut self, socket: &Socket, data: &[u8]) -> Result<usize> {
        let mut part = [IoSlice::new(data)];
        let header = header(&mut part);
        let entry = opcode::SendMsg::new(fd(socket), &header);
        let entry = entry.flags(libc::MSG_NOSIGNAL as u32).build();
        // SAFETY: the header and what it names are valid until the operation has ended.
        unsafe { self.run_len(&entry) }
    }

    /// `recvmsg(2)` into one buffer.
    pub fn recv_message(&mut self, socket: &Socket, buffer: &mut [u8]) -> Result<usize> {
        let mut part = [IoSliceMut::new(buffer)];
        let mut header = header(&mut part);
        let entry = opcode::RecvMsg::new(fd(socket), &mut header).build();
        // SAFETY: the header and what it names are valid until the operation has ended.
        unsafe { self.run_len(&entry) }
    }

    /// Waits for events as `poll(2)` does, without timeout; returns the current events.
    pub fn poll(&mut self, socket: &Socket, events: i16) -> Result<i32> {
        // CAST: a set of bits.
        let entry = opcode::PollAdd::new(fd(socket), events as u32).build();
        // SAFETY: the operation takes no pointer.
        unsafe { self.run(&entry) }
    }

    /// `shutdown(2)`.
    pub fn shutdown(&mut self, socket: &Socket, how: i32) -> Result<()> {
        let entry = opcode::Shutdown::new(fd(socket), how).build();
        // SAFETY: the operation takes no pointer.
        unsafe { self.run(&entry) }.map(drop)
    }
}

fn fd(socket: &Socket) -> Fd {
    Fd(socket.as_raw_fd())
}
