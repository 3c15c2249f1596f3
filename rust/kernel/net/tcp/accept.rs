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
    /// Limits the connections pending for [`TcpSocket::accept`], together with the `others` that wait elsewhere, to
    /// those that a listener with this backlog may have. TCP has the same limit for its requests, beyond which it sends
    /// SYN cookies: so it is not lowered as long as there is room. To be called whenever either number has changed.
    /// Context: any.
    pub fn limit_backlog(&self, backlog: u32, others: u32) {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the field is read whole.
        let pending = unsafe { (&raw const (*sk).sk_ack_backlog).read_volatile() };
        let limit = match pending.saturating_add(others) > backlog {
            true => backlog.saturating_sub(others),
            false => backlog,
        };
        // SAFETY: The socket is alive; the field is written whole.
        unsafe { (&raw mut (*sk).sk_max_ack_backlog).write_volatile(limit) };
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
