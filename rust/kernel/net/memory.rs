// SPDX-License-Identifier: GPL-2.0

//! The memory of all sockets together, and its limits, as `tcp_mem` for TCP.
//!
//! Buffers count in whole pages from allocation to free, whether a socket, an orphaned connection or nothing uses them.
//! So the kernel's own accounting, which adds the charges of each socket, is disabled (`sk_bypass_prot_mem`);
//! `/proc/net/protocols` shows this sum.

use core::{
    ffi::c_void,
    mem::size_of,
    ptr::NonNull, //
};

use kernel::{
    page::PAGE_SIZE,
    sync::atomic::{
        Atomic,
        Relaxed, //
    }, //
};

use super::NetNs;
use crate::{
    bindings,
    prelude::*, //
};

/// The sum and its limits, in pages.
pub(super) struct Memory {
    pages: Atomic<i64>,
    /// As `tcp_mem`: where pressure ends, where it begins, and the hard limit.
    limits: [Atomic<i64>; 3],
    is_short: Atomic<bool>,
}

pub(super) static MEMORY: Memory = Memory {
    pages: Atomic::new(0),
    limits: [const { Atomic::new(i64::MAX) }; 3],
    is_short: Atomic::new(false),
};

/// The largest value of a limit.
static MOST: i64 = i64::MAX;

impl Memory {
    /// The sum, as a field of `struct proto`.
    pub(super) fn pages(&'static self) -> *mut bindings::atomic_long_t {
        (&raw const self.pages).cast_mut().cast()
    }

    /// The limits, as a field of `struct proto`.
    pub(super) fn limits(&'static self) -> *mut kernel::ffi::c_long {
        (&raw const self.limits).cast_mut().cast()
    }

    fn limit(&self, i: usize) -> i64 {
        self.limits.get(i).map_or(i64::MAX, |at| at.load(Relaxed))
    }

    /// Adds pages to the sum, where they count until taken back; returns whether it is within the hard limit.
    fn add(&self, pages: i64) -> bool {
        let sum = self.pages.fetch_add(pages, Relaxed).saturating_add(pages);
        if sum > self.limit(1).min(self.limit(2)) {
            self.is_short.store(true, Relaxed);
        }
        sum <= self.limit(2)
    }

    fn sub(&self, pages: i64) {
        self.pages.fetch_sub(pages, Relaxed);
        self.is_short();
    }

    fn is_short(&self) -> bool {
        if !self.is_short.load(Relaxed) {
            return false;
        }
        let is_over = self.pages.load(Relaxed) <= self.limit(0);
        if is_over {
            self.is_short.store(false, Relaxed);
        }
        !is_over
    }
}

const _: () = assert!(size_of::<Atomic<i64>>() == size_of::<bindings::atomic_long_t>());
const _: () = assert!(size_of::<Atomic<i64>>() == size_of::<kernel::ffi::c_long>());

/// Whether sockets have more memory than the second limit, or had and still have more than the first: unused memory
/// should be freed.
/// Context: any.
pub fn is_short() -> bool {
    MEMORY.is_short()
}

/// Pages that count in the sum while this lives. May be dropped in any context.
pub struct CountedPages(i64);

impl CountedPages {
    /// Counts a buffer of `bytes`.
    /// Context: any.
    ///
    /// # Errors
    ///
    /// `ENOBUFS` if the sum would exceed the third limit.
    pub fn new(bytes: usize) -> Result<Self> {
        let counted = Self(pages(bytes)?);
        match MEMORY.add(counted.0) {
            true => Ok(counted),
            // Dropping `counted` takes it back.
            false => Err(ENOBUFS),
        }
    }

    /// Counts a buffer without which an existing connection could not make progress, whatever the sum is.
    /// Context: any.
    pub fn force(bytes: usize) -> Result<Self> {
        let counted = Self(pages(bytes)?);
        MEMORY.add(counted.0);
        Ok(counted)
    }
}

fn pages(bytes: usize) -> Result<i64> {
    Ok(i64::try_from(bytes.div_ceil(PAGE_SIZE))?)
}

impl Drop for CountedPages {
    fn drop(&mut self) {
        MEMORY.sub(self.0);
    }
}

/// The limits as a file of three numbers below `/proc/sys` of the initial network namespace, while this lives.
///
/// # Invariants
///
/// `header` is the registration of `table`, whose entry points into statics.
pub struct MemLimits {
    header: NonNull<bindings::ctl_table_header>,
    table: KVec<bindings::ctl_table>,
}

// SAFETY: The table is only read after its registration, which may end in any thread.
unsafe impl Send for MemLimits {}
// SAFETY: As above.
unsafe impl Sync for MemLimits {}

impl MemLimits {
    /// Sets the limits to the defaults of `tcp_mem`, by the host's memory, and creates the file `name` in the directory
    /// `path`.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if such a file exists already.
    pub fn new(path: &'static CStr, name: &'static CStr) -> Result<Self> {
        for (limit, value) in MEMORY.limits.iter().zip(defaults()) {
            limit.store(value, Relaxed);
        }
        let mut table = KVec::with_capacity(1, GFP_KERNEL)?;
        let row = bindings::ctl_table {
            procname: name.as_char_ptr(),
            data: MEMORY.limits().cast(),
            // CAST: Three words.
            maxlen: size_of::<[Atomic<i64>; 3]>() as i32,
            mode: 0o644,
            proc_handler: Some(bindings::proc_doulongvec_minmax),
            extra2: (&raw const MOST).cast_mut().cast::<c_void>(),
            ..Default::default()
        };
        table.push(row, GFP_KERNEL)?;
        // SAFETY: The initial namespace lives always; the table is valid until it is unregistered in `drop`, and what
        // it points to is static.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                NetNs::initial().as_ptr(),
                path.as_char_ptr(),
                table.as_mut_ptr(),
                table.len(),
            )
        };
        // INVARIANT: Registered above.
        Ok(Self {
            header: NonNull::new(header).ok_or(ENOMEM)?,
            table,
        })
    }
}

impl Drop for MemLimits {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Afterwards nothing uses the table.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
        self.table.clear();
    }
}

/// Pages of the host's memory that are usable for buffers.
pub fn machine_pages() -> usize {
    // SAFETY: No precondition.
    let pages = unsafe { bindings::nr_free_buffer_pages() };
    usize::try_from(pages).unwrap_or(usize::MAX)
}

/// The pressure limit is a sixteenth of the memory usable for buffers, the low one 3/4 and the hard one 3/2 of that.
fn defaults() -> [i64; 3] {
    let middle = i64::try_from(machine_pages() / 16)
        .unwrap_or(i64::MAX / 2)
        .max(128);
    let low = middle / 4 * 3;
    [low, middle, low * 2]
}
