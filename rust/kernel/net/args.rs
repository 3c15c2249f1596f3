// SPDX-License-Identifier: GPL-2.0

//! Arguments of an application's system calls.
//!
//! C header: [`include/linux/net.h`](srctree/include/linux/net.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::{
        offset_of,
        size_of, //
    },
    ptr, //
};

use kernel::uaccess::{
    UserPtr,
    UserSlice, //
};

use super::SOL_TLS;
use crate::{
    bindings,
    prelude::*, //
};

/// The value given to setsockopt(2), in the application's memory or in the kernel's.
///
/// # Invariants
///
/// A kernel pointer is valid for reading `len` bytes for `'a`.
#[derive(Clone, Copy)]
pub struct SockOptIn<'a> {
    pub(super) ptr: bindings::sockptr_t,
    pub(super) len: u32,
    _value: PhantomData<&'a [u8]>,
}

impl SockOptIn<'_> {
    /// # Safety
    ///
    /// If `ptr` is a kernel pointer, it must be valid for reading `len` bytes for the lifetime of the
    /// result.
    pub(super) unsafe fn new(ptr: bindings::sockptr_t, len: u32) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            ptr,
            len,
            _value: PhantomData,
        }
    }

    /// Reads the value as a C `int`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if it is shorter, `EFAULT` if it cannot be read.
    pub fn read_int(self) -> Result<i32> {
        let mut bytes = [0; size_of::<i32>()];
        if usize::try_from(self.len).is_ok_and(|len| len < bytes.len()) {
            return Err(EINVAL);
        }
        // SAFETY: The value is at least that long.
        unsafe { self.copy(&mut bytes) }?;
        Ok(i32::from_ne_bytes(bytes))
    }

    /// Copies the start of the value.
    ///
    /// # Safety
    ///
    /// The value must be as long as `to`, or longer.
    unsafe fn copy(&self, to: &mut [u8]) -> Result {
        // SAFETY: `to` is valid for writing its length, and by the caller's promise and the type invariant so many
        // bytes of a kernel pointer can be read.
        let left =
            unsafe { bindings::copy_from_sockptr(to.as_mut_ptr().cast(), self.ptr, to.len()) };
        // Of the application's memory it is how much could not be read.
        match left {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }
}

impl SockOptIn<'_> {
    /// Reads the value, or as much of it as fits, to the start of `to`, and returns that part.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if it cannot be read.
    pub fn read<'t>(&self, to: &'t mut [u8]) -> Result<&'t [u8]> {
        let len = usize::try_from(self.len)?.min(to.len());
        let (to, _) = to.split_at_mut_checked(len).ok_or(EINVAL)?;
        // SAFETY: The value is at least that long.
        unsafe { self.copy(to) }?;
        Ok(to)
    }
}

/// Bytes of a value that are copied without an allocation.
const SHORT_VALUE: usize = 64;

/// The longest value that is copied: no option has a longer one, but for netfilter's tables.
const LONGEST_VALUE: usize = 256 << 10;

/// Options of IP, among them those of netfilter.
// CAST: small numbers.
const SOL_IP: i32 = bindings::SOL_IP as i32;
const SOL_IPV6: i32 = bindings::SOL_IPV6 as i32;

/// Rents a flow label, and answers which it is.
// CAST: a small number.
const IPV6_FLOWLABEL_MGR: i32 = bindings::IPV6_FLOWLABEL_MGR as i32;

/// Names of netfilter's options that replace a table and add counters, the same for IPv4 and IPv6. (Those of IPv6 that
/// are read with the socket's lock held have other numbers.)
const NETFILTER_TABLES: [i32; 2] = [
    bindings::IPT_SO_SET_REPLACE as i32,
    bindings::IPT_SO_SET_ADD_COUNTERS as i32,
];

impl SockOptIn<'_> {
    /// Calls `f`, which sets that option, with a copy of the value wherever the kernel can do with one.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `f`.
    pub(super) fn copied_for(
        self,
        level: i32,
        name: i32,
        f: impl FnOnce(SockOptIn<'_>) -> Result,
    ) -> Result {
        match (level, name) {
            // The kernel takes its own copy from kernel memory to what follows a structure for an overflow
            // (FORTIFY_SOURCE), and warns.
            (SOL_TLS, _) => f(self),
            // Tables may be larger than what is copied, and are read without the socket's lock.
            (SOL_IP | SOL_IPV6, _) if NETFILTER_TABLES.contains(&name) => f(self),
            _ => self.copied((level, name) == (SOL_IPV6, IPV6_FLOWLABEL_MGR), f),
        }
    }

    /// Calls `f` with a copy of the value, of which what is longer than any option is left out. Most options are read
    /// with the socket's lock held: where the application's memory is slow (FUSE, userfaultfd), all who need that lock
    /// would wait as long as it likes. If the option `answers` in the value, the copy is written back afterwards.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and those of `f`, which cannot read the value if not even an `int` of it can be read. What lies behind
    /// a shorter value need not be readable.
    fn copied(self, answers: bool, f: impl FnOnce(SockOptIn<'_>) -> Result) -> Result {
        let len = usize::try_from(self.len)?.min(LONGEST_VALUE);
        if self.ptr.is_kernel() || len == 0 {
            return f(self);
        }
        let mut short = [0; SHORT_VALUE];
        let mut long = KVVec::new();
        let copy = match short.get_mut(..len) {
            Some(copy) => copy,
            None => {
                long.resize(len, 0, GFP_KERNEL_ACCOUNT)?;
                &mut long
            }
        };
        // SAFETY: `copy` is valid for writing its length, which is that of the value.
        let left = unsafe { bindings::copy_from_sockptr(copy.as_mut_ptr().cast(), self.ptr, len) };
        let left = usize::try_from(left)?;
        let done = len.saturating_sub(left);
        if done < len.min(size_of::<i32>()) {
            // Some options look at its length first.
            return f(self.unreadable());
        }
        // SAFETY: The copy is at least that long, and outlives the call.
        let value = unsafe {
            // CAST: At most the value's length.
            SockOptIn::new(
                bindings::kernel_sockptr(copy.as_mut_ptr().cast()),
                done as u32,
            )
        };
        let result = f(value);
        if answers && result.is_ok() {
            // The option does without if that fails.
            // SAFETY: The copy is at least that long.
            unsafe { bindings::copy_to_sockptr(self.ptr, copy.as_ptr().cast(), done) };
        }
        match result {
            Err(e) if e == EINVAL && left > 0 => Err(EFAULT),
            result => result,
        }
    }

    /// A value of the same length at an address that cannot be read. A null pointer stays one, as some options look for
    /// it.
    fn unreadable(self) -> Self {
        // SAFETY: The pointer is not dereferenced.
        if unsafe { bindings::sockptr_is_null(self.ptr) } {
            return self;
        }
        let nowhere = ptr::without_provenance_mut(usize::MAX);
        // SAFETY: It is not a kernel pointer.
        unsafe { Self::new(bindings::user_sockptr(nowhere), self.len) }
    }
}

/// The value and length pointers of getsockopt(2), in the application's memory.
#[derive(Clone, Copy)]
pub struct SockOptOut {
    pub(super) value: *mut u8,
    pub(super) len: *mut i32,
}

impl SockOptOut {
    fn len_slice(self) -> UserSlice {
        let place = UserPtr::from_ptr(self.len.cast::<c_void>());
        UserSlice::new(place, size_of::<i32>())
    }

    /// Reads how many bytes the application has room for.
    fn room(self) -> Result<usize> {
        let room = self.len_slice().reader().read::<i32>()?;
        usize::try_from(room).map_err(|_| EINVAL)
    }

    /// TCP's answer to TCP_AO_INFO for a socket without keys, which TCP gives with its lock held, after it has read the
    /// value.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Always: `ENOENT`; `EINVAL` for a length that is not positive, or what is reserved; `EFAULT` if the memory cannot
    /// be used.
    pub fn no_ao_info(self) -> Result {
        let mut value = [0; size_of::<bindings::tcp_ao_info_opt>()];
        let len = self.room()?.min(value.len());
        if len == 0 {
            return Err(EINVAL);
        }
        let place = UserPtr::from_ptr(self.value.cast::<c_void>());
        let read = value.get_mut(..len).ok_or(EINVAL)?;
        UserSlice::new(place, len).reader().read_slice(read)?;
        // Five flags, bits that are reserved, and two bytes that are.
        let flags = if cfg!(target_endian = "little") {
            0x1f
        } else {
            0xf8
        };
        let [first, reserved @ .., _, _] = value.first_chunk::<8>().ok_or(EINVAL)?;
        match first & !flags == 0 && reserved.iter().all(|byte| *byte == 0) {
            true => Err(ENOENT),
            false => Err(EINVAL),
        }
    }

    /// Writes as much of `bytes` as the application has room for, and the length written.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a negative length, `EFAULT` if the memory cannot be used.
    pub fn write(self, bytes: &[u8]) -> Result {
        let room = self.room()?;
        let bytes = bytes.get(..room).unwrap_or(bytes);
        let len = i32::try_from(bytes.len()).map_err(|_| EINVAL)?;
        self.len_slice().writer().write(&len)?;
        let value_ptr = UserPtr::from_ptr(self.value.cast::<c_void>());
        UserSlice::new(value_ptr, bytes.len())
            .writer()
            .write_slice(bytes)
    }
}

impl SockOptOut {
    /// Corrects TCP's answer to TCP_INFO, which is written already, for a connection in `state`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the memory cannot be used.
    pub fn set_tcp_state(self, state: u8) -> Result {
        const { assert!(offset_of!(bindings::tcp_info, tcpi_state) == 0) };
        match self.room()? {
            0 => Ok(()),
            _ => {
                let place = UserPtr::from_ptr(self.value.cast::<c_void>());
                UserSlice::new(place, size_of::<u8>())
                    .writer()
                    .write(&state)
            }
        }
    }

    /// Corrects TCP's answer to TCP_INFO, which is written already, for a listener: `waiting` connections more wait for
    /// accept(2), and the backlog is `backlog`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EFAULT` if the memory cannot be used.
    pub fn add_listen_queue(self, waiting: u32, backlog: u32) -> Result {
        let len = self.room()?;
        let field = |offset| {
            let end = offset + size_of::<u32>();
            let place = UserPtr::from_ptr(self.value.wrapping_add(offset).cast::<c_void>());
            (len >= end).then(|| UserSlice::new(place, size_of::<u32>()))
        };
        // Fields that are others for a connection, see `tcp_get_info`.
        if let Some(field) = field(offset_of!(bindings::tcp_info, tcpi_unacked)) {
            let (mut reader, mut writer) = field.reader_writer();
            let of_tcp = reader.read::<u32>()?;
            writer.write(&of_tcp.saturating_add(waiting))?;
        }
        match field(offset_of!(bindings::tcp_info, tcpi_sacked)) {
            Some(field) => field.writer().write(&backlog),
            None => Ok(()),
        }
    }
}

/// Where a `struct tcp_zerocopy_receive` has how many bytes were mapped, how many are there otherwise, and how many
/// there are together; where that ends.
const ZC_LENGTH: usize = 8;
const ZC_SKIP_HINT: usize = 12;
const ZC_INQ: usize = 16;
const ZC_END: usize = 20;

impl SockOptOut {
    /// The answer to TCP_ZEROCOPY_RECEIVE where nothing can be mapped: `inq` bytes are to be received otherwise.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EIO` at the end of the stream, `EINVAL` if there is no room for the answer, `EFAULT`.
    pub fn map_nothing(self, inq: u32, is_end: bool) -> Result {
        let room = self.room()?;
        if room < ZC_SKIP_HINT {
            return Err(EINVAL);
        }
        if inq == 0 && is_end {
            return Err(EIO);
        }
        let most = size_of::<bindings::tcp_zerocopy_receive>();
        if room > most {
            // CAST: the size of a small structure.
            self.len_slice().writer().write(&(most as i32))?;
        }
        let place = UserPtr::from_ptr(self.value.cast::<c_void>());
        let mut answer = [0; ZC_END];
        let answer = answer.get_mut(..room.min(ZC_END)).ok_or(EINVAL)?;
        UserSlice::new(place, answer.len())
            .reader()
            .read_slice(answer)?;
        for (at, value) in [(ZC_LENGTH, 0), (ZC_SKIP_HINT, inq), (ZC_INQ, inq)] {
            for (to, from) in answer.iter_mut().skip(at).zip(u32::to_ne_bytes(value)) {
                *to = from;
            }
        }
        UserSlice::new(place, answer.len())
            .writer()
            .write_slice(answer)
    }
}

/// Writes a C `int` to the address in an ioctl's argument.
/// Context: may sleep.
///
/// # Errors
///
/// `EFAULT` if the memory cannot be written.
pub(super) fn put_int(arg: usize, value: i32) -> Result {
    UserSlice::new(UserPtr::from_addr(arg), size_of::<i32>())
        .writer()
        .write(&value)
}

/// A buffer for an address, of `sockaddr_storage` size.
///
/// # Invariants
///
/// `ptr` is valid for writing any socket address for `'a`.
pub struct SockAddrBuf<'a> {
    pub(super) ptr: *mut bindings::sockaddr,
    _buf: PhantomData<&'a mut ()>,
}

impl SockAddrBuf<'_> {
    /// # Safety
    ///
    /// `ptr` must be valid for writing a `sockaddr_storage` for the lifetime of the result.
    pub(super) unsafe fn new(ptr: *mut bindings::sockaddr) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            ptr,
            _buf: PhantomData,
        }
    }
}

/// The caller of poll(2).
///
/// # Invariants
///
/// The pointers are those that the kernel passed to `poll`, valid for `'a`.
pub struct PollWait<'a> {
    pub(super) file: *mut bindings::file,
    pub(super) socket: *mut bindings::socket,
    pub(super) table: *mut bindings::poll_table,
    pub(super) _poll: PhantomData<&'a mut ()>,
}

impl PollWait<'_> {
    /// Registers the caller for wake-ups of the socket. Check the state afterwards.
    pub fn register(&self) {
        // SAFETY: By the type invariant; the queue of the socket lives as long as the file.
        unsafe { bindings::sock_poll_wait(self.file, self.socket, self.table) };
    }
}
