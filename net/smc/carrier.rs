// SPDX-License-Identifier: GPL-2.0

//! What carries the data of a connected socket: a link group over RDMA (SMC-R), or shared memory of this kernel
//! (SMC-D). Above this nothing asks which it is, but to show it.

use kernel::sync::Arc;
use kernel_ext::{
    net::{
        Msg,
        Sk,
        TcpSocket, //
    },
    prelude::*, //
};
use smc_proto::{
    conn::{
        ConnState,
        IoctlQueues,
        SendFlags,
        TcpEquivalent, //
    },
    time::Duration,
    wire::Version, //
};

use crate::{
    blocking::{
        self,
        LongCall,
        RecvOptions,
        SendOptions,
        StreamRx as _, //
    },
    conn::Conn,
    smcd::SmcdConn,
    stats::{
        Stats,
        Technology, //
    }, //
};

/// What carries a connection.
#[derive(Clone)]
pub(crate) enum Carrier {
    /// RDMA.
    SmcR(Arc<Conn>),
    /// Shared memory.
    SmcD(SmcdConn),
}

/// Calls a method that both carriers have.
macro_rules! both {
    ($self:ident.$method:ident($($arg:expr),*)) => {
        match $self {
            Self::SmcR(conn) => conn.$method($($arg),*),
            Self::SmcD(conn) => conn.$method($($arg),*),
        }
    };
}

impl Carrier {
    /// The version of SMC in use.
    pub(crate) fn version(&self) -> Version {
        match self {
            Self::SmcR(conn) => conn.group.params.version,
            Self::SmcD(_) => Version::V2,
        }
    }

    /// The counters of the technology.
    pub(crate) fn stats<'a>(&self, stats: &'a Stats) -> &'a Technology {
        match self {
            Self::SmcR(_) => &stats.smcr,
            Self::SmcD(_) => &stats.smcd,
        }
    }

    /// The state of the connection, for diagnosis.
    pub(crate) fn state(&self) -> ConnState {
        both!(self.state())
    }

    /// What TCP_INFO tells of the state.
    pub(crate) fn tcp_equivalent(&self) -> TcpEquivalent {
        both!(self.tcp_equivalent())
    }

    /// Whether getpeername(2) has an answer.
    pub(crate) fn has_peer(&self) -> bool {
        both!(self.has_peer())
    }

    /// Whether the peer has announced that it sends no more.
    pub(crate) fn is_peer_done(&self) -> bool {
        both!(self.is_peer_done())
    }

    /// Whether the peer has ended its stream in order.
    pub(crate) fn has_ended_in_order(&self) -> bool {
        both!(self.has_ended_in_order())
    }

    /// sendmsg(2).
    /// Context: may sleep.
    pub(crate) fn send(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: &SendOptions,
        call: &impl LongCall,
        stats: &Technology,
    ) -> Result<usize> {
        both!(self.send(sk, msg, how, call, &stats.send_buffers))
    }

    /// Sends a short message without urgent data, if that needs no waiting. Returns false, with the message as it was,
    /// if [`Carrier::send`] has to send it.
    /// Context: does not sleep.
    #[inline]
    pub(crate) fn send_short(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        flags: impl FnOnce() -> SendFlags,
        stats: &Technology,
    ) -> bool {
        match self {
            Self::SmcR(conn) => conn.send_short(sk, msg, &flags(), &stats.send_buffers),
            Self::SmcD(_) => false,
        }
    }

    /// recvmsg(2); see [`blocking::recv`].
    /// Context: may sleep.
    pub(crate) fn recv(
        &self,
        sk: &Sk,
        msg: &mut Msg<'_>,
        how: RecvOptions,
        call: &impl LongCall,
    ) -> Result<usize> {
        match self {
            Self::SmcR(conn) => blocking::recv(conn, sk, msg, how, call),
            Self::SmcD(conn) => blocking::recv(conn, sk, msg, how, call),
        }
    }

    /// recvmsg(2) with MSG_OOB.
    /// Context: may sleep.
    pub(crate) fn recv_urgent(&self, msg: &mut Msg<'_>, peek: bool) -> Result<usize> {
        both!(self.recv_urgent(msg, peek))
    }

    /// What poll(2) reports, except errors.
    pub(crate) fn poll(&self, sk: &Sk) -> u32 {
        match self {
            Self::SmcR(conn) => conn.poll(sk),
            Self::SmcD(conn) => conn.poll(),
        }
    }

    /// The values of the socket ioctls.
    pub(crate) fn queues(&self) -> IoctlQueues {
        both!(self.queues())
    }

    /// The number of bytes to read, for TCP_INQ.
    pub(crate) fn inq(&self) -> i32 {
        both!(self.inq())
    }

    /// shutdown(2).
    /// Context: may sleep.
    pub(crate) fn shutdown(&self, sk: &Sk, how: i32) -> Result {
        match self {
            Self::SmcR(conn) => conn.shutdown(how),
            Self::SmcD(conn) => conn.shutdown(sk, how),
        }
    }

    /// close(2) of the last descriptor, and of the TCP connection `tcp`; `linger` is the SO_LINGER time, in jiffies, if
    /// set.
    /// Context: may sleep.
    ///
    /// A reset leaves nothing of the TCP connection here, as that of TCP: its port is free for bind(2).
    pub(crate) fn close(&self, sk: &Sk, linger: Option<isize>, tcp: &Arc<TcpSocket>) {
        if linger != Some(0) && self.queues().inq == 0 {
            // Before the peer hears of the end, and ends its own TCP: TIME_WAIT is on the side that closes first.
            tcp.shutdown_write();
        }
        match self {
            Self::SmcR(conn) if conn.close(sk, linger) => conn.reset_tcp(tcp),
            Self::SmcD(conn) if conn.close(sk, linger) => tcp.abort(ECONNABORTED),
            // The TCP connection may have ended before.
            _ => {
                let _ = tcp.shutdown(2);
            }
        }
    }

    /// Resets the connection; the application keeps the socket (connect(2) with AF_UNSPEC).
    /// Context: may sleep.
    pub(crate) fn disconnect(&self, sk: &Sk) {
        match self {
            Self::SmcR(conn) => conn.close(sk, Some(0)),
            Self::SmcD(conn) => conn.close(sk, Some(0)),
        };
    }

    /// Closes the connection of a client whose application had closed the socket before; `linger` as in
    /// [`Carrier::close`].
    /// Context: may sleep.
    pub(crate) fn drop_unused(&self, sk: &Sk, linger: Option<isize>) {
        match self {
            Self::SmcR(conn) => conn.drop_unused(linger),
            Self::SmcD(conn) => _ = conn.close(sk, linger),
        }
    }

    /// Resets the connection, with `err` for the application.
    /// Context: does not sleep.
    pub(crate) fn kill(&self, err: Error) {
        both!(self.kill(err));
    }

    /// The peer has reset the TCP connection.
    /// Context: does not sleep.
    pub(crate) fn on_tcp_reset(&self) {
        match self {
            Self::SmcR(conn) => conn.reset_soon(),
            Self::SmcD(conn) => conn.kill(ECONNRESET),
        }
    }

    /// The peer has ended TCP in order, and reset it later: it has closed the socket, and the connection outlives that
    /// if the peer has it, or it has aborted the connection, which is all that we hear of that if its link has failed.
    /// Context: does not sleep.
    pub(crate) fn on_tcp_closed(&self) {
        match self {
            Self::SmcR(conn) if conn.with(|inner| inner.stream.is_heard()) => conn.suspect_link(),
            Self::SmcR(conn) => conn.reset_unless_heard(),
            Self::SmcD(conn) => conn.kill(EPIPE),
        }
    }

    /// Takes over the options of the socket that matter when data arrive.
    pub(crate) fn sync_options(&self, sk: &Sk) {
        match self {
            Self::SmcR(conn) => {
                conn.with(|inner| inner.stream.set_oob_inline(sk.is_urg_inline()));
                conn.grow_for_options();
            }
            Self::SmcD(conn) => conn.sync_options(sk),
        }
    }

    /// Takes over TCP_USER_TIMEOUT. Within a machine no data get lost, and a peer that does not read may take its time.
    pub(crate) fn set_user_timeout(&self, limit: Duration) {
        match self {
            Self::SmcR(conn) => conn.set_user_timeout(limit),
            Self::SmcD(_) => {}
        }
    }

    /// Sends what was held back for MSG_MORE or TCP_CORK.
    /// Context: may sleep.
    pub(crate) fn uncork(&self) {
        both!(self.uncork())
    }
}
