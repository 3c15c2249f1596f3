// SPDX-License-Identifier: GPL-2.0

//! Descriptors that go from one process to another, by `SCM_RIGHTS`.

use std::mem;
use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;

use crate::check_len;
use crate::control_int;
use crate::Errno;
use crate::Extras;
use crate::Result;
use crate::Socket;

const SCM_RIGHTS: i32 = 1;
/// Bytes of a control message before its data.
const HEADER: usize = 16;

impl Socket {
    /// Sends this socket's descriptor over `way`, which is of `AF_UNIX`.
    pub fn pass(&self, way: &Self) -> Result<()> {
        let control = control_int(libc::SOL_SOCKET, SCM_RIGHTS, self.as_raw_fd());
        let extras = Extras {
            control: &control,
            ..Extras::default()
        };
        way.send_parts(&[b"."], extras).map(|_| ())
    }

    /// Receives the descriptor of a socket that was passed.
    pub fn take_passed(&self) -> Result<Self> {
        let (mut byte, mut control) = ([0_u8; 1], [0_u64; 3]);
        let mut vector = libc::iovec {
            iov_base: byte.as_mut_ptr().cast(),
            iov_len: byte.len(),
        };
        // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
        let mut header: libc::msghdr = unsafe { mem::zeroed() };
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = mem::size_of_val(&control);
        let (fd, flags) = (self.as_raw_fd(), libc::MSG_CMSG_CLOEXEC);
        // SAFETY: `header` names buffers that are valid for writes of their lengths for the whole call.
        check_len(unsafe { libc::recvmsg(fd, &mut header, flags) })?;
        // CAST: the two halves of a word.
        let is_one = (control[1] >> 32) as i32 == SCM_RIGHTS && control[0] as usize == HEADER + 4;
        if header.msg_controllen < HEADER + 4 || !is_one {
            return Err(Errno::EINVAL);
        }
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self::from(unsafe {
            OwnedFd::from_raw_fd(control[2] as i32)
        }))
    }
}
