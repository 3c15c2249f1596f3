// SPDX-License-Identifier: GPL-2.0

//! The module's tracepoints, which are those of the C module.
//!
//! A disabled one costs a no-op instruction: its arguments are not evaluated. Addresses only distinguish objects, and
//! are printed as hashes.
//!
//! C headers: [`include/linux/tracepoint.h`](srctree/include/linux/tracepoint.h), `include/trace/events/smc.h`
//!
//! `kernel::tracepoint::declare_trace!` expects a tracepoint in the kernel's own bindings, which lack those of a
//! module, and evaluates its arguments before it checks the key.

use core::{
    ffi::c_void,
    ptr, //
};

use kernel::ffi::c_char;

use crate::{
    bindings,
    ib::Name,
    net::{
        Sk,
        TcpSocket, //
    }, //
};

/// Whether a tracepoint is enabled, by its static key.
#[cfg(CONFIG_TRACEPOINTS)]
macro_rules! is_on {
    ($tracepoint:ident) => {{
        #[cfg(CONFIG_JUMP_LABEL)]
        // SAFETY: The tracepoint is defined in C, so its key is a static key.
        let is_on = unsafe {
            kernel::jump_label::arch_static_branch! {
                bindings::$tracepoint, bindings::tracepoint, key, false
            }
        };
        #[cfg(not(CONFIG_JUMP_LABEL))]
        // SAFETY: As above. The key's first word is the count of users, which changes at any time.
        let is_on = unsafe {
            ptr::addr_of!(bindings::$tracepoint.key)
                .cast::<i32>()
                .read_volatile()
                > 0
        };
        is_on
    }};
}

/// Without tracepoints none is.
#[cfg(not(CONFIG_TRACEPOINTS))]
macro_rules! is_on {
    ($tracepoint:ident) => {
        false
    };
}

/// `len` bytes were taken from an application to be sent. `device` returns the name of the link's RDMA device,
/// if there is one.
/// Context: any that it may be called in.
#[inline(always)]
pub fn tx_sendmsg(sk: &Sk, len: usize, device: impl FnOnce() -> Option<Name>) {
    if is_on!(__tracepoint_smc_tx_sendmsg) {
        message(bindings::trace_tx_sendmsg, sk, len, device());
    }
}

/// `len` bytes were passed to an application. Otherwise as [`tx_sendmsg`].
#[inline(always)]
pub fn rx_recvmsg(sk: &Sk, len: usize, device: impl FnOnce() -> Option<Name>) {
    if is_on!(__tracepoint_smc_rx_recvmsg) {
        message(bindings::trace_rx_recvmsg, sk, len, device());
    }
}

type TraceFn = unsafe extern "C" fn(*const c_void, u64, usize, *const c_char, usize);

#[cold]
fn message(emit: TraceFn, sk: &Sk, len: usize, device: Option<Name>) {
    let name = device.as_ref().map_or(&[][..], Name::as_bytes);
    let (text, text_len) = (name.as_ptr().cast(), name.len());
    // SAFETY: The name is valid for reads of its length; the address is not followed.
    unsafe { emit(sk.as_ptr().cast(), sk.netns_cookie(), len, text, text_len) };
}

/// TCP handles a socket's data from now on.
/// Context: any.
#[inline(always)]
pub fn switch_to_fallback(sk: &Sk, tcp: &TcpSocket, reason: u32) {
    if is_on!(__tracepoint_smc_switch_to_fallback) {
        let (sk_address, tcp_address) = (sk.as_ptr().cast(), tcp.sk_ptr().cast());
        // CAST: The C module shows the number as signed, too.
        let reason = reason as i32;
        // SAFETY: The addresses are not followed.
        unsafe { bindings::trace_fallback(sk_address, tcp_address, sk.netns_cookie(), reason) };
    }
}

/// Data of the event of a link that went down.
pub struct LinkDown {
    /// The address of its link group.
    pub group: usize,
    /// The cookie of the group's network namespace.
    pub net_cookie: u64,
    /// The link's state, as shown to user space.
    pub state: u8,
    /// The name of the link's RDMA device.
    pub device: Option<Name>,
}

/// The link at an address went down. The event shows the place of this call, so functions that wrap it are inline, too.
/// Context: any that `facts` may be called in.
#[inline(always)]
pub fn link_down<T>(link: &T, facts: impl FnOnce() -> LinkDown) {
    if is_on!(__tracepoint_smcr_link_down) {
        let facts = facts();
        let name = facts.device.as_ref().map_or(&[][..], Name::as_bytes);
        // SAFETY: The name is valid for reads of its length; the addresses are not followed.
        unsafe {
            bindings::trace_link_down(
                ptr::from_ref(link).cast(),
                ptr::without_provenance(facts.group),
                facts.net_cookie,
                facts.state.into(),
                name.as_ptr().cast(),
                name.len(),
            );
        }
    }
}
