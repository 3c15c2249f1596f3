// SPDX-License-Identifier: GPL-2.0

//! The connecting side of the handshake: [`ClientCaps`] → [`Proposed`] → [`Accepted`] (SMC-R), or [`AcceptedSmcD`].
//!
//! The caller looks for ports, sends what it is given, and hands in what arrives; here is decided
//! what is offered and whether the server's choice is one of the things offered (RFC 7609 sections
//! 3.5.1 and 3.5.2; C functions `__smc_connect`, `smc_connect_rdma`).

use super::new_lgr::{
    self,
    NewLgr,
    OwnInfo,
    PeerInfo, //
};
use super::{
    Failure,
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
    LgrKey,
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
    FirstContactExt,
    Hostname,
    IpPrefix,
    IsmEntry,
    Limits,
    Mode,
    Proposal,
    ProposedModes,
    SmcD,
    SmcR,
    SmcTypes,
    SmcdV2Ext,
    SmcdV2Offer,
    V1Offer,
    V2Offer,
    V2SmcTypes,
    Vendor, //
};
use crate::wire::iwarp::{
    IwListenAddr,
    Nonce, //
};
use crate::wire::{
    List,
    Version, //
};

/// What the client has to offer for one connection.
#[derive(Clone, Copy, Debug)]
pub struct ClientCaps<'a> {
    /// The name of this host.
    pub peer_id: PeerId,
    /// The port for version 1, if there is one.
    pub v1: Option<V1Port>,
    /// The port for version 2, if there is one and the TCP connection is over IPv4.
    pub v2: Option<V2Port>,
    /// The parameters of iWARP, if there is such a port at the TCP connection's own address.
    pub iwarp: Option<IwarpParams>,
    /// The entries of this kernel's SMC-D device, if the server may be on the same kernel. They need no EID.
    pub smcd: Option<&'a [IsmEntry; 2]>,
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

/// The parameters of a link over iWARP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IwarpParams {
    /// Drawn for this handshake.
    pub nonce: Nonce,
    /// Our end: the name of our TCP address.
    pub client: Gid,
    /// The server's end, if it chooses iWARP: the name of its TCP address.
    pub server: Gid,
}

impl<'a> ClientCaps<'a> {
    /// Makes the PROPOSAL.
    ///
    /// # Errors
    ///
    /// [`Reason::NoSmcDevice`] without a port, [`Reason::ConfigError`] if there is one for
    /// version 1 only and no subnet to go with it.
    pub fn propose(&self) -> Result<(Proposed<'a>, Proposal<'a>), Reason> {
        let v2_port = self.v2.filter(|_| !self.eids.is_empty());
        let iwarp = self.iwarp.filter(|_| !self.eids.is_empty());
        // Without a RoCE port the GID is one that servers without iWARP have no route to.
        let v2_gid = v2_port
            .map(|port| port.gid)
            .or(iwarp.map(|iwarp| iwarp.client));
        let v2 = self.v2_technologies(v2_gid.is_some());
        if self.v1.is_none() && v2.is_none() {
            return Err(Reason::NoSmcDevice);
        }
        // There is one field for the MAC of both ports.
        let has_same_mac = |v1: &V1Port| v2_port.is_none_or(|v2| v2.mac == v1.mac);
        let v1 = self.v1.filter(has_same_mac).zip(self.prefix);
        if v1.is_none() && v2.is_none() {
            return Err(Reason::ConfigError);
        }
        let proposal = Proposal {
            peer_id: self.peer_id,
            gid: v1.map_or(Gid::NONE, |(port, _)| port.gid),
            // A C server has its destination address from here in version 2, too, for which a C client without version
            // 1 leaves it zero; see `smc_find_rdma_v2_device_serv`.
            mac: v1.map_or(v2_port.map_or(Mac::NONE, |port| port.mac), |(port, _)| {
                port.mac
            }),
            modes: ProposedModes::V2 {
                v1: v1.map(|(_, prefix)| V1Offer {
                    technologies: SmcTypes::SmcR,
                    prefix,
                }),
                area: iwarp.map_or(SmcdV2Ext::default(), |iwarp| iwarp.nonce.offer()),
                v2: v2.map(|technologies| self.v2_offer(technologies, v2_gid.unwrap_or(Gid::NONE))),
            },
        };
        let proposed = Proposed {
            has_v1: v1.is_some(),
            has_v2: v2_port.is_some(),
            has_smcd: self.smcd.is_some(),
            iwarp,
            eids: self.eids,
            limits: self.limits,
        };
        Ok((proposed, proposal))
    }

    fn v2_technologies(&self, has_smcr: bool) -> Option<V2SmcTypes<'a>> {
        let smcd = self.smcd.and_then(|entries| {
            Some(SmcdV2Offer {
                seid: Eid::NONE,
                devices: List::new(entries)?,
            })
        });
        match (smcd, has_smcr) {
            (Some(smcd), true) => Some(V2SmcTypes::Both(smcd)),
            (Some(smcd), false) => Some(V2SmcTypes::SmcD(smcd)),
            (None, true) => Some(V2SmcTypes::SmcR),
            (None, false) => None,
        }
    }

    fn v2_offer(&self, technologies: V2SmcTypes<'a>, gid: Gid) -> V2Offer<'a> {
        V2Offer {
            technologies,
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
    has_smcd: bool,
    iwarp: Option<IwarpParams>,
    eids: List<'a, Eid, 8>,
    limits: Limits,
}

impl Proposed<'_> {
    /// Takes the server's answer.
    ///
    /// # Errors
    ///
    /// [`Failure`] if the server declined, or chose what was not offered.
    pub fn on_message(self, message: &ClcMessage<'_>) -> Result<Accepted, Failure> {
        match message {
            ClcMessage::Accept(accept) => Ok(self.on_accept(accept)?),
            ClcMessage::Proposal(_) => Err(Failure::BothClients),
            other => Err(Failure::not_awaited(other)),
        }
    }

    /// Returns the server's choice if that is SMC-D, and it was offered. Whether the server's end is one of this
    /// kernel's device has yet to be seen.
    pub fn accepted_smcd(&self, message: &ClcMessage<'_>) -> Option<AcceptedSmcD> {
        match message {
            ClcMessage::Accept(Accept {
                endpoint: Endpoint::SmcD(server),
                mode: mode @ Mode::V2 { .. },
            }) if self.has_smcd => Some(AcceptedSmcD {
                server: *server,
                mode: *mode,
            }),
            _ => None,
        }
    }

    fn on_accept(self, accept: &Accept) -> Result<Accepted, PeerError> {
        let Endpoint::SmcR(server) = accept.endpoint else {
            return Err(PeerMisbehaved::ModeNotOffered.into());
        };
        let (eid, first) = match accept.mode {
            Mode::V1 { first_contact } if self.has_v1 => {
                let new = NewLgr::v1(Role::Client, server.peer_id);
                (None, first_contact.then_some(FirstAccept::v1(new)))
            }
            Mode::V2 { eid, first_contact } if self.has_v2 || self.iwarp.is_some() => {
                if !self.eids.contains(&eid) {
                    return Err(PeerMisbehaved::EidNotOffered.into());
                }
                let first = first_contact.map(|first| self.on_first_contact(&server, eid, &first));
                (Some(eid), first.transpose()?)
            }
            Mode::V1 { .. } | Mode::V2 { .. } => return Err(PeerMisbehaved::ModeNotOffered.into()),
        };
        Ok(Accepted { server, eid, first })
    }

    fn on_first_contact(
        &self,
        server: &SmcR,
        eid: Eid,
        first: &FirstContactExt,
    ) -> Result<FirstAccept, PeerError> {
        let iwarp = self.iwarp_for(server, first)?;
        Ok(FirstAccept {
            new: NewLgr::of_server(server.peer_id, eid, first, self.limits)?,
            peer: Some(PeerInfo::of(first, iwarp.is_some())),
            iwarp,
        })
    }

    /// What carries the first link of a group: the form of the server's GID and its options show it. An iWARP
    /// endpoint is accepted at the address of the TCP connection only. A group that is reused has the link that the
    /// server names, or has not.
    fn iwarp_for(
        &self,
        server: &SmcR,
        first: &FirstContactExt,
    ) -> Result<Option<IwarpParams>, PeerError> {
        // The port is 0 where the server cannot accept a connection.
        let is_chosen = match first.vendor() {
            Vendor::Iwarp { port, .. } => port == 0 || port >= IwListenAddr::FIRST_PORT,
            Vendor::Unknown | Vendor::AnyLink { .. } => false,
        };
        match self.iwarp {
            Some(iwarp) if server.gid == iwarp.server && is_chosen => Ok(Some(iwarp)),
            _ if self.has_v2 && server.gid.iwarp().is_none() => Ok(None),
            _ => Err(PeerMisbehaved::ModeNotOffered.into()),
        }
    }
}

/// The server chose SMC-D.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcceptedSmcD {
    server: SmcD,
    mode: Mode,
}

impl AcceptedSmcD {
    /// The server's end.
    pub const fn server(&self) -> &SmcD {
        &self.server
    }

    /// Makes the CONFIRM; `local` is our end. It repeats the server's EID and release, with our `hostname`.
    pub fn confirm(&self, local: SmcD, hostname: Hostname) -> Confirm<'static> {
        let mode = match self.mode {
            Mode::V2 {
                eid,
                first_contact: Some(first),
            } => Mode::V2 {
                eid,
                first_contact: Some(FirstContactExt { hostname, ..first }),
            },
            other => other,
        };
        Confirm {
            endpoint: Endpoint::SmcD(local),
            mode,
            gids: List::EMPTY,
        }
    }
}

/// A link group begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FirstAccept {
    new: NewLgr,
    /// The server's first contact extension, in version 2.
    peer: Option<PeerInfo>,
    /// The parameters of the first link, if it is over iWARP.
    iwarp: Option<IwarpParams>,
}

impl FirstAccept {
    const fn v1(new: NewLgr) -> Self {
        Self {
            new,
            peer: None,
            iwarp: None,
        }
    }
}

/// The server's choice is acceptable. The link group and the buffers come next, then the CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    server: SmcR,
    eid: Option<Eid>,
    first: Option<FirstAccept>,
}

impl Accepted {
    /// The server's end of the link, and of the connection.
    pub const fn server(&self) -> &SmcR {
        &self.server
    }

    /// The version agreed on.
    pub const fn version(&self) -> Version {
        new_lgr::version(self.eid)
    }

    /// The EID agreed on; `None` in version 1.
    pub const fn eid(&self) -> Option<Eid> {
        self.eid
    }

    /// What is agreed on for a new link group; `None` if one is reused. If [`Accepted::wanted`] matches none then:
    /// [`Reason::SyncError`].
    pub fn new_lgr(&self) -> Option<&NewLgr> {
        self.first.as_ref().map(|first| &first.new)
    }

    /// The server's first contact extension, if a link group of version 2 begins.
    pub fn peer(&self) -> Option<&PeerInfo> {
        self.first.as_ref().and_then(|first| first.peer.as_ref())
    }

    /// The parameters of the link, if it is the first of a group, over iWARP.
    pub fn iwarp(&self) -> Option<IwarpParams> {
        self.first.and_then(|first| first.iwarp)
    }

    /// What carries the first link of a group.
    pub fn transport(&self) -> Transport {
        match self.iwarp() {
            Some(_) => Transport::Iwarp,
            None => Transport::Roce,
        }
    }

    /// The TCP port at which the server accepts our iWARP connection if it cannot open one; 0 for none.
    pub fn listener(&self) -> u16 {
        self.peer().map_or(0, |peer| peer.listener)
    }

    /// What to look for among the link groups that exist, if one is to be reused by the TCP connection with
    /// these `ends`.
    pub fn wanted(&self, vlan: u16, ends: TcpEnds) -> LgrKey {
        LgrKey {
            peer: self.server.peer_id,
            peer_gid: self.server.gid,
            peer_mac: (self.version() == Version::V1).then_some(self.server.mac),
            peer_qp: Some(self.server.qp_num),
            vlan,
            ends,
        }
    }

    /// Makes the CONFIRM. `local` is our end; the lower of both MTUs is sent. `own` is sent if a link group begins.
    /// `gids` are the ports at which we could add links, that of the first link first.
    pub fn confirm<'a>(&self, local: SmcR, own: OwnInfo, gids: List<'a, Gid, 255>) -> Confirm<'a> {
        Confirm {
            endpoint: Endpoint::SmcR(SmcR {
                mtu: local.mtu.min(self.server.mtu),
                ..local
            }),
            mode: new_lgr::mode(self.eid, self.first.map(|first| (first.new, own))),
            gids,
        }
    }
}
