// SPDX-License-Identifier: GPL-2.0

//! Another connection in place of one that was made for SMC.

use core::mem::size_of_val;

use super::{
    SockAddr,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// Options of the application that `tcp_disconnect` resets, and that TCP changes for no connection.
struct ForgottenOptions {
    /// TCP_MAXSEG.
    user_mss: u16,
    /// TCP_RTO_MIN_US, in jiffies.
    rto_min: u32,
    /// TCP_DELACK_MAX_US, in jiffies.
    delack_max: u32,
}

impl TcpSocket {
    /// Resets the connection or the attempt to make one, or what is left of it, and begins another one to the same
    /// address, without SMC in the SYN and without waiting. Unless the application has bound a port that it named, the
    /// new connection has another one. `window_clamp` is the [`Self::window_clamp`] of before.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` is the usual result; `ENOTCONN` if there is no connection to replace, or the application has shut
    /// it down; TCP's. An attempt that is undone meanwhile goes on: the caller sees to it that none is.
    pub fn reconnect_without_smc(&self, window_clamp: u32) -> Result {
        // That of a connection that has ended, too.
        let mut peer = self.last_peer()?;
        let len = size_of_val(&peer) as i32;
        // SAFETY: The storage is valid for its length.
        let addr = unsafe { SockAddr::new((&raw mut peer).cast(), len) };
        let state = self.state();
        if !state.is_connected() && !state.is_closed() && !state.is_syn_sent() {
            return Err(ENOTCONN);
        }
        let options = self.forgotten_options();
        self.disconnect()?;
        self.restore_options(&options, window_clamp);
        if state.is_syn_sent() {
            self.forget_sequence();
        }
        // Not the error of the connection that was reset.
        let _ = self.take_err();
        self.set_syn_smc(false);
        self.connect(addr, bindings::O_NONBLOCK as i32)
    }

    /// TCP_WINDOW_CLAMP of a socket without a connection; 0 if it is not set. Of a connection TCP computes another.
    /// Context: any.
    pub fn window_clamp(&self) -> u32 {
        let tcp = self.sk_ptr().cast::<bindings::tcp_sock>();
        // SAFETY: A live TCP socket; the field is read whole.
        unsafe { (&raw const (*tcp).window_clamp).read_volatile() }
    }

    /// The next connection begins with another sequence number, as one of a new socket does. TCP would go on close to
    /// the last SYN: a server that has that, and gets the next from the same port, takes it for an error of the same
    /// connection.
    fn forget_sequence(&self) {
        self.locked(|sk| {
            let tcp = sk.cast::<bindings::tcp_sock>();
            // SAFETY: A live TCP socket, locked.
            unsafe { (&raw mut (*tcp).write_seq).write_volatile(0) };
        });
    }

    fn forgotten_options(&self) -> ForgottenOptions {
        let tcp = self.sk_ptr().cast::<bindings::tcp_sock>();
        // SAFETY: A live TCP socket; the fields are integers, which are written whole.
        unsafe {
            ForgottenOptions {
                user_mss: (&raw const (*tcp).rx_opt.user_mss).read_volatile(),
                rto_min: (&raw const (*tcp).inet_conn.icsk_rto_min).read_volatile(),
                delack_max: (&raw const (*tcp).inet_conn.icsk_delack_max).read_volatile(),
            }
        }
    }

    fn restore_options(&self, options: &ForgottenOptions, window_clamp: u32) {
        self.locked(|sk| {
            let tcp = sk.cast::<bindings::tcp_sock>();
            // SAFETY: A live TCP socket, locked.
            unsafe {
                (&raw mut (*tcp).rx_opt.user_mss).write_volatile(options.user_mss);
                (&raw mut (*tcp).window_clamp).write_volatile(window_clamp);
                (&raw mut (*tcp).inet_conn.icsk_rto_min).write_volatile(options.rto_min);
                (&raw mut (*tcp).inet_conn.icsk_delack_max).write_volatile(options.delack_max);
            }
        });
    }
}
