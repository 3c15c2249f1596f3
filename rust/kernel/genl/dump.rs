// SPDX-License-Identifier: GPL-2.0

//! Dumps: one message per record, in one or more passes.

use core::{
    marker::PhantomData,
    ptr::NonNull, //
};

use super::Attrs;
use crate::{
    bindings,
    net::NetNs,
    prelude::*, //
};

/// One pass of a dump.
///
/// # Invariants
///
/// `skb` and `cb` are the message under construction and the state of a dump, and used by nothing else for `'a`.
pub struct Dump<'a> {
    skb: NonNull<bindings::sk_buff>,
    cb: NonNull<bindings::netlink_callback>,
    _pass: PhantomData<&'a mut bindings::netlink_callback>,
}

impl<'a> Dump<'a> {
    /// # Safety
    ///
    /// The kernel must have passed both to a dump callback that has not returned.
    pub(super) unsafe fn new(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> Self {
        // INVARIANT: By the caller's promise.
        Self {
            // SAFETY: The kernel passes no null pointers.
            skb: unsafe { NonNull::new_unchecked(skb) },
            // SAFETY: As above.
            cb: unsafe { NonNull::new_unchecked(cb) },
            _pass: PhantomData,
        }
    }

    fn info(&self) -> &bindings::genl_info {
        // SAFETY: By the type invariant, this is a dump of generic netlink.
        unsafe { &*bindings::genl_info_dump(self.cb.as_ptr()) }
    }

    /// The requested command.
    pub fn command(&self) -> u8 {
        // SAFETY: The request has a header, and lives as long as the dump.
        unsafe { (*self.info().genlhdr).cmd }
    }

    /// The network namespace of the requester.
    pub fn netns(&self) -> &'a NetNs {
        // SAFETY: The requester's socket keeps its namespace during the call.
        unsafe { NetNs::from_ptr(bindings::genl_info_net(self.info())) }
    }

    /// The key at which this pass continues: 0 in the first one.
    pub fn next(&self) -> u64 {
        // SAFETY: See `place`.
        unsafe { self.place().read() }
    }

    /// Bytes added by this pass.
    pub(super) fn len(&self) -> i32 {
        // SAFETY: By the type invariant.
        let len = unsafe { (*self.skb.as_ptr()).len };
        i32::try_from(len).unwrap_or(i32::MAX)
    }

    /// Adds the records that follow those of earlier passes. Each has a key that increases from record to record; the
    /// next pass resumes by it even if the list has changed. `put` adds the record's messages; none is kept if it
    /// fails.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a record that does not fit into an empty message; others from `put`.
    pub fn each<T>(
        &mut self,
        records: impl IntoIterator<Item = (u64, T)>,
        mut put: impl FnMut(&mut DumpRecord<'_, 'a>, T) -> Result,
    ) -> Result {
        for (key, record) in records {
            if key < self.next() {
                continue;
            }
            // SAFETY: By the type invariant.
            let before = unsafe { (*self.skb.as_ptr()).len };
            let result = put(&mut DumpRecord { dump: self }, record);
            if let Err(e) = result {
                // SAFETY: As above; the message was that long.
                unsafe { bindings::skb_trim(self.skb.as_ptr(), before) };
                return match before {
                    0 => Err(e),
                    _ if e == EMSGSIZE => Ok(()),
                    _ => Err(e),
                };
            }
            self.set_next(key.saturating_add(1));
        }
        Ok(())
    }

    fn place(&self) -> *mut u64 {
        // SAFETY: By the type invariant.
        let place = unsafe { &raw mut (*self.cb.as_ptr()).__bindgen_anon_1 };
        // The state is 48 bytes for the dump's owner, aligned for longs, and initially zero.
        place.cast()
    }

    fn set_next(&mut self, key: u64) {
        // SAFETY: See `place`.
        unsafe { self.place().write(key) };
    }
}

/// The messages of one record.
pub struct DumpRecord<'a, 'b> {
    dump: &'a mut Dump<'b>,
}

impl DumpRecord<'_, '_> {
    /// The requested command, which most replies repeat.
    pub fn command(&self) -> u8 {
        self.dump.command()
    }

    /// Adds a message.
    /// Context: does not sleep.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if it does not fit; those of `fill`.
    pub fn message(&mut self, command: u8, fill: impl FnOnce(&mut Attrs<'_>) -> Result) -> Result {
        let skb = self.dump.skb;
        let info = self.dump.info();
        // SAFETY: By the type invariant of `Dump`.
        let head = unsafe {
            bindings::genlmsg_put(
                skb.as_ptr(),
                info.snd_portid,
                info.snd_seq,
                info.family,
                bindings::NLM_F_MULTI as i32,
                command,
            )
        };
        if head.is_null() {
            return Err(EMSGSIZE);
        }
        // SAFETY: As above.
        fill(&mut unsafe { Attrs::new(skb) })?;
        // SAFETY: As above; begun with this head.
        unsafe { bindings::genlmsg_end(skb.as_ptr(), head) };
        Ok(())
    }
}
