// SPDX-License-Identifier: GPL-2.0

//! What the application's socket shows of the TCP socket below, where the kernel reads options from the former.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use super::{
    Sk,
    TcpSocket, //
};
use crate::bindings;

impl Sk {
    /// Copies device, mark and priority of an accepted TCP connection.
    pub fn take_marks(&self, tcp: &TcpSocket) {
        self.set_marks(tcp.marks());
    }

    /// Has the cookie of a new socket be that of `tcp`, as [`TcpSocket::take_cookie`].
    pub fn take_cookie(&self, tcp: &TcpSocket) {
        // SAFETY: Both sockets are alive.
        unsafe { share_cookie(tcp.sk_ptr(), self.as_ptr()) };
    }

    /// Has SO_PRIORITY be that of `tcp` as it is now.
    pub fn take_priority(&self, tcp: &TcpSocket) {
        let (_, _, priority) = tcp.marks();
        // SAFETY: The socket is alive; the field is a plain integer, which the kernel writes whole, too.
        unsafe { (&raw mut (*self.option_sk()).sk_priority).write_volatile(priority) };
    }

    /// Has SO_INCOMING_CPU and SO_INCOMING_NAPI_ID, by which poll(2) polls the device, be those of `tcp` as they are
    /// now.
    /// Context: any.
    #[inline]
    pub fn show_incoming(&self, tcp: &TcpSocket) {
        // It has no name here that does not depend on the order of unions in the structure.
        // CAST: An offset.
        const INCOMING_CPU: usize = bindings::smc_layout_SMC_OFFSETOF_SK_INCOMING_CPU as usize;
        let (to, from) = (self.option_sk(), tcp.sk_ptr());
        // SAFETY: Both sockets are alive; the field is an `int` at that offset, which is read and written whole.
        unsafe {
            let cpu = from.byte_add(INCOMING_CPU).cast::<u32>();
            show(cpu, to.byte_add(INCOMING_CPU).cast());
        }
        // SAFETY: As above.
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        unsafe {
            show(&raw const (*from).sk_napi_id, &raw mut (*to).sk_napi_id)
        };
    }
}

impl TcpSocket {
    /// Has the socket's cookie be that of `front`: SO_COOKIE is read there, while BPF programs and lists of sockets
    /// find the connection by that of TCP.
    pub(super) fn take_cookie(&self, front: &Sk) {
        // SAFETY: Both sockets are alive.
        unsafe { share_cookie(front.option_sk(), self.sk_ptr()) };
    }
}

/// Has two sockets have one cookie, that of `from`.
///
/// # Safety
///
/// Both must be alive, and nobody may have asked for the cookie of `to`.
unsafe fn share_cookie(from: *mut bindings::sock, to: *mut bindings::sock) {
    let mut halves = [0; 2];
    // SAFETY: By the caller's promise; the function writes two numbers.
    unsafe { bindings::sock_diag_save_cookie(from, halves.as_mut_ptr()) };
    let [low, high] = halves;
    let cookie = i64::from(high) << 32 | i64::from(low);
    // SAFETY: As above. The kernel reads the field whole, and writes it only where it is zero.
    unsafe { (&raw mut (*to).__sk_common.skc_cookie.counter).write_volatile(cookie) };
}

/// Copies a number unless it is the same, as it mostly is: the cache line then stays clean.
///
/// # Safety
///
/// `from` must be valid for reading, and `to` for reading and writing, by others as well, whole.
#[inline(always)]
unsafe fn show(from: *const u32, to: *mut u32) {
    // SAFETY: By the caller's promise.
    unsafe {
        let now = from.read_volatile();
        if to.read_volatile() != now {
            to.write_volatile(now);
        }
    }
}
