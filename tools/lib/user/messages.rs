// SPDX-License-Identifier: GPL-2.0

//! Calls that send and receive more than one piece: several buffers, control data, several messages.

use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use crate::check;
use crate::check_len;
use crate::Address;
use crate::Errno;
use crate::Result;
use crate::Socket;

/// What `recvmsg(2)` said besides the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes received.
    pub len: usize,
    /// `MSG_*` flags that the kernel set.
    pub flags: i32,
    /// Length of the address afterwards.
    pub name_len: u32,
    /// Control data.
    pub control: Vec<u8>,
}

/// What a message is sent with, besides its bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Control data, as the kernel takes them.
    pub control: &'a [u8],
    /// Where to.
    pub to: Option<&'a Address>,
    /// `MSG_*` flags.
    pub flags: i32,
}

/// A control message with one number (`CMSG`).
pub fn control_int(level: i32, kind: i32, value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(20_u64.to_ne_bytes());
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn vectors(parts: &[&[u8]]) -> Vec<libc::iovec> {
    let of = |part: &&[u8]| libc::iovec {
        iov_base: part.as_ptr().cast_mut().cast(),
        iov_len: part.len(),
    };
    parts.iter().map(of).collect()
}

fn vectors_mut(parts: &mut [&mut [u8]]) -> Vec<libc::iovec> {
    let mut vectors = Vec::with_capacity(parts.len());
    for part in parts {
        vectors.push(libc::iovec {
            iov_base: part.as_mut_ptr().cast(),
            iov_len: part.len(),
        });
    }
    vectors
}

fn header(vectors: &mut [libc::iovec]) -> libc::msghdr {
    // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = vectors.len();
    header
}

// CAST: a test passes few buffers.
fn count(vectors: &[libc::iovec]) -> i32 {
    vectors.len() as i32
}

impl Socket {
    /// `sendmsg(2)`. Raises no signal.
    pub fn send_parts(&self, parts: &[&[u8]], extras: Extras<'_>) -> Result<usize> {
        let mut vectors = vectors(parts);
        let mut header = header(&mut vectors);
        if let Some(to) = extras.to {
            header.msg_name = to.as_bytes().as_ptr().cast_mut().cast();
            header.msg_namelen = to.as_bytes().len() as u32;
        }
        if !extras.control.is_empty() {
            header.msg_control = extras.control.as_ptr().cast_mut().cast();
            header.msg_controllen = extras.control.len();
        }
        let (fd, flags) = (self.as_raw_fd(), extras.flags | libc::MSG_NOSIGNAL);
        // SAFETY: `header` names buffers that are valid for reads of their lengths for the whole call.
        check_len(unsafe { libc::sendmsg(fd, &header, flags) })
    }

    /// `recvmsg(2)`, with room for control data and, if `name` says how much, for an address of at most 128 bytes.
    pub fn recv_parts(
        &self,
        parts: &mut [&mut [u8]],
        control: usize,
        name: Option<u32>,
        flags: i32,
    ) -> Result<Received> {
        let mut vectors = vectors_mut(parts);
        let mut header = header(&mut vectors);
        let (mut control, mut address) = (vec![0; control], [0_u8; 128]);
        if let Some(len) = name {
            header.msg_name = address.as_mut_ptr().cast();
            header.msg_namelen = len.min(128);
        }
        if !control.is_empty() {
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = control.len();
        }
        // SAFETY: `header` names buffers that are valid for writes of their lengths for the whole call.
        let len = check_len(unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, flags) })?;
        control.truncate(header.msg_controllen);
        Ok(Received {
            len,
            flags: header.msg_flags,
            name_len: header.msg_namelen,
            control,
        })
    }

    /// `sendmmsg(2)`, one buffer a message: how many messages were sent.
    pub fn send_messages(&self, messages: &[&[u8]], flags: i32) -> Result<usize> {
        let mut vectors = vectors(messages);
        let mut headers: Vec<_> = vectors.chunks_mut(1).map(multiple).collect();
        let (fd, len) = (self.as_raw_fd(), headers.len() as u32);
        // SAFETY: the headers name buffers that are valid for reads of their lengths for the whole call.
        let sent =
            unsafe { libc::sendmmsg(fd, headers.as_mut_ptr(), len, flags | libc::MSG_NOSIGNAL) };
        Ok(usize::try_from(check(sent)?).unwrap_or(0))
    }

    /// `recvmmsg(2)`, one buffer a message: the lengths of those received. The time is looked at between messages.
    pub fn recv_messages(
        &self,
        buffers: &mut [&mut [u8]],
        flags: i32,
        time: Option<Duration>,
    ) -> Result<Vec<usize>> {
        let mut vectors = vectors_mut(buffers);
        let mut headers: Vec<_> = vectors.chunks_mut(1).map(multiple).collect();
        let mut time = time.map(|time| libc::timespec {
            // CAST: a test waits for seconds.
            tv_sec: time.as_secs() as i64,
            tv_nsec: i64::from(time.subsec_nanos()),
        });
        let time = time.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let (fd, len) = (self.as_raw_fd(), headers.len() as u32);
        // SAFETY: the headers name buffers that are valid for writes of their lengths for the whole call, and `time`
        // is null or valid for reads and writes.
        let got = check(unsafe { libc::recvmmsg(fd, headers.as_mut_ptr(), len, flags, time) })?;
        let got = headers.iter().take(usize::try_from(got).unwrap_or(0));
        Ok(got.map(|header| header.msg_len as usize).collect())
    }

    /// `writev(2)`.
    pub fn write_parts(&self, parts: &[&[u8]]) -> Result<usize> {
        let vectors = vectors(parts);
        let (fd, ptr) = (self.as_raw_fd(), vectors.as_ptr());
        // SAFETY: the buffers are valid for reads of their lengths.
        check_len(unsafe { libc::writev(fd, ptr, count(&vectors)) })
    }

    /// `readv(2)`.
    pub fn read_parts(&self, parts: &mut [&mut [u8]]) -> Result<usize> {
        let vectors = vectors_mut(parts);
        let (fd, ptr) = (self.as_raw_fd(), vectors.as_ptr());
        // SAFETY: the buffers are valid for writes of their lengths.
        check_len(unsafe { libc::readv(fd, ptr, count(&vectors)) })
    }

    /// `pwritev2(2)`: an offset of -1 means none.
    pub fn write_parts_at(&self, parts: &[&[u8]], offset: i64, flags: i32) -> Result<usize> {
        let vectors = vectors(parts);
        let (fd, ptr) = (self.as_raw_fd(), vectors.as_ptr());
        // SAFETY: the buffers are valid for reads of their lengths.
        check_len(unsafe { libc::pwritev2(fd, ptr, count(&vectors), offset, flags) })
    }

    /// `preadv2(2)`: an offset of -1 means none.
    pub fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: i64, flags: i32) -> Result<usize> {
        let vectors = vectors_mut(parts);
        let (fd, ptr) = (self.as_raw_fd(), vectors.as_ptr());
        // SAFETY: the buffers are valid for writes of their lengths.
        check_len(unsafe { libc::preadv2(fd, ptr, count(&vectors), offset, flags) })
    }

    /// `write(2)`.
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        let (fd, ptr) = (self.as_raw_fd(), data.as_ptr());
        // SAFETY: `ptr` is valid for reads of `data.len()` bytes.
        check_len(unsafe { libc::write(fd, ptr.cast(), data.len()) })
    }

    /// `send(2)` of `good` bytes that can be read and then as many that cannot, in two buffers.
    pub fn send_unreadable(&self, good: &[u8], flags: i32) -> Result<usize> {
        let mut vectors = [vectors(&[good])[0], nowhere(good.len())];
        let header = header(&mut vectors);
        // SAFETY: the kernel copies as much as can be read and finds out itself what cannot.
        check_len(unsafe { libc::sendmsg(self.as_raw_fd(), &header, flags | libc::MSG_NOSIGNAL) })
    }

    /// `recv(2)` into a buffer and then into as many bytes that cannot be written.
    pub fn recv_unwritable(&self, good: &mut [u8], flags: i32) -> Result<usize> {
        let len = good.len();
        let mut vectors = [vectors_mut(&mut [good])[0], nowhere(len)];
        let mut header = header(&mut vectors);
        // SAFETY: the kernel writes to what can be written and finds out itself what cannot.
        check_len(unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, flags) })
    }

    /// An ioctl that reads one `int`: `FIONBIO`, `FIOASYNC`, `SIOCSPGRP`; else `EINVAL`.
    pub fn ioctl_set(&self, request: u64, value: i32) -> Result<()> {
        const FIOASYNC: u64 = 0x5452;
        const SIOCSPGRP: u64 = 0x8902;
        if ![libc::FIONBIO, FIOASYNC, SIOCSPGRP].contains(&request) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: these read one `int`.
        check(unsafe { libc::ioctl(self.as_raw_fd(), request, &value) })?;
        Ok(())
    }

    /// An `fcntl(2)` whose argument is an `int` or not looked at; else `EINVAL`.
    pub fn fcntl(&self, command: i32, value: i32) -> Result<i32> {
        const SIGNALS: [i32; 2] = [10, 11];
        const PLAIN: [i32; 6] = [
            libc::F_GETFL,
            libc::F_SETFL,
            libc::F_GETFD,
            libc::F_SETFD,
            libc::F_GETOWN,
            libc::F_SETOWN,
        ];
        if !PLAIN.contains(&command) && !SIGNALS.contains(&command) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: these take an integer or nothing.
        check(unsafe { libc::fcntl(self.as_raw_fd(), command, value) })
    }

    /// Has the descriptor name another file (`dup3(2)`), so that this one is closed while calls use it.
    pub fn replace_by(&self, other: &impl AsRawFd) -> Result<()> {
        let (from, to) = (other.as_raw_fd(), self.as_raw_fd());
        // SAFETY: both descriptors are open, and the one replaced goes on being ours.
        check(unsafe { libc::dup3(from, to, libc::O_CLOEXEC) })?;
        Ok(())
    }
}

/// A place where nothing is, nor ever will be.
fn nowhere(len: usize) -> libc::iovec {
    libc::iovec {
        iov_base: ptr::without_provenance_mut(8),
        iov_len: len,
    }
}

fn multiple(vectors: &mut [libc::iovec]) -> libc::mmsghdr {
    libc::mmsghdr {
        msg_hdr: header(vectors),
        msg_len: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_messages_are_as_the_kernel_takes_them() {
        let bytes = control_int(1, 2, 3);
        // `CMSG_LEN(4)` and `CMSG_SPACE(4)`.
        assert_eq!(bytes[..8], 20_u64.to_ne_bytes());
        assert_eq!(bytes.len(), 24);
    }
}
