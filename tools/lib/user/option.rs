// SPDX-License-Identifier: GPL-2.0

//! Socket options of any level and any length.

use std::os::fd::AsRawFd;
use std::ptr;
use std::time::Duration;

use crate::check;
use crate::Errno;
use crate::Result;
use crate::Socket;

impl Socket {
    /// Sets an option to a value of any length.
    pub fn set_option(&self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let (ptr, len) = (value.as_ptr(), value.len() as libc::socklen_t);
        // SAFETY: `ptr` is valid for reads of `len` bytes.
        check(unsafe { libc::setsockopt(self.as_raw_fd(), level, name, ptr.cast(), len) })?;
        Ok(())
    }

    /// Sets an option to a value that is said to be `len` bytes at the address 0.
    pub fn set_option_from_null(&self, level: i32, name: i32, len: i32) -> Result<()> {
        // CAST: the kernel takes it for an `int` again.
        let (fd, len) = (self.as_raw_fd(), len as libc::socklen_t);
        // SAFETY: the kernel checks the address, and reads nothing of this program's.
        check(unsafe { libc::setsockopt(fd, level, name, ptr::null(), len) })?;
        Ok(())
    }

    /// Sets an option of type `int`.
    pub fn set_option_int(&self, level: i32, name: i32, value: i32) -> Result<()> {
        self.set_option(level, name, &value.to_ne_bytes())
    }

    /// Reads an option into `value` and returns its length.
    pub fn option(&self, level: i32, name: i32, value: &mut [u8]) -> Result<usize> {
        let mut len = value.len() as libc::socklen_t;
        let ptr = value.as_mut_ptr();
        // SAFETY: `ptr` is valid for writes of `len` bytes; the kernel writes no more.
        check(unsafe { libc::getsockopt(self.as_raw_fd(), level, name, ptr.cast(), &mut len) })?;
        Ok(len as usize)
    }

    /// Reads an option for which there are `len` bytes, at most [`Self::MOST`]; returns its length and what was
    /// written.
    pub fn option_of_len(&self, level: i32, name: i32, len: usize) -> Result<(usize, Vec<u8>)> {
        // The length of SO_GET_FILTER counts instructions, of eight bytes each.
        let mut value = [0u8; 8 * Self::MOST];
        let len = len.min(Self::MOST);
        let mut said = len as libc::socklen_t;
        let (fd, ptr) = (self.as_raw_fd(), value.as_mut_ptr());
        // SAFETY: `ptr` is valid for writes of eight times as many bytes; the kernel writes no more.
        check(unsafe { libc::getsockopt(fd, level, name, ptr.cast(), &mut said) })?;
        Ok((said as usize, value[..len.min(said as usize)].to_vec()))
    }

    /// Bytes for an option of any length.
    pub const MOST: usize = 512;

    /// Reads an option to the address 0, where `len` bytes are said to be; returns its length.
    pub fn option_to_null(&self, level: i32, name: i32, len: i32) -> Result<usize> {
        // CAST: the kernel takes it for an `int` again.
        let (fd, mut len) = (self.as_raw_fd(), len as libc::socklen_t);
        // SAFETY: the kernel checks the address, and writes nothing of this program's but `len`.
        check(unsafe { libc::getsockopt(fd, level, name, ptr::null_mut(), &mut len) })?;
        Ok(len as usize)
    }

    /// Reads an option with the address 0 in place of its length.
    pub fn option_without_len(&self, level: i32, name: i32) -> Result<()> {
        let (fd, mut value) = (self.as_raw_fd(), [0u8; 512]);
        let ptr = value.as_mut_ptr().cast();
        // SAFETY: the kernel checks the address of the length, without which it writes no value.
        check(unsafe { libc::getsockopt(fd, level, name, ptr, ptr::null_mut()) })?;
        Ok(())
    }

    /// Reads an option of type `int`.
    pub fn option_int(&self, level: i32, name: i32) -> Result<i32> {
        let mut value = [0; 4];
        self.option(level, name, &mut value)?;
        Ok(i32::from_ne_bytes(value))
    }

    /// Returns and clears the pending error (`SO_ERROR`); `None` if there is none.
    pub fn take_error(&self) -> Result<Option<Errno>> {
        let error = self.option_int(libc::SOL_SOCKET, libc::SO_ERROR)?;
        Ok((error != 0).then_some(Errno(error)))
    }

    /// Sets the timeouts of blocking receives (`SO_RCVTIMEO`) and sends (`SO_SNDTIMEO`).
    pub fn set_timeout(&self, timeout: Duration) -> Result<()> {
        self.set_duration(libc::SO_RCVTIMEO, timeout)?;
        self.set_duration(libc::SO_SNDTIMEO, timeout)
    }

    /// Sets one of the two timeouts.
    pub fn set_duration(&self, name: i32, timeout: Duration) -> Result<()> {
        let mut value = [0; 16];
        value[..8].copy_from_slice(&timeout.as_secs().to_ne_bytes());
        value[8..].copy_from_slice(&u64::from(timeout.subsec_micros()).to_ne_bytes());
        self.set_option(libc::SOL_SOCKET, name, &value)
    }

    /// Sets `SO_LINGER`.
    pub fn set_linger(&self, on: bool, seconds: i32) -> Result<()> {
        let mut value = [0; 8];
        value[..4].copy_from_slice(&i32::from(on).to_ne_bytes());
        value[4..].copy_from_slice(&seconds.to_ne_bytes());
        self.set_option(libc::SOL_SOCKET, libc::SO_LINGER, &value)
    }

    /// Reads `SO_LINGER`: whether it is enabled, and the time in seconds.
    pub fn linger(&self) -> Result<(bool, i32)> {
        let mut value = [0; 8];
        self.option(libc::SOL_SOCKET, libc::SO_LINGER, &mut value)?;
        let [a, b, c, d, e, f, g, h] = value;
        let on = i32::from_ne_bytes([a, b, c, d]);
        Ok((on != 0, i32::from_ne_bytes([e, f, g, h])))
    }
}
