// SPDX-License-Identifier: GPL-2.0

//! Stream sockets written in Rust: the functions behind their system calls.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel::{
    error::to_result,
    sync::{
        aref::ARef,
        Arc,
        ArcBorrow, //
    }, //
};

use super::{
    args::{
        PollWait,
        SockAddrBuf,
        SockOptIn,
        SockOptOut, //
    },
    msg::Msg,
    sock_alloc::UnattachedSk,
    IpVersion,
    Sk,
    SockAddr,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// A stream socket of a separate protocol family. All functions may sleep and run in the context of the application,
/// several at a time.
pub trait StreamSocket: Send + Sync + Sized + 'static {
    /// Names in `/proc/net/protocols`: over IPv4 and IPv6, then those of AF_INET and AF_INET6.
    const NAMES: [&'static CStr; 4];
    /// The protocol family's number.
    const FAMILY: u16;
    /// The protocol's number in the families AF_INET and AF_INET6.
    const PROTOCOL: u16;
    /// The name by which TCP_ULP converts a TCP socket to such a socket.
    const ULP: &'static CStr;

    /// socket(2).
    ///
    /// # Errors
    ///
    /// The call's.
    fn create(sk: ARef<Sk>, version: IpVersion) -> Result<Arc<Self>>;
    /// accept(2) has made the socket that of a file.
    fn accepted(this: ArcBorrow<'_, Self>);
    /// close(2) of the last descriptor. The socket's queues still exist.
    fn release(this: Arc<Self>);
    /// The TCP socket below.
    fn tcp_below(&self) -> &TcpSocket;
    /// bind(2).
    ///
    /// # Errors
    ///
    /// The call's.
    fn bind(this: ArcBorrow<'_, Self>, addr: SockAddr<'_>) -> Result;
    /// connect(2); `flags` are those of the file.
    ///
    /// # Errors
    ///
    /// The call's.
    fn connect(this: ArcBorrow<'_, Self>, addr: SockAddr<'_>, flags: i32) -> Result;
    /// listen(2).
    ///
    /// # Errors
    ///
    /// The call's.
    fn listen(this: ArcBorrow<'_, Self>, backlog: i32) -> Result;
    /// accept(2): returns a socket that was never attached, and its front.
    ///
    /// # Errors
    ///
    /// The call's.
    fn accept(this: ArcBorrow<'_, Self>, flags: i32) -> Result<(UnattachedSk, Arc<Self>)>;
    /// Whether another connection is ready for [`accept`](Self::accept). io_uring tells its caller so with each that it
    /// returns (`IORING_CQE_F_SOCK_NONEMPTY`).
    fn has_pending(this: ArcBorrow<'_, Self>) -> bool;
    /// getsockname(2) and, with `peer`, getpeername(2): writes the address, returns its length.
    ///
    /// # Errors
    ///
    /// The call's.
    fn getname(this: ArcBorrow<'_, Self>, name: &mut SockAddrBuf<'_>, peer: i32) -> Result<i32>;
    /// poll(2) and similar.
    fn poll(this: ArcBorrow<'_, Self>, wait: &PollWait<'_>) -> u32;
    /// ioctl(2) of a command that asks for a number, such as SIOCINQ. io_uring has some of them
    /// (`SOCKET_URING_OP_SIOCINQ`), and calls this with locks of its own held.
    ///
    /// # Errors
    ///
    /// The call's; `ENOIOCTLCMD` for all other commands.
    fn ioctl_number(this: ArcBorrow<'_, Self>, cmd: u32) -> Result<i32>;
    /// ioctl(2) of a command that [`ioctl_number`](Self::ioctl_number) does not know.
    ///
    /// # Errors
    ///
    /// The call's; `ENOIOCTLCMD` for commands that the kernel handles for all sockets.
    fn ioctl(this: ArcBorrow<'_, Self>, cmd: u32, arg: usize) -> Result<i32>;
    /// shutdown(2).
    ///
    /// # Errors
    ///
    /// The call's.
    fn shutdown(this: ArcBorrow<'_, Self>, how: i32) -> Result;
    /// setsockopt(2), also of SOL_SOCKET options; [`Caller::setsockopt`] sets those as the kernel would.
    ///
    /// # Errors
    ///
    /// The call's.
    fn setsockopt(
        this: ArcBorrow<'_, Self>,
        caller: Caller<'_>,
        level: i32,
        name: i32,
        value: SockOptIn<'_>,
    ) -> Result;
    /// getsockopt(2), not of SOL_SOCKET options.
    ///
    /// # Errors
    ///
    /// The call's.
    fn getsockopt(this: ArcBorrow<'_, Self>, level: i32, name: i32, out: SockOptOut) -> Result;
    /// sendmsg(2) and similar.
    ///
    /// # Errors
    ///
    /// The call's.
    fn sendmsg(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>) -> Result<usize>;
    /// recvmsg(2) and similar.
    ///
    /// # Errors
    ///
    /// The call's.
    fn recvmsg(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>, flags: u32) -> Result<usize>;
    /// sendmsg(2) after [`Sk::answer_over_tcp`].
    ///
    /// # Errors
    ///
    /// The call's.
    fn sendmsg_over_tcp(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>) -> Result<usize>;
    /// recvmsg(2) after [`Sk::answer_over_tcp`].
    ///
    /// # Errors
    ///
    /// The call's.
    fn recvmsg_over_tcp(this: ArcBorrow<'_, Self>, msg: &mut Msg<'_>, flags: u32) -> Result<usize>;
    /// The end of the data of sendfile(2) or splice(2), whose last piece may have had MSG_MORE.
    fn splice_eof(this: ArcBorrow<'_, Self>);
    /// The TCP socket that handles calls for which there is no function above, if there is one now.
    fn tcp(this: ArcBorrow<'_, Self>) -> Option<Arc<TcpSocket>>;
}

/// The application's own `struct socket`, for the length of one of its calls.
///
/// # Invariants
///
/// The pointer is a socket that is alive for `'a`.
#[derive(Clone, Copy)]
pub struct Caller<'a> {
    socket: NonNull<bindings::socket>,
    _call: PhantomData<&'a ()>,
}

impl Caller<'_> {
    /// # Safety
    ///
    /// The socket must be alive for as long as the result is.
    pub(super) unsafe fn new(socket: NonNull<bindings::socket>) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            socket,
            _call: PhantomData,
        }
    }

    /// Sets a SOL_SOCKET option as the kernel does for all sockets.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// The kernel's.
    pub fn setsockopt(self, name: i32, value: SockOptIn<'_>) -> Result {
        // SAFETY: By the type invariant the socket is alive; the value is valid for its length.
        to_result(unsafe {
            bindings::sock_setsockopt(
                self.socket.as_ptr(),
                bindings::SOL_SOCKET as i32,
                name,
                value.ptr,
                value.len,
            )
        })
    }
}
