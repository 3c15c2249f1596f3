// SPDX-License-Identifier: GPL-2.0

//! What a server can try for a PROPOSAL, in this order.

use super::Chosen;
use crate::id::{
    Eid,
    Gid,
    Mac,
    PeerId, //
};
use crate::reason::Reason;
use crate::wire::clc::{
    Limits,
    Release, //
};
use crate::wire::iwarp::Nonce;

/// The reason noted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FirstReason(Option<Reason>);

impl FirstReason {
    pub(super) fn note(&mut self, reason: Reason) {
        self.0.get_or_insert(reason);
    }

    pub(super) fn or(self, otherwise: Reason) -> Reason {
        self.0.unwrap_or(otherwise)
    }
}

/// The candidates that have not been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidates {
    pub(super) peer: PeerId,
    pub(super) mac: Mac,
    pub(super) v2: Option<V2Candidate>,
    pub(super) iwarp: Option<IwarpCandidate>,
    /// Version 1, with the client's GID.
    pub(super) v1: Option<Gid>,
    pub(super) first: FirstReason,
}

/// What version 2 would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct V2Candidate {
    pub(super) eid: Eid,
    pub(super) gid: Gid,
    pub(super) release: Release,
    pub(super) limits: Limits,
}

/// What version 2 over iWARP would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IwarpCandidate {
    pub(super) candidate: V2Candidate,
    pub(super) nonce: Nonce,
}

impl Candidates {
    /// RoCE comes first: every peer has it.
    pub(super) fn choose(mut self) -> Result<Chosen, Reason> {
        if let Some(candidate) = self.v2.take() {
            let candidate = Candidate::V2(candidate);
            return Ok(Chosen {
                candidate,
                rest: self,
            });
        }
        if let Some(candidate) = self.iwarp.take() {
            let candidate = Candidate::Iwarp(candidate);
            return Ok(Chosen {
                candidate,
                rest: self,
            });
        }
        if let Some(gid) = self.v1.take() {
            let candidate = Candidate::V1(gid);
            return Ok(Chosen {
                candidate,
                rest: self,
            });
        }
        Err(self.first.or(Reason::NoSmcDevice))
    }
}

/// A candidate that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Candidate {
    V1(Gid),
    V2(V2Candidate),
    Iwarp(IwarpCandidate),
}

impl Candidate {
    /// What version 2 is, over whatever.
    pub(super) const fn v2(&self) -> Option<V2Candidate> {
        match self {
            Self::V1(_) => None,
            Self::V2(candidate) | Self::Iwarp(IwarpCandidate { candidate, .. }) => Some(*candidate),
        }
    }
}
