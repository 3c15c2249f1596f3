// SPDX-License-Identifier: GPL-2.0

//! io_uring with operations that are submitted first and end later, in any order.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::io;
use std::mem;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::time::Duration;

use io_uring::cqueue;
use io_uring::opcode;
use io_uring::squeue::Entry;
use io_uring::squeue::Flags;
use io_uring::types::SubmitArgs;
use io_uring::types::Timespec;
use io_uring::IoUring;

use super::fd;
use crate::Errno;
use crate::Result;
use crate::Socket;

/// Buffers of the one group of provided buffers.
const PROVIDED: u16 = 16;

/// Length of each, bytes.
const PROVIDED_LEN: usize = 16;

const GROUP: u16 = 1;

/// Bytes of registered memory.
const REGISTERED_LEN: usize = 1 << 16;

/// An operation that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag(u64);

/// One completion.
#[derive(Debug)]
pub struct End {
    /// Of this operation.
    pub tag: Tag,
    /// What the call would have returned.
    pub result: Result<i32>,
    /// The operation goes on and will complete again.
    pub more: bool,
    /// There is more to receive or accept now.
    pub has_rest: bool,
    /// The kernel does not use the data of a zero-copy send any more.
    pub is_notice: bool,
    /// What was received.
    pub data: Vec<u8>,
    /// What was accepted.
    pub socket: Option<Socket>,
}

/// How an operation is submitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct How {
    /// The next operation begins when this one has succeeded.
    pub links: bool,
    /// The kernel waits until the socket is ready before it tries.
    pub polls_first: bool,
    /// `MSG_*`, for those that send and receive.
    pub flags: i32,
}

/// A ring, and the memory that its operations use.
pub struct Queue {
    ring: IoUring,
    /// Of the operations in flight.
    memory: BTreeMap<u64, Vec<u8>>,
    /// Those of them that accept.
    accepts: BTreeSet<u64>,
    provided: Vec<u8>,
    /// Memory that the kernel has pinned.
    registered: Vec<u8>,
    timeouts: BTreeMap<u64, Box<Timespec>>,
    last: u64,
    in_flight: usize,
}

impl Queue {
    /// Creates the rings; `ENOSYS` if the kernel does not support io_uring.
    pub fn new() -> Result<Self> {
        let mut queue = Self {
            // Completions do not interrupt other calls of the thread.
            ring: IoUring::builder()
                .setup_single_issuer()
                .setup_defer_taskrun()
                .build(32)?,
            memory: BTreeMap::new(),
            accepts: BTreeSet::new(),
            provided: vec![0; PROVIDED_LEN * usize::from(PROVIDED)],
            registered: vec![0; REGISTERED_LEN],
            timeouts: BTreeMap::new(),
            last: 0,
            in_flight: 0,
        };
        let registered = libc::iovec {
            iov_base: queue.registered.as_mut_ptr().cast(),
            iov_len: REGISTERED_LEN,
        };
        // SAFETY: the memory is valid as long as the ring: see `Drop`.
        unsafe { queue.ring.submitter().register_buffers(&[registered]) }?;
        // CAST: a small constant.
        let len = PROVIDED_LEN as i32;
        let entry =
            opcode::ProvideBuffers::new(queue.provided.as_mut_ptr(), len, PROVIDED, GROUP, 0);
        // SAFETY: the memory is valid as long as the ring: see `Drop`.
        unsafe { queue.submit(entry.build(), Vec::new(), How::default()) }?;
        match queue.next(Duration::from_secs(5))? {
            Some(end) => end.result.map(|_| queue),
            None => Err(Errno::ETIMEDOUT),
        }
    }

    /// Whether no operation is in flight.
    pub fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Submits an operation, which uses `memory` until it has ended.
    ///
    /// # Safety
    ///
    /// The pointers in `entry` must be into `memory`, or valid as long as the ring.
    unsafe fn submit(&mut self, entry: Entry, memory: Vec<u8>, how: How) -> Result<Tag> {
        self.last += 1;
        self.memory.insert(self.last, memory);
        let flags = match how.links {
            true => Flags::IO_LINK,
            false => Flags::empty(),
        };
        let entry = entry.user_data(self.last).flags(flags);
        // SAFETY: as the caller has it; `memory` is kept until the operation has ended.
        unsafe { self.ring.submission().push(&entry) }.map_err(|_| Errno::EBUSY)?;
        self.in_flight += 1;
        if !how.links {
            self.ring.submit()?;
        }
        Ok(Tag(self.last))
    }

    /// `recv(2)` of at most `len` bytes.
    pub fn recv(&mut self, socket: &Socket, len: usize, how: How) -> Result<Tag> {
        let mut memory = vec![0; len];
        // CAST: a test receives little.
        let entry = opcode::Recv::new(fd(socket), memory.as_mut_ptr(), len as u32);
        let entry = entry.flags(how.flags).ioprio(poll_first(how)).build();
        // SAFETY: the pointer is that of the memory, which does not move with the vector.
        unsafe { self.submit(entry, memory, how) }
    }

    /// `recv(2)` again and again, of what there is.
    pub fn recv_multi(&mut self, socket: &Socket) -> Result<Tag> {
        let entry = opcode::RecvMulti::new(fd(socket), GROUP).build();
        // SAFETY: the entry has no pointer; the provided memory is valid as long as the ring.
        unsafe { self.submit(entry, Vec::new(), How::default()) }
    }

    /// `send(2)`; does not raise SIGPIPE.
    pub fn send(&mut self, socket: &Socket, data: Vec<u8>, how: How) -> Result<Tag> {
        // CAST: a test sends less than 4 GiB.
        let entry = opcode::Send::new(fd(socket), data.as_ptr(), data.len() as u32);
        let entry = entry.flags(how.flags | libc::MSG_NOSIGNAL);
        let entry = entry.ioprio(poll_first(how)).build();
        // SAFETY: the pointer is that of the memory, which does not move with the vector.
        unsafe { self.submit(entry, data, how) }
    }

    /// The same without a copy: the data are in use until there was a notice, if one is announced by `more`.
    pub fn send_zero_copy(&mut self, socket: &Socket, data: Vec<u8>, how: How) -> Result<Tag> {
        // CAST: a test sends less than 4 GiB.
        let entry = opcode::SendZc::new(fd(socket), data.as_ptr(), data.len() as u32);
        let entry = entry.flags(how.flags | libc::MSG_NOSIGNAL).build();
        // SAFETY: the pointer is that of the memory, which does not move with the vector.
        unsafe { self.submit(entry, data, how) }
    }

    /// The same from registered memory, as much of the data as that has room for; one at a time.
    pub fn send_registered(&mut self, socket: &Socket, data: &[u8]) -> Result<Tag> {
        let len = data.len().min(REGISTERED_LEN);
        self.registered[..len].copy_from_slice(&data[..len]);
        // CAST: at most its length.
        let entry = opcode::SendZc::new(fd(socket), self.registered.as_ptr(), len as u32);
        let entry = entry.buf_index(Some(0)).flags(libc::MSG_WAITALL).build();
        // SAFETY: the memory is valid as long as the ring.
        unsafe { self.submit(entry, Vec::new(), How::default()) }
    }

    /// `accept(2)`, without the address.
    pub fn accept(&mut self, listener: &Socket) -> Result<Tag> {
        let null = std::ptr::null_mut();
        let entry = opcode::Accept::new(fd(listener), null, null.cast()).build();
        // SAFETY: the pointers are null.
        let tag = unsafe { self.submit(entry, Vec::new(), How::default()) }?;
        self.accepts.insert(tag.0);
        Ok(tag)
    }

    /// `accept(2)` again and again.
    pub fn accept_multi(&mut self, listener: &Socket) -> Result<Tag> {
        let entry = opcode::AcceptMulti::new(fd(listener)).build();
        // SAFETY: the entry has no pointer.
        let tag = unsafe { self.submit(entry, Vec::new(), How::default()) }?;
        self.accepts.insert(tag.0);
        Ok(tag)
    }

    /// `poll(2)`; again and again if `is_multi`.
    pub fn poll(&mut self, socket: &Socket, events: i16, is_multi: bool) -> Result<Tag> {
        // CAST: a set of bits.
        let entry = opcode::PollAdd::new(fd(socket), events as u32).multi(is_multi);
        // SAFETY: the entry has no pointer.
        unsafe { self.submit(entry.build(), Vec::new(), How::default()) }
    }

    /// Cancels the operation that this one is linked to, unless it ends in `time`.
    pub fn timeout_of_last(&mut self, time: Duration) -> Result<Tag> {
        let time = Timespec::new()
            .nsec(time.subsec_nanos())
            .sec(time.as_secs());
        let time = Box::new(time);
        let entry = opcode::LinkTimeout::new(&*time).build();
        self.timeouts.insert(self.last + 1, time);
        // SAFETY: the time is valid as long as the ring.
        unsafe { self.submit(entry, Vec::new(), How::default()) }
    }

    /// Cancels an operation.
    pub fn cancel(&mut self, tag: Tag) -> Result<Tag> {
        let entry = opcode::AsyncCancel::new(tag.0).build();
        // SAFETY: the entry has no pointer.
        unsafe { self.submit(entry, Vec::new(), How::default()) }
    }

    /// Returns the next completion, `None` if there is none in `time`.
    pub fn next(&mut self, time: Duration) -> Result<Option<End>> {
        let time = Timespec::new()
            .nsec(time.subsec_nanos())
            .sec(time.as_secs());
        loop {
            let ended = self.ring.completion().next();
            if let Some(entry) = ended {
                return Ok(Some(self.ended(&entry)));
            }
            let args = SubmitArgs::new().timespec(&time);
            match self.ring.submitter().submit_with_args(1, &args) {
                Err(error) if error.raw_os_error() == Some(libc::ETIME) => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => drop(done?),
            }
        }
    }

    fn ended(&mut self, entry: &cqueue::Entry) -> End {
        let (tag, value, flags) = (entry.user_data(), entry.result(), entry.flags());
        let more = cqueue::more(flags);
        let mut memory = Vec::new();
        let socket = self.accepts.contains(&tag) && value >= 0;
        // SAFETY: the kernel gave us this descriptor; nobody else owns it.
        let socket = socket.then(|| Socket::from(unsafe { OwnedFd::from_raw_fd(value) }));
        if !more {
            self.accepts.remove(&tag);
            self.timeouts.remove(&tag);
            self.in_flight -= 1;
            memory = self.memory.remove(&tag).unwrap_or_default();
        }
        let len = usize::try_from(value).unwrap_or(0);
        let data = match cqueue::buffer_select(flags) {
            Some(id) => {
                let at = usize::from(id) * PROVIDED_LEN;
                self.provided.get(at..at + len).map(<[u8]>::to_vec)
            }
            None => memory.get(..len).map(<[u8]>::to_vec),
        };
        End {
            tag: Tag(tag),
            result: match value {
                ..0 => Err(Errno(-value)),
                _ => Ok(value),
            },
            more,
            has_rest: cqueue::sock_nonempty(flags),
            is_notice: cqueue::notif(flags),
            data: data.unwrap_or_default(),
            socket,
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // The kernel ends the operations some time after the ring is closed.
        if self.in_flight > 0 {
            mem::forget(mem::take(&mut self.memory));
            mem::forget(mem::take(&mut self.timeouts));
            mem::forget(mem::take(&mut self.provided));
            mem::forget(mem::take(&mut self.registered));
        }
    }
}

/// `IORING_RECVSEND_POLL_FIRST`.
fn poll_first(how: How) -> u16 {
    u16::from(how.polls_first)
}
