// SPDX-License-Identifier: GPL-2.0

//! System calls that TCP handles.

use core::ptr;

use kernel::error::to_result;

use super::{
    length,
    op,
    option,
    TcpSocket, //
};
use crate::{
    bindings,
    net::{
        msg::MsgDirection,
        Msg,
        SockAddrBuf,
        SockOptIn,
        SockOptOut, //
    },
    prelude::*, //
};

impl TcpSocket {
    /// sendmsg(2).
    ///
    /// # Errors
    ///
    /// TCP's; `EINVAL` if the message is one of recvmsg(2).
    #[inline]
    pub fn sendmsg(&self, msg: &mut Msg<'_>) -> Result<usize> {
        let sendmsg = op!(self, sendmsg);
        let (len, msg) = (msg.len(), msg.ptr_for(MsgDirection::Send)?);
        // SAFETY: The socket is alive, the message valid and to be sent.
        length(unsafe { sendmsg(self.as_ptr(), msg, len) })
    }

    /// recvmsg(2).
    ///
    /// # Errors
    ///
    /// TCP's; `EINVAL` if the message is one of sendmsg(2).
    #[inline]
    pub fn recvmsg(&self, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
        let recvmsg = op!(self, recvmsg);
        let (len, msg) = (msg.len(), msg.ptr_for(MsgDirection::Recv)?);
        // SAFETY: The socket is alive, the message valid and to be received.
        length(unsafe { recvmsg(self.as_ptr(), msg, len, flags as i32) })
    }

    /// The end of the data of sendfile(2) or splice(2): TCP stops holding data back.
    /// Context: may sleep.
    pub fn splice_eof(&self) {
        let ptr = self.as_ptr();
        // SAFETY: By the type invariant the socket is alive and has a table.
        if let Some(splice_eof) = unsafe { (*(*ptr).ops).splice_eof } {
            // SAFETY: The socket is alive.
            unsafe { splice_eof(ptr) };
        }
    }

    /// Returns the current poll(2) bits; registers no wake-up.
    pub fn poll(&self) -> u32 {
        let ptr = self.as_ptr();
        // SAFETY: By the type invariant the socket is alive and has a table.
        let Some(poll) = (unsafe { (*(*ptr).ops).poll }) else {
            return 0;
        };
        // SAFETY: The socket is alive; without a table the file is not accessed.
        unsafe { poll(ptr::null_mut(), ptr, ptr::null_mut()) }
    }

    /// ioctl(2).
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn ioctl(&self, cmd: u32, arg: usize) -> Result<i32> {
        let ioctl = op!(self, ioctl);
        // SAFETY: The socket is alive; the argument is the application's and checked by TCP.
        let ret = unsafe { ioctl(self.as_ptr(), cmd, arg) };
        to_result(ret).map(|()| ret)
    }

    /// ioctl(2) of a command that asks for a number, such as SIOCINQ.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// TCP's; `ENOIOCTLCMD` for all other commands.
    pub fn ioctl_number(&self, cmd: u32) -> Result<i32> {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive. TLS replaces the record after a fallback; each is valid as long as the socket.
        let ioctl = unsafe { (*(&raw const (*sk).__sk_common.skc_prot).read_volatile()).ioctl };
        let ioctl = ioctl.ok_or(ENOIOCTLCMD)?;
        let mut number = 0;
        // CAST: A set of bits.
        // SAFETY: The socket is alive, and there is a place for the number.
        to_result(unsafe { ioctl(sk, cmd as i32, &mut number) })?;
        Ok(number)
    }

    /// ioctl(2) of a task of another word size.
    ///
    /// # Errors
    ///
    /// TCP's.
    #[cfg(CONFIG_COMPAT)]
    pub(in crate::net) fn compat_ioctl(&self, cmd: u32, arg: usize) -> Result<i32> {
        let ioctl = op!(self, compat_ioctl);
        // SAFETY: As in `ioctl`.
        let ret = unsafe { ioctl(self.as_ptr(), cmd, arg) };
        to_result(ret).map(|()| ret)
    }

    /// The SIOCGSTAMP family of ioctls.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub(in crate::net) fn gettstamp(
        &self,
        stamp: *mut core::ffi::c_void,
        timeval: bool,
        time32: bool,
    ) -> Result {
        let gettstamp = op!(self, gettstamp);
        // SAFETY: The socket is alive; the pointer is the application's and checked by TCP.
        to_result(unsafe { gettstamp(self.as_ptr(), stamp, timeval, time32) })
    }

    /// setsockopt(2), also of SOL_SOCKET options.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn setsockopt(&self, level: i32, name: i32, value: SockOptIn<'_>) -> Result {
        if level == bindings::SOL_SOCKET as i32 {
            // SAFETY: The socket is alive; the value is valid for its length.
            return to_result(unsafe {
                bindings::sock_setsockopt(self.as_ptr(), level, name, value.ptr, value.len)
            });
        }
        let setsockopt = op!(self, setsockopt);
        option::with_own_save_syn(self, level, name, || {
            // SAFETY: As above.
            to_result(unsafe { setsockopt(self.as_ptr(), level, name, value.ptr, value.len) })
        })
    }

    /// getsockopt(2), not of SOL_SOCKET options.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn getsockopt(&self, level: i32, name: i32, out: SockOptOut) -> Result {
        let getsockopt = op!(self, getsockopt);
        option::with_own_save_syn(self, level, name, || {
            // SAFETY: The socket is alive; the pointers are the application's and checked by TCP.
            to_result(unsafe { getsockopt(self.as_ptr(), level, name, out.value, out.len) })
        })
    }

    /// getsockname(2), or with `peer` getpeername(2). Returns the length of the address.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn getname(&self, name: &mut SockAddrBuf<'_>, peer: i32) -> Result<i32> {
        let getname = op!(self, getname);
        // SAFETY: The socket is alive, the buffer large enough for every address.
        let ret = unsafe { getname(self.as_ptr(), name.ptr, peer) };
        to_result(ret).map(|()| ret)
    }

    /// mmap(2), for zero-copy receive.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub(in crate::net) fn mmap(
        &self,
        file: *mut bindings::file,
        vma: *mut bindings::vm_area_struct,
    ) -> Result {
        let mmap = op!(self, mmap);
        // SAFETY: The socket is alive; file and area come from the caller of mmap.
        to_result(unsafe { mmap(file, self.as_ptr(), vma) })
    }
}
