// SPDX-License-Identifier: GPL-2.0
//! The `struct socket` of a call that there is not cannot be made up.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use kernel_ext::net::Caller;

pub fn made_up<'a>() -> Caller<'a> {
    Caller {
        socket: NonNull::dangling(), //~ E0451
        _call: PhantomData,
    }
}
