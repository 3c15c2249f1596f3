// SPDX-License-Identifier: GPL-2.0

//! Sockets: those that an application holds, and the TCP sockets below them.
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/linux/net.h`](srctree/include/linux/net.h)

mod addr;
mod args;
mod family;
mod msg;
mod sk;
mod stream;
mod tcp;
mod wait;

pub use addr::{
    Endpoint,
    IpVersion,
    RawAddr, //
};
pub use args::{
    put_int,
    NameBuf,
    OptIn,
    OptOut,
    PollWait, //
};
pub use family::FamilyRegistration;
pub use msg::*;
pub use sk::Sk;
pub use stream::StreamSocket;
pub use tcp::{
    Hook,
    TcpEvents,
    TcpSocket,
    TcpState, //
};
pub use wait::{
    WaitEnd,
    FOREVER, //
};
