// SPDX-License-Identifier: GPL-2.0

//! Settings of a network namespace whose value is a text. Those that are numbers are in `sysctl.rs`.
//!
//! C header: [`include/linux/sysctl.h`](srctree/include/linux/sysctl.h)

use core::{
    ffi::c_void,
    ptr::NonNull, //
};

use super::pernet::NetNs;
use crate::{
    bindings,
    prelude::*, //
};

/// A setting of each network namespace, whose text has `N` bytes at most, with its NUL. What is beyond is cut off, and
/// so is what follows a line feed, as with all settings of that kind.
pub trait TextSetting<const N: usize>: 'static {
    /// The name of its file.
    const NAME: &'static CStr;

    /// Returns the text, which ends with the first NUL.
    /// Context: may sleep.
    fn read(net: &NetNs) -> [u8; N];

    /// Sets it to a text, which may be empty.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Any error; whoever wrote the file gets it.
    fn write(net: &NetNs, text: &CStr) -> Result;
}

/// The file of a [`TextSetting`].
///
/// # Invariants
///
/// The namespace lives. `header` is the registration of `table`, whose `data` is the namespace.
pub(super) struct TextFile {
    header: NonNull<bindings::ctl_table_header>,
    _table: KBox<bindings::ctl_table>,
}

// SAFETY: The table is only read after its registration, which may end in any thread.
unsafe impl Send for TextFile {}
// SAFETY: As above.
unsafe impl Sync for TextFile {}

impl TextFile {
    /// Creates the file in the directory `path` of a namespace.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if such a file exists already.
    ///
    /// # Safety
    ///
    /// The namespace must outlive the result.
    pub(super) unsafe fn new<T: TextSetting<N>, const N: usize>(
        net: *mut bindings::net,
        path: &'static CStr,
    ) -> Result<Self> {
        let row = bindings::ctl_table {
            procname: T::NAME.as_char_ptr(),
            data: net.cast(),
            mode: 0o644,
            proc_handler: Some(text_callback::<T, N>),
            ..Default::default()
        };
        let mut table = KBox::new(row, GFP_KERNEL)?;
        // SAFETY: By the caller's promise the namespace is alive; the table is valid until it is unregistered in
        // `drop`.
        let header = unsafe {
            bindings::register_net_sysctl_sz(net, path.as_char_ptr(), &raw mut *table, 1)
        };
        // INVARIANT: Registered above.
        Ok(Self {
            header: NonNull::new(header).ok_or(ENOMEM)?,
            _table: table,
        })
    }
}

impl Drop for TextFile {
    fn drop(&mut self) {
        // SAFETY: By the type invariant. Afterwards nothing uses the table.
        unsafe { bindings::unregister_net_sysctl_table(self.header.as_ptr()) };
    }
}

/// The file is read or written.
unsafe extern "C" fn text_callback<T: TextSetting<N>, const N: usize>(
    table: *const bindings::ctl_table,
    write: i32,
    buffer: *mut c_void,
    len: *mut usize,
    pos: *mut bindings::loff_t,
) -> i32 {
    // SAFETY: The kernel passes the table of a `TextFile`, which is registered during the call.
    let (net, procname) = unsafe { ((*table).data, (*table).procname) };
    // SAFETY: As above, and by the type invariant of `TextFile`.
    let net = unsafe { NetNs::from_ptr(net.cast()) };
    let mut text = T::read(net);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    let row = bindings::ctl_table {
        procname,
        data: text.as_mut_ptr().cast(),
        // CAST: A short text.
        maxlen: N as i32,
        ..Default::default()
    };
    // SAFETY: The table is one of a text of that length, which ends with NUL; all else is as the kernel passed it.
    let code = unsafe { bindings::proc_dostring(&row, write, buffer, len, pos) };
    if code != 0 || write == 0 {
        return code;
    }
    match CStr::from_bytes_until_nul(&text) {
        Ok(text) => T::write(net, text).map_or_else(Error::to_errno, |()| 0),
        Err(_) => EINVAL.to_errno(),
    }
}
