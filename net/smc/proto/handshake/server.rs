// SPDX-License-Identifier: GPL-2.0

//! The listening side of the handshake: [`ServerCaps`] → [`Chosen`] → [`AcceptSent`] → [`Confirmed`].
//!
//! A PROPOSAL has up to three candidates: version 2 over RoCE, the same over iWARP, and version 1. Whether
//! one works shows only when a port was found, a link group joined and a buffer registered, so the
//! caller tries the candidate that was chosen and reports if it failed; then the next is chosen. If none is
//! left, the *first* failure is the reason in the DECLINE (RFC 7609 section 3.5.2; C functions
//! `smc_listen_v2_check`, `smc_listen_find_device`).

mod candidates;

use super::eid::Ueids;
use super::new_lgr::{
    self,
    NewLgr,
    OwnInfo,
    PeerInfo, //
};
use super::{
    select,
    Failure,
    DEFAULT_LIMITS, //
};
use crate::cause::Cause;
use crate::error::{
    PeerError,
    PeerMisbehaved, //
};
use crate::id::{
    Eid,
    Gid,
    Mac,
    Mtu, //
};
use crate::lgr::{
    LgrKey,
    LinkEnd,
    Role,
    TcpEnds, //
};
use crate::link::Transport;
use crate::reason::Reason;
use crate::wire::clc::{
    Accept,
    ClcMessage,
    Confirm,
    Endpoint,
    IpPrefix,
    Limits,
    Mode,
    Proposal,
    Release,
    SmcR,
    V2Offer, //
};
use crate::wire::iwarp::{
    IwListenAddr,
    Nonce, //
};
use crate::wire::Version;

use candidates::{
    Candidate,
    Candidates,
    FirstReason,
    IwarpCandidate,
    V2Candidate, //
};

/// What the server has for one connection.
#[derive(Clone, Copy, Debug)]
pub struct ServerCaps<'a> {
    /// Our user EIDs.
    pub eids: &'a Ueids,
    /// The limits that the administrator allows for a link group.
    pub limits: Limits,
    /// Whether IPsec protects the TCP connection.
    pub has_ipsec: bool,
    /// Whether the interface of the TCP connection could be determined.
    pub has_interface: bool,
    /// The client's end, if the link is over iWARP: the name of its TCP address. `None` rules iWARP out.
    pub iwarp: Option<Gid>,
}

impl ServerCaps<'_> {
    /// Evaluates a PROPOSAL and chooses the candidate to try first. `is_our_subnet` compares the client's
    /// subnets with those of the TCP connection's interface; it is called at most once, and only
    /// if version 1 is offered.
    ///
    /// # Errors
    ///
    /// The reason to decline, if neither version is possible.
    pub fn evaluate(
        &self,
        proposal: &Proposal<'_>,
        is_our_subnet: impl FnOnce(&IpPrefix<'_>) -> bool,
    ) -> Result<Chosen, Reason> {
        if self.has_ipsec {
            return Err(Reason::Ipsec);
        }
        let v2 = self.check_v2(proposal)?;
        let (release, limits) = self.check_limits(v2)?;

        let mut first = FirstReason::default();
        let in_subnet = proposal.v1().is_none_or(|v1| is_our_subnet(&v1.prefix));
        if !in_subnet {
            first.note(Reason::DifferentPrefix);
        }
        if !self.has_interface {
            return Err(first.or(Reason::VlanError));
        }
        if proposal.v1().is_some_and(|v1| v1.technologies.has_smcd()) {
            first.note(Reason::NoSmcdDevice);
        }
        let v1 = proposal
            .v1()
            .filter(|v1| in_subnet && v1.technologies.has_smcr());
        let v2 = v2.and_then(|offer| self.v2_candidate(offer, release, limits));
        let iwarp = v2.and_then(|candidate| self.iwarp_candidate(proposal, candidate));
        Candidates {
            peer: proposal.peer_id,
            mac: proposal.mac,
            // A client that has iWARP alone names that end.
            v2: v2.filter(|candidate| iwarp.is_none() || candidate.gid.iwarp().is_none()),
            iwarp,
            v1: v1.map(|_| proposal.gid),
            first,
        }
        .choose()
    }

    /// What exactly is missing when [`Self::evaluate`] gives this reason: the lack of an EID in common has
    /// none of its own.
    pub fn cause(&self, proposal: &Proposal<'_>, reason: Reason) -> Option<Cause> {
        let v2 = proposal.v2().filter(|v2| v2.technologies.has_smcr())?;
        let is_unknown = !v2.eids.is_empty() && self.eids.choose(v2.eids.iter().copied()).is_none();
        (is_unknown && reason == Reason::NoSmcDevice).then_some(Cause::NoCommonEid)
    }

    /// Returns the version 2 offer if SMC-R is possible by it, as far as the PROPOSAL alone shows.
    fn check_v2<'p>(&self, proposal: &'p Proposal<'_>) -> Result<Option<&'p V2Offer<'p>>, Reason> {
        let Some(v2) = proposal.v2() else {
            // Version 1 in the form of version 2 without any type: nothing is offered at all.
            return match proposal.v1() {
                Some(_) => Ok(None),
                None => Err(Reason::PeerNoSmc),
            };
        };
        let has_smcr = v2.technologies.has_smcr();
        if has_smcr && !v2.eids.is_empty() {
            return Ok(Some(v2));
        }
        match (proposal.v1(), has_smcr) {
            (Some(_), _) => Ok(None),
            (None, true) => Err(Reason::NoUeid),
            (None, false) => Err(Reason::NoIsmV2Support),
        }
    }

    /// Errors in the limits decline the whole connection, even if version 1 would be possible.
    fn check_limits(&self, v2: Option<&V2Offer<'_>>) -> Result<(Release, Limits), Reason> {
        let Some(v2) = v2 else {
            return Ok((Release::R0, DEFAULT_LIMITS));
        };
        let limits = match v2.limits() {
            Some(offered) => select::limits(offered, self.limits).map_err(|e| e.reason())?,
            None => DEFAULT_LIMITS,
        };
        Ok((select::release(v2.release), limits))
    }

    /// An EID in common is needed; its absence has no reason of its own, version 1 is next.
    fn v2_candidate(
        &self,
        offer: &V2Offer<'_>,
        release: Release,
        limits: Limits,
    ) -> Option<V2Candidate> {
        Some(V2Candidate {
            eid: self.eids.choose(offer.eids.iter().copied())?,
            gid: offer.gid,
            release,
            limits,
        })
    }

    /// The same version over iWARP, if the client offers that.
    fn iwarp_candidate(
        &self,
        proposal: &Proposal<'_>,
        candidate: V2Candidate,
    ) -> Option<IwarpCandidate> {
        let nonce = proposal.area().and_then(Nonce::offered)?;
        let candidate = V2Candidate {
            gid: self.iwarp?,
            ..candidate
        };
        (candidate.release >= Release::R1).then_some(IwarpCandidate { candidate, nonce })
    }
}

/// The candidate to try now: find a port, find or make a link group, get and register buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chosen {
    candidate: Candidate,
    rest: Candidates,
}

impl Chosen {
    /// The version.
    pub const fn version(&self) -> Version {
        match self.candidate {
            Candidate::V1(_) => Version::V1,
            Candidate::V2(_) | Candidate::Iwarp(_) => Version::V2,
        }
    }

    /// What would carry the link.
    pub const fn transport(&self) -> Transport {
        match self.candidate {
            Candidate::V1(_) | Candidate::V2(_) => Transport::Roce,
            Candidate::Iwarp(_) => Transport::Iwarp,
        }
    }

    /// The client's nonce, if the link is one over iWARP.
    pub const fn nonce(&self) -> Option<Nonce> {
        match self.candidate {
            Candidate::V1(_) | Candidate::V2(_) => None,
            Candidate::Iwarp(IwarpCandidate { nonce, .. }) => Some(nonce),
        }
    }

    /// The client's port: in version 2 the one to find a route to.
    pub const fn peer_gid(&self) -> Gid {
        match self.candidate {
            Candidate::V1(gid) => gid,
            Candidate::V2(V2Candidate { gid, .. })
            | Candidate::Iwarp(IwarpCandidate {
                candidate: V2Candidate { gid, .. },
                ..
            }) => gid,
        }
    }

    /// The Ethernet address of the client's port; its CONFIRM has `confirmed`. In version 2 the PROPOSAL may have that
    /// of another port, which is for version 1.
    pub fn peer_mac(&self, confirmed: Mac) -> Mac {
        match self.version() {
            Version::V1 => self.rest.mac,
            Version::V2 => confirmed,
        }
    }

    /// The EID agreed on; `None` in version 1.
    pub fn eid(&self) -> Option<Eid> {
        self.candidate.v2().map(|candidate| candidate.eid)
    }

    /// What is agreed on if a link group begins now; `is_direct`: no gateway is between the two ports.
    pub fn new_lgr(&self, is_direct: bool) -> NewLgr {
        let v1 = NewLgr::v1(Role::Server, self.rest.peer);
        self.candidate.v2().map_or(v1, |candidate| NewLgr {
            eid: Some(candidate.eid),
            release: candidate.release,
            limits: candidate.limits,
            is_direct,
            ..v1
        })
    }

    /// What to look for among the link groups that exist, for the TCP connection with these `ends`. If none
    /// matches, one begins.
    pub fn wanted(&self, vlan: u16, ends: TcpEnds) -> LgrKey {
        LgrKey {
            peer: self.rest.peer,
            peer_gid: self.peer_gid(),
            peer_mac: (self.version() == Version::V1).then_some(self.rest.mac),
            peer_qp: None,
            vlan,
            ends,
        }
    }

    /// Chooses the next candidate, as no port is suitable for this one.
    ///
    /// # Errors
    ///
    /// The reason to decline, if none is left.
    pub fn next_without_port(self) -> Result<Self, Reason> {
        let reason = match self.version() {
            Version::V1 => Reason::NoSmcDevice,
            Version::V2 => Reason::NoSmcrDevice,
        };
        self.next_after(reason)
    }

    /// Chooses the next candidate, as this one has failed for `reason`.
    ///
    /// # Errors
    ///
    /// The reason to decline, if none is left: the first one noted.
    pub fn next_after(mut self, reason: Reason) -> Result<Self, Reason> {
        self.rest.first.note(reason);
        self.rest.choose()
    }

    /// Makes the ACCEPT. `local` is our end; `new` describes the link group if one begins.
    pub fn accept(self, local: SmcR, new: Option<(NewLgr, OwnInfo)>) -> (AcceptSent, Accept) {
        let accepted = AcceptSent {
            version: self.version(),
            new: new.map(|(new, _)| new),
            iwarp: match (&new, self.transport()) {
                (Some(_), Transport::Iwarp) => Some(self.peer_gid()),
                (None, _) | (_, Transport::Roce) => None,
            },
            mtu: local.mtu,
        };
        let accept = Accept {
            endpoint: Endpoint::SmcR(local),
            mode: new_lgr::mode(self.eid(), new),
        };
        (accepted, accept)
    }
}

/// The ACCEPT is out; the CONFIRM is awaited for [`super::CLC_WAIT`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptSent {
    version: Version,
    /// What is agreed on, if a link group begins.
    new: Option<NewLgr>,
    /// The client's end, if a link group begins, over iWARP.
    iwarp: Option<Gid>,
    mtu: Mtu,
}

impl AcceptSent {
    /// Takes the client's answer.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the client declined, or confirmed something else.
    pub fn on_message(self, message: &ClcMessage<'_>) -> Result<Confirmed, Failure> {
        match message {
            ClcMessage::Confirm(confirm) => Ok(self.on_confirm(confirm)?),
            other => Err(Failure::not_awaited(other)),
        }
    }

    fn on_confirm(self, confirm: &Confirm<'_>) -> Result<Confirmed, PeerError> {
        let Endpoint::SmcR(client) = confirm.endpoint else {
            return Err(PeerMisbehaved::ModeNotOffered.into());
        };
        if confirm.mode.version() != self.version {
            return Err(PeerMisbehaved::ModeNotOffered.into());
        }
        let peer = match (confirm.mode, self.new) {
            (Mode::V1 { .. }, _) | (Mode::V2 { .. }, None) => None,
            (Mode::V2 { first_contact, .. }, Some(new)) => {
                let first = first_contact.ok_or(PeerMisbehaved::ReleaseChanged)?;
                new.check_repeated(&first)?;
                Some(PeerInfo::of(&first, self.iwarp.is_some()))
            }
        };
        if let Some(gid) = self.iwarp {
            let port = peer.map_or(0, |peer| peer.listener);
            // No well-known service is connected to.
            if gid != client.gid || port < IwListenAddr::FIRST_PORT {
                return Err(PeerMisbehaved::ModeNotOffered.into());
            }
        }
        Ok(Confirmed {
            client,
            mtu: self.mtu.min(client.mtu),
            peer,
        })
    }
}

/// The CONFIRM is here and acceptable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confirmed {
    client: SmcR,
    mtu: Mtu,
    peer: Option<PeerInfo>,
}

impl Confirmed {
    /// The client's end of the link, and of the connection.
    pub const fn client(&self) -> &SmcR {
        &self.client
    }

    /// The lower of both sides' path MTUs.
    pub const fn mtu(&self) -> Mtu {
        self.mtu
    }

    /// The client's first contact extension, if a link group of version 2 begins.
    pub const fn peer(&self) -> Option<&PeerInfo> {
        self.peer.as_ref()
    }

    /// The TCP port to connect to; 0 unless a link over iWARP begins.
    pub fn listener(&self) -> u16 {
        self.peer.map_or(0, |peer| peer.listener)
    }

    /// Whether the client uses the link with this end. It should use the one that the ACCEPT
    /// named, but the RFC lets it take another of the group.
    pub fn is_on(&self, link: &LinkEnd) -> bool {
        link.peer_qp == self.client.qp_num && link.peer_gid == self.client.gid
    }
}
