// SPDX-License-Identifier: GPL-2.0

//! A single request and its attributes.

use core::{
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};

use super::Policy;
use crate::{
    bindings,
    net::NetNs, //
};

/// A request.
///
/// # Invariants
///
/// `info` is a request that the kernel has checked against `taken`, and lives for `'a`. Its array of
/// attributes has an entry for each that is taken.
pub struct Request<'a> {
    info: NonNull<bindings::genl_info>,
    /// What the command takes.
    taken: &'static [Policy],
    _request: PhantomData<&'a bindings::genl_info>,
}

impl<'a> Request<'a> {
    /// # Safety
    ///
    /// The kernel must have passed `info` to a callback that has not returned, of a command that
    /// was registered with `taken`.
    pub(super) unsafe fn new(info: *mut bindings::genl_info, taken: &'static [Policy]) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            // SAFETY: The kernel passes no null pointer.
            info: unsafe { NonNull::new_unchecked(info) },
            taken,
            _request: PhantomData,
        }
    }

    /// The namespace of who asked.
    pub fn netns(&self) -> &'a NetNs {
        // SAFETY: The socket of who asked keeps its namespace during the call.
        unsafe { NetNs::from_ptr(bindings::genl_info_net(self.info.as_ptr())) }
    }

    /// The bytes of an attribute, if it is there and the command takes it.
    pub fn attr(&self, attr: u32) -> Option<&'a [u8]> {
        let taken = self.taken.iter().find(|policy| policy.attr == attr)?;
        // SAFETY: By the type invariant.
        let attrs = unsafe { self.info.as_ref().attrs };
        // CAST: Numbers of attributes are small.
        // SAFETY: By the type invariant the array has an entry for it.
        let nla = unsafe { *attrs.add(taken.attr as usize) };
        if nla.is_null() {
            return None;
        }
        // SAFETY: The kernel has checked the attribute, which lives as long as the request.
        let (data, len) = unsafe { (bindings::nla_data(nla), bindings::nla_len(nla)) };
        let len = usize::try_from(len).ok()?;
        // SAFETY: As above.
        Some(unsafe { slice::from_raw_parts(data.cast(), len) })
    }
}
