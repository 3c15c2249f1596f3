// SPDX-License-Identifier: GPL-2.0

//! A single request and its attributes.

use core::{
    marker::PhantomData,
    ptr::NonNull,
    slice, //
};

use kernel::error::to_result;

use super::{
    Attrs,
    Policy, //
};
use crate::{
    bindings,
    net::NetNs,
    prelude::*, //
};

/// A request.
///
/// # Invariants
///
/// `info` is a request that the kernel has checked against `taken`, and lives for `'a`. Its array of attributes has an
/// entry for each attribute in `taken`.
pub struct Request<'a> {
    info: NonNull<bindings::genl_info>,
    /// The attributes that the command accepts.
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

    /// The network namespace of the requester.
    pub fn netns(&self) -> &'a NetNs {
        // SAFETY: The requester's socket keeps its namespace during the call.
        unsafe { NetNs::from_ptr(bindings::genl_info_net(self.info.as_ptr())) }
    }

    /// Returns the bytes of an attribute, if it is present and the command accepts it.
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

    /// Returns an attribute that is a four-byte number.
    pub fn u32(&self, attr: u32) -> Option<u32> {
        let bytes = self.attr(attr)?.first_chunk()?;
        Some(u32::from_ne_bytes(*bytes))
    }

    /// Replies with one `command` message per record and an NLMSG_DONE, all sent at once. `room` is the maximum number
    /// of bytes of a record's attributes.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EMSGSIZE` if a record needs more; those of `put`.
    pub fn answer_list<T>(
        &self,
        command: u8,
        room: usize,
        records: &[T],
        put: impl Fn(&mut Attrs<'_>, &T) -> Result,
    ) -> Result {
        let each = room.checked_add(HEADERS).ok_or(ENOMEM)?;
        let all = records
            .len()
            .checked_add(1)
            .and_then(|n| n.checked_mul(each));
        let answer = ReplyMsg::new(all.ok_or(ENOMEM)?)?;
        for record in records {
            answer.message(self, command, |attrs| put(attrs, record))?;
        }
        answer.end(self)?;
        let skb = answer.into_skb();
        // SAFETY: By the type invariant; the message is ours, and its ownership is passed on.
        to_result(unsafe { bindings::genlmsg_reply(skb.as_ptr(), self.info.as_ptr()) })
    }
}

/// Bytes of a message's headers: those of netlink and of generic netlink.
const HEADERS: usize = 20;

/// A reply that has not been sent.
struct ReplyMsg(NonNull<bindings::sk_buff>);

impl ReplyMsg {
    fn new(len: usize) -> Result<Self> {
        // SAFETY: Any length is allowed.
        let skb = unsafe { bindings::genlmsg_new(len, bindings::GFP_KERNEL) };
        Ok(Self(NonNull::new(skb).ok_or(ENOMEM)?))
    }

    fn message(
        &self,
        request: &Request<'_>,
        command: u8,
        fill: impl FnOnce(&mut Attrs<'_>) -> Result,
    ) -> Result {
        // SAFETY: By the type invariant of the request.
        let info = unsafe { request.info.as_ref() };
        let (portid, seq) = (info.snd_portid, info.snd_seq);
        // CAST: A flag of one bit.
        let flags = bindings::NLM_F_MULTI as i32;
        // SAFETY: The message is ours.
        let head = unsafe {
            bindings::genlmsg_put(self.0.as_ptr(), portid, seq, info.family, flags, command)
        };
        if head.is_null() {
            return Err(EMSGSIZE);
        }
        // SAFETY: As above.
        fill(&mut unsafe { Attrs::new(self.0) })?;
        // SAFETY: As above; begun with this head.
        unsafe { bindings::genlmsg_end(self.0.as_ptr(), head) };
        Ok(())
    }

    fn end(&self, request: &Request<'_>) -> Result {
        // SAFETY: By the type invariant of the request.
        let info = unsafe { request.info.as_ref() };
        // CAST: Small numbers.
        let (done, flags) = (bindings::NLMSG_DONE as i32, bindings::NLM_F_MULTI as i32);
        let (portid, seq) = (info.snd_portid, info.snd_seq);
        // SAFETY: The message is ours.
        let head = unsafe { bindings::nlmsg_put(self.0.as_ptr(), portid, seq, done, 0, flags) };
        match head.is_null() {
            true => Err(EMSGSIZE),
            false => Ok(()),
        }
    }

    fn into_skb(self) -> NonNull<bindings::sk_buff> {
        let skb = self.0;
        core::mem::forget(self);
        skb
    }
}

impl Drop for ReplyMsg {
    fn drop(&mut self) {
        // SAFETY: It is ours, and was not sent.
        unsafe { bindings::nlmsg_free(self.0.as_ptr()) };
    }
}
