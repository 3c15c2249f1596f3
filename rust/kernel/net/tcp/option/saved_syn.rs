// SPDX-License-Identifier: GPL-2.0

//! TCP's copy of a SYN, in which its answer is kept.
//!
//! That is in a flag which no SYN has that TCP copies, so that no peer can make it up: ACK if SMC is offered, RST if it
//! is refused.
//!
//! The copy is the request's until the connection is there, which takes it, and whose owner may free it at any time.
//! Another CPU may be sending a SYN-ACK of the same request right then. So the copy is only read, or written, under the
//! lock of TCP's hash table, by which a request is taken out first ([`with_syn`]).
//!
//! C headers: [`include/net/request_sock.h`](srctree/include/net/request_sock.h),
//! [`include/net/inet_hashtables.h`](srctree/include/net/inet_hashtables.h)

use core::slice;

use super::header;
use crate::bindings;

/// How a SYN is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// It does not ask for SMC.
    NotAsked,
    /// That is not decided yet.
    Open,
    /// Each SYN-ACK offers SMC.
    Offers,
    /// None does.
    Refuses,
}

/// The TCP header in TCP's copy of a SYN.
pub(super) struct SavedSyn<'a>(&'a mut [u8]);

impl SavedSyn<'_> {
    /// # Safety
    ///
    /// `syn` must be null, or a copy that nothing else accesses for the result's lifetime.
    pub(super) unsafe fn new(syn: *mut bindings::saved_syn) -> Option<Self> {
        if syn.is_null() {
            return None;
        }
        // SAFETY: By the caller's promise.
        let (start, len) = unsafe {
            (
                bindings::saved_syn_tcp_header(syn),
                (*syn).tcp_hdrlen as usize,
            )
        };
        // SAFETY: The header has that length, and by the caller's promise nothing else accesses it.
        Some(Self(unsafe { slice::from_raw_parts_mut(start, len) }))
    }

    pub(super) fn answer(&self) -> Answer {
        // TCP keeps a SYN with neither of these flags only.
        let flags = header::flags(self.0);
        if flags & header::ACK != 0 {
            Answer::Offers
        } else if flags & header::RST != 0 {
            Answer::Refuses
        } else if header::has_smc(self.0) {
            Answer::Open
        } else {
            Answer::NotAsked
        }
    }

    /// Keeps an answer; returns false if another one was given before.
    pub(super) fn decide(&mut self, offers: bool) -> bool {
        let (answer, flag) = match offers {
            true => (Answer::Offers, header::ACK),
            false => (Answer::Refuses, header::RST),
        };
        if self.answer() == Answer::Open {
            header::set_flags(self.0, header::flags(self.0) | flag);
        }
        self.answer() == answer
    }

    /// Makes the header what it was when it came.
    pub(super) fn forget(&mut self) {
        let flags = header::flags(self.0);
        header::set_flags(self.0, flags & !(header::ACK | header::RST));
    }
}

/// Calls `f` with a request's copy of the SYN. `None` if it is not the request's any more: the connection is there, or
/// has failed, or another listener is about to get the request.
///
/// # Safety
///
/// `request` must be a live request of a TCP listener.
pub(super) unsafe fn with_syn<T>(
    request: *mut bindings::sock,
    f: impl FnOnce(&mut SavedSyn<'_>) -> T,
) -> Option<T> {
    // SAFETY: By the caller's promise; the table lives as long as the namespace, which the request's listener holds.
    let lock = unsafe { bindings::reqsk_hash_lock(request) };
    // SAFETY: The lock lives as long as its table.
    unsafe { bindings::spin_lock_bh(lock) };
    // SAFETY: By the caller's promise.
    let is_held = unsafe { bindings::sk_hashed(request) };
    let mut result = None;
    if is_held {
        // SAFETY: The copy of a request that is in the table is accessed under the lock only.
        let syn = unsafe { SavedSyn::new(bindings::reqsk_saved_syn(request)) };
        result = syn.map(|mut syn| f(&mut syn));
    }
    // SAFETY: Taken above.
    unsafe { bindings::spin_unlock_bh(lock) };
    result
}
