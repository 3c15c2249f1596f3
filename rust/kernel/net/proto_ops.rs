// SPDX-License-Identifier: GPL-2.0

//! The tables of functions behind the system calls on a [`StreamSocket`] (`struct proto_ops`).
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    },
    types::ForeignOwnable, //
};

use super::{
    args::{
        put_int,
        PollWait,
        SockAddrBuf,
        SockOptIn,
        SockOptOut, //
    },
    converted,
    msg::{
        Msg,
        MsgDirection, //
    },
    stream_socket::{
        Caller,
        StreamSocket, //
    },
    IpVersion,
    Sk,
    SockAddr, //
};
use crate::{
    bindings,
    module::__this_module,
    prelude::*, //
};

/// The callbacks of the kernel's table for a [`StreamSocket`]; with `ULP`, for a socket that was a TCP socket before.
pub(super) struct ProtoOpsVTable<T, const ULP: bool = false>(PhantomData<T>);

/// A constant table.
#[repr(transparent)]
pub(super) struct ProtoOps(pub(super) bindings::proto_ops);

// SAFETY: The table is never written, and holds functions and the module only.
unsafe impl Sync for ProtoOps {}

impl<T: StreamSocket, const ULP: bool> ProtoOpsVTable<T, ULP> {
    /// For the separate family.
    pub(super) const OWN: ProtoOps = Self::table(T::FAMILY);
    /// For AF_INET.
    pub(super) const INET: ProtoOps = Self::table(IpVersion::V4.family());
    /// For AF_INET6.
    #[cfg(CONFIG_IPV6)]
    pub(super) const INET6: ProtoOps = Self::table(IpVersion::V6.family());

    /// The table of sockets over a version of IP.
    pub(super) fn inet_table(version: IpVersion) -> &'static ProtoOps {
        match version {
            #[cfg(CONFIG_IPV6)]
            IpVersion::V6 => const { &Self::INET6 },
            _ => const { &Self::INET },
        }
    }

    const fn table(family: u16) -> ProtoOps {
        ProtoOps(bindings::proto_ops {
            family: family as i32,
            owner: (&raw const __this_module).cast_mut().cast(),
            release: Some(Self::release_callback),
            bind: Some(Self::bind_callback),
            connect: Some(Self::connect_callback),
            socketpair: Some(bindings::sock_no_socketpair),
            accept: Some(Self::accept_callback),
            getname: Some(Self::getname_callback),
            poll: Some(Self::poll_callback),
            ioctl: Some(Self::ioctl_callback),
            #[cfg(CONFIG_COMPAT)]
            compat_ioctl: Some(Self::compat_ioctl_callback),
            gettstamp: Some(Self::gettstamp_callback),
            listen: Some(Self::listen_callback),
            shutdown: Some(Self::shutdown_callback),
            setsockopt: Some(Self::setsockopt_callback),
            getsockopt: Some(Self::getsockopt_callback),
            getsockopt_iter: None,
            show_fdinfo: None,
            sendmsg: Some(Self::sendmsg_callback::<false>),
            recvmsg: Some(Self::recvmsg_callback::<false>),
            mmap: Some(Self::mmap_callback),
            // The kernel then copies by recvmsg.
            splice_read: None,
            splice_eof: Some(Self::splice_eof_callback),
            set_peek_off: None,
            peek_len: None,
            read_sock: None,
            read_skb: None,
            sendmsg_locked: None,
            set_rcvlowat: None,
            set_rcvbuf: None,
        })
    }

    /// Returns the `sk` of ours, or null.
    ///
    /// # Safety
    ///
    /// `socket` must be a live socket whose table is this one.
    unsafe fn sk_of(socket: *mut bindings::socket) -> *mut bindings::sock {
        if ULP {
            // SAFETY: By the caller's promise.
            unsafe { converted::sk_of(socket) }
        } else {
            // SAFETY: By the caller's promise.
            unsafe { (*socket).sk }
        }
    }

    /// # Safety
    ///
    /// `socket` must be a live socket whose table is ours.
    unsafe fn front<'a>(socket: *mut bindings::socket) -> Result<ArcBorrow<'a, T>> {
        // SAFETY: By the caller's promise. Sockets with our table have a `sk` of ours.
        unsafe { Self::front_of(Self::sk_of(socket)) }
    }

    /// The same for a call that sends packets of a connection for the first time: they are those of the socket's file.
    ///
    /// # Safety
    ///
    /// As for [`Self::front`].
    unsafe fn front_with_file<'a>(socket: *mut bindings::socket) -> Result<ArcBorrow<'a, T>> {
        // SAFETY: By the caller's promise.
        let this = unsafe { Self::front(socket) }?;
        // SAFETY: The socket is that of the application, and `release_callback` undoes this.
        unsafe { this.tcp_below().take_file(socket) };
        // fchown(2) changes who has a socket.
        // SAFETY: A socket of ours with a front has a `sk`, which is alive.
        this.tcp_below()
            .show_as(unsafe { Sk::from_ptr(Self::sk_of(socket)) });
        Ok(this)
    }

    /// The same for sendmsg(2), which may connect (MSG_FASTOPEN).
    ///
    /// # Safety
    ///
    /// As for [`Self::front`].
    #[inline]
    unsafe fn sender<'a>(socket: *mut bindings::socket, msg: &Msg<'_>) -> Result<ArcBorrow<'a, T>> {
        match msg.flags() & bindings::MSG_FASTOPEN {
            // SAFETY: By the caller's promise.
            0 => unsafe { Self::front(socket) },
            // SAFETY: As above.
            _ => unsafe { Self::front_with_file(socket) },
        }
    }

    /// # Safety
    ///
    /// `sk` must be null or of ours, and its socket alive.
    unsafe fn front_of<'a>(sk: *mut bindings::sock) -> Result<ArcBorrow<'a, T>> {
        if sk.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: By the caller's promise.
        let slot = unsafe { Sk::from_ptr(sk) }.front_slot();
        // SAFETY: The slot changes only when the socket is created and when it is released, which overlaps with no
        // other call.
        let front = unsafe { *slot };
        if front.is_null() {
            return Err(EINVAL);
        }
        // SAFETY: From `into_foreign`, and taken back only in `release_callback`.
        Ok(unsafe { Arc::<T>::borrow(front) })
    }

    /// Makes `front` handle the calls on `sk`.
    ///
    /// # Safety
    ///
    /// `sk` must be attached to a `struct socket` that no call uses yet.
    pub(super) unsafe fn attach(sk: &Sk, front: Arc<T>) {
        // SAFETY: Nothing else uses the slot yet.
        unsafe { *sk.front_slot() = front.into_foreign() };
        // SAFETY: By the caller's promise there is a socket.
        let socket = unsafe { bindings::sk_socket(sk.as_ptr()) };
        for flag in [
            // SOL_SOCKET options are passed to us as well.
            bindings::socket_flags_SOCK_CUSTOM_SOCKOPT,
            // IORING_OP_SEND_ZC fails on sockets without it. Over RDMA the data are copied, which io_uring reports to
            // those who ask (IORING_SEND_ZC_REPORT_USAGE); after a fallback TCP sends them as its own.
            bindings::socket_flags_SOCK_SUPPORT_ZC,
        ] {
            // SAFETY: As above.
            unsafe { bindings::sock_set_bit(socket, flag as i32) };
        }
    }

    unsafe extern "C" fn release_callback(socket: *mut bindings::socket) -> i32 {
        // SAFETY: The kernel passes a live socket, which nothing else uses any more.
        let Some(sk) = NonNull::new(unsafe { Self::sk_of(socket) }) else {
            return 0;
        };
        // SAFETY: Sockets with our table have a `sk` of ours, and own a reference to it.
        let sk = unsafe { Sk::from_owned(sk) };
        // SAFETY: The socket is released once, and no other call overlaps.
        let front = unsafe { ptr::replace(sk.front_slot(), ptr::null_mut()) };
        // SAFETY: From `into_foreign` in `attach`, or null.
        if let Some(front) = unsafe { Arc::<T>::try_from_foreign(front) } {
            let kept = front.clone();
            T::release(front);
            // What ends the connection is still the file's.
            kept.tcp_below().leave_file();
        }
        // SAFETY: The socket is alive; neither its family nor whose it is changes.
        let (family, is_kernels) = unsafe {
            let sk = sk.as_ptr();
            ((*sk).__sk_common.skc_family, (*sk).sk_kern_sock() != 0)
        };
        if !ULP && family != T::FAMILY && !is_kernels {
            // The kernel ran the other ones of its cgroup when the socket was made, as it does for all of IP.
            // SAFETY: As above.
            unsafe { bindings::cgroup_run_sock_release(sk.as_ptr()) };
        }
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_orphan(sk.as_ptr()) };
        // SAFETY: The kernel passes a live socket with this table, and it has a `sk`.
        if ULP && unsafe { converted::is_converted(socket) } {
            // SAFETY: As above, and nothing else uses it.
            return unsafe { converted::release_origin(socket) };
        }
        // SAFETY: As above.
        unsafe { (*socket).sk = ptr::null_mut() };
        0
    }

    unsafe extern "C" fn bind_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours and an address of that length.
        errno(unsafe {
            Self::front(socket).and_then(|this| T::bind(this, SockAddr::new(addr, len)))
        })
    }

    unsafe extern "C" fn connect_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr_unsized,
        len: i32,
        flags: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours and an address of that length.
        errno(unsafe {
            Self::front_with_file(socket)
                .and_then(|this| T::connect(this, SockAddr::new(addr, len), flags))
        })
    }

    unsafe extern "C" fn listen_callback(socket: *mut bindings::socket, backlog: i32) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        errno(unsafe { Self::front_with_file(socket).and_then(|this| T::listen(this, backlog)) })
    }

    unsafe extern "C" fn accept_callback(
        socket: *mut bindings::socket,
        new: *mut bindings::socket,
        arg: *mut bindings::proto_accept_arg,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours, and a valid argument.
        let accepted = unsafe {
            Self::front(socket).and_then(|this| {
                let accepted = T::accept(this, (*arg).flags)?;
                (*arg).is_empty = i32::from(!T::has_pending(this));
                Ok(accepted)
            })
        };
        let (sk, front) = match accepted {
            Ok((orphan, front)) => (orphan.into_sk(), front),
            Err(e) => return e.to_errno(),
        };
        if ULP {
            // A socket accepted by a converted listener was never a TCP socket of the application.
            // SAFETY: Nothing else uses the new socket.
            unsafe { (*new).ops = &ProtoOpsVTable::<T>::inet_table(sk.ip_version()).0 };
        }
        // SAFETY: Both are alive, and nothing else uses the new socket. An orphan was never attached to one.
        unsafe {
            bindings::sock_graft(sk.as_ptr(), new);
            Self::attach(&sk, front);
            (*new).state = bindings::socket_state_SS_CONNECTED;
            if let Ok(this) = ProtoOpsVTable::<T>::front_with_file(new) {
                T::accepted(this);
            }
        }
        // The reference belongs to the new socket now.
        let _ = ARef::into_raw(sk);
        0
    }

    unsafe extern "C" fn getname_callback(
        socket: *mut bindings::socket,
        addr: *mut bindings::sockaddr,
        peer: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours, and room for every address.
        let result = unsafe {
            Self::front(socket).and_then(|this| T::getname(this, &mut SockAddrBuf::new(addr), peer))
        };
        result.unwrap_or_else(Error::to_errno)
    }

    unsafe extern "C" fn poll_callback(
        file: *mut bindings::file,
        socket: *mut bindings::socket,
        table: *mut bindings::poll_table,
    ) -> bindings::__poll_t {
        let wait = PollWait {
            file,
            socket,
            table,
            _poll: PhantomData,
        };
        // SAFETY: The kernel passes a live socket of ours.
        match unsafe { Self::front(socket) } {
            Ok(this) => T::poll(this, &wait),
            Err(_) => bindings::POLLNVAL,
        }
    }

    unsafe extern "C" fn ioctl_callback(
        socket: *mut bindings::socket,
        cmd: u32,
        arg: usize,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        let result = unsafe {
            Self::front(socket).and_then(|this| match T::ioctl_number(this, cmd) {
                Err(e) if e == ENOIOCTLCMD => T::ioctl(this, cmd, arg),
                number => put_int(arg, number?).map(|()| 0),
            })
        };
        result.unwrap_or_else(Error::to_errno)
    }

    /// The function of that name in the records of the kinds of sockets (`struct proto`), which io_uring calls. With
    /// `ULP`, in that of a TCP socket which was converted; a call of ioctl(2) that began before comes here, too.
    pub(super) unsafe extern "C" fn prot_ioctl_callback(
        sk: *mut bindings::sock,
        cmd: i32,
        number: *mut i32,
    ) -> i32 {
        let sk = match ULP {
            // SAFETY: The kernel passes the `sk` of a live socket, which it uses for the length of the call.
            true => unsafe { converted::ours(sk) },
            false => sk,
        };
        // CAST: A set of bits.
        let cmd = cmd as u32;
        // SAFETY: As above; it is of ours then.
        let result = unsafe { Self::front_of(sk).and_then(|this| T::ioctl_number(this, cmd)) };
        errno(result.map(|value| {
            // SAFETY: The kernel passes a place for the number.
            unsafe { *number = value };
        }))
    }

    #[cfg(CONFIG_COMPAT)]
    unsafe extern "C" fn compat_ioctl_callback(
        socket: *mut bindings::socket,
        cmd: u32,
        arg: usize,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        let result = unsafe {
            Self::front(socket)
                .and_then(|this| T::tcp(this).ok_or(ENOIOCTLCMD))
                .and_then(|tcp| tcp.compat_ioctl(cmd, arg))
        };
        result.unwrap_or_else(Error::to_errno)
    }

    unsafe extern "C" fn gettstamp_callback(
        socket: *mut bindings::socket,
        stamp: *mut c_void,
        timeval: bool,
        time32: bool,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        errno(unsafe {
            Self::front(socket)
                .and_then(|this| T::tcp(this).ok_or(ENOTTY))
                .and_then(|tcp| tcp.gettstamp(stamp, timeval, time32))
        })
    }

    unsafe extern "C" fn mmap_callback(
        file: *mut bindings::file,
        socket: *mut bindings::socket,
        vma: *mut bindings::vm_area_struct,
    ) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        errno(unsafe {
            Self::front(socket)
                .and_then(|this| T::tcp(this).ok_or(ENODEV))
                .and_then(|tcp| tcp.mmap(file, vma))
        })
    }

    unsafe extern "C" fn splice_eof_callback(socket: *mut bindings::socket) {
        // SAFETY: The kernel passes a live socket of ours.
        if let Ok(this) = unsafe { Self::front(socket) } {
            T::splice_eof(this);
        }
    }

    unsafe extern "C" fn shutdown_callback(socket: *mut bindings::socket, how: i32) -> i32 {
        // SAFETY: The kernel passes a live socket of ours.
        errno(unsafe { Self::front(socket).and_then(|this| T::shutdown(this, how)) })
    }

    unsafe extern "C" fn setsockopt_callback(
        socket: *mut bindings::socket,
        level: i32,
        name: i32,
        value: bindings::sockptr_t,
        len: u32,
    ) -> i32 {
        let Some(place) = NonNull::new(socket) else {
            return EINVAL.to_errno();
        };
        // SAFETY: The kernel passes a live socket of ours, which lives for the length of the call, and a value of that
        // length.
        errno(unsafe {
            let caller = Caller::new(place);
            let value = SockOptIn::new(value, len);
            Self::front(socket).and_then(|this| {
                let set = |value: SockOptIn<'_>| T::setsockopt(this, caller, level, name, value);
                value.copied_for(level, name, set)
            })
        })
    }

    unsafe extern "C" fn getsockopt_callback(
        socket: *mut bindings::socket,
        level: i32,
        name: i32,
        value: *mut u8,
        len: *mut i32,
    ) -> i32 {
        let out = SockOptOut { value, len };
        // SAFETY: The kernel passes a live socket of ours.
        errno(unsafe { Self::front(socket).and_then(|this| T::getsockopt(this, level, name, out)) })
    }

    /// With `OVER_TCP`, of a socket for whose data TCP answers for good.
    unsafe extern "C" fn sendmsg_callback<const OVER_TCP: bool>(
        socket: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        _len: usize,
    ) -> i32 {
        // SAFETY: The kernel passes a message for us alone, with a source of bytes.
        let mut msg = unsafe { Msg::from_ptr(msg, MsgDirection::Send) };
        // SAFETY: The kernel passes a live socket of ours.
        let front = unsafe { Self::sender(socket, &msg) };
        count(front.and_then(|this| match OVER_TCP {
            true => T::sendmsg_over_tcp(this, &mut msg),
            false => T::sendmsg(this, &mut msg),
        }))
    }

    /// As [`Self::sendmsg_callback`].
    unsafe extern "C" fn recvmsg_callback<const OVER_TCP: bool>(
        socket: *mut bindings::socket,
        msg: *mut bindings::msghdr,
        _len: usize,
        flags: i32,
    ) -> i32 {
        // SAFETY: The kernel passes a message for us alone, with room for bytes.
        let mut msg = unsafe { Msg::from_ptr(msg, MsgDirection::Recv) };
        // CAST: flags are a set of bits.
        let flags = flags as u32;
        // SAFETY: The kernel passes a live socket of ours.
        let front = unsafe { Self::front(socket) };
        count(front.and_then(|this| match OVER_TCP {
            true => T::recvmsg_over_tcp(this, &mut msg, flags),
            false => T::recvmsg(this, &mut msg, flags),
        }))
    }
}

/// The tables of sockets for whose data TCP answers for good: with less on the way to it.
impl<T: StreamSocket> ProtoOpsVTable<T> {
    const OWN_OVER_TCP: ProtoOps = Self::over_tcp(Self::OWN);
    const INET_OVER_TCP: ProtoOps = Self::over_tcp(Self::INET);
    #[cfg(CONFIG_IPV6)]
    const INET6_OVER_TCP: ProtoOps = Self::over_tcp(Self::INET6);

    const fn over_tcp(table: ProtoOps) -> ProtoOps {
        ProtoOps(bindings::proto_ops {
            sendmsg: Some(Self::sendmsg_callback::<true>),
            recvmsg: Some(Self::recvmsg_callback::<true>),
            ..table.0
        })
    }

    /// The table in place of the one of a socket, if that is of this type.
    fn table_over_tcp(now: &bindings::proto_ops) -> Option<&'static ProtoOps> {
        let release: Release = Self::release_callback;
        let is_of_type = now
            .release
            .is_some_and(|now| now as usize == release as usize);
        match u16::try_from(now.family) {
            _ if !is_of_type => None,
            Ok(family) if family == T::FAMILY => Some(const { &Self::OWN_OVER_TCP }),
            #[cfg(CONFIG_IPV6)]
            Ok(family) if family == IpVersion::V6.family() => Some(const { &Self::INET6_OVER_TCP }),
            _ => Some(const { &Self::INET_OVER_TCP }),
        }
    }
}

/// `release` of a table.
type Release = unsafe extern "C" fn(*mut bindings::socket) -> i32;

impl Sk {
    /// Has the calls for data of an application's socket of type `T` go to [`StreamSocket::sendmsg_over_tcp`] and
    /// [`StreamSocket::recvmsg_over_tcp`] from now on. Nothing happens if it has been released, or was a TCP socket
    /// before.
    /// Context: any.
    pub fn answer_over_tcp<T: StreamSocket>(&self) {
        let sk = self.as_ptr();
        // A socket is detached from its `struct socket` under this lock.
        // SAFETY: The socket is alive.
        unsafe { bindings::callback_read_lock_bh(sk) };
        // SAFETY: As above.
        let socket = unsafe { bindings::sk_socket(sk) };
        if !socket.is_null() {
            // SAFETY: The `struct socket` is alive.
            let ops = unsafe { &raw mut (*socket).ops };
            // A socket that the kernel accepts for itself has no table yet.
            // SAFETY: As above. A table is constant.
            let now = unsafe { ops.read_volatile().as_ref() };
            if let Some(table) = now.and_then(ProtoOpsVTable::<T>::table_over_tcp) {
                // SAFETY: As above. Each call reads the field once, and may use either table.
                unsafe { ops.write_volatile(&table.0) };
            }
        }
        // SAFETY: Taken above.
        unsafe { bindings::callback_read_unlock_bh(sk) };
    }
}

/// Converts a result for C: 0 or a negative errno.
fn errno(result: Result) -> i32 {
    result.map_or_else(Error::to_errno, |()| 0)
}

/// Converts a result for C: a length or a negative errno.
#[inline]
fn count(result: Result<usize>) -> i32 {
    result.map_or_else(Error::to_errno, |len| {
        i32::try_from(len).unwrap_or(i32::MAX)
    })
}
