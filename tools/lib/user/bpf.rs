// SPDX-License-Identifier: GPL-2.0

//! bpf(2): maps, programs that hook a kernel function, and the links that keep them there.
//!
//! Kernel header: `include/uapi/linux/bpf.h`.

use std::ffi::CString;
use std::mem;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::fd::BorrowedFd;
use std::os::fd::FromRawFd;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::check;
use crate::Errno;
use crate::Result;

// Commands (`enum bpf_cmd`).
const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const MAP_GET_NEXT_KEY: i32 = 4;
const PROG_LOAD: i32 = 5;
const OBJ_PIN: i32 = 6;
const OBJ_GET: i32 = 7;
const OBJ_GET_INFO_BY_FD: i32 = 15;
const LINK_CREATE: i32 = 28;

/// `BPF_PROG_TYPE_TRACING`.
const TRACING: u32 = 26;
/// `BPF_MODIFY_RETURN`.
const MODIFY_RETURN: u32 = 26;

/// `union bpf_attr`: what a command takes. The kernel accepts zeroes behind what it knows.
#[repr(C, align(8))]
struct Attr([u8; Attr::LEN]);

impl Attr {
    const LEN: usize = 128;

    fn new() -> Self {
        Self([0; Self::LEN])
    }

    /// Sets the 32 bits at an offset.
    fn u32(mut self, at: usize, value: u32) -> Self {
        self.0[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// Sets the 64 bits at an offset to a pointer.
    fn ptr<T: ?Sized>(mut self, at: usize, value: *const T) -> Self {
        let address = value.cast::<u8>() as usize as u64;
        self.0[at..at + 8].copy_from_slice(&address.to_ne_bytes());
        self
    }

    /// Sets the 16 bytes at an offset to a name, of which what is too long is left out.
    fn name(mut self, at: usize, name: &str) -> Self {
        let len = name.len().min(15);
        self.0[at..at + len].copy_from_slice(&name.as_bytes()[..len]);
        self
    }

    fn fd(self, at: usize, fd: BorrowedFd<'_>) -> Self {
        // CAST: an open descriptor is not negative.
        self.u32(at, fd.as_raw_fd() as u32)
    }

    /// Carries a command out.
    ///
    /// # Safety
    ///
    /// The pointers that `command` takes must be valid for what it does with them.
    unsafe fn call(&self, command: i32) -> Result<i32> {
        let (attr, len) = (self.0.as_ptr(), Self::LEN);
        // SAFETY: `attr` is valid for reads of `len` bytes; the rest is what the caller promises.
        check(unsafe { libc::syscall(libc::SYS_bpf, command, attr, len) } as i32)
    }

    /// Carries out a command that gives a descriptor.
    ///
    /// # Safety
    ///
    /// As for [`Self::call`].
    unsafe fn open(&self, command: i32) -> Result<OwnedFd> {
        // SAFETY: what the caller promises.
        let fd = unsafe { self.call(command) }?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

fn path_of(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Gives an object a name in the BPF file system, under which it outlives this process.
fn pin(fd: BorrowedFd<'_>, path: &Path) -> Result<()> {
    let path = path_of(path)?;
    let attr = Attr::new().ptr(0, path.as_ptr()).fd(8, fd);
    // SAFETY: `path` is a C string, which the command only reads.
    unsafe { attr.call(OBJ_PIN) }.map(|_| ())
}

fn open_pinned(path: &Path) -> Result<OwnedFd> {
    let path = path_of(path)?;
    let attr = Attr::new().ptr(0, path.as_ptr());
    // SAFETY: `path` is a C string, which the command only reads.
    unsafe { attr.open(OBJ_GET) }
}

/// Kinds of maps whose entries have one value each (`BPF_MAP_TYPE_HASH`, `BPF_MAP_TYPE_ARRAY`); of others the
/// kernel reads or writes more than the value's size.
const PLAIN: [u32; 2] = [1, 2];

/// What a map is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapShape {
    /// `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_size: u32,
    /// Bytes of a value.
    pub value_size: u32,
    /// The most entries.
    pub max_entries: u32,
}

/// A table that programs in the kernel look into.
#[derive(Debug)]
pub struct Map {
    fd: OwnedFd,
    shape: MapShape,
}

impl Map {
    fn of(fd: OwnedFd, shape: MapShape) -> Result<Self> {
        let is_plain = PLAIN.contains(&shape.kind);
        is_plain.then_some(Self { fd, shape }).ok_or(Errno::EINVAL)
    }

    /// Makes an empty map: a hash table or an array, else `EINVAL`.
    pub fn new(name: &str, shape: MapShape) -> Result<Self> {
        let attr = Attr::new()
            .u32(0, shape.kind)
            .u32(4, shape.key_size)
            .u32(8, shape.value_size)
            .u32(12, shape.max_entries)
            .name(28, name);
        // SAFETY: the command takes no pointer.
        let fd = unsafe { attr.open(MAP_CREATE) }?;
        Self::of(fd, shape)
    }

    /// Opens a map by its name in the BPF file system.
    pub fn open(path: &Path) -> Result<Self> {
        let fd = open_pinned(path)?;
        let mut info = [0_u32; 32];
        let attr = Attr::new()
            .fd(0, fd.as_fd())
            // CAST: 128 bytes.
            .u32(4, mem::size_of_val(&info) as u32)
            .ptr(8, info.as_mut_ptr());
        // SAFETY: `info` is valid for writes of the length named.
        unsafe { attr.call(OBJ_GET_INFO_BY_FD) }?;
        let [kind, _id, key_size, value_size, max_entries, ..] = info;
        let shape = MapShape {
            kind,
            key_size,
            value_size,
            max_entries,
        };
        Self::of(fd, shape)
    }

    /// Gives the map a name in the BPF file system.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.fd.as_fd(), path)
    }

    fn check_key(&self, key: &[u8]) -> Result<()> {
        let fits = key.len() == self.shape.key_size as usize;
        fits.then_some(()).ok_or(Errno::EINVAL)
    }

    /// Sets an entry. `EINVAL` unless key and value have the map's lengths.
    pub fn insert(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.check_key(key)?;
        if value.len() != self.shape.value_size as usize {
            return Err(Errno::EINVAL);
        }
        let attr = Attr::new()
            .fd(0, self.fd.as_fd())
            .ptr(8, key)
            .ptr(16, value);
        // SAFETY: both are valid for reads of the lengths that the map has.
        unsafe { attr.call(MAP_UPDATE_ELEM) }.map(|_| ())
    }

    /// Removes an entry; `ENOENT` if there is none.
    pub fn remove(&self, key: &[u8]) -> Result<()> {
        self.check_key(key)?;
        let attr = Attr::new().fd(0, self.fd.as_fd()).ptr(8, key);
        // SAFETY: the key is valid for reads of the length that the map has.
        unsafe { attr.call(MAP_DELETE_ELEM) }.map(|_| ())
    }

    /// All keys, in no order.
    pub fn keys(&self) -> Result<Vec<Vec<u8>>> {
        let mut keys: Vec<Vec<u8>> = Vec::new();
        loop {
            let mut next = vec![0; self.shape.key_size as usize];
            let attr = Attr::new().fd(0, self.fd.as_fd());
            let attr = match keys.last() {
                Some(last) => attr.ptr(8, last.as_ptr()),
                None => attr,
            };
            let attr = attr.ptr(16, next.as_mut_ptr());
            // SAFETY: the last key, if any, is valid for reads and the next one for writes of the length
            // that the map has.
            match unsafe { attr.call(MAP_GET_NEXT_KEY) } {
                Ok(_) => keys.push(next),
                Err(Errno::ENOENT) => return Ok(keys),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A program that may change what a kernel function returns.
#[derive(Debug)]
pub struct Program(OwnedFd);

impl Program {
    /// Has the kernel check and take a program for the function of that id in its type information.
    ///
    /// # Errors
    ///
    /// The kernel's answer, and what its verifier said.
    pub fn load(
        name: &str,
        code: &[u8],
        license: &str,
        function: u32,
    ) -> core::result::Result<Self, (Errno, String)> {
        let fail = |error| (error, String::new());
        let license = CString::new(license).map_err(|_| fail(Errno::EINVAL))?;
        if code.len() % 8 != 0 {
            return Err(fail(Errno::EINVAL));
        }
        let instructions = u32::try_from(code.len() / 8).map_err(|_| fail(Errno::E2BIG))?;
        let mut log = vec![0_u8; 64 * 1024];
        let attr = Attr::new()
            .u32(0, TRACING)
            .u32(4, instructions)
            .ptr(8, code)
            .ptr(16, license.as_ptr())
            .u32(24, 1)
            // CAST: 64 KiB.
            .u32(28, log.len() as u32)
            .ptr(32, log.as_mut_ptr())
            .name(48, name)
            .u32(68, MODIFY_RETURN)
            .u32(108, function);
        // SAFETY: the code is valid for reads of that many instructions, the license is a C string, and
        // the log is valid for writes of its length. The kernel only takes programs that it finds safe.
        match unsafe { attr.open(PROG_LOAD) } {
            Ok(fd) => Ok(Self(fd)),
            Err(error) => {
                let len = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
                Err((error, String::from_utf8_lossy(&log[..len]).into_owned()))
            }
        }
    }

    /// Has the kernel run it from now on, for as long as the link lives.
    pub fn attach(&self) -> Result<Link> {
        let attr = Attr::new().fd(0, self.0.as_fd()).u32(8, MODIFY_RETURN);
        // SAFETY: the command takes no pointer.
        let fd = unsafe { attr.open(LINK_CREATE) }?;
        Ok(Link(fd))
    }
}

/// Keeps a program where it was attached, until the last descriptor and the name are gone.
#[derive(Debug)]
pub struct Link(OwnedFd);

impl Link {
    /// Gives the link a name in the BPF file system.
    pub fn pin(&self, path: &Path) -> Result<()> {
        pin(self.0.as_fd(), path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_where_the_kernel_looks() {
        let attr = Attr::new()
            .u32(4, 0x0102_0304)
            .name(28, "a-name-that-is-too-long");
        assert_eq!(attr.0[4..8], 0x0102_0304_u32.to_ne_bytes());
        assert_eq!(&attr.0[28..44], b"a-name-that-is-\0");
        assert!(attr.0[44..].iter().all(|byte| *byte == 0));
    }
}
