// SPDX-License-Identifier: GPL-2.0

//! A link group that begins with a handshake: what both sides agree on for it, and the first contact extension
//! that each sends of itself in ACCEPT or CONFIRM.

use super::select::{
    self,
    Route, //
};
use super::{
    DEFAULT_LIMITS,
    RELEASE, //
};
use crate::error::{
    PeerError,
    PeerMisbehaved, //
};
use crate::id::{
    Eid,
    Features,
    PeerId, //
};
use crate::lgr::Role;
use crate::reason::Reason;
use crate::wire::clc::{
    FirstContactExt,
    Hostname,
    Limits,
    Mode,
    OsType,
    Release,
    Vendor, //
};
use crate::wire::Version;

/// What both sides agree on for a new link group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewLgr {
    /// Our side.
    pub role: Role,
    /// The peer.
    pub peer: PeerId,
    /// The EID that both have; `None` in version 1.
    pub eid: Option<Eid>,
    /// The release of version 2; [`Release::R0`] in version 1.
    pub release: Release,
    /// The limits of the link group; [`DEFAULT_LIMITS`] in version 1.
    pub limits: Limits,
    /// Whether the server reaches the client's port without a gateway; always in version 1.
    pub is_direct: bool,
}

/// What we send in the first contact extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnInfo {
    /// Our name. Not sent in version 1.
    pub hostname: Hostname,
    /// For a link over iWARP, the TCP port at which we accept the peer's connection; 0 for none.
    pub listener: Option<u16>,
}

/// What the peer sent in the first contact extension, in version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// Its operating system.
    pub os: OsType,
    /// Its name, for people.
    pub hostname: Hostname,
    /// See [`Vendor::AnyLink`].
    pub takes_cdc_on_any_link: bool,
    /// Data may be announced to it by [immediate data](crate::wire::immediate).
    pub takes_immediate: bool,
    /// The RMBEs of a connection can be [replaced](crate::conn::RmbeRefs).
    pub replaces_rmbes: bool,
    /// For a link over iWARP, the TCP port at which it accepts our connection; 0 for none.
    pub listener: u16,
}

impl NewLgr {
    /// A link group of version 1.
    pub(super) const fn v1(role: Role, peer: PeerId) -> Self {
        Self {
            role,
            peer,
            eid: None,
            release: Release::R0,
            limits: DEFAULT_LIMITS,
            is_direct: true,
        }
    }

    /// What a server chose for a link group of version 2, as its client takes it.
    ///
    /// # Errors
    ///
    /// The release is newer than ours, or the limits are outside of those `offered`.
    pub(super) fn of_server(
        peer: PeerId,
        eid: Eid,
        first: &FirstContactExt,
        offered: Limits,
    ) -> Result<Self, PeerError> {
        if first.release > RELEASE {
            return Err(PeerMisbehaved::ReleaseNotOffered.into());
        }
        let limits = match first.limits() {
            Some(chosen) => select::check_limits(chosen, offered)?,
            None => DEFAULT_LIMITS,
        };
        Ok(Self {
            eid: Some(eid),
            release: first.release,
            limits,
            is_direct: first.direct,
            ..Self::v1(Role::Client, peer)
        })
    }

    /// The version.
    pub const fn version(&self) -> Version {
        version(self.eid)
    }

    /// Decides, at the client, how the server is reached; see [`select::path`].
    ///
    /// # Errors
    ///
    /// [`Reason::NoRoute`], [`Reason::NoIndirect`].
    pub fn path(&self, route: impl FnOnce() -> Option<Route>) -> Result<Route, Reason> {
        select::path(self.is_direct, route)
    }

    /// Makes the first contact extension. Release 0 has no limits and no vendor's options, and sends zeros.
    pub(super) fn extension(&self, own: OwnInfo) -> FirstContactExt {
        let vendor = match own.listener {
            Some(port) => Vendor::Iwarp {
                port,
                replaces_rmbes: true,
            },
            None => Vendor::AnyLink {
                takes_immediate: true,
                replaces_rmbes: true,
            },
        };
        let has_limits = self.release >= Release::R1;
        FirstContactExt {
            direct: self.is_direct,
            os: OsType::LINUX,
            release: self.release,
            hostname: own.hostname,
            raw_limits: if has_limits {
                self.limits
            } else {
                Limits::default()
            },
            features: Features::default(),
            vendor_options: if has_limits { vendor.options() } else { 0 },
        }
    }

    /// Checks, at the server, that the client repeats what was agreed on.
    ///
    /// # Errors
    ///
    /// [`PeerMisbehaved`] names what differs.
    pub(super) fn check_repeated(&self, repeated: &FirstContactExt) -> Result<(), PeerMisbehaved> {
        if repeated.release != self.release {
            return Err(PeerMisbehaved::ReleaseChanged);
        }
        let Some(again) = repeated.limits() else {
            return Ok(());
        };
        if again.max_conns != self.limits.max_conns {
            return Err(PeerMisbehaved::MaxConnsChanged);
        }
        if again.max_links != self.limits.max_links {
            return Err(PeerMisbehaved::MaxLinksChanged);
        }
        Ok(())
    }
}

impl PeerInfo {
    /// Takes what is needed of the first contact extension, for a link over iWARP or not.
    pub(super) fn of(first: &FirstContactExt, is_iwarp: bool) -> Self {
        let peer = Self {
            os: first.os,
            hostname: first.hostname,
            takes_cdc_on_any_link: is_iwarp,
            takes_immediate: false,
            replaces_rmbes: false,
            listener: 0,
        };
        match first.vendor() {
            Vendor::AnyLink {
                takes_immediate,
                replaces_rmbes,
            } => Self {
                takes_cdc_on_any_link: true,
                takes_immediate,
                replaces_rmbes,
                ..peer
            },
            Vendor::Iwarp {
                port,
                replaces_rmbes,
            } if is_iwarp => Self {
                replaces_rmbes,
                listener: port,
                ..peer
            },
            Vendor::Iwarp { .. } | Vendor::Unknown => peer,
        }
    }
}

/// The version that comes with, or without, an EID.
pub(super) const fn version(eid: Option<Eid>) -> Version {
    match eid {
        None => Version::V1,
        Some(_) => Version::V2,
    }
}

/// Makes the part of an ACCEPT or CONFIRM that depends on the version and on whether a link group begins.
pub(super) fn mode(eid: Option<Eid>, new: Option<(NewLgr, OwnInfo)>) -> Mode {
    match eid {
        None => Mode::V1 {
            first_contact: new.is_some(),
        },
        Some(eid) => Mode::V2 {
            eid,
            first_contact: new.map(|(new, own)| new.extension(own)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(release: Release, max_conns: u8, max_links: u8) -> NewLgr {
        NewLgr {
            release,
            limits: Limits {
                max_conns,
                max_links,
            },
            ..NewLgr::v1(Role::Server, PeerId::NONE)
        }
    }

    const OWN: OwnInfo = OwnInfo {
        hostname: Hostname([0; 32]),
        listener: None,
    };

    #[test]
    fn vendors_have_their_say_from_release_1_on() {
        let ours = |release| new(release, 255, 2).extension(OWN);
        let immediate = Vendor::AnyLink {
            takes_immediate: true,
            replaces_rmbes: true,
        };
        assert_eq!(ours(Release::R1).vendor(), immediate);
        assert_eq!(ours(Release::R0).vendor_options, 0);
        let early = FirstContactExt {
            vendor_options: immediate.options(),
            ..ours(Release::R0)
        };
        assert_eq!(early.vendor(), Vendor::Unknown);
    }

    #[test]
    fn a_repeated_agreement_is_compared_field_by_field() {
        let agreed = new(Release::R1, 100, 2);
        let check = |said: NewLgr| agreed.check_repeated(&said.extension(OWN));
        let reason = |said| check(said).unwrap_err().reason();
        assert_eq!(check(agreed), Ok(()));
        assert_eq!(reason(new(Release::R0, 100, 2)), Some(Reason::ReleaseError));
        assert_eq!(reason(new(Release::R1, 99, 2)), Some(Reason::MaxConnsError));
        assert_eq!(
            reason(new(Release::R1, 100, 1)),
            Some(Reason::MaxLinksError)
        );
        let old = new(Release::R0, 1, 1).extension(OWN);
        assert_eq!(old.raw_limits, Limits::default());
        let agreed = new(Release::R0, 255, 2);
        assert_eq!(agreed.check_repeated(&old), Ok(()));
    }
}
