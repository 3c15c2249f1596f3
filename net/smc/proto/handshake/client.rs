// SPDX-License-Identifier: GPL-2.0

//! The connecting side of the handshake: [`Means`] → [`Proposed`] → [`Agreed`].
//!
//! The caller looks for ports, sends what it is given, and hands in what arrives; here is decided
//! what is offered and whether the server's choice is one of the things offered (RFC 7609 sections
//! 3.5.1 and 3.5.2; C functions `__smc_connect`, `smc_connect_rdma`).

use super::select::{
    self,
    Path, //
};
use super::{
    Failure,
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
    Gid,
    Mac,
    PeerId, //
};
use crate::lgr::{
    TcpEnds,
    Wanted, //
};
use crate::link::Transport;
use crate::reason::Reason;
use crate::wire::clc::{
    Accept,
    Confirm,
    Endpoint,
    FirstContact,
    Hostname,
    IpPrefix,
    Limits,
    Message,
    Mode,
    Offer,
    OsType,
    Proposal,
    Release,
    SmcR,
    SmcdArea,
    Technologies,
    V1Offer,
    V2Offer,
    V2Technologies,
    Vendor, //
};
use crate::wire::iwarp::{
    Awaited,
    Nonce, //
};
use crate::wire::{
    List,
    Version, //
};

/// What the client has to offer for one connection.
#[derive(Clone, Copy, Debug)]
pub struct Means<'a> {
    /// This machine.
    pub peer_id: PeerId,
    /// The port for version 1, if there is one.
    pub v1: Option<V1Port>,
    /// The port for version 2, if there is one and the TCP connection is over IPv4.
    pub v2: Option<V2Port>,
    /// What goes with an iWARP port, if there is one at the TCP connection's own address.
    pub iwarp: Option<Iwarp>,
    /// The subnets of the TCP connection's interface; `None` if it has none, which rules out
    /// version 1.
    pub prefix: Option<IpPrefix<'a>>,
    /// Our user EIDs; none of them rules out version 2.
    pub eids: List<'a, Eid, 8>,
    /// The limits that the administrator allows for a link group.
    pub limits: Limits,
}

/// A port for version 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V1Port {
    /// Its RoCE v1 GID.
    pub gid: Gid,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// A port for version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V2Port {
    /// Its RoCE v2 GID with an IPv4 address. The first link must use this one: the server's
    /// queue pair is programmed with it, not with that of the CONFIRM.
    pub gid: Gid,
    /// Its Ethernet address.
    pub mac: Mac,
}

/// What goes with a link over iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iwarp {
    /// Drawn for this handshake.
    pub nonce: Nonce,
    /// Our end: the name of our TCP address.
    pub client: Gid,
    /// The server's end, if it chooses iWARP: the name of its TCP address.
    pub server: Gid,
}

impl<'a> Means<'a> {
    /// Makes the PROPOSAL.
    ///
    /// # Errors
    ///
    /// [`Reason::NoSmcDevice`] without a port, [`Reason::ConfigError`] if there is one for
    /// version 1 only and no subnet to go with it.
    pub fn propose(&self) -> Result<(Proposed<'a>, Proposal<'a>), Reason> {
        let v2_port = self.v2.filter(|_| !self.eids.is_empty());
        let iwarp = self.iwarp.filter(|_| !self.eids.is_empty());
        // Without a RoCE port the GID is one to which nobody who knows RoCE only finds a way.
        let v2_gid = v2_port
            .map(|port| port.gid)
            .or(iwarp.map(|iwarp| iwarp.client));
        let has_v2 = v2_gid.is_some();
        if self.v1.is_none() && !has_v2 {
            return Err(Reason::NoSmcDevice);
        }
        let v1 = self.v1.zip(self.prefix);
        if v1.is_none() && !has_v2 {
            return Err(Reason::ConfigError);
        }
        let proposal = Proposal {
            peer_id: self.peer_id,
            gid: v1.map_or(Gid::NONE, |(port, _)| port.gid),
            // One field for both ports. Without version 1 the C module leaves it zero, and the
            // server then sends its frames to nobody; see `smc_find_rdma_v2_device_serv`.
            mac: v1.map_or(v2_port.map_or(Mac::NONE, |port| port.mac), |(port, _)| {
                port.mac
            }),
            offer: Offer::V2 {
                v1: v1.map(|(_, prefix)| V1Offer {
                    technologies: Technologies::SmcR,
                    prefix,
                }),
                area: iwarp.map_or(SmcdArea::default(), |iwarp| iwarp.nonce.offer()),
                v2: v2_gid.map(|gid| self.v2_offer(gid)),
            },
        };
        let proposed = Proposed {
            has_v1: v1.is_some(),
            has_v2: v2_port.is_some(),
            iwarp,
            eids: self.eids,
            limits: self.limits,
        };
        Ok((proposed, proposal))
    }

    fn v2_offer(&self, gid: Gid) -> V2Offer<'a> {
        V2Offer {
            technologies: V2Technologies::SmcR,
            release: RELEASE,
            gid,
            raw_limits: self.limits,
            features: Features::default(),
            eids: self.eids,
            seid: false,
        }
    }
}

/// The PROPOSAL is out; the ACCEPT is awaited for [`super::CLC_WAIT`].
#[derive(Clone, Copy, Debug)]
pub struct Proposed<'a> {
    has_v1: bool,
    has_v2: bool,
    iwarp: Option<Iwarp>,
    eids: List<'a, Eid, 8>,
    limits: Limits,
}

impl Proposed<'_> {
    /// Judges the server's answer.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the server declined, or chose what was not offered.
    pub fn on_message(self, message: &Message<'_>) -> Result<Agreed, Failure> {
        match message {
            Message::Accept(accept) => Ok(self.on_accept(accept)?),
            Message::Decline(decline) => Err(decline.into()),
            Message::Proposal(_) | Message::Confirm(_) => {
                Err(PeerMisbehaved::UnexpectedMessage.into())
            }
        }
    }

    fn on_accept(self, accept: &Accept) -> Result<Agreed, PeerError> {
        let Endpoint::SmcR(server) = accept.endpoint else {
            return Err(PeerMisbehaved::ModeNotOffered.into());
        };
        let (terms, contact) = match accept.mode {
            Mode::V1 { first_contact } if self.has_v1 => {
                let contact = match first_contact {
                    true => Contact::First(Beginning::V1),
                    false => Contact::Reuse,
                };
                (Terms::V1, contact)
            }
            Mode::V2 { eid, first_contact } if self.has_v2 || self.iwarp.is_some() => {
                if !self.eids.contains(&eid) {
                    return Err(PeerMisbehaved::EidNotOffered.into());
                }
                let iwarp = self.iwarp_for(&server, first_contact.as_ref())?;
                (
                    Terms::V2 { eid, iwarp },
                    self.contact(first_contact, iwarp.is_some())?,
                )
            }
            Mode::V1 { .. } | Mode::V2 { .. } => return Err(PeerMisbehaved::ModeNotOffered.into()),
        };
        Ok(Agreed {
            server,
            terms,
            contact,
        })
    }

    /// What carries the first link of a group: the form of the server's GID and its options say so. An iWARP end
    /// is believed at the address of the TCP connection only. Where no group begins the one that there is has
    /// the link that the server names, or has not.
    fn iwarp_for(
        &self,
        server: &SmcR,
        first: Option<&FirstContact>,
    ) -> Result<Option<Iwarp>, PeerError> {
        let Some(first) = first else {
            return Ok(None);
        };
        // The port is 0 where the server cannot await a stream.
        let is_chosen = match first.vendor() {
            Vendor::Iwarp { port } => port == 0 || port >= Awaited::FIRST_PORT,
            Vendor::Unknown | Vendor::AnyLink => false,
        };
        match self.iwarp {
            Some(iwarp) if server.gid == iwarp.server && is_chosen => Ok(Some(iwarp)),
            _ if self.has_v2 && server.gid.iwarp().is_none() => Ok(None),
            _ => Err(PeerMisbehaved::ModeNotOffered.into()),
        }
    }

    fn contact(
        &self,
        first_contact: Option<FirstContact>,
        is_iwarp: bool,
    ) -> Result<Contact, PeerError> {
        let Some(first) = first_contact else {
            return Ok(Contact::Reuse);
        };
        if first.release > RELEASE {
            return Err(PeerMisbehaved::ReleaseNotOffered.into());
        }
        let limits = match first.limits() {
            Some(chosen) => select::check_limits(chosen, self.limits)?,
            None => DEFAULT_LIMITS,
        };
        Ok(Contact::First(Beginning::V2 {
            release: first.release,
            limits,
            is_direct: first.direct,
            os: first.os,
            hostname: first.hostname,
            takes_any_link: is_iwarp || first.vendor() == Vendor::AnyLink,
            listener: match first.vendor() {
                Vendor::Iwarp { port } if is_iwarp => port,
                Vendor::Iwarp { .. } | Vendor::Unknown | Vendor::AnyLink => 0,
            },
        }))
    }
}

/// The version, and what goes with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Terms {
    V1,
    V2 { eid: Eid, iwarp: Option<Iwarp> },
}

/// Whether a link group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contact {
    /// A new link group begins.
    First(Beginning),
    /// One is reused. If [`Agreed::wanted`] matches none: [`Reason::SyncError`].
    Reuse,
}

/// What is agreed on for a new link group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beginning {
    /// Version 1, with [`DEFAULT_LIMITS`].
    V1,
    /// Version 2.
    V2 {
        /// The release of version 2.
        release: Release,
        /// The limits of the link group.
        limits: Limits,
        /// The server says that there is no gateway between the two.
        is_direct: bool,
        /// The server's operating system.
        os: OsType,
        /// The server's name, for people.
        hostname: Hostname,
        /// See [`Vendor::AnyLink`].
        takes_any_link: bool,
        /// The TCP port at which the server awaits the stream if it cannot open it; 0 for none.
        listener: u16,
    },
}

impl Beginning {
    /// The limits of the link group.
    pub const fn limits(&self) -> Limits {
        match self {
            Self::V1 => DEFAULT_LIMITS,
            Self::V2 { limits, .. } => *limits,
        }
    }

    /// The release of version 2; [`Release::R0`] in version 1.
    pub const fn release(&self) -> Release {
        match self {
            Self::V1 => Release::R0,
            Self::V2 { release, .. } => *release,
        }
    }

    /// Decides how the server is reached; see [`select::path`].
    ///
    /// # Errors
    ///
    /// [`Reason::NoRoute`], [`Reason::NoIndirect`].
    pub fn path(&self, route: impl FnOnce() -> Option<Path>) -> Result<Path, Reason> {
        match self {
            Self::V1 => Ok(Path::Direct),
            Self::V2 { is_direct, .. } => select::path(*is_direct, route),
        }
    }
}

/// The server's choice is acceptable. The link group and the buffers come next, then the CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    server: SmcR,
    terms: Terms,
    contact: Contact,
}

impl Agreed {
    /// The server's end of the link, and of the connection.
    pub const fn server(&self) -> &SmcR {
        &self.server
    }

    /// The version agreed on.
    pub const fn version(&self) -> Version {
        match self.terms {
            Terms::V1 => Version::V1,
            Terms::V2 { .. } => Version::V2,
        }
    }

    /// The EID agreed on; `None` in version 1.
    pub const fn eid(&self) -> Option<Eid> {
        match self.terms {
            Terms::V1 => None,
            Terms::V2 { eid, .. } => Some(eid),
        }
    }

    /// What goes with the link, if it is the first of a group, over iWARP.
    pub const fn iwarp(&self) -> Option<Iwarp> {
        match self.terms {
            Terms::V1 => None,
            Terms::V2 { iwarp, .. } => iwarp,
        }
    }

    /// The TCP port at which the server awaits the stream if it cannot open it; 0 for none.
    pub const fn listener(&self) -> u16 {
        match self.contact {
            Contact::First(Beginning::V2 { listener, .. }) => listener,
            Contact::First(Beginning::V1) | Contact::Reuse => 0,
        }
    }

    /// What carries the first link of a group.
    pub const fn transport(&self) -> Transport {
        match self.iwarp() {
            Some(_) => Transport::Iwarp,
            None => Transport::Roce,
        }
    }

    /// Whether a link group begins.
    pub const fn contact(&self) -> &Contact {
        &self.contact
    }

    /// What to look for among the link groups that exist, if one is to be reused by the TCP connection with
    /// these `ends`.
    pub fn wanted(&self, vlan: u16, ends: TcpEnds) -> Wanted {
        Wanted {
            peer: self.server.peer_id,
            peer_gid: self.server.gid,
            peer_mac: (self.version() == Version::V1).then_some(self.server.mac),
            peer_qp: Some(self.server.qp_num),
            vlan,
            ends,
        }
    }

    /// Makes the CONFIRM of a first contact over iWARP, as [`Agreed::confirm`] does: the server opens the
    /// stream to `port`.
    pub fn confirm_iwarp<'a>(
        &self,
        local: SmcR,
        hostname: Hostname,
        gids: List<'a, Gid, 255>,
        port: u16,
    ) -> Confirm<'a> {
        self.confirm_as(local, hostname, gids, Vendor::Iwarp { port })
    }

    /// Makes the CONFIRM. `local` is our end, with the lower of both MTUs; `hostname` our name;
    /// `gids` the ports at which we could add links, that of the first link first.
    pub fn confirm<'a>(
        &self,
        local: SmcR,
        hostname: Hostname,
        gids: List<'a, Gid, 255>,
    ) -> Confirm<'a> {
        self.confirm_as(local, hostname, gids, Vendor::AnyLink)
    }

    fn confirm_as<'a>(
        &self,
        local: SmcR,
        hostname: Hostname,
        gids: List<'a, Gid, 255>,
        vendor: Vendor,
    ) -> Confirm<'a> {
        let mode = match self.terms {
            Terms::V1 => Mode::V1 {
                first_contact: matches!(self.contact, Contact::First(_)),
            },
            Terms::V2 { eid, .. } => Mode::V2 {
                eid,
                first_contact: self.first_contact(hostname, vendor),
            },
        };
        Confirm {
            endpoint: Endpoint::SmcR(SmcR {
                mtu: local.mtu.min(self.server.mtu),
                ..local
            }),
            mode,
            gids,
        }
    }

    fn first_contact(&self, hostname: Hostname, vendor: Vendor) -> Option<FirstContact> {
        let Contact::First(Beginning::V2 {
            release,
            limits,
            is_direct,
            ..
        }) = self.contact
        else {
            return None;
        };
        Some(select::first_contact(
            release, limits, is_direct, hostname, vendor,
        ))
    }
}
