// SPDX-License-Identifier: GPL-2.0

//! The SMC option by the hooks that TCP has with `CONFIG_SMC`.
//!
//! C header: [`include/linux/tcp.h`](srctree/include/linux/tcp.h)

use super::super::{
    hook::refuses_smc,
    RequestEnds,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// Enables the option while it lives (`tcp_have_smc` static key).
pub struct SynOption(());

impl SynOption {
    /// Who adds the option: `SMC_SYN_OPTION_*`.
    // CAST: a small number.
    pub const WAY: u8 = bindings::SMC_SYN_OPTION_TCP as u8;

    /// Enables the option. At most one may exist.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// None.
    pub fn enable() -> Result<Self> {
        // SAFETY: The static key is exported by the TCP core and always valid.
        unsafe { bindings::tcp_have_smc_enable() };
        Ok(Self(()))
    }
}

impl Drop for SynOption {
    fn drop(&mut self) {
        // SAFETY: As in `enable`.
        unsafe { bindings::tcp_have_smc_disable() };
    }
}

/// Whether both ends of a connection that was not accepted yet have offered SMC.
///
/// # Safety
///
/// `child` must be a live TCP socket.
pub(in crate::net::tcp) unsafe fn unaccepted_syn_smc(child: *mut bindings::sock) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { bindings::tcp_syn_smc(child) }
}

impl TcpSocket {
    /// Whether both ends have offered SMC, once there is a connection.
    /// Context: any.
    pub fn syn_smc(&self) -> bool {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_syn_smc(self.sk_ptr()) }
    }

    /// The same of a socket that has connected. TCP takes a peer that connected at the same time for one that offers
    /// SMC, as no SYN-ACK ends its waiting.
    /// Context: any.
    pub fn connected_syn_smc(&self) -> bool {
        // SAFETY: The socket is alive and a TCP socket.
        self.syn_smc() && unsafe { bindings::tcp_smc_ok(self.sk_ptr()) }
    }

    /// Whether SMC is offered, or would be to a peer that asks for it.
    /// Context: any.
    pub(in crate::net::tcp) fn offers_smc(&self) -> bool {
        self.syn_smc()
    }

    /// Sets whether the SYN offers SMC; of a listener, the SYN-ACK. What was sent before stays as it is.
    /// Context: may sleep.
    pub fn set_syn_smc(&self, on: bool) {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_set_syn_smc(self.sk_ptr(), on) };
    }

    /// To be called before the socket is closed, or disconnected: TCP leaves what it offers as it is.
    /// Context: may sleep.
    pub(in crate::net::tcp) fn leave_option(&self) {
        self.set_syn_smc(false);
    }
}

/// A listener has a hook from now on, which is asked whether to refuse a request, if SMC is offered. Connections
/// inherit this: those of another listener may get to a socket of TCP alone (`net.ipv4.tcp_migrate_req`).
pub(in crate::net::tcp) fn hook_listener(tcp: &TcpSocket) {
    let asked = tcp.offers_smc().then_some(hs_congested as _);
    // It is left set when the hook is dropped: TCP calls it without a lock, and without a cell it returns false.
    // SAFETY: The socket is alive and a TCP socket.
    unsafe { bindings::tcp_set_hs_congested(tcp.sk_ptr(), asked) };
}

/// Called by TCP for a request: whether to refuse it SMC. TCP does not say whose request it is.
///
/// # Safety
///
/// To be called by TCP only, with a live listener.
unsafe extern "C" fn hs_congested(listener: *const bindings::sock) -> bool {
    // SAFETY: By the caller's promise.
    let request = unsafe { RequestEnds::of_listener(listener) };
    // SAFETY: As above.
    unsafe { refuses_smc(listener.cast_mut(), &request) }
}

/// A listener's hook ends.
pub(in crate::net::tcp) fn unhook_listener(_tcp: &TcpSocket) {}

/// Runs a call of the application that sets or gets an option.
pub(in crate::net::tcp) fn with_own_save_syn<T>(
    _tcp: &TcpSocket,
    _level: i32,
    _name: i32,
    call: impl FnOnce() -> T,
) -> T {
    call()
}

/// A connection was accepted by a listener.
/// Context: may sleep.
pub(in crate::net::tcp) fn accepted(child: &TcpSocket, _listener: &TcpSocket) {
    // TCP calls it for listeners only, which this is not.
    // SAFETY: The socket is alive and a TCP socket.
    unsafe { bindings::tcp_set_hs_congested(child.sk_ptr(), None) };
}
