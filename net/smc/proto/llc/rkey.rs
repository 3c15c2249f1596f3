// SPDX-License-Identifier: GPL-2.0

//! CONFIRM_RKEY and DELETE_RKEY: announce to the peer which buffers it may write to.
//!
//! Both are sent on one link and name the buffer by its RKey there; CONFIRM_RKEY lists the other links, too (RFC 7609
//! section 3.5.5.3; C functions `smc_llc_rmt_conf_rkey`,
//! `smc_llc_rmt_delete_rkey`).

use super::action::{
    Action,
    Actions,
    Finished,
    Ignored, //
};
use super::error::RkeyError;
use super::{
    Arrival,
    ANSWER_WAIT, //
};
use crate::id::Rkey;
use crate::lgr::rtoken::Refused;
use crate::lgr::{
    LinkIdx,
    LinkMap,
    Rtoken, //
};
use crate::time::Instant;
use crate::wire::llc::{
    Body,
    ConfirmRkey,
    DeleteRkey,
    LinkRkey,
    WireRkey, //
};
use crate::wire::{
    List,
    Version, //
};

/// A buffer of ours that the peer may write to.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmRkeyParams<'a> {
    /// Its RToken on the link that carries the message.
    pub here: Rtoken,
    /// Its RTokens on the other active links.
    pub others: List<'a, LinkRkey, 2>,
}

/// Buffers of ours that were released.
#[derive(Clone, Copy, Debug)]
pub struct Deletion<'a> {
    /// The first RKey; it identifies the answer.
    first: Rkey,
    rkeys: List<'a, WireRkey, 255>,
}

impl<'a> Deletion<'a> {
    /// RKeys in one message: in version 1, and in 44 bytes.
    pub const MAX: usize = 8;

    /// Makes it from the RKeys of at least one and at most [`Deletion::MAX`] buffers; else `None`.
    pub fn new(rkeys: &'a [WireRkey]) -> Option<Self> {
        let first = rkeys.first()?.get();
        let fits = rkeys.len() <= Self::MAX;
        let rkeys = fits.then_some(rkeys).and_then(List::new)?;
        Some(Self { first, rkeys })
    }
}

/// A request of ours that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct RkeyFlow {
    what: What,
    idx: LinkIdx,
    rkey: Rkey,
    deadline: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Confirm,
    Delete,
}

impl RkeyFlow {
    pub(super) fn confirm(
        idx: LinkIdx,
        buffer: ConfirmRkeyParams<'_>,
        now: Instant,
    ) -> (Self, Body<'_>) {
        let request = ConfirmRkey {
            rkey: buffer.here.rkey,
            addr: buffer.here.addr,
            others: buffer.others,
            following: 0,
            negative: false,
            retry: false,
        };
        let flow = Self::new(What::Confirm, idx, request.rkey, now);
        (flow, Body::ConfirmRkey(request))
    }

    pub(super) fn delete(idx: LinkIdx, what: Deletion<'_>, now: Instant) -> (Self, Body<'_>) {
        let request = DeleteRkey {
            rkeys: what.rkeys,
            negative: false,
            unknown: 0,
        };
        let flow = Self::new(What::Delete, idx, what.first, now);
        (flow, Body::DeleteRkey(request))
    }

    fn new(what: What, idx: LinkIdx, rkey: Rkey, now: Instant) -> Self {
        Self {
            what,
            idx,
            rkey,
            deadline: now.saturating_add(ANSWER_WAIT),
        }
    }

    pub(super) const fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) const fn idx(&self) -> LinkIdx {
        self.idx
    }

    pub(super) fn on_confirmed<'a>(&self, answer: &ConfirmRkey<'_>, idx: LinkIdx) -> Actions<'a> {
        self.on_answer(What::Confirm, Some(answer.rkey), idx, answer.negative)
    }

    pub(super) fn on_deleted<'a>(&self, answer: &DeleteRkey<'_>, idx: LinkIdx) -> Actions<'a> {
        // The C module omits the keys from its version 2 answers, and a list of unknown keys may begin with any of
        // them.
        let rkey = match answer.rkeys.first() {
            Some(rkey) if !answer.negative && rkey.get() != Rkey(0) => Some(rkey.get()),
            Some(_) | None => None,
        };
        self.on_answer(What::Delete, rkey, idx, answer.negative)
    }

    fn on_answer<'a>(
        &self,
        what: What,
        rkey: Option<Rkey>,
        idx: LinkIdx,
        negative: bool,
    ) -> Actions<'a> {
        if what != self.what || rkey.is_some_and(|rkey| rkey != self.rkey) {
            return Action::Ignored(Ignored::OtherAnswer).into();
        }
        if idx != self.idx {
            return Action::Ignored(Ignored::OtherLink).into();
        }
        self.finished(if negative {
            Err(RkeyError::Refused)
        } else {
            Ok(())
        })
    }

    pub(super) fn failed<'a>(&self, error: RkeyError) -> Actions<'a> {
        self.finished(Err(error))
    }

    fn finished<'a>(&self, result: Result<(), RkeyError>) -> Actions<'a> {
        Action::Finished(match self.what {
            What::Confirm => Finished::ConfirmRkey(result),
            What::Delete => Finished::DeleteRkey(result),
        })
        .into()
    }
}

/// Records a buffer of the peer and makes the answer: the request, negative if it was refused.
///
/// Only a full table permits a retry.
pub(super) fn confirm<'a>(
    request: &ConfirmRkey<'a>,
    arrival: &mut Arrival<'_, '_>,
) -> ConfirmRkey<'a> {
    let result = match request.following {
        0 => add(request, arrival),
        // More links than a CONFIRM_RKEY holds would follow in messages that are not answered.
        _ => Err(Refused::NoLink),
    };
    ConfirmRkey {
        negative: result.is_err(),
        retry: result == Err(Refused::Full),
        ..*request
    }
}

fn add(request: &ConfirmRkey<'_>, arrival: &mut Arrival<'_, '_>) -> Result<(), Refused> {
    let here = Rtoken {
        rkey: request.rkey,
        addr: request.addr,
    };
    // Unknown links and invalid keys are skipped: the buffer cannot be used on such a link, which shows when its RToken
    // is looked up.
    let mut others = LinkMap::<Option<Rtoken>>::default();
    for other in request.others.iter() {
        if let Some(idx) = arrival.idx_of(other.link_num()) {
            others[idx] = Some(Rtoken {
                rkey: other.rkey(),
                addr: other.addr(),
            });
        }
    }
    // It may be known on the others only: it could not be registered on this link then.
    let row = arrival.rtokens.add_with(arrival.idx, here, &others)?;
    for (idx, token) in others.present() {
        let _ = arrival.rtokens.set(row, idx, *token);
    }
    Ok(())
}

/// Deletes buffers of the peer and makes the answer, which lists the unknown ones: in version 1 by a mask, in version 2
/// by their number and the first of them.
pub(super) fn delete<'a>(
    request: &DeleteRkey<'a>,
    version: Version,
    arrival: &mut Arrival<'_, '_>,
) -> DeleteRkey<'a> {
    let mut mask = 0u8;
    let mut count = 0u8;
    let mut first_unknown = None;
    for (at, rkey) in request.rkeys.as_slice().iter().enumerate() {
        if arrival.rtokens.delete(arrival.idx, rkey.get()) {
            continue;
        }
        mask |= u32::try_from(at)
            .ok()
            .and_then(|at| 0x80u8.checked_shr(at))
            .unwrap_or(0);
        count = count.saturating_add(1);
        first_unknown.get_or_insert(core::slice::from_ref(rkey));
    }
    match version {
        Version::V1 => DeleteRkey {
            rkeys: request.rkeys,
            negative: count != 0,
            unknown: mask,
        },
        Version::V2 => DeleteRkey {
            rkeys: named_in_answer(request, first_unknown),
            negative: count != 0,
            unknown: count,
        },
    }
}

/// The keys in a version 2 answer, which has 44 bytes whatever the request's length: the first unknown one, or those of
/// the request that fit, by which the peer can identify the request.
fn named_in_answer<'a>(
    request: &DeleteRkey<'a>,
    first_unknown: Option<&'a [WireRkey]>,
) -> List<'a, WireRkey, 255> {
    let all = request.rkeys.as_slice();
    let fitting = all.get(..Deletion::MAX).unwrap_or(all);
    List::new(first_unknown.unwrap_or(fitting)).unwrap_or_default()
}
