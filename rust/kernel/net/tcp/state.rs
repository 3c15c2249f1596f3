// SPDX-License-Identifier: GPL-2.0

//! The state and the pending error of a TCP connection.
//!
//! C header: [`include/net/tcp_states.h`](srctree/include/net/tcp_states.h)

use kernel::error::to_result;

use super::TcpSocket;
use crate::{
    bindings,
    prelude::*, //
};

/// A TCP state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpState(pub(super) u8);

impl TcpState {
    /// The handshake has succeeded; the peer may have finished sending since.
    pub(super) fn is_connected(self) -> bool {
        let state = u32::from(self.0);
        state == bindings::TCP_ESTABLISHED || state == bindings::TCP_CLOSE_WAIT
    }

    /// There is a connection, at least one direction of which is not closed and acknowledged.
    pub fn is_open(self) -> bool {
        let state = u32::from(self.0);
        self.is_connected() || self.is_leaving() || state == bindings::TCP_FIN_WAIT2
    }

    /// Our FIN was sent, and the peer has not acknowledged it.
    pub(super) fn is_leaving(self) -> bool {
        [
            bindings::TCP_FIN_WAIT1,
            bindings::TCP_CLOSING,
            bindings::TCP_LAST_ACK,
        ]
        .contains(&u32::from(self.0))
    }

    /// The handshake is in progress.
    pub fn is_connecting(self) -> bool {
        let state = u32::from(self.0);
        state == bindings::TCP_SYN_SENT || state == bindings::TCP_SYN_RECV
    }

    /// connect(2) was called, and the peer has not answered.
    pub fn is_syn_sent(self) -> bool {
        u32::from(self.0) == bindings::TCP_SYN_SENT
    }

    /// No connection, and none in progress.
    pub fn is_closed(self) -> bool {
        u32::from(self.0) == bindings::TCP_CLOSE
    }

    /// The peer may send more.
    pub fn may_receive(self) -> bool {
        let state = u32::from(self.0);
        state == bindings::TCP_ESTABLISHED
            || state == bindings::TCP_FIN_WAIT1
            || state == bindings::TCP_FIN_WAIT2
    }

    /// Listening.
    pub fn is_listening(self) -> bool {
        u32::from(self.0) == bindings::TCP_LISTEN
    }
}

impl TcpSocket {
    /// Whether data were received that are not read yet, an urgent byte included.
    /// Context: any, of a socket that is or was connected; it may have changed when this returns.
    pub fn has_unread(&self) -> bool {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_unread(self.sk_ptr()) > 0 }
    }

    /// The TCP state.
    pub fn state(&self) -> TcpState {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the field is read whole.
        TcpState(unsafe { (&raw const (*sk).__sk_common.skc_state).read_volatile() })
    }

    /// Takes back what was shut down of a socket that has no connection (`RCV_SHUTDOWN`, `SEND_SHUTDOWN`), and returns
    /// it.
    /// Context: may sleep.
    pub fn take_shutdown(&self) -> u8 {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the field is read whole.
        if unsafe { (&raw const (*sk).sk_shutdown).read_volatile() } == 0 {
            return 0;
        }
        self.locked(|sk| {
            // SAFETY: The socket is alive and locked; others read the field whole.
            unsafe {
                let field = &raw mut (*sk).sk_shutdown;
                let mask = field.read_volatile();
                field.write_volatile(0);
                mask
            }
        })
    }

    /// Whether there is a protocol on top of TCP.
    pub fn has_ulp(&self) -> bool {
        let csk = self.sk_ptr().cast::<bindings::inet_connection_sock>();
        // SAFETY: A TCP socket is one of these, and alive; the field is read whole.
        !unsafe { (&raw const (*csk).icsk_ulp_ops).read_volatile() }.is_null()
    }

    /// How many segments of the connection, or of the attempt to make one, were sent again.
    /// Context: any; it may have changed when this returns.
    pub fn retransmitted(&self) -> u32 {
        let tcp = self.sk_ptr().cast::<bindings::tcp_sock>();
        // SAFETY: A live TCP socket; the field is read whole.
        unsafe { (&raw const (*tcp).total_retrans).read_volatile() }
    }

    /// Takes the pending error.
    ///
    /// # Errors
    ///
    /// The pending error, if there is one.
    pub fn take_err(&self) -> Result {
        // SAFETY: The socket is alive.
        to_result(unsafe { bindings::sock_error(self.sk_ptr()) })
    }

    /// Returns the pending error and leaves it pending.
    /// Context: any.
    pub fn pending_err(&self) -> Option<Error> {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the field is read whole.
        match unsafe { (&raw const (*sk).sk_err).read_volatile() } {
            0 => None,
            errno => Some(Error::from_errno(-errno)),
        }
    }
}
