// SPDX-License-Identifier: GPL-2.0

//! TCP sockets held by the kernel.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    mem::size_of,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    sync::SetOnce, //
};

use super::{
    sock_lock::try_owned,
    IpVersion,
    Sk,
    SockAddr,
    SockOptIn, //
};
use crate::{
    bindings,
    prelude::*,
    time, //
};

mod accept;
mod accept_queue;
mod delegate;
mod ends;
mod front;
mod hook;
mod messages;
mod option;
mod reconnect;
mod shown;
mod state;
mod uaccess;

#[cfg(not(CONFIG_SMC))]
use option::Offer;

pub use accept_queue::AcceptQueue;
pub(super) use hook::learn_defaults;
pub use hook::{
    Hook,
    RequestEnds,
    TcpEvents, //
};
pub use option::SynOption;
pub use reconnect::BeforeConnect;
pub use state::TcpState;
use uaccess::UserAccess;
pub use uaccess::{
    UserAccessCall,
    UserAccessWork, //
};

/// What holds back small segments.
pub struct Nagle {
    /// TCP_CORK.
    pub is_corked: bool,
    /// TCP_NODELAY.
    pub is_nodelay: bool,
}

/// A TCP socket, closed when dropped. To be used where sleeping is allowed.
///
/// # Invariants
///
/// The pointer is a socket from `sock_create_kern` or `kernel_accept`, owned, with its `sk`.
pub struct TcpSocket {
    socket: NonNull<bindings::socket>,
    hook: hook::Cell,
    /// The application's socket whose wait queue TCP uses, if it does. Dropped after the socket was released.
    shared: SetOnce<front::SocketInode>,
    uaccess: UserAccess,
    #[cfg(not(CONFIG_SMC))]
    offer: Offer,
}

// SAFETY: A `struct socket` may be used by several threads at a time, and closed by any. The hook's cell is used under
// the lock of TCP's callbacks only, and holds an owner that is `Send` and `Sync`.
unsafe impl Send for TcpSocket {}
// SAFETY: As above.
unsafe impl Sync for TcpSocket {}

/// One of the kernel's socket functions, from the table of the socket.
macro_rules! op {
    ($self:ident, $name:ident) => {{
        let ptr = $self.as_ptr();
        // SAFETY: By the type invariant the socket is alive and has a table.
        unsafe { (*(*ptr).ops).$name }.ok_or(EOPNOTSUPP)?
    }};
}
use op;

impl TcpSocket {
    /// Creates a TCP socket in the network namespace of `front`.
    ///
    /// # Errors
    ///
    /// Those of `sock_create_kern`.
    pub fn new(front: &Sk, version: IpVersion) -> Result<Self> {
        let mut socket = ptr::null_mut();
        // SAFETY: `front` holds its namespace; `socket` is valid for writing.
        to_result(unsafe {
            bindings::sock_create_kern(
                front.net_ptr(),
                i32::from(version.family()),
                bindings::sock_type_SOCK_STREAM as i32,
                bindings::IPPROTO_TCP as i32,
                &mut socket,
            )
        })?;
        // SAFETY: A new socket, which is ours.
        let this = unsafe { Self::from_socket(NonNull::new(socket).ok_or(EINVAL)?) };
        // The TCP connection may outlive the application's socket, and then has to hold the namespace.
        // SAFETY: The socket is new, nothing else uses it.
        unsafe { bindings::sk_net_refcnt_upgrade(this.sk_ptr()) };
        this.show_as(front);
        this.take_cookie(front);
        Ok(this)
    }

    /// Lists of sockets (`ss`, lsof, `/proc/net/tcp`) and routing rules by user see the connection as that of the
    /// socket that the application holds: it has an inode of its own, which is in no table of files, and one that a
    /// worker accepted belongs to root.
    /// Context: any.
    pub(super) fn show_as(&self, front: &Sk) {
        let sk = front.option_sk();
        // SAFETY: It is alive, and the field is a plain integer that others write whole.
        let ino = unsafe { (&raw const (*sk).sk_ino).read_volatile() };
        // SAFETY: It is alive.
        unsafe { self.show(sk, ino) };
    }

    /// Shows the connection as one of the user of `owner`, with this inode.
    ///
    /// # Safety
    ///
    /// `owner` must be a live socket.
    unsafe fn show(&self, owner: *const bindings::sock, ino: core::ffi::c_ulong) {
        let sk = self.sk_ptr();
        // SAFETY: Both are alive, and the fields are plain integers that others write whole.
        unsafe {
            let uid = (&raw const (*owner).sk_uid).read_volatile();
            (&raw mut (*sk).sk_uid).write_volatile(uid);
            (&raw mut (*sk).sk_ino).write_volatile(ino);
        }
    }

    /// # Safety
    ///
    /// `socket` must be a new TCP socket of which the caller passes on the ownership.
    unsafe fn from_socket(socket: NonNull<bindings::socket>) -> Self {
        // The queue of an application's socket may be locked inside that of the TCP socket below, as a listener is told
        // of a connection there.
        // SAFETY: By the caller's promise nobody waits on its queue yet.
        #[cfg(CONFIG_LOCKDEP)]
        unsafe {
            bindings::set_tcp_wait_class(socket.as_ptr());
        }
        // INVARIANT: By the caller's promise.
        Self {
            socket,
            hook: hook::Cell::EMPTY,
            shared: SetOnce::new(),
            uaccess: UserAccess::none(),
            #[cfg(not(CONFIG_SMC))]
            offer: Offer::NONE,
        }
    }

    fn as_ptr(&self) -> *mut bindings::socket {
        self.socket.as_ptr()
    }

    pub(crate) fn sk_ptr(&self) -> *mut bindings::sock {
        // SAFETY: By the type invariant the socket is alive and has a `sk`.
        unsafe { (*self.as_ptr()).sk }
    }

    /// Binds to a local address.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn bind(&self, addr: SockAddr<'_>) -> Result {
        let bind = op!(self, bind);
        // SAFETY: The socket is alive, the address valid for its length.
        to_result(unsafe { bind(self.as_ptr(), addr.as_ptr(), addr.len_bytes()) })
    }

    /// Starts to connect; if `flags` lacks `O_NONBLOCK`, waits for the connection.
    ///
    /// # Errors
    ///
    /// TCP's; `EINPROGRESS` if it was only started.
    pub fn connect(&self, addr: SockAddr<'_>, flags: i32) -> Result {
        let connect = op!(self, connect);
        // SAFETY: The socket is alive, the address valid for its length.
        to_result(unsafe { connect(self.as_ptr(), addr.as_ptr(), addr.len_bytes(), flags) })
    }

    /// Completes an attempt to connect that was started before: marks the socket as connected.
    ///
    /// # Errors
    ///
    /// TCP's, if the attempt has failed; `EALREADY` if it is still in progress; `EAFNOSUPPORT` if there is none.
    pub fn finish_connect(&self) -> Result {
        // An attempt in progress ignores the address. It is invalid where there is none: the socket was disconnected.
        self.connect_to_family(u16::MAX)
    }

    /// Whether connect was called and its result has not been returned yet.
    pub fn has_attempt(&self) -> bool {
        // SAFETY: The socket is alive.
        unsafe { bindings::tcp_has_attempt(self.as_ptr()) }
    }

    /// Ends the stream to the peer; does nothing if there is no connection.
    /// Context: may sleep.
    pub fn shutdown_write(&self) {
        if self.state().is_open() {
            let _ = self.shutdown(SEND);
        }
    }

    /// Sends what close(2) sends: the end of the stream, or a reset if there is unread data.
    /// Context: may sleep.
    pub fn send_end(&self) {
        if self.state().is_open() {
            let _ = match self.has_unread() {
                true => self.disconnect(),
                false => self.shutdown(SEND),
            };
        }
    }

    /// As close(2) for SO_LINGER: shuts down sending and waits at most `timeout` jiffies until the peer has
    /// acknowledged all of it. With unread data the close is a reset, and there is no wait.
    pub fn linger(&self, timeout: isize) {
        if !self.state().is_open() || self.has_unread() {
            return;
        }
        if self.shutdown(SEND).is_ok() {
            // SAFETY: The queue belongs to the socket, which is alive; it is initialised.
            let _ = unsafe {
                super::wait::wait_until(self.queue(), timeout, false, || !self.state().is_leaving())
            };
        }
    }

    /// Disconnects, which resets the socket to its initial state.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn disconnect(&self) -> Result {
        self.keep_children();
        self.leave_option();
        self.connect_to_family(bindings::AF_UNSPEC as u16)
    }

    /// Calls connect with an address of which only the family is set.
    fn connect_to_family(&self, family: u16) -> Result {
        let mut addr = bindings::sockaddr_in6 {
            sin6_family: family,
            ..Default::default()
        };
        let len = size_of::<bindings::sockaddr_in6>() as i32;
        // SAFETY: The address is valid for that length.
        let addr = unsafe { SockAddr::new((&raw mut addr).cast(), len) };
        self.connect(addr, bindings::O_NONBLOCK as i32)
    }

    /// Makes pending connections of a listener that offers SMC end with it. With `net.ipv4.tcp_migrate_req` another
    /// listener of the port would get them (SO_REUSEPORT), which may be a TCP one, while their peers expect SMC.
    /// Context: may sleep.
    fn keep_children(&self) {
        if !self.state().is_listening() || !self.offers_smc() {
            return;
        }
        self.locked(|sk| {
            // The lock excludes the end of listening, so the kernel does not access the group meanwhile.
            if self.state().is_listening() {
                // SAFETY: The socket is alive. One without a group is left as it is.
                unsafe { bindings::reuseport_detach_sock(sk) };
            }
        });
    }

    /// Runs `f` with the socket locked (`lock_sock`).
    /// Context: may sleep.
    pub(in crate::net) fn locked<T>(&self, f: impl FnOnce(*mut bindings::sock) -> T) -> T {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; sleeping is allowed.
        unsafe { bindings::lock_sock_nested(sk, 0) };
        let result = f(sk);
        // SAFETY: Locked above.
        unsafe { bindings::release_sock(sk) };
        result
    }

    /// As [`Self::locked`], if nobody has the socket locked.
    /// Context: may sleep, but not for the lock.
    fn try_locked<T>(&self, f: impl FnOnce(*mut bindings::sock) -> T) -> Option<T> {
        // SAFETY: The socket is alive.
        unsafe { try_owned(self.sk_ptr(), f) }
    }

    /// Listens for connections; a further call changes the backlog.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn listen(&self, backlog: i32) -> Result {
        let listen = op!(self, listen);
        // SAFETY: The socket is alive.
        to_result(unsafe { listen(self.as_ptr(), backlog) })
    }

    /// Shuts down: 0 receiving, 1 sending, 2 both.
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn shutdown(&self, how: i32) -> Result {
        let shutdown = op!(self, shutdown);
        // A listener goes on listening when it stops sending.
        if how != SEND {
            self.keep_children();
        }
        // SAFETY: The socket is alive.
        to_result(unsafe { shutdown(self.as_ptr(), how) })
    }

    /// Stops listening and gives the port up if there is no connection, as closing does, whoever else refers to the
    /// socket. To be called when the application has closed it.
    /// Context: may sleep.
    pub fn give_up_port(&self) {
        let state = self.state();
        if state.is_listening() {
            // The end of listening gives up a port that the application has not chosen.
            // SAFETY: The socket is alive, and locked.
            self.locked(|sk| unsafe { (*sk).sk_userlocks &= !PORT_LOCK });
            let _ = self.shutdown(BOTH);
        } else if state.is_closed() {
            self.locked(|sk| {
                // The work of an attempt to connect may have begun another one meanwhile.
                if self.state().is_closed() {
                    // SAFETY: A live TCP socket, locked and without a connection.
                    unsafe { put_port(sk) };
                }
            });
        }
    }

    /// Ends the connection at once, with a reset if there is a peer. All waiting calls return.
    pub fn abort(&self, err: Error) {
        self.keep_children();
        // SAFETY: The socket is alive. A closed socket is left as it is.
        unsafe { bindings::tcp_abort(self.sk_ptr(), -err.to_errno()) };
    }

    /// Whether the peer has sent the end of its stream (`SOCK_DONE`).
    pub fn has_ended_in_order(&self) -> bool {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_flag(self.sk_ptr(), bindings::sock_flags_SOCK_DONE) }
    }

    /// Whether the other end has called connect(2), too (RFC 9293 section 3.5, simultaneous open), or is this socket.
    /// To be asked of a client that has sent nothing yet.
    pub fn is_simultaneous_open(&self) -> bool {
        // The SYN has been delivered in any case, and TCP counts the SYN-ACK that answers the other end's SYN, too
        // (`tcp_rcv_state_process` in `TCP_SYN_RECV`).
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_delivered(self.sk_ptr()) > 1 }
    }

    /// Whether the application has set TCP_CORK, and TCP_NODELAY.
    #[inline]
    pub fn nagle(&self) -> Nagle {
        // SAFETY: The socket is alive and a TCP socket.
        let bits = u32::from(unsafe { bindings::tcp_nonagle(self.sk_ptr()) });
        Nagle {
            is_corked: bits & bindings::TCP_NAGLE_CORK != 0,
            is_nodelay: bits & bindings::TCP_NAGLE_OFF != 0,
        }
    }

    /// Has keepalive (SO_KEEPALIVE) count from now, as if a segment had arrived: the peer lives, as was seen elsewhere.
    /// Context: any.
    pub fn note_peer_alive(&self) {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive and a TCP socket; the fields are an integer each, of which TCP's timer takes
        // either value.
        unsafe {
            bindings::tcp_touch_rcv_tstamp(sk);
            bindings::tcp_forget_probes(sk);
        }
    }

    /// How long a connection is idle before keepalive asks the peer (TCP_KEEPIDLE, or the namespace's setting), in ns.
    /// Context: any.
    pub fn keepalive_time(&self) -> u64 {
        // SAFETY: The socket is alive and a TCP socket.
        let jiffies = unsafe { bindings::tcp_keepalive_time(self.sk_ptr()) };
        time::nanos(jiffies.try_into().unwrap_or(0))
    }

    /// Sends a pure ACK, if there is a connection, which keeps its flow alive in NATs and firewalls.
    /// Context: may sleep.
    pub fn send_pure_ack(&self) {
        self.locked(|sk| {
            if self.state().is_open() {
                // SAFETY: The socket is alive, connected and locked.
                unsafe { bindings::tcp_send_pure_ack(sk) };
            }
        });
    }

    /// TCP_USER_TIMEOUT, milliseconds; 0: none.
    pub fn user_timeout_ms(&self) -> u32 {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_user_timeout(self.sk_ptr()) }
    }

    /// Whether the application has set TCP_INQ.
    pub fn wants_inq(&self) -> bool {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_wants_inq(self.sk_ptr()) }
    }

    /// SO_SNDBUF and SO_RCVBUF, which TCP raises as it needs, in bytes.
    #[inline]
    pub fn bufs(&self) -> (u32, u32) {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive, and the fields are plain integers that others write whole.
        let (sndbuf, rcvbuf) = unsafe {
            (
                (&raw const (*sk).sk_sndbuf).read_volatile(),
                (&raw const (*sk).sk_rcvbuf).read_volatile(),
            )
        };
        let bytes = |len| u32::try_from(len).unwrap_or(0);
        (bytes(sndbuf), bytes(rcvbuf))
    }

    /// Copies SO_SNDTIMEO of `front`.
    pub fn take_sndtimeo(&self, front: &Sk) {
        let (sndtimeo, _) = front.timeouts();
        // SAFETY: The socket is alive, and the field is a plain integer, which the kernel writes whole, too.
        unsafe { (&raw mut (*self.sk_ptr()).sk_sndtimeo).write_volatile(sndtimeo) };
    }

    /// Copies SO_RCVTIMEO of `front`.
    pub fn take_rcvtimeo(&self, front: &Sk) {
        let (_, rcvtimeo) = front.timeouts();
        // SAFETY: As in `take_sndtimeo`.
        unsafe { (&raw mut (*self.sk_ptr()).sk_rcvtimeo).write_volatile(rcvtimeo) };
    }

    /// Whether segments are signed with keys (TCP_MD5SIG, TCP_AO); of a listener, for any peer.
    pub fn has_keys(&self) -> bool {
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_has_keys(self.sk_ptr()) }
    }

    /// Copies device, mark and priority of `front`: cgroup programs set them when the application creates a socket, and
    /// this one was created by the kernel.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of SO_BINDTODEVICE.
    pub fn follow(&self, front: &Sk) -> Result {
        let sk = self.sk_ptr();
        let (ifindex, mark, priority) = front.marks();
        let (own_ifindex, own_mark, own_priority) = self.marks();
        // A device that it has already may be TCP's own choice, for a link-local address.
        if ifindex != 0 && own_ifindex == 0 {
            // SAFETY: The socket is alive; sleeping is allowed.
            to_result(unsafe { bindings::sock_bindtoindex(sk, ifindex, true) })?;
        }
        if mark != 0 && mark != own_mark {
            // SAFETY: As above.
            unsafe { bindings::sock_set_mark(sk, mark) };
        }
        if priority != 0 && priority != own_priority {
            // SAFETY: As above.
            unsafe { bindings::sock_set_priority(sk, priority) };
        }
        Ok(())
    }

    /// Device, mark and priority.
    pub(super) fn marks(&self) -> (i32, u32, u32) {
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive; the fields are read whole.
        unsafe {
            (
                (&raw const (*sk).__sk_common.skc_bound_dev_if).read_volatile(),
                (&raw const (*sk).sk_mark).read_volatile(),
                (&raw const (*sk).sk_priority).read_volatile(),
            )
        }
    }

    /// Enables a protocol on top of TCP (TCP_ULP), of those that are for applications. Others are for sockets that the
    /// kernel makes, as this one is, and rely on what only their makers provide (`mptcp`).
    ///
    /// # Errors
    ///
    /// TCP's.
    pub fn set_ulp(&self, name: &[u8]) -> Result {
        match name.split(|byte| *byte == 0).next() {
            Some(b"tls" | b"espintcp") => {}
            Some(b"mptcp") if cfg!(CONFIG_MPTCP) && self.has_ulp() => return Err(EEXIST),
            Some(b"mptcp") if cfg!(CONFIG_MPTCP) => return Err(EOPNOTSUPP),
            _ => return Err(ENOENT),
        }
        let value = name.as_ptr().cast_mut().cast();
        let len = u32::try_from(name.len())?;
        // SAFETY: The name is valid for reading its length while the call lasts.
        let value = unsafe { SockOptIn::new(bindings::kernel_sockptr(value), len) };
        self.setsockopt(super::SOL_TCP, super::TCP_ULP, value)
    }

    /// Runs `f`, whose sleeps also end on events of the socket. An event between a check of the socket by `f` and its
    /// sleep may be missed, so such a sleep needs a timeout.
    pub fn wakeful<R>(&self, f: impl FnOnce() -> R) -> R {
        // SAFETY: The queue belongs to the socket, which is alive; it is initialised.
        unsafe { super::wait::wakeful(self.queue(), f) }
    }

    /// TCP's wait queue: the socket's own, or that of the application's socket.
    fn queue(&self) -> *mut bindings::wait_queue_head {
        let front = self.shared.as_ref().map(front::SocketInode::socket);
        let socket = front.unwrap_or(self.as_ptr());
        // SAFETY: The socket is alive.
        unsafe { &raw mut (*socket).wq.wait }
    }
}

impl Drop for TcpSocket {
    fn drop(&mut self) {
        self.keep_children();
        self.leave_option();
        // SAFETY: By the type invariant the socket is ours.
        unsafe { hook::release(self) };
    }
}

/// Gives up the port of a TCP socket, if it has one.
///
/// # Safety
///
/// `sk` must be a live TCP socket, locked, without a connection.
pub(super) unsafe fn put_port(sk: *mut bindings::sock) {
    let csk = sk.cast::<bindings::inet_connection_sock>();
    // SAFETY: By the caller's promise; only a bound socket has a bucket of its port.
    unsafe {
        let put_port = (*(*sk).__sk_common.skc_prot).put_port;
        if let (false, Some(put_port)) = ((*csk).icsk_bind_hash.is_null(), put_port) {
            put_port(sk);
        }
    }
}

/// A flag of `sk_userlocks`: the port stays when the connection ends, or the listener.
// CAST: A bit of a byte.
const PORT_LOCK: u8 = bindings::SOCK_BINDPORT_LOCK as u8;

/// SHUT_WR.
const SEND: i32 = 1;

/// SHUT_RDWR.
const BOTH: i32 = 2;

/// Converts the result of a C function, a length or a negative errno.
#[inline]
pub(super) fn length(ret: i32) -> Result<usize> {
    usize::try_from(ret).map_err(|_| Error::from_errno(ret))
}
