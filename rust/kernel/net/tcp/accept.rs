// SPDX-License-Identifier: GPL-2.0

//! accept(2).
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::ptr::{
    self,
    NonNull, //
};

use kernel::error::to_result;

use super::{
    hook,
    option,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

impl TcpSocket {
    /// How many connections are pending for [`TcpSocket::accept`].
    /// Context: any; it may have changed when this returns.
    pub fn pending(&self) -> u32 {
        // SAFETY: The socket is alive; the field is read whole.
        unsafe { (&raw const (*self.sk_ptr()).sk_ack_backlog).read_volatile() }
    }

    /// Has TCP drop requests once more connections than `max` are pending. It has the same limit for requests, beyond
    /// which it sends SYN cookies.
    /// Context: any.
    pub fn set_max_pending(&self, max: u32) {
        // SAFETY: The socket is alive; the field is written whole.
        unsafe { (&raw mut (*self.sk_ptr()).sk_max_ack_backlog).write_volatile(max) };
    }

    /// Accepts a pending connection, without waiting for one.
    ///
    /// # Errors
    ///
    /// `EAGAIN` if there is none; TCP's otherwise.
    pub fn accept(&self) -> Result<Self> {
        // The kernel allocates the new socket first, with an inode.
        if !self.has_pending() && self.state().is_listening() {
            return Err(EAGAIN);
        }
        let mut socket = ptr::null_mut();
        // SAFETY: The socket is alive; `socket` is valid for writing.
        to_result(unsafe {
            bindings::kernel_accept(self.as_ptr(), &mut socket, bindings::O_NONBLOCK as i32)
        })?;
        // SAFETY: A new socket, which is ours.
        let child = unsafe { Self::from_socket(NonNull::new(socket).ok_or(EINVAL)?) };
        // Until the application accepts it, it is of the listener's user and has no inode, as with TCP.
        // SAFETY: The listener is alive.
        unsafe { child.show(self.sk_ptr(), 0) };
        hook::reset_inherited(&child);
        option::accepted(&child, self);
        Ok(child)
    }
}
