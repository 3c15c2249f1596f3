// SPDX-License-Identifier: GPL-2.0
//! A socket is attached to one file only: what accept(2) gives away is neither a socket in use nor a copy.

use kernel::sync::aref::ARef;
use kernel_ext::net::{
    UnattachedSk,
    Sk, //
};

pub fn from_socket_in_use(sk: &ARef<Sk>) -> UnattachedSk {
    UnattachedSk(sk.clone()) //~ E0423
}

pub fn copy(orphan: &UnattachedSk) -> (UnattachedSk, UnattachedSk) {
    (orphan.clone(), orphan.clone()) //~ E0308 E0308
}
