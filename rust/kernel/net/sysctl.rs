// SPDX-License-Identifier: GPL-2.0

//! Settings of a network namespace, below `/proc/sys/net`.
//!
//! C header: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h)

use core::{
    ffi::c_void,
    mem::size_of,
    ptr::NonNull,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    }, //
};

use kernel::sync::Arc;

use crate::{
    bindings,
    prelude::*, //
};

/// The permitted values of a setting.
#[derive(Clone, Copy, Debug)]
pub enum Bounds {
    /// Integers of a range, both ends included.
    Range(u32, u32),
    /// The same with negative ones; kept as [`Values::get_signed`] returns them.
    Signed(i32, i32),
    /// Seconds; kept in jiffies.
    Seconds,
}

/// A setting.
#[derive(Clone, Copy, Debug)]
pub struct SysctlEntry {
    /// The name of its file.
    pub name: &'static CStr,
    /// Its permitted values.
    pub bounds: Bounds,
    /// Its initial value, in the unit in which it is stored.
    pub default: u32,
}

/// The values of `N` settings.
pub struct Values<const N: usize>([AtomicU32; N]);

impl<const N: usize> Values<N> {
    /// Returns the value of setting `i`.
    /// Context: any.
    pub fn get(&self, i: usize) -> u32 {
        self.0.get(i).map_or(0, |value| value.load(Relaxed))
    }

    /// Returns the value of setting `i`, of [`Bounds::Signed`].
    /// Context: any.
    pub fn get_signed(&self, i: usize) -> i32 {
        // CAST: the bits of an `int`. `cast_signed` is newer than Debian's compiler.
        self.get(i) as i32
    }

    /// Sets setting `i` to a value within its bounds.
    /// Context: any.
    pub fn set(&self, i: usize, value: u32) {
        if let Some(place) = self.0.get(i) {
            place.store(value, Relaxed);
        }
    }
}

/// A registered directory of settings. A namespace has one with an object of its own: see
/// [`NewNetNs::settings`](super::pernet::NewNetNs::settings).
///
/// # Invariants
///
/// The namespace lives. `header` is the registration of `table`, whose entries point into `values` and a static array.
pub(super) struct Directory<const N: usize> {
    header: NonNull<bindings::ctl_table_header>,
    values: Arc<Values<N>>,
    table: KVec<bindings::ctl_table>,
}

// SAFETY: The table is only read after its registration, which may end in any thread.
unsafe impl<const N: usize> Send for Directory<N> {}
// SAFETY: As above.
unsafe impl<const N: usize> Sync for Directory<N> {}

impl<const N: usize> Directory<N> {
    /// Creates `entries` files in the directory `path` of a namespace.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if such files exist already.
    ///
    /// # Safety
    ///
    /// The namespace must outlive the result.
    pub(super) unsafe fn new(
        net: *mut bindings::net,
        path: &'static CStr,
        entries: &'static [SysctlEntry; N],
    ) -> Result<Self> {
        let values = Values(core::array::from_fn(|i| AtomicU32::new(entries[i].default)));
        let values = Arc::new(values, GFP_KERNEL)?;
        let mut table = KVec::with_capacity(N, GFP_KERNEL)?;
        for (entry, value) in entries.iter().zip(&values.0) {
            table.push(describe(entry, value), GFP_KERNEL)?;
        }
        // SAFETY: By the caller's promise the namespace is alive; the table is valid until it is unregistered in
        // `drop`, and what it points to lives as long.
        let header = unsafe {
            bindings::register_net_sysctl_sz(
                net,
                path.as_char_ptr(),
                table.as_mut_ptr(),
                table.len(),
            )
        };
        // INVARIANT: Registered above.
        Ok(Self {
            header: NonNull::new(header).ok_or(ENOMEM)?,
            values,
            table,
        })
    }

    /// The values.
    pub(super) fn values(&self) -> &Arc<Values<N>> {
        &self.values
    }
}

fn describe(entry: &'static SysctlEntry, value: &AtomicU32) -> bindings::ctl_table {
    let mut row = bindings::ctl_table {
        procname: entry.name.as_char_ptr(),
        data: value.as_ptr().cast(),
        maxlen: size_of::<u32>() as i32,
        mode: 0o644,
        ..Default::default()
    };
    match &entry.bounds {
        Bounds::Range(min, max) => {
            row.proc_handler = Some(bindings::proc_douintvec_minmax);
            row.extra1 = limit(min);
            row.extra2 = limit(max);
        }
        Bounds::Signed(min, max) => {
            row.proc_handler = Some(bindings::proc_dointvec_minmax);
            row.extra1 = limit(min);
            row.extra2 = limit(max);
        }
        Bounds::Seconds => row.proc_handler = Some(bindings::proc_dointvec_jiffies),
    }
    row
}

/// Returns a limit as the pointer that the handler takes.
fn limit<T>(value: &'static T) -> *mut c_void {
    (&raw const *value).cast_mut().cast()
}

impl<const N: usize> Drop for Directory<N> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Afterwards nothing uses the table.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
        self.table.clear();
    }
}
