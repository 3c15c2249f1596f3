// SPDX-License-Identifier: GPL-2.0

//! Descriptors of other processes.

use std::os::fd::AsRawFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use crate::check;
use crate::Result;

/// A process, held by a descriptor, so that its number cannot pass to another meanwhile.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens process `pid`.
    pub fn open(pid: i32) -> Result<Self> {
        // SAFETY: pidfd_open(2) takes two integers and no pointer.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32)?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Duplicates the process' descriptor `fd`; needs the right to trace the process.
    pub fn descriptor(&self, fd: RawFd) -> Result<OwnedFd> {
        let process = self.0.as_raw_fd();
        // SAFETY: pidfd_getfd(2) takes three integers and no pointer.
        let fd = check(unsafe { libc::syscall(libc::SYS_pidfd_getfd, process, fd, 0) } as i32)?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}
