// SPDX-License-Identifier: GPL-2.0

//! Passes descriptors from one process to another, with `SCM_RIGHTS`.

use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use rustix::cmsg_space;
use rustix::net::recvmsg;
use rustix::net::sendmsg;
use rustix::net::RecvAncillaryBuffer;
use rustix::net::RecvAncillaryMessage;
use rustix::net::RecvFlags;
use rustix::net::SendAncillaryBuffer;
use rustix::net::SendAncillaryMessage;
use rustix::net::SendFlags;

use crate::Errno;
use crate::Result;
use crate::Socket;

impl Socket {
    /// Sends this socket's descriptor over the AF_UNIX socket `way`.
    pub fn pass(&self, way: &Self) -> Result<()> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let (mut control, fds) = (SendAncillaryBuffer::new(&mut space), [self.as_fd()]);
        control.push(SendAncillaryMessage::ScmRights(&fds));
        sendmsg(
            way,
            &[IoSlice::new(b".")],
            &mut control,
            SendFlags::NOSIGNAL,
        )?;
        Ok(())
    }

    /// Receives the descriptor of a socket.
    pub fn take_passed(&self) -> Result<Self> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
        let (mut control, mut byte) = (RecvAncillaryBuffer::new(&mut space), [0]);
        let mut parts = [IoSliceMut::new(&mut byte)];
        recvmsg(self, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?;
        let passed = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        passed.map(Self::from).ok_or(Errno::EINVAL)
    }
}
