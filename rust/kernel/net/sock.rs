// SPDX-License-Identifier: GPL-2.0

//! The application's socket, as seen by the protocol: its options, its wait queues.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    ffi::c_void,
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{
        AtomicI32,
        Ordering::Relaxed, //
    }, //
};

use kernel::{
    sync::{
        aref::{
            ARef,
            AlwaysRefCounted, //
        },
        rcu, //
    },
    types::Opaque, //
};

use super::{
    pernet::NetNs,
    wait::FOREVER,
    IpVersion, //
};
use crate::{
    barrier::{
        smp_mb,
        Full, //
    },
    bindings,
    prelude::*,
    time, //
};

/// Bytes uncharged while the socket was owned.
#[repr(C)]
pub(super) struct Owed {
    pub(super) send: i32,
    pub(super) receive: i32,
}

/// Memory layout of a socket of our protocols.
///
/// The kernel uses the first member as the whole socket; for `IPPROTO_SMC` sockets that is an inet_sock.
#[repr(C)]
pub(super) struct SmcSock {
    pub(super) inet: bindings::inet_sock,
    /// Tasks that wait for the socket's state. Unlike `sk_wq` it lives as long as the socket, also after close(2) and
    /// before accept(2).
    pub(super) waiters: bindings::wait_queue_head,
    /// The Rust object, from `ForeignOwnable::into_foreign`, while a `struct socket` is attached.
    pub(super) front: *mut c_void,
    /// For `IPPROTO_SMC` sockets of AF_INET6, at `proto.ipv6_pinfo_offset`.
    pub(super) inet6: bindings::ipv6_pinfo,
    /// The TCP socket that became this one by TCP_ULP, with a reference, or null.
    pub(super) tcp_origin: *mut bindings::sock,
    /// Guarded by the socket's spinlock.
    pub(super) owed: Owed,
}

const _: () = assert!(offset_of!(SmcSock, inet) == 0);

/// A `struct sock` of one of our protocols (the front socket, not the TCP socket below it).
///
/// # Invariants
///
/// Points into a [`SmcSock`] whose `waiters` is initialised, which holds a reference to its network namespace, and
/// whose `tcp_origin` is null or alive and does not change once the socket is visible to others.
#[repr(transparent)]
pub struct Sk(Opaque<bindings::sock>);

// SAFETY: The reference count of a socket may be changed, and all methods may be called, anywhere.
unsafe impl Send for Sk {}
// SAFETY: As above.
unsafe impl Sync for Sk {}

// SAFETY: `sock_hold` keeps the socket until the matching `sock_put`.
unsafe impl AlwaysRefCounted for Sk {
    fn inc_ref(&self) {
        // SAFETY: `self` implies that the count is not zero.
        unsafe { bindings::sock_hold(self.as_ptr()) };
    }

    unsafe fn dec_ref(obj: NonNull<Self>) {
        // SAFETY: The caller gives up a reference.
        unsafe { bindings::sock_put(obj.as_ptr().cast()) };
    }
}

/// Reads a field once, as C's `READ_ONCE`: of the socket, or of the pointer that `$of` returns.
macro_rules! read_once {
    ($self:ident, $($field:ident).+) => {
        read_once!($self.as_ptr, $($field).+)
    };
    ($self:ident.$of:ident, $($field:ident).+) => {{
        let ptr = $self.$of();
        // SAFETY: The socket is alive, and the field is a plain integer that others write whole.
        unsafe { (&raw const (*ptr).$($field).+).read_volatile() }
    }};
}

/// Writes a field once, as C's `WRITE_ONCE`.
macro_rules! write_once {
    ($self:ident, $($field:ident).+, $value:expr) => {
        write_once!($self.as_ptr, $($field).+, $value)
    };
    ($self:ident.$of:ident, $($field:ident).+, $value:expr) => {{
        let (ptr, value) = ($self.$of(), $value);
        // SAFETY: The socket is alive, and the field is a plain integer that others write whole.
        unsafe { (&raw mut (*ptr).$($field).+).write_volatile(value) }
    }};
}

impl Sk {
    pub(crate) fn as_ptr(&self) -> *mut bindings::sock {
        self.0.get()
    }

    /// # Safety
    ///
    /// `ptr` must point to a live socket of one of our protocols, for `'a`.
    pub(super) unsafe fn from_ptr<'a>(ptr: *mut bindings::sock) -> &'a Self {
        // INVARIANT: Sockets of our protocols are allocated as a `SmcSock` and fully initialised.
        // SAFETY: By the caller's promise; the type is transparent.
        unsafe { &*ptr.cast() }
    }

    /// Takes ownership of the reference that `sk_alloc` returned.
    ///
    /// # Safety
    ///
    /// As [`Sk::from_ptr`], and the caller passes on a reference.
    pub(super) unsafe fn from_owned(ptr: NonNull<bindings::sock>) -> ARef<Self> {
        // SAFETY: By the caller's promise.
        unsafe { ARef::from_raw(ptr.cast()) }
    }

    pub(super) fn front_slot(&self) -> *mut *mut c_void {
        let front = self.as_ptr().cast::<SmcSock>();
        // SAFETY: By the type invariant the socket is a `SmcSock`.
        unsafe { &raw mut (*front).front }
    }

    pub(super) fn waiters(&self) -> *mut bindings::wait_queue_head {
        let front = self.as_ptr().cast::<SmcSock>();
        // SAFETY: By the type invariant the socket is a `SmcSock`.
        unsafe { &raw mut (*front).waiters }
    }

    /// The sock with the options of SOL_SOCKET and the pending error that the application sees: the socket itself, or
    /// the TCP socket that it was.
    #[inline]
    pub(super) fn option_sk(&self) -> *mut bindings::sock {
        let front = self.as_ptr().cast::<SmcSock>();
        // SAFETY: By the type invariant the socket is a `SmcSock`, and the field does not change.
        let tcp_origin = unsafe { (*front).tcp_origin };
        if tcp_origin.is_null() {
            self.as_ptr()
        } else {
            tcp_origin
        }
    }

    /// Whether the socket was a TCP socket before (TCP_ULP).
    pub fn was_tcp(&self) -> bool {
        self.option_sk() != self.as_ptr()
    }

    /// The IP version of a socket of AF_INET or AF_INET6.
    pub(super) fn ip_version(&self) -> IpVersion {
        if u32::from(read_once!(self, __sk_common.skc_family)) == bindings::AF_INET6 {
            IpVersion::V6
        } else {
            IpVersion::V4
        }
    }

    /// The network namespace.
    pub fn netns(&self) -> &NetNs {
        // SAFETY: By the type invariant the namespace lives as long as the socket.
        unsafe { NetNs::from_ptr(self.net_ptr()) }
    }

    /// The network namespace, for calls into this crate.
    pub(super) fn net_ptr(&self) -> *mut bindings::net {
        // SAFETY: The socket is alive and belongs to a namespace.
        unsafe { bindings::sock_net(self.as_ptr()) }
    }

    /// The namespace's cookie, unique since boot (`SO_NETNS_COOKIE`).
    pub fn netns_cookie(&self) -> u64 {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_net_cookie(self.as_ptr()) }
    }

    /// How long TCP waits for the peer of an orphaned connection, ns: the sysctl `net.ipv4.tcp_fin_timeout` of the
    /// namespace, and not longer than that of the first one, as all share the number of such connections.
    pub fn fin_timeout(&self) -> u64 {
        // SAFETY: The socket holds its namespace, and the first one is always there.
        let [own, first] = [self.net_ptr(), &raw mut bindings::init_net]
            .map(|net| unsafe { bindings::net_fin_timeout(net) });
        let jiffies = own.min(first);
        time::nanos(usize::try_from(jiffies).unwrap_or(0))
    }

    /// Whether clients may send data with the request for a connection: the sysctl `net.ipv4.tcp_fastopen` of the
    /// namespace.
    pub fn is_fast_open_enabled(&self) -> bool {
        // SAFETY: The socket is alive.
        unsafe { bindings::sk_fast_open_enabled(self.as_ptr()) }
    }

    /// Counts that the application undoes the connection: calls that wait for it end, once they are woken. To be called
    /// by one task at a time.
    pub fn note_disconnect(&self) {
        let sk = self.as_ptr();
        let count = self.disconnects().wrapping_add(1);
        // SAFETY: The socket is alive, and others only read the field.
        unsafe { (&raw mut (*sk).sk_disconnects).write_volatile(count) };
    }

    /// How often that was counted.
    pub(super) fn disconnects(&self) -> i32 {
        read_once!(self, sk_disconnects)
    }

    /// The owner's uid, as mapped in the namespace of the socket.
    pub fn uid(&self) -> u32 {
        // SAFETY: The socket is alive.
        unsafe { bindings::sk_uid_munged(self.as_ptr()) }
    }

    /// The family given to socket(2).
    pub fn family(&self) -> u8 {
        // CAST: The numbers of families are small.
        read_once!(self, __sk_common.skc_family) as u8
    }

    /// The protocol number given to socket(2).
    pub fn protocol(&self) -> u16 {
        read_once!(self, sk_protocol)
    }

    /// The state, as numbered by `smc_diag`.
    pub fn state(&self) -> u8 {
        read_once!(self, __sk_common.skc_state)
    }

    /// Sets the state.
    /// Context: any.
    pub fn set_state(&self, state: u8) {
        write_once!(self, __sk_common.skc_state, state);
    }

    /// Whether an error is pending.
    #[inline]
    pub fn has_err(&self) -> bool {
        read_once!(self.option_sk, sk_err) != 0
    }

    /// Takes the pending error, so that it is reported once.
    ///
    /// # Errors
    ///
    /// The pending error, if there is one.
    #[inline]
    pub fn take_err(&self) -> Result {
        if !self.has_err() {
            return Ok(());
        }
        // SAFETY: The socket is alive.
        kernel::error::to_result(unsafe { bindings::sock_error(self.option_sk()) })
    }

    /// Sets the pending error and wakes all waiters (`EPOLLERR`).
    /// Context: any.
    pub fn set_err(&self, err: Error) {
        write_once!(self.option_sk, sk_err, -err.to_errno());
        self.wake_err();
    }

    /// Sets the pending error without a wake-up; the caller has to wake waiters soon.
    /// Context: any.
    pub fn note_err(&self, err: Error) {
        write_once!(self.option_sk, sk_err, -err.to_errno());
    }

    /// The directions that were shut down: bit 0 receiving, bit 1 sending.
    pub fn shutdown_mask(&self) -> u8 {
        read_once!(self, sk_shutdown)
    }

    /// Whether sending was shut down.
    pub fn is_send_shutdown(&self) -> bool {
        self.shutdown_mask() & bindings::SEND_SHUTDOWN as u8 != 0
    }

    /// Adds directions that were shut down.
    pub fn add_shutdown(&self, mask: u8) {
        write_once!(self, sk_shutdown, self.shutdown_mask() | mask);
    }

    /// Resets the shutdown mask, as for a new socket.
    pub fn clear_shutdown(&self) {
        write_once!(self, sk_shutdown, 0);
    }

    pub(super) fn flag(&self, flag: bindings::sock_flags) -> bool {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_flag(self.option_sk(), flag) }
    }

    /// Whether the application has set SO_RCVBUF.
    pub fn is_rcvbuf_locked(&self) -> bool {
        u32::from(read_once!(self.option_sk, sk_userlocks)) & bindings::SOCK_RCVBUF_LOCK != 0
    }

    /// Whether the application has set SO_SNDBUF.
    #[inline]
    pub fn is_sndbuf_locked(&self) -> bool {
        u32::from(read_once!(self.option_sk, sk_userlocks)) & bindings::SOCK_SNDBUF_LOCK != 0
    }

    /// SO_OOBINLINE.
    pub fn is_urg_inline(&self) -> bool {
        self.flag(bindings::sock_flags_SOCK_URGINLINE)
    }

    /// SO_KEEPALIVE.
    #[inline]
    pub fn is_keepalive(&self) -> bool {
        self.flag(bindings::sock_flags_SOCK_KEEPOPEN)
    }

    /// SO_LINGER: how long close(2) waits, in jiffies; `None` if the option is off, or the task is exiting and must not
    /// wait.
    /// Context: process.
    pub fn linger(&self) -> Option<isize> {
        let is_set = self.flag(bindings::sock_flags_SOCK_LINGER);
        let time = isize::try_from(read_once!(self.option_sk, sk_lingertime)).unwrap_or(FOREVER);
        // SAFETY: Only reads the current task.
        let is_exiting = unsafe { bindings::current_is_exiting() };
        (is_set && (time == 0 || !is_exiting)).then_some(time)
    }

    /// SO_SNDTIMEO in jiffies; 0 if `nonblock`.
    pub fn sndtimeo(&self, nonblock: bool) -> isize {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_sndtimeo(self.option_sk(), nonblock) }
    }

    /// SO_RCVTIMEO in jiffies; 0 if `nonblock`.
    pub fn rcvtimeo(&self, nonblock: bool) -> isize {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_rcvtimeo(self.option_sk(), nonblock) }
    }

    /// SO_SNDTIMEO and SO_RCVTIMEO, as the kernel stores them.
    pub(super) fn timeouts(&self) -> (isize, isize) {
        (
            read_once!(self.option_sk, sk_sndtimeo),
            read_once!(self.option_sk, sk_rcvtimeo),
        )
    }

    /// How many of `len` bytes a receiver waits for (SO_RCVLOWAT, MSG_WAITALL); at least 1.
    pub fn rcvlowat(&self, waitall: bool, len: usize) -> usize {
        let low = usize::try_from(read_once!(self.option_sk, sk_rcvlowat)).unwrap_or(1);
        if waitall { len } else { low.min(len) }.max(1)
    }

    /// SO_RCVLOWAT in bytes.
    pub fn lowat(&self) -> i32 {
        read_once!(self.option_sk, sk_rcvlowat)
    }

    /// SO_SNDBUF in bytes.
    pub fn sndbuf(&self) -> u32 {
        u32::try_from(read_once!(self.option_sk, sk_sndbuf)).unwrap_or(0)
    }

    /// How much would have to be queued, besides `bytes` more, for the kernel to grant these in any case: it does so
    /// for a stream that has reached its SO_SNDBUF, which it lowers unless twice as much is queued.
    pub(super) fn lead_to_sndbuf(&self, bytes: i32) -> i32 {
        let most = i32::MAX - bytes - read_once!(self, sk_wmem_queued);
        read_once!(self, sk_sndbuf).saturating_mul(2).min(most)
    }

    /// SO_RCVBUF in bytes.
    pub fn rcvbuf(&self) -> u32 {
        u32::try_from(read_once!(self.option_sk, sk_rcvbuf)).unwrap_or(0)
    }

    /// Raises the reported SO_SNDBUF to that many bytes, unless the application has set it.
    pub fn raise_sndbuf(&self, bytes: u32) {
        let len = i32::try_from(bytes).unwrap_or(i32::MAX);
        if !self.is_sndbuf_locked() && read_once!(self.option_sk, sk_sndbuf) < len {
            write_once!(self.option_sk, sk_sndbuf, len);
        }
    }

    /// Sets the reported SO_SNDBUF and SO_RCVBUF, in bytes, unless the application has set them.
    /// Context: any.
    #[inline]
    pub fn set_bufs(&self, sndbuf: u32, rcvbuf: u32) {
        let sk = self.option_sk();
        // SAFETY: The socket is alive, and the fields are plain integers.
        let (shown_sndbuf, shown_rcvbuf) = unsafe {
            (
                &*(&raw const (*sk).sk_sndbuf).cast::<AtomicI32>(),
                &*(&raw const (*sk).sk_rcvbuf).cast::<AtomicI32>(),
            )
        };
        replace_if(shown_sndbuf, sndbuf, || !self.is_sndbuf_locked());
        replace_if(shown_rcvbuf, rcvbuf, || !self.is_rcvbuf_locked());
    }

    /// Stores SO_REUSEPORT for getsockopt(2): the kernel does so for sockets of AF_INET and AF_INET6 only.
    /// Context: may sleep.
    pub fn set_reuseport(&self, on: bool) {
        let sk = self.as_ptr();
        // The kernel writes it under this lock, too: it is one bit of a bit field.
        // SAFETY: The socket is alive; sleeping is allowed.
        unsafe { bindings::lock_sock_nested(sk, 0) };
        // SAFETY: The socket is alive, and locked.
        unsafe {
            let common = &raw mut (*sk).__sk_common;
            bindings::sock_common::set_skc_reuseport_raw(common, on.into());
        }
        // SAFETY: Locked above.
        unsafe { bindings::release_sock(sk) };
    }

    /// Stores the backlog for `ss` and similar tools.
    pub fn set_max_backlog(&self, backlog: u32) {
        write_once!(self, sk_max_ack_backlog, backlog);
    }

    /// The backlog that was stored last.
    /// Context: any.
    pub fn max_backlog(&self) -> u32 {
        read_once!(self, sk_max_ack_backlog)
    }

    /// Requests a wake-up when there is space again (`SOCK_NOSPACE`), and SIGIO if the owner of the file wants that;
    /// check for space afterwards. To be called by a task that uses the socket.
    pub fn set_nospace(&self) {
        let _rcu = rcu::read_lock();
        // SAFETY: The socket is alive, and its `struct socket` outlives an RCU read section in
        // which it was still attached.
        let socket = unsafe { bindings::sk_socket(self.as_ptr()) };
        if !socket.is_null() {
            // SAFETY: As above.
            unsafe { bindings::sock_set_bit(socket, bindings::socket_flags_SOCK_NOSPACE as i32) };
            // SAFETY: As above; the `struct socket` of the application has its wait queue for its life.
            unsafe { bindings::sk_set_async_nospace(self.option_sk()) };
        }
        smp_mb(Full);
    }

    /// Bound device, and mark and priority of packets.
    pub(super) fn marks(&self) -> (i32, u32, u32) {
        (
            read_once!(self.option_sk, __sk_common.skc_bound_dev_if),
            read_once!(self.option_sk, sk_mark),
            read_once!(self.option_sk, sk_priority),
        )
    }

    /// Sets the values returned by [`marks`](Self::marks).
    pub(super) fn set_marks(&self, (ifindex, mark, priority): (i32, u32, u32)) {
        write_once!(self, __sk_common.skc_bound_dev_if, ifindex);
        write_once!(self, sk_mark, mark);
        write_once!(self, sk_priority, priority);
    }

    /// Inherits the listener's options that apply to a connection that it accepted.
    pub(super) fn inherit(&self, parent: &Self) {
        write_once!(self, sk_sndtimeo, read_once!(parent.option_sk, sk_sndtimeo));
        write_once!(self, sk_rcvtimeo, read_once!(parent.option_sk, sk_rcvtimeo));
        write_once!(self, sk_rcvlowat, read_once!(parent.option_sk, sk_rcvlowat));
        write_once!(self, sk_sndbuf, read_once!(parent.option_sk, sk_sndbuf));
        write_once!(self, sk_rcvbuf, read_once!(parent.option_sk, sk_rcvbuf));
        write_once!(
            self,
            sk_userlocks,
            read_once!(parent.option_sk, sk_userlocks)
        );
        write_once!(
            self,
            sk_lingertime,
            read_once!(parent.option_sk, sk_lingertime)
        );
        write_once!(self, sk_mark, read_once!(parent.option_sk, sk_mark));
        write_once!(self, sk_priority, read_once!(parent.option_sk, sk_priority));
        write_once!(self, sk_uid, read_once!(parent.option_sk, sk_uid));
        write_once!(
            self,
            __sk_common.skc_bound_dev_if,
            read_once!(parent.option_sk, __sk_common.skc_bound_dev_if)
        );
        // SAFETY: Both sockets are alive, and nothing else uses the new one yet.
        unsafe { bindings::sock_add_flags(self.as_ptr(), parent.option_sk(), INHERITED_FLAGS) };
        self.inherit_shown(parent);
    }

    /// Inherits the options that mean nothing here but are read back, as those of a connection of TCP are.
    fn inherit_shown(&self, parent: &Self) {
        let (from, to) = (parent.option_sk(), self.as_ptr());
        write_once!(self, sk_tsflags, read_once!(parent.option_sk, sk_tsflags));
        write_once!(self, sk_bind_phc, read_once!(parent.option_sk, sk_bind_phc));
        write_once!(
            self,
            sk_max_pacing_rate,
            read_once!(parent.option_sk, sk_max_pacing_rate)
        );
        #[cfg(CONFIG_NET_RX_BUSY_POLL)]
        {
            write_once!(self, sk_ll_usec, read_once!(parent.option_sk, sk_ll_usec));
            write_once!(
                self,
                sk_busy_poll_budget,
                read_once!(parent.option_sk, sk_busy_poll_budget)
            );
            write_once!(
                self,
                sk_prefer_busy_poll,
                read_once!(parent.option_sk, sk_prefer_busy_poll)
            );
        }
        // SAFETY: Both sockets are alive, and nothing else uses the new one yet.
        unsafe {
            let common = &raw mut (*to).__sk_common;
            (*common).set_skc_reuse((*from).__sk_common.skc_reuse());
            (*common).set_skc_reuseport((*from).__sk_common.skc_reuseport());
            (*to).set_sk_no_check_tx((*from).sk_no_check_tx());
            (*to).sk_clockid = (*from).sk_clockid;
            (*to).set_sk_txtime_deadline_mode((*from).sk_txtime_deadline_mode());
            (*to).set_sk_txtime_report_errors((*from).sk_txtime_report_errors());
        }
    }
}

/// Not those by which the kernel counts sockets that need times of packets.
const INHERITED_FLAGS: usize = flag_bits(&[
    bindings::sock_flags_SOCK_URGINLINE,
    bindings::sock_flags_SOCK_KEEPOPEN,
    bindings::sock_flags_SOCK_LINGER,
    bindings::sock_flags_SOCK_DBG,
    bindings::sock_flags_SOCK_BROADCAST,
    bindings::sock_flags_SOCK_LOCALROUTE,
    bindings::sock_flags_SOCK_RXQ_OVFL,
    bindings::sock_flags_SOCK_WIFI_STATUS,
    bindings::sock_flags_SOCK_NOFCS,
    bindings::sock_flags_SOCK_SELECT_ERR_QUEUE,
    bindings::sock_flags_SOCK_RCVTSTAMP,
    bindings::sock_flags_SOCK_RCVTSTAMPNS,
    bindings::sock_flags_SOCK_TSTAMP_NEW,
    bindings::sock_flags_SOCK_TXTIME,
    bindings::sock_flags_SOCK_RCVMARK,
    bindings::sock_flags_SOCK_RCVPRIORITY,
]);

/// The flags as bits of `sk_flags`.
const fn flag_bits(flags: &[bindings::sock_flags]) -> usize {
    let (mut bits, mut i) = (0, 0);
    while i < flags.len() {
        bits |= 1 << flags[i];
        i += 1;
    }
    bits
}

/// Has a field be `to` if `may_change` says so, and nobody changes the field in between.
#[inline]
fn replace_if(field: &AtomicI32, to: u32, may_change: impl FnOnce() -> bool) {
    let to = i32::try_from(to).unwrap_or(i32::MAX);
    // ORDERING: The field stands for itself.
    let now = field.load(Relaxed);
    // Mostly it has not changed, and the cache line stays clean.
    if now != to && may_change() {
        // What the application has set meanwhile stays.
        let _ = field.compare_exchange(now, to, Relaxed, Relaxed);
    }
}
