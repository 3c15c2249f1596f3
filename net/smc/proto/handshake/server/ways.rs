// SPDX-License-Identifier: GPL-2.0

//! The ways that a PROPOSAL leaves, in the order in which they are tried.

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

/// The ways that have not been tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ways {
    pub(super) peer: PeerId,
    pub(super) mac: Mac,
    pub(super) v2: Option<V2Way>,
    pub(super) iwarp: Option<IwarpWay>,
    /// Version 1, with the client's GID.
    pub(super) v1: Option<Gid>,
    pub(super) first: FirstReason,
}

/// What version 2 would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct V2Way {
    pub(super) eid: Eid,
    pub(super) gid: Gid,
    pub(super) release: Release,
    pub(super) limits: Limits,
}

/// What version 2 over iWARP would be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IwarpWay {
    pub(super) way: V2Way,
    pub(super) nonce: Nonce,
}

impl Ways {
    /// RoCE comes first: it is what everybody has.
    pub(super) fn choose(mut self) -> Result<Chosen, Reason> {
        if let Some(way) = self.v2.take() {
            let way = Way::V2(way);
            return Ok(Chosen { way, rest: self });
        }
        if let Some(way) = self.iwarp.take() {
            let way = Way::Iwarp(way);
            return Ok(Chosen { way, rest: self });
        }
        if let Some(gid) = self.v1.take() {
            let way = Way::V1(gid);
            return Ok(Chosen { way, rest: self });
        }
        Err(self.first.or(Reason::NoSmcDevice))
    }
}

/// A way that is being tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    V1(Gid),
    V2(V2Way),
    Iwarp(IwarpWay),
}

impl Way {
    /// What version 2 is, over whatever.
    pub(super) const fn v2(&self) -> Option<V2Way> {
        match self {
            Self::V1(_) => None,
            Self::V2(way) | Self::Iwarp(IwarpWay { way, .. }) => Some(*way),
        }
    }
}
