// SPDX-License-Identifier: GPL-2.0

//! The system calls, and what answers them in each state.

use core::ops::Deref;

use kernel::sync::{
    aref::ARef,
    Arc,
    ArcBorrow,
    MutexGuard, //
};
use kernel_ext::{
    net::{
        self,
        Caller,
        IpVersion,
        Msg,
        PollWait,
        Sk,
        SockAddr,
        SockAddrBuf,
        SockOptIn,
        SockOptOut,
        StreamSocket,
        TcpSocket,
        UnattachedSk, //
    },
    prelude::*, //
};
use smc_proto::lgr::Role;

use super::{
    accept,
    active,
    connect,
    fallback,
    listen,
    options,
    shutdown,
    Phase,
    Shared,
    Sock, //
};
use crate::carrier::Carrier;

impl StreamSocket for Sock {
    const NAMES: [&'static CStr; 4] = [c"SMC", c"SMC6", c"INET_SMC", c"INET6_SMC"];
    const FAMILY: u16 = net::AF_SMC;
    const PROTOCOL: u16 = net::IPPROTO_SMC;
    const ULP: &'static CStr = c"smc";

    fn create(sk: ARef<Sk>, version: IpVersion) -> Result<Arc<Self>> {
        let shared = Shared::of(&sk)?;
        let config = &shared.config;
        sk.set_bufs(config.sndbuf_bytes(), config.rcvbuf_bytes());
        let tcp = TcpSocket::new(&sk, version)?;
        Self::new(sk, shared, version, tcp, Role::Client)
    }

    fn accepted(this: ArcBorrow<'_, Self>) {
        if this.phase() == Phase::Fallback {
            fallback::share_waiters_of_new(&this);
        }
    }

    fn release(this: Arc<Self>) {
        Self::end(this);
    }

    fn tcp_below(&self) -> &TcpSocket {
        &self.tcp
    }

    fn bind(this: ArcBorrow<'_, Self>, addr: SockAddr<'_>) -> Result {
        this.tcp.follow(&this.sk)?;
        this.tcp.bind(addr)
    }

    fn connect(this: ArcBorrow<'_, Self>, addr: SockAddr<'_>, flags: i32) -> Result {
        connect::connect(this, addr, flags)
    }

    fn listen(this: ArcBorrow<'_, Self>, backlog: i32) -> Result {
        listen::listen(this, backlog)
    }

    fn accept(this: ArcBorrow<'_, Self>, flags: i32) -> Result<(UnattachedSk, Arc<Self>)> {
        accept::accept(this, flags)
    }

    fn has_pending(this: ArcBorrow<'_, Self>) -> bool {
        accept::is_ready(&this)
    }

    fn getname(this: ArcBorrow<'_, Self>, name: &mut SockAddrBuf<'_>, peer: i32) -> Result<i32> {
        // accept(2) asks with 2: the peer of a connection that has ended meanwhile still has its address, as with TCP.
        match this.conn() {
            Some(conn) if peer == 1 && !conn.has_peer() => Err(ENOTCONN),
            // TCP of both ends may have ended before the data of the last stream arrive.
            Some(_) if peer == 1 => this.tcp.getname(name, 2),
            _ => this.tcp.getname(name, peer),
        }
    }

    fn poll(this: ArcBorrow<'_, Self>, wait: &PollWait<'_>) -> u32 {
        wait.register();
        let ready = match this.phase() {
            // The error of an attempt that fails is noted before the attempt is over, when those who wait are woken.
            // Who takes it before, as io_uring does, would find the attempt still in progress.
            Phase::Connecting => return 0,
            // As with TCP, accept(2) returns the error that keeps it from taking a connection.
            Phase::Listening => {
                if accept::is_ready(&this) || this.sk.has_err() {
                    return net::POLLIN | net::POLLRDNORM;
                }
                // The work may have stopped at an error that was read by SO_ERROR.
                if this.tcp.has_pending() {
                    Sock::schedule_work(this);
                }
                return 0;
            }
            Phase::Active => match this.first_conn() {
                Some(conn) => active::poll(&this, conn),
                None => this.conn().map_or(0, |conn| active::poll(&this, &conn)),
            },
            Phase::Fallback => this.poll_tcp(),
            Phase::Init | Phase::Closed => this.tcp.poll(),
        };
        // After the state, as TCP does: an end that comes with an error is not seen without it.
        ready | if this.sk.has_err() { net::POLLERR } else { 0 }
    }

    fn ioctl_number(this: ArcBorrow<'_, Self>, cmd: u32) -> Result<i32> {
        let number = this.conn().and_then(|conn| active::ioctl(&conn, cmd));
        let is_queue = matches!(cmd, net::SIOCINQ | net::SIOCOUTQ | net::SIOCOUTQNSD);
        match number {
            Some(number) => Ok(number),
            // What TCP has then are messages of the handshake.
            None if is_queue && this.phase() == Phase::Connecting => Ok(0),
            None if cmd == net::SIOCINQ && !this.is_decline_settled() => Ok(0),
            None => this.tcp.ioctl_number(cmd),
        }
    }

    fn ioctl(this: ArcBorrow<'_, Self>, cmd: u32, arg: usize) -> Result<i32> {
        this.tcp.ioctl(cmd, arg)
    }

    fn shutdown(this: ArcBorrow<'_, Self>, how: i32) -> Result {
        if !(0..=2).contains(&how) {
            return Err(EINVAL);
        }
        if let Some(conn) = this.conn() {
            return shutdown::shutdown(&this, &conn, how);
        }
        let _setup = this.setup.lock();
        if this.phase() == Phase::Connecting && this.tcp.state().is_open() {
            shutdown::shutdown_late(&this, how);
            if how == 2 && this.phase() == Phase::Connecting {
                connect::end_handshake(&this);
            }
            return Ok(());
        }
        match this.phase() {
            Phase::Connecting => connect::shutdown(&this, how)?,
            _ => this.tcp.shutdown(how)?,
        }
        if this.phase() == Phase::Listening && !this.tcp.state().is_listening() {
            listen::stop_listening(&this.into());
        }
        if this.phase() == Phase::Fallback {
            // CAST: 0, 1 or 2.
            this.sk.add_shutdown((how + 1) as u8);
        }
        this.sk.wake_state();
        // If the handshake was done in between, it is that connection which is meant.
        match this.conn() {
            Some(conn) => shutdown::shutdown(&this, &conn, how),
            None => Ok(()),
        }
    }

    fn setsockopt(
        this: ArcBorrow<'_, Self>,
        caller: Caller<'_>,
        level: i32,
        name: i32,
        value: SockOptIn<'_>,
    ) -> Result {
        options::set(this, caller, level, name, value)
    }

    fn getsockopt(this: ArcBorrow<'_, Self>, level: i32, name: i32, out: SockOptOut) -> Result {
        options::get(this, level, name, out)
    }

    fn sendmsg(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>) -> Result<usize> {
        let short = |conn| active::send_short(&this, conn, msg);
        match this.first_conn().and_then(short) {
            Some(len) => Ok(len),
            None => send(this, msg),
        }
    }

    fn recvmsg(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
        match this.phase() {
            Phase::Fallback => return fallback::recv_at_first(this, msg, flags),
            // Neither waits for the connection.
            Phase::Connecting if flags & net::MSG_ERRQUEUE != 0 => {
                return this.tcp.recvmsg(msg, flags)
            }
            Phase::Connecting if flags & net::MSG_OOB != 0 => return Err(EINVAL),
            _ => {}
        }
        match this.wait_connected(|| this.sk.rcvtimeo(flags & net::MSG_DONTWAIT != 0))? {
            DataPath::Smc(conn) => active::recv(&this, &conn, msg, flags),
            DataPath::Tcp(_setup) => fallback::recv_at_first(this, msg, flags),
        }
    }

    #[inline(always)]
    fn sendmsg_over_tcp(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>) -> Result<usize> {
        match msg.flags() & net::MSG_FASTOPEN {
            0 => fallback::send(&this, msg),
            _ => send(this, msg),
        }
    }

    #[inline(always)]
    fn recvmsg_over_tcp(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>, flags: u32) -> Result<usize> {
        fallback::recv(&this, msg, flags)
    }

    fn splice_eof(this: ArcBorrow<'_, Self>) {
        match this.conn() {
            Some(_) if this.tcp.nagle().is_corked => {}
            Some(conn) => conn.uncork(),
            None => this.tcp.splice_eof(),
        }
    }

    fn tcp(this: ArcBorrow<'_, Self>) -> Option<Arc<TcpSocket>> {
        (this.phase() != Phase::Active).then(|| this.tcp.clone())
    }
}

// Out of line, as most calls are for short messages.
#[inline(never)]
fn send(this: ArcBorrow<'_, Sock>, msg: &mut Msg<'_>) -> Result<usize> {
    if msg.flags() & net::MSG_FASTOPEN != 0 {
        connect::fast_open(&this.into(), msg)?;
    }
    if this.phase() == Phase::Fallback {
        return fallback::send_at_first(this, msg);
    }
    let nonblock = msg.flags() & net::MSG_DONTWAIT != 0;
    match this.wait_connected(|| this.sk.sndtimeo(nonblock))? {
        DataPath::Smc(conn) => active::send(&this, &conn, msg),
        DataPath::Tcp(_setup) => fallback::send_at_first(this, msg),
    }
}

/// What carries the data of a socket that does not connect just now.
enum DataPath<'a> {
    Smc(CarrierRef<'a>),
    /// TCP. If it has no connection, it returns that error at once, and none begins meanwhile: the data of the
    /// application must not get among the messages of a handshake.
    Tcp(Option<MutexGuard<'a, ()>>),
}

/// The connection of a call.
enum CarrierRef<'a> {
    /// The socket's first, which lives as long as that.
    First(&'a Carrier),
    Later(Carrier),
}

impl Deref for CarrierRef<'_> {
    type Target = Carrier;

    fn deref(&self) -> &Carrier {
        match self {
            Self::First(conn) => conn,
            Self::Later(conn) => conn,
        }
    }
}

impl Sock {
    /// Waits while the socket connects, as TCP does before it sends or receives.
    ///
    /// # Errors
    ///
    /// `EAGAIN` when the time is over, `ERESTARTSYS` or `EINTR` for a signal.
    #[inline]
    fn wait_connected(&self, timeout: impl FnOnce() -> isize) -> Result<DataPath<'_>> {
        if let Some(conn) = self.first_conn() {
            return Ok(DataPath::Smc(CarrierRef::First(conn)));
        }
        self.wait_data_path(timeout)
    }

    // Out of line, as most calls are for a socket's first connection.
    #[inline(never)]
    fn wait_data_path(&self, timeout: impl FnOnce() -> isize) -> Result<DataPath<'_>> {
        if let Some(path) = self.data_path() {
            return Ok(path);
        }
        let mut left = timeout();
        loop {
            left = self
                .sk
                .wait_until(left, false, || self.phase() != Phase::Connecting)
                .map_err(|end| end.errno())?;
            if let Some(path) = self.data_path() {
                return Ok(path);
            }
            let setup = self.setup.lock();
            match self.phase() {
                Phase::Connecting | Phase::Active => {}
                // It may have a connection by now, on which the call waits.
                Phase::Fallback => return Ok(DataPath::Tcp(None)),
                _ => return Ok(DataPath::Tcp(Some(setup))),
            }
        }
    }

    /// Returns what carries the data of a connected socket, which does not change until the connection ends.
    fn data_path(&self) -> Option<DataPath<'_>> {
        match self.phase() {
            Phase::Active => self
                .conn()
                .map(|conn| DataPath::Smc(CarrierRef::Later(conn))),
            Phase::Fallback => Some(DataPath::Tcp(None)),
            _ => None,
        }
    }
}
