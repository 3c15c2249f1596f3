// SPDX-License-Identifier: GPL-2.0

//! A filter for system calls: `seccomp(2)`, as service managers and containers set it.

use crate::check;
use crate::Result;

/// `struct sock_filter` of `linux/filter.h`.
#[repr(C)]
struct Step {
    code: u16,
    if_true: u8,
    if_false: u8,
    value: u32,
}

/// `struct sock_fprog`.
#[repr(C)]
struct Program {
    len: u16,
    steps: *const Step,
}

const fn step(code: u16, if_true: u8, if_false: u8, value: u32) -> Step {
    Step {
        code,
        if_true,
        if_false,
        value,
    }
}

/// `BPF_LD | BPF_W | BPF_ABS`.
const LOAD: u16 = 0x20;
/// `BPF_JMP | BPF_JEQ | BPF_K`.
const EQUALS: u16 = 0x15;
/// `BPF_RET | BPF_K`.
const RETURN: u16 = 0x06;
const ALLOW: u32 = 0x7fff_0000;
const ERRNO: u32 = 0x0005_0000;
/// Offsets in `struct seccomp_data`: the number of the call, and its first argument's low half.
const NUMBER: u32 = 0;
const FIRST: u32 = 16;

/// From now on this thread and what it executes can open no socket of this family: EAFNOSUPPORT, as systemd's
/// `RestrictAddressFamilies` has it.
pub fn refuse_family(family: u32) -> Result<()> {
    let steps = [
        step(LOAD, 0, 0, NUMBER),
        // CAST: the number of a system call.
        step(EQUALS, 0, 3, libc::SYS_socket as u32),
        step(LOAD, 0, 0, FIRST),
        step(EQUALS, 0, 1, family),
        // CAST: an errno.
        step(RETURN, 0, 0, ERRNO | libc::EAFNOSUPPORT as u32),
        step(RETURN, 0, 0, ALLOW),
    ];
    let program = Program {
        // CAST: six.
        len: steps.len() as u16,
        steps: steps.as_ptr(),
    };
    // SAFETY: this request takes integers.
    check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: `program` and what it points at are valid for reads for the time of the call.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program) })?;
    Ok(())
}
