// SPDX-License-Identifier: GPL-2.0

//! Another connection in place of one that was made for SMC.

use core::mem::size_of_val;

use super::{
    SockAddr,
    TcpSocket,
    PORT_LOCK, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// What a socket was before it connected, and is again for another attempt.
#[derive(Clone, Copy, Debug, Default)]
pub struct BeforeConnect {
    /// TCP_WINDOW_CLAMP; 0 if it is not set. Of a connection TCP computes another.
    pub window_clamp: u32,
    /// It had a port, which the application has asked for, or can know.
    pub is_bound: bool,
}

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
    /// address, without SMC in the SYN and without waiting. The new connection has another port, unless it was bound
    /// before. `before` is the [`Self::before_connect`] of the first attempt.
    ///
    /// # Errors
    ///
    /// `EINPROGRESS` is the usual result; `ENOTCONN` if there is no connection to replace, or the application has shut
    /// it down; TCP's. An attempt that is undone meanwhile goes on: the caller sees to it that none is.
    pub fn reconnect_without_smc(&self, before: BeforeConnect) -> Result {
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
        // TCP gives up the port of a bind(2) that named none.
        let was_locked = self.lock_port(before.is_bound);
        let disconnected = self.disconnect();
        self.lock_port(was_locked);
        disconnected?;
        self.restore_options(&options, before.window_clamp);
        if state.is_syn_sent() {
            self.forget_sequence();
        }
        // Not the error of the connection that was reset.
        let _ = self.take_err();
        self.set_syn_smc(false);
        self.connect(addr, bindings::O_NONBLOCK as i32)
    }

    /// What another attempt than the one that is about to begin has to know.
    /// Context: any.
    pub fn before_connect(&self) -> BeforeConnect {
        let sk = self.sk_ptr();
        let tcp = sk.cast::<bindings::tcp_sock>();
        // SAFETY: A live TCP socket; the fields are read whole.
        let (window_clamp, port) = unsafe {
            (
                (&raw const (*tcp).window_clamp).read_volatile(),
                (&raw const (*sk).__sk_common.__bindgen_anon_3.__bindgen_anon_1.skc_num)
                    .read_volatile(),
            )
        };
        BeforeConnect {
            window_clamp,
            is_bound: port != 0,
        }
    }

    /// Has TCP keep the port when the connection ends, or not; returns what was before.
    fn lock_port(&self, keeps: bool) -> bool {
        self.locked(|sk| {
            // SAFETY: A live TCP socket, locked.
            unsafe {
                let had = (*sk).sk_userlocks & PORT_LOCK != 0;
                (*sk).sk_userlocks =
                    (*sk).sk_userlocks & !PORT_LOCK | if keeps { PORT_LOCK } else { 0 };
                had
            }
        })
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
