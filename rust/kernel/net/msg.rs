// SPDX-License-Identifier: GPL-2.0

//! The message of one sendmsg or recvmsg call.
//!
//! C header: [`include/linux/socket.h`](srctree/include/linux/socket.h)

use core::{
    ffi::c_void,
    marker::PhantomData, //
};

use kernel::error::to_result;

use super::{
    Sk,
    SockAddr, //
};
use crate::{
    bindings,
    prelude::*,
    window::{
        self,
        Window, //
    }, //
};

pub use bindings::{
    MSG_DONTWAIT,
    MSG_ERRQUEUE,
    MSG_FASTOPEN,
    MSG_MORE,
    MSG_NOSIGNAL,
    MSG_OOB,
    MSG_PEEK,
    MSG_TRUNC,
    MSG_WAITALL, //
};

/// A `struct msghdr` with the application's buffers.
///
/// # Invariants
///
/// The pointer is valid for `'a`, nothing else uses the message meanwhile, and its iterator has the direction of the
/// call (source for sendmsg, destination for recvmsg).
pub struct Msg<'a> {
    ptr: *mut bindings::msghdr,
    direction: MsgDirection,
    _msg: PhantomData<&'a mut bindings::msghdr>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum MsgDirection {
    Send,
    Recv,
}

impl Msg<'_> {
    /// # Safety
    ///
    /// `ptr` must be valid for the lifetime of the result, used by nothing else meanwhile, and its iterator must have
    /// the direction `direction`.
    pub(super) unsafe fn from_ptr(ptr: *mut bindings::msghdr, direction: MsgDirection) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            ptr,
            direction,
            _msg: PhantomData,
        }
    }

    /// The message, for a call of that direction.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is of the other one.
    pub(super) fn ptr_for(&mut self, direction: MsgDirection) -> Result<*mut bindings::msghdr> {
        self.expect(direction)?;
        Ok(self.ptr)
    }

    fn expect(&self, direction: MsgDirection) -> Result {
        match self.direction == direction {
            true => Ok(()),
            false => Err(EINVAL),
        }
    }

    fn iter(&mut self) -> *mut bindings::iov_iter {
        // SAFETY: By the type invariant the message is valid.
        unsafe { &raw mut (*self.ptr).msg_iter }
    }

    /// Bytes that remain to be copied.
    #[expect(
        clippy::len_without_is_empty,
        reason = "a count of work left, not a container"
    )]
    #[inline]
    pub fn len(&self) -> usize {
        // SAFETY: By the type invariant the message is valid, and its iterator is not of the kind that only counts.
        unsafe {
            let kinds = &(*self.ptr).msg_iter.__bindgen_anon_1;
            kinds.__bindgen_anon_1.as_ref().count
        }
    }

    /// The `MSG_*` flags; for recvmsg those of the call are given separately.
    #[inline]
    pub fn flags(&self) -> u32 {
        // SAFETY: By the type invariant the message is valid.
        unsafe { (*self.ptr).msg_flags }
    }

    fn add_flags(&mut self, flags: u32) {
        // SAFETY: By the type invariant the message is valid and ours.
        unsafe { (*self.ptr).msg_flags |= flags };
    }

    /// Marks the received byte as urgent (MSG_OOB).
    pub fn set_oob(&mut self) {
        self.add_flags(bindings::MSG_OOB);
    }

    /// Sets MSG_TRUNC: there was more data than was received.
    pub fn set_truncated(&mut self) {
        self.add_flags(bindings::MSG_TRUNC);
    }

    /// Sets MSG_NOSIGNAL: `EPIPE` comes without SIGPIPE.
    pub fn set_nosignal(&mut self) {
        self.add_flags(bindings::MSG_NOSIGNAL);
    }

    /// Clears MSG_FASTOPEN: the data are sent as without it.
    pub fn clear_fast_open(&mut self) {
        // SAFETY: By the type invariant the message is valid and ours.
        unsafe { (*self.ptr).msg_flags &= !bindings::MSG_FASTOPEN };
    }

    /// Whether the application has passed control data.
    #[inline]
    pub fn has_control(&self) -> bool {
        // SAFETY: By the type invariant the message is valid.
        unsafe { (*self.ptr).msg_controllen != 0 }
    }

    /// The address family of the destination, `None` if the application names none.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the address is too short to have one.
    pub fn family(&self) -> Result<Option<u16>> {
        // SAFETY: By the type invariant the message is valid.
        let (name, len) = unsafe { ((*self.ptr).msg_name, (*self.ptr).msg_namelen) };
        if name.is_null() || self.direction != MsgDirection::Send {
            return Ok(None);
        }
        // SAFETY: The kernel has copied so many bytes of an address to there, for the time of the call.
        let addr = unsafe { SockAddr::new(name.cast(), len) };
        addr.family().map(Some).ok_or(EINVAL)
    }

    /// Checks the control data of a message to be sent, as TCP does: known ones have no effect without packets, unknown
    /// ones are rejected.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for unknown control data, and for a message that is to be received; `EPERM`.
    pub fn check_control(&mut self, sk: &Sk) -> Result {
        // Those of the other direction are room in the application's memory.
        self.expect(MsgDirection::Send)?;
        if !self.has_control() {
            return Ok(());
        }
        let mut known = bindings::sockcm_cookie::default();
        // SAFETY: By the type invariant, with control data that the kernel has copied; the socket is alive.
        to_result(unsafe { bindings::sock_cmsg_send(sk.as_ptr(), self.ptr, &mut known) })
    }

    /// Adds control data with the number of bytes left to read after this message (TCP_CM_INQ), if that is received.
    /// Context: may sleep.
    pub fn put_inq(&mut self, bytes: i32) {
        if self.direction != MsgDirection::Recv {
            return;
        }
        let level = bindings::SOL_TCP as c_int;
        let kind = bindings::TCP_CM_INQ as c_int;
        let len = size_of_val(&bytes) as c_int;
        let data = (&raw const bytes).cast_mut().cast();
        // SAFETY: By the type invariant; `data` is an int, which is only read.
        unsafe { bindings::put_cmsg(self.ptr, level, kind, len, data) };
    }

    /// Whether the caller wants to know how many bytes are left to read after this message, as io_uring does.
    #[inline]
    pub fn wants_inq(&self) -> bool {
        // SAFETY: By the type invariant the message is valid.
        unsafe { (*self.ptr).msg_get_inq() }
    }

    /// Says how many bytes are left to read after this message.
    pub fn set_inq(&mut self, bytes: i32) {
        // SAFETY: By the type invariant the message is valid and ours.
        unsafe { (*self.ptr).msg_inq = bytes };
    }

    /// Sets the sender's address to empty.
    pub fn clear_name(&mut self) {
        // SAFETY: By the type invariant the message is valid and ours.
        unsafe { (*self.ptr).msg_namelen = 0 };
    }

    /// Copies data from the application into `dst`; returns the number of bytes copied, which is below `len` if there
    /// is no more or the memory cannot be read.
    /// Context: may sleep.
    pub fn copy_from_user<W: Window + ?Sized>(
        &mut self,
        dst: &W,
        offset: usize,
        len: usize,
    ) -> usize {
        if self.direction != MsgDirection::Send {
            return 0;
        }
        let (to, len) = window::range(dst, offset, len);
        // SAFETY: `to` is valid for writing `len` bytes; the iterator is a source.
        unsafe { bindings::_copy_from_iter(to.cast(), len, self.iter()) }
    }

    /// Copies `len` bytes from the application into `dst` without waiting for memory that is not present. Returns
    /// false, and leaves the message as it was, if not all of them could be copied.
    /// Context: does not sleep.
    pub fn copy_from_user_nofault<W: Window + ?Sized>(
        &mut self,
        dst: &W,
        offset: usize,
        len: usize,
    ) -> bool {
        // SAFETY: Always safe to call; undone below.
        unsafe { bindings::pagefault_disable() };
        let copied = self.copy_from_user(dst, offset, len);
        // SAFETY: Page faults of this task were disabled above.
        unsafe { bindings::pagefault_enable() };
        if copied < len && copied > 0 {
            // SAFETY: The iterator is valid and was advanced by `copied` bytes.
            unsafe { bindings::iov_iter_revert(self.iter(), copied) };
        }
        copied == len
    }

    /// Reads `len` bytes of the application and forgets them. Returns false, and leaves the message as it was, if not
    /// all of them can be read.
    /// Context: may sleep.
    pub fn read_away(&mut self, len: usize) -> bool {
        if self.direction != MsgDirection::Send {
            return false;
        }
        let mut scratch = [0u8; 256];
        let mut done = 0;
        while done < len {
            let part = scratch.len().min(len - done);
            // SAFETY: `scratch` is valid for writing `part` bytes; the iterator is a source.
            let copied = unsafe {
                bindings::_copy_from_iter(scratch.as_mut_ptr().cast(), part, self.iter())
            };
            done += copied;
            if copied < part {
                // SAFETY: The iterator is valid and was advanced by `done` bytes.
                unsafe { bindings::iov_iter_revert(self.iter(), done) };
                return false;
            }
        }
        true
    }

    /// Copies `src` to the application; returns the number of bytes copied, which is below `len` if there is no more
    /// room or the memory cannot be written.
    /// Context: may sleep.
    pub fn copy_to_user<W: Window + ?Sized>(
        &mut self,
        src: &W,
        offset: usize,
        len: usize,
    ) -> usize {
        let (from, len) = window::range(src, offset, len);
        self.copy_out(from.cast_const().cast(), len)
    }

    /// Copies `bytes` to the application.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if not all of them could be copied.
    pub fn copy_bytes_to_user(&mut self, bytes: &[u8]) -> Result {
        if self.copy_out(bytes.as_ptr().cast(), bytes.len()) < bytes.len() {
            return Err(EFAULT);
        }
        Ok(())
    }

    fn copy_out(&mut self, from: *const c_void, len: usize) -> usize {
        if self.direction != MsgDirection::Recv {
            return 0;
        }
        // SAFETY: The callers pass memory that is valid for reading `len` bytes; the iterator is a
        // destination.
        unsafe { bindings::_copy_to_iter(from, len, self.iter()) }
    }

    /// Skips room for `len` bytes without copying; returns how much there was.
    pub fn skip(&mut self, len: usize) -> usize {
        let len = len.min(self.len());
        // SAFETY: The iterator is valid and has `len` bytes.
        unsafe { bindings::iov_iter_advance(self.iter(), len) };
        len
    }
}
