// SPDX-License-Identifier: GPL-2.0

//! What older kernel series lack: all differences between the series that this tree builds for.
//!
//! Other files read as for the newest series, and import from here what an older one has not, or has in another form.
//! `Kbuild` sets `kernel_has` by looking into the source that is built against, since stable and distribution kernels
//! take over what their version does not tell. A wrong answer does not build: what is added here for an older series is
//! ambiguous beside, or does not fit, what a newer one has.

#![deny(ambiguous_glob_reexports)]

/// The kernel's prelude, with all error codes that are used here.
pub mod prelude {
    pub use kernel::prelude::*;

    #[cfg(not(kernel_has = "socket_errnos"))]
    pub use super::socket_errnos::*;
}

/// `kernel::sync::barrier`, with `smp_mb(Full)`, `smp_mb(Read)` and `smp_mb(Write)`.
pub mod barrier {
    #[cfg(kernel_has = "typed_barriers")]
    pub use kernel::sync::barrier::*;

    #[cfg(not(kernel_has = "typed_barriers"))]
    pub use super::typed_barriers::*;
}

/// `kernel::sync::rcu`, with `synchronize_rcu`.
pub mod rcu {
    pub use kernel::sync::rcu::*;

    #[cfg(not(kernel_has = "synchronize_rcu"))]
    pub use super::synchronize_rcu::*;
}

/// Returns a limit of an RDMA device: `struct ib_device_attr` has it as `int` in Linux 7.2, as `u32` in 7.3.
pub(crate) fn device_limit(limit: impl TryInto<u32>) -> u32 {
    limit.try_into().unwrap_or(0)
}

/// Error codes of `include/uapi/asm-generic/errno.h`, which Linux 7.2 lacks in `kernel::error::code`.
#[cfg(not(kernel_has = "socket_errnos"))]
mod socket_errnos {
    use core::mem::transmute;

    use kernel::error::{
        code::*,
        Error, //
    };

    use crate::bindings;

    /// `Error::from_errno` for constants.
    const fn from_errno(errno: u32) -> Error {
        assert!(errno > 0 && errno <= bindings::MAX_ERRNO);
        // CAST: At most `MAX_ERRNO`.
        let errno = -(errno as i32);
        // SAFETY: `Error` has one field, a `NonZeroI32`, and the size of an `i32`, or this would not compile: so it
        // consists of that field. By the assertion the number is in the range that the type's invariant asks for.
        unsafe { transmute::<i32, Error>(errno) }
    }

    // These are the errors that the kernel crate has itself.
    const _: () = assert!(
        matches!(from_errno(bindings::EPERM), EPERM)
            && matches!(from_errno(bindings::EINVAL), EINVAL)
            && matches!(from_errno(bindings::ETIMEDOUT), ETIMEDOUT)
            && matches!(from_errno(bindings::ENOGRACE), ENOGRACE)
    );

    macro_rules! declare_err {
        ($($name:ident,)+) => {
            $(
                #[doc = concat!("`", stringify!($name), "`, see errno(3).")]
                pub const $name: Error = from_errno(bindings::$name);
            )+
        };
    }

    declare_err! {
        EADDRINUSE,
        EAFNOSUPPORT,
        EALREADY,
        ECONNABORTED,
        ECONNREFUSED,
        ECONNRESET,
        EHOSTUNREACH,
        EINPROGRESS,
        EISCONN,
        ENOBUFS,
        ENODATA,
        ENOLINK,
        ENOTCONN,
        EOPNOTSUPP,
        EPROTO,
        EPROTONOSUPPORT,
        ESHUTDOWN,
        ESOCKTNOSUPPORT,
        ESTALE,
    }
}

/// Memory barriers that are told their ordering: Linux 7.2 has a function for each instead.
#[cfg(not(kernel_has = "typed_barriers"))]
mod typed_barriers {
    use kernel::sync::{
        atomic,
        barrier, //
    };

    pub use atomic::Full;

    /// Orders preceding loads before succeeding ones.
    pub struct Read;

    /// Orders preceding stores before succeeding ones.
    pub struct Write;

    /// What a barrier orders.
    pub trait Ordering {
        #[doc(hidden)]
        fn smp_mb();
    }

    impl Ordering for Full {
        #[inline]
        fn smp_mb() {
            barrier::smp_mb();
        }
    }

    impl Ordering for Read {
        #[inline]
        fn smp_mb() {
            barrier::smp_rmb();
        }
    }

    impl Ordering for Write {
        #[inline]
        fn smp_mb() {
            barrier::smp_wmb();
        }
    }

    /// A memory barrier between CPUs.
    /// Context: any.
    #[inline]
    pub fn smp_mb<T: Ordering>(_: T) {
        T::smp_mb();
    }
}

#[cfg(not(kernel_has = "synchronize_rcu"))]
mod synchronize_rcu {
    use crate::bindings;

    /// Waits until all RCU read sections that have begun are over. Linux 7.2 lacks it in `kernel::sync::rcu`.
    /// Context: may sleep.
    #[inline]
    pub fn synchronize_rcu() {
        // SAFETY: Always safe to call from process context.
        unsafe { bindings::synchronize_rcu() };
    }
}
