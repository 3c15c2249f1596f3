// SPDX-License-Identifier: GPL-2.0

//! Descriptors of other processes.

use std::os::fd::OwnedFd;
use std::os::fd::RawFd;

use rustix::process::pidfd_getfd;
use rustix::process::pidfd_open;
use rustix::process::Pid;
use rustix::process::PidfdFlags;
use rustix::process::PidfdGetfdFlags;

use crate::Errno;
use crate::Result;

/// A process, identified by a pidfd, since its pid could be reused.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens process `pid`.
    pub fn open(pid: i32) -> Result<Self> {
        let pid = (pid > 0).then(|| Pid::from_raw(pid)).flatten();
        let pid = pid.ok_or(Errno::EINVAL)?;
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Duplicates descriptor `fd` of the process; requires ptrace access to it.
    pub fn descriptor(&self, fd: RawFd) -> Result<OwnedFd> {
        Ok(pidfd_getfd(&self.0, fd, PidfdGetfdFlags::empty())?)
    }
}
