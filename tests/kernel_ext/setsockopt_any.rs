// SPDX-License-Identifier: GPL-2.0
//! The kernel's setsockopt() needs the `struct socket` of the call, which a socket may have lost: only the call has it.

use kernel::prelude::*;
use kernel_ext::net::{
    Sk,
    SockOptIn, //
};

pub fn any_socket(sk: &Sk, value: SockOptIn<'_>) -> Result {
    sk.setsockopt(1, value) //~ E0599
}
