// SPDX-License-Identifier: GPL-2.0

//! Calls that send or receive several buffers, control data or several messages.
//!
//! `sendmsg` and `recvmsg` are called directly: the tests pass control data and buffers of any
//! length, which libraries would build and measure themselves. No library has a `recvmmsg` without
//! a timeout.

use std::ffi::c_void;
use std::io::IoSlice;
use std::io::IoSliceMut;
use std::mem;
use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use rustix::fs::memfd_create;
use rustix::fs::MemfdFlags;
use rustix::io::preadv2;
use rustix::io::pwrite;
use rustix::io::pwritev2;
use rustix::io::readv;
use rustix::io::writev;
use rustix::io::ReadWriteFlags;
use rustix::mm;
use rustix::mm::Advice;
use rustix::mm::MapFlags;
use rustix::mm::ProtFlags;
use rustix::net::sendmmsg;
use rustix::net::MMsgHdr;
use rustix::net::SendAncillaryBuffer;
use rustix::param::page_size;

use crate::check;
use crate::check_len;
use crate::socket::send_flags;
use crate::Address;
use crate::Errno;
use crate::Result;
use crate::Socket;

/// The results of `recvmsg(2)` besides the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Bytes received.
    pub len: usize,
    /// `MSG_*` flags that the kernel set.
    pub flags: i32,
    /// Length of the address that was returned.
    pub name_len: u32,
    /// Control data.
    pub control: Vec<u8>,
}

/// Parameters of `sendmsg(2)` besides the data.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras<'a> {
    /// Control data, in the kernel's format.
    pub control: &'a [u8],
    /// Destination address.
    pub to: Option<&'a Address>,
    /// `MSG_*` flags.
    pub flags: i32,
}

/// Returns a control message (`CMSG`) with one `int`.
pub fn control_int(level: i32, kind: i32, value: i32) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(20_u64.to_ne_bytes());
    bytes.extend(level.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes
}

fn slices<'a>(parts: &[&'a [u8]]) -> Vec<IoSlice<'a>> {
    parts.iter().map(|part| IoSlice::new(part)).collect()
}

fn slices_mut<'a>(parts: &'a mut [&mut [u8]]) -> Vec<IoSliceMut<'a>> {
    parts.iter_mut().map(|part| IoSliceMut::new(part)).collect()
}

/// Returns a header for `parts`, which must be `struct iovec`; `IoSlice` and `IoSliceMut` are, by
/// their documentation.
pub(crate) fn header<T>(parts: &mut [T]) -> libc::msghdr {
    // SAFETY: all zeroes is a valid `msghdr`: null pointers and lengths of zero.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = parts.as_mut_ptr().cast();
    header.msg_iovlen = parts.len();
    header
}

// CAST: a set of bits.
fn file_flags(flags: i32) -> ReadWriteFlags {
    ReadWriteFlags::from_bits_retain(flags as u32)
}

impl Socket {
    /// `sendmsg(2)`; does not raise SIGPIPE.
    pub fn send_parts(&self, parts: &[&[u8]], extras: Extras<'_>) -> Result<usize> {
        let mut vectors = slices(parts);
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

    /// `recvmsg(2)` with `control` bytes for control data and, if `name` is given, that many bytes
    /// for an address, at most 128.
    pub fn recv_parts(
        &self,
        parts: &mut [&mut [u8]],
        control: usize,
        name: Option<u32>,
        flags: i32,
    ) -> Result<Received> {
        let mut vectors = slices_mut(parts);
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

    /// `sendmmsg(2)` with one buffer per message; returns the number of messages sent.
    pub fn send_messages(&self, messages: &[&[u8]], flags: i32) -> Result<usize> {
        let slices: Vec<_> = messages.iter().map(|data| [IoSlice::new(data)]).collect();
        let control = |_| SendAncillaryBuffer::default();
        let mut controls: Vec<_> = messages.iter().map(control).collect();
        let pairs = slices.iter().zip(&mut controls);
        let mut headers: Vec<_> = pairs.map(|(data, none)| MMsgHdr::new(data, none)).collect();
        Ok(sendmmsg(self, &mut headers, send_flags(flags))?)
    }

    /// `recvmmsg(2)` with one buffer per message; returns the lengths of the messages. The kernel
    /// checks the timeout only between messages.
    pub fn recv_messages(
        &self,
        buffers: &mut [&mut [u8]],
        flags: i32,
        time: Option<Duration>,
    ) -> Result<Vec<usize>> {
        let mut vectors = slices_mut(buffers);
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
        Ok(writev(self, &slices(parts))?)
    }

    /// `readv(2)`.
    pub fn read_parts(&self, parts: &mut [&mut [u8]]) -> Result<usize> {
        Ok(readv(self, &mut slices_mut(parts))?)
    }

    /// `pwritev2(2)`; an offset of -1 means the current position.
    pub fn write_parts_at(&self, parts: &[&[u8]], offset: i64, flags: i32) -> Result<usize> {
        let (parts, flags) = (slices(parts), file_flags(flags));
        Ok(pwritev2(self, &parts, offset as u64, flags)?)
    }

    /// `preadv2(2)`; an offset of -1 means the current position.
    pub fn read_parts_at(&self, parts: &mut [&mut [u8]], offset: i64, flags: i32) -> Result<usize> {
        let (mut parts, flags) = (slices_mut(parts), file_flags(flags));
        Ok(preadv2(self, &mut parts, offset as u64, flags)?)
    }

    /// `write(2)`.
    pub fn write(&self, data: &[u8]) -> Result<usize> {
        Ok(rustix::io::write(self, data)?)
    }

    /// Sends `good` and then a buffer of the same length at an invalid address.
    pub fn send_unreadable(&self, good: &[u8], flags: i32) -> Result<usize> {
        let base = good.as_ptr().cast_mut().cast();
        let mut vectors = and_nowhere(base, good.len());
        let header = header(&mut vectors);
        // SAFETY: the kernel copies as much as can be read and finds out itself what cannot.
        check_len(unsafe { libc::sendmsg(self.as_raw_fd(), &header, flags | libc::MSG_NOSIGNAL) })
    }

    /// Sends `data` from memory of which only the first `present` bytes, at most a page, have been accessed: the others
    /// are in a file of which the page is not mapped yet.
    pub fn send_absent(&self, data: &[u8], present: usize, flags: i32) -> Result<usize> {
        let start = page_size().checked_sub(present).ok_or(Errno::EINVAL)?;
        let size = start + data.len();
        let file = memfd_create("absent", MemfdFlags::empty())?;
        // CAST: an offset below a page.
        pwrite(&file, data, start as u64)?;
        let (null, prot) = (ptr::null_mut(), ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: no fixed address is asked for, so that nothing mapped before is touched.
        let base = unsafe { mm::mmap(null, size, prot, MapFlags::SHARED, &file, 0) }?;
        let populated = match present {
            0 => Ok(()),
            // SAFETY: the page was just mapped, and its content stays as it is.
            _ => unsafe { mm::madvise(base, page_size(), Advice::LinuxPopulateWrite) },
        };
        let fd = self.as_raw_fd();
        // SAFETY: the mapping has `size` bytes, of which `data.len()` are behind `start`.
        let sent = unsafe {
            libc::send(
                fd,
                base.byte_add(start),
                data.len(),
                flags | libc::MSG_NOSIGNAL,
            )
        };
        let sent = check_len(sent);
        // SAFETY: mapped above with this length, and nothing points into it any more.
        unsafe { mm::munmap(base, size) }?;
        populated?;
        sent
    }

    /// Receives into `good` and then into a buffer of the same length at an invalid address.
    pub fn recv_unwritable(&self, good: &mut [u8], flags: i32) -> Result<usize> {
        let base = good.as_mut_ptr().cast();
        let mut vectors = and_nowhere(base, good.len());
        let mut header = header(&mut vectors);
        // SAFETY: the kernel writes to what can be written and finds out itself what cannot.
        check_len(unsafe { libc::recvmsg(self.as_raw_fd(), &mut header, flags) })
    }

    /// Calls an ioctl that takes a pointer to `int`: `FIONBIO`, `FIOASYNC`, `FIOSETOWN` or `SIOCSPGRP`;
    /// `EINVAL` for others.
    pub fn ioctl_set(&self, request: u64, value: i32) -> Result<()> {
        const FIOASYNC: u64 = 0x5452;
        const FIOSETOWN: u64 = 0x8901;
        const SIOCSPGRP: u64 = 0x8902;
        if ![libc::FIONBIO, FIOASYNC, FIOSETOWN, SIOCSPGRP].contains(&request) {
            return Err(Errno::EINVAL);
        }
        // SAFETY: these read one `int`.
        check(unsafe { libc::ioctl(self.as_raw_fd(), request, &value) })?;
        Ok(())
    }

    /// Calls an `fcntl(2)` command whose argument is an `int` or ignored; `EINVAL` for others.
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

    /// Replaces the descriptor with a duplicate of another one (`dup3(2)`), which closes this file
    /// while calls use it.
    pub fn replace_by(&self, other: &impl AsRawFd) -> Result<()> {
        let (from, to) = (other.as_raw_fd(), self.as_raw_fd());
        // SAFETY: both descriptors are open, and the one replaced goes on being ours.
        check(unsafe { libc::dup3(from, to, libc::O_CLOEXEC) })?;
        Ok(())
    }
}

/// Returns an iovec for the buffer, and one of the same length at an address that is never mapped.
fn and_nowhere(base: *mut c_void, len: usize) -> [libc::iovec; 2] {
    let nowhere = ptr::without_provenance_mut(8);
    [base, nowhere].map(|iov_base| libc::iovec {
        iov_base,
        iov_len: len,
    })
}

fn multiple<T>(vectors: &mut [T]) -> libc::mmsghdr {
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
