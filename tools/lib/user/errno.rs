// SPDX-License-Identifier: GPL-2.0

//! Error numbers, with names for those that socket calls return. Unlike the error types of
//! libraries, this one keeps the numbers of others: test results contain them.

use core::fmt;
use std::io;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

macro_rules! names {
    ($($name:ident)*) => {
        impl Errno {
            $(
                #[doc = concat!("`", stringify!($name), "`")]
                pub const $name: Self = Self(libc::$name);
            )*

            /// Returns the name; `None` for a number that no socket call returns.
            pub fn name(self) -> Option<&'static str> {
                match self.0 {
                    $(libc::$name => Some(stringify!($name)),)*
                    _ => None,
                }
            }
        }
    };
}

names! {
    E2BIG EACCES EADDRINUSE EADDRNOTAVAIL EAFNOSUPPORT EAGAIN EALREADY EBADF EBUSY ECONNABORTED
    ECONNREFUSED ECONNRESET EDESTADDRREQ EDOM EEXIST EFAULT EHOSTUNREACH EINPROGRESS EINTR EINVAL
    EIO EISCONN EMFILE EMSGSIZE ENETDOWN ENETUNREACH ENFILE ENOBUFS ENODEV ENOENT ENOMEM ENOPROTOOPT
    ENOSYS ENOTCONN ENOTSOCK ENOTTY ENXIO EOPNOTSUPP EPERM EPIPE EPROTO EPROTONOSUPPORT ERANGE
    ESOCKTNOSUPPORT ESPIPE ETIMEDOUT
}

impl Errno {
    /// Returns the errno of this thread's last failed call.
    pub(crate) fn last() -> Self {
        io::Error::last_os_error().into()
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl core::error::Error for Errno {}

impl From<rustix::io::Errno> for Errno {
    fn from(error: rustix::io::Errno) -> Self {
        Self(error.raw_os_error())
    }
}

impl From<io::Error> for Errno {
    fn from(error: io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(0))
    }
}

impl From<Errno> for io::Error {
    fn from(error: Errno) -> Self {
        Self::from_raw_os_error(error.0)
    }
}
