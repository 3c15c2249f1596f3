// SPDX-License-Identifier: GPL-2.0
//! A directory of settings goes before its namespace: nobody can own one apart from the namespace's object.

use kernel::prelude::*;
use kernel_ext::net::{
    sysctl::{
        Directory, //~ E0603
        SysctlEntry, //
    },
    NetNs, //
};

pub fn keep(net: &NetNs, entries: &'static [SysctlEntry; 1]) -> Result<Directory<1>> {
    Directory::new(net, c"net/test", entries)
}
