// SPDX-License-Identifier: GPL-2.0

//! Commands of sockets (`IORING_OP_URING_CMD`).

use std::ptr;

use io_uring::opcode;
use io_uring::squeue::Entry;

use super::fd;
use super::Ring;
use crate::names::Name;
use crate::names::Room;
use crate::Result;
use crate::Socket;

/// A command that needs no memory, `SOCKET_URING_OP_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Command {
    /// The number of ioctl(2) with SIOCINQ.
    Siocinq = 0,
    /// The number of ioctl(2) with SIOCOUTQ.
    Siocoutq = 1,
    /// When packets left, which needs a ring of another kind.
    TxTimestamp = 4,
    /// None that a kernel knows.
    Unknown = 99,
}

const GETSOCKOPT: u32 = 2;
const SETSOCKOPT: u32 = 3;
const GETSOCKNAME: u32 = 5;

/// What a command is given, in the fields of `struct io_uring_sqe` with these names.
struct Fields {
    level: i32,
    optname: i32,
    optlen: i32,
    optval: *const libc::c_void,
}

impl Ring {
    /// Runs a command; returns its number.
    pub fn command(&mut self, socket: &Socket, command: Command) -> Result<i32> {
        let none = Fields {
            level: 0,
            optname: 0,
            optlen: 0,
            optval: ptr::null(),
        };
        // SAFETY: none of these commands takes a pointer.
        unsafe { self.run(&entry(socket, command as u32, &none)) }
    }

    /// `getsockopt(2)`; returns the length.
    pub fn option(&mut self, socket: &Socket, at: (i32, i32), value: &mut [u8]) -> Result<i32> {
        let fields = fields(at, value.len(), value.as_mut_ptr());
        // SAFETY: the value is valid for writes of its length until the operation has ended.
        unsafe { self.run(&entry(socket, GETSOCKOPT, &fields)) }
    }

    /// `setsockopt(2)`.
    pub fn set_option(&mut self, socket: &Socket, at: (i32, i32), value: &[u8]) -> Result<()> {
        let fields = fields(at, value.len(), value.as_ptr());
        // SAFETY: the value is valid for reads of its length until the operation has ended.
        unsafe { self.run(&entry(socket, SETSOCKOPT, &fields)) }.map(drop)
    }

    /// `getsockname(2)`, or `getpeername(2)` if `peer` is 1.
    pub fn name(&mut self, socket: &Socket, peer: i32, room: Room) -> Result<Name> {
        let name = Name::with(room, |addr, len| {
            // The address of the name is where an option has its level and name, the lower half first.
            let addr = addr.addr() as u64;
            let fields = Fields {
                level: addr as i32,
                optname: (addr >> 32) as i32,
                optlen: peer,
                optval: len.cast_const().cast(),
            };
            // SAFETY: the pointers are null or valid for writes until the operation has ended.
            unsafe { self.run(&entry(socket, GETSOCKNAME, &fields)) }
        });
        name.map(|(_, name)| name)
    }
}

fn fields((level, optname): (i32, i32), len: usize, value: *const u8) -> Fields {
    Fields {
        level,
        optname,
        // CAST: a test has short values.
        optlen: len as i32,
        optval: value.cast(),
    }
}

fn entry(socket: &Socket, command: u32, fields: &Fields) -> Entry {
    // CAST: the kernel takes them for `int`s again.
    let (level, name) = (fields.level as u32, fields.optname as u32);
    let set = opcode::SetSockOpt::new(fd(socket), level, name, fields.optval, fields.optlen as u32);
    let mut entry = set.build();
    // SAFETY: an entry is a `struct io_uring_sqe`, of 64 bytes, with the command (`cmd_op`) in bytes 8 to 11.
    unsafe { (&raw mut entry).cast::<u32>().add(2).write(command) };
    entry
}
