// SPDX-License-Identifier: GPL-2.0

//! Selection of device, port and GID for a TCP connection over RoCE; attributes of a port.

use core::net::IpAddr;

use kernel::sync::{
    atomic::Acquire,
    Arc, //
};
use kernel_ext::{
    ib::{
        Device,
        GidEntry,
        GidKind,
        NetdevId, //
    },
    net::{
        NetNsId,
        TcpSocket, //
    },
    prelude::*,
    route::{
        NextHop,
        RouteDevice, //
    }, //
};
use smc_proto::{
    cause::Cause,
    handshake::select::Route,
    id::{
        Gid,
        Ipv4,
        Mac, //
    },
    link::Transport,
    pnet::PnetId,
    wire::Version, //
};

use super::{
    devices,
    IbDevice, //
};
use crate::{
    link::PortInfo,
    local::LOCAL,
    namespace, //
};

/// No VLAN, as in the C module; a VLAN device of that id has no usable GID.
const NO_VLAN: u16 = 0;

/// A port with the GID to use.
pub(crate) struct PortGid {
    ib_device: Arc<IbDevice>,
    pub(crate) info: PortInfo,
    /// VLAN id of the GID; 0 for none.
    pub(crate) vlan: u16,
}

impl core::ops::Deref for PortGid {
    type Target = PortInfo;

    fn deref(&self) -> &PortInfo {
        &self.info
    }
}

impl PortGid {
    /// Creates a port without VLAN.
    pub(super) fn without_vlan(ib_device: Arc<IbDevice>, info: PortInfo) -> Self {
        Self {
            ib_device,
            info,
            vlan: NO_VLAN,
        }
    }

    /// Returns the port's device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.ib_device.device
    }

    /// Handles an error of the device that gave no link: it is not used any more if it never gives one.
    /// Context: may sleep.
    pub(crate) fn note_failure(&self, error: Error) {
        if error == EOPNOTSUPP {
            self.ib_device.set_without_rc();
        }
    }

    /// Returns true if the device is being removed: users that were not notified must end by themselves.
    pub(crate) fn is_gone(&self) -> bool {
        self.ib_device.is_gone.load(Acquire)
    }

    /// Returns the path to the peer that was given to [`find_roce_v2`].
    pub(crate) fn path(&self) -> Route {
        match self.info.next_hop {
            Some(_) => Route::Gateway,
            None => Route::Direct,
        }
    }

    /// Returns the port if it reaches `peer`, or if the peer is not known yet.
    fn with_route_to(mut self, tcp: &TcpSocket, peer: Option<Gid>) -> Result<Self, Cause> {
        if let Some(peer) = peer {
            self.route_to(tcp, peer).ok_or(Cause::NoPathToPeer)?;
        }
        Ok(self)
    }

    /// Determines the route to `peer`, if there is one.
    /// Context: may sleep.
    pub(crate) fn route_to(&mut self, tcp: &TcpSocket, peer: Gid) -> Option<Route> {
        let (from, to) = (self.info.gid.ipv4()?, peer.ipv4()?);
        self.info.next_hop = match tcp.path(from.0, to.0).ok()? {
            NextHop::OnLink => None,
            NextHop::Gateway(mac) => Some(Mac(mac?)),
        };
        Some(self.path())
    }
}

/// Returns the physical network of a route's device: of the device below it, or its own. Each is looked up in its own
/// namespace, as that of a container may have a device on top of one of its host.
/// Context: may sleep.
pub(super) fn pnetid_of(tcp: &TcpSocket, route: &RouteDevice) -> Option<PnetId> {
    let base = &route.base;
    let of_base = base.net.as_ref().and_then(|net| {
        let namespace = namespace::within(net);
        namespace.pnet.of_netdev(net, base.name, base.address)
    });
    of_base.or_else(|| {
        let net = tcp.netns();
        let namespace = namespace::within(net);
        namespace.pnet.of_netdev(net, route.name, route.address)
    })
}

/// Returns the physical network of a port; the device is given by its name or that of its PCI function.
/// Context: may sleep.
pub(crate) fn pnetid_of_named(name: &[u8], port: u32) -> Option<PnetId> {
    let mut named = devices().filter(|ib_device| {
        let pci = ib_device.device.pci();
        ib_device.device.name().as_bytes() == name || pci.is_some_and(|p| p.name.as_bytes() == name)
    });
    named.find_map(|ib_device| ib_device.pnetid(port))
}

/// Finds a port for version 2, as [`find_roce`] does, with a RoCE v2 GID for the connection, and a route to `peer` if
/// that is known already.
/// Context: may sleep.
///
/// # Errors
///
/// The cause for the port that comes nearest.
pub(crate) fn find_roce_v2(tcp: &TcpSocket, peer: Option<Gid>) -> Result<PortGid, Cause> {
    let own = tcp.local().map_err(|_| Cause::NoInterface)?.ip;
    find_roce(tcp, &|ib_device, port, route| {
        let found = ib_device.find_roce_v2(port, route, own, tcp.netns_id())?;
        found.with_route_to(tcp, peer)
    })
}

/// Finds a port for version 1, as [`find_roce`] does, with a RoCE v1 GID in the VLAN of the connection, whatever its
/// address (C function `smc_ib_determine_gid`).
/// Context: may sleep.
///
/// # Errors
///
/// The cause for the port that comes nearest.
pub(crate) fn find_roce_v1(tcp: &TcpSocket, near: Option<&PortGid>) -> Result<PortGid, Cause> {
    let has_v1 = |ib_device: Arc<IbDevice>| {
        let mut ports = ib_device.ports();
        ports.any(|port| ib_device.device.has_roce_v1(port))
    };
    // Many hosts have devices without such addresses only, and are done here.
    if devices().next().is_some() && !devices().any(has_v1) {
        return Err(Cause::NoRoceV1);
    }
    let find = |may: &dyn Fn(&Arc<IbDevice>, u32) -> bool| {
        find_roce(tcp, &|ib_device, port, route| match may(ib_device, port) {
            true => ib_device.find_roce_v1(port, route, tcp.netns_id()),
            false => Err(Cause::NoRoceV1),
        })
    };
    let is_near = |near: &PortGid, ib_device: &Arc<IbDevice>, port| {
        Arc::ptr_eq(&near.ib_device, ib_device) && near.info.port == port
    };
    near.and_then(|near| find(&|ib_device, port| is_near(near, ib_device, port)).ok())
        .map_or_else(|| find(&|_, _| true), Ok)
}

/// Tries a port for a connection with that route.
type TryPort<'a> = &'a dyn Fn(&Arc<IbDevice>, u32, &RouteDevice) -> Result<PortGid, Cause>;

/// Finds a RoCE port that `try_port` accepts: one on the physical network of the TCP connection's route; if that has no
/// name, one of the lowest device below the route's device, or of that itself, or one with an address of that, as the
/// active port of a bond has.
///
/// # Errors
///
/// The cause for the port that comes nearest.
fn find_roce(tcp: &TcpSocket, try_port: TryPort<'_>) -> Result<PortGid, Cause> {
    let route = tcp.route_device().ok_or(Cause::NoInterface)?;
    let net = tcp.netns_id();
    let find = |elsewhere: Cause, is_near: &dyn Fn(&IbDevice, u32) -> bool| {
        let mut missing = Cause::NoDevice;
        for ib_device in devices() {
            if !ib_device.device.accessible_in(net) {
                missing = missing.nearer(Cause::OtherNamespace);
                continue;
            }
            for port in ib_device.ports() {
                let is_near = ib_device.transport() == Transport::Roce && is_near(&ib_device, port);
                let found = match (is_near, ib_device.unusable()) {
                    (true, None) => try_port(&ib_device, port, &route),
                    (true, Some(cause)) => Err(cause),
                    (false, _) => Err(elsewhere),
                };
                match found {
                    Ok(found) => return Ok(found),
                    Err(cause) => missing = missing.nearer(cause),
                }
            }
        }
        Err(missing)
    };
    if let Some(pnetid) = pnetid_of(tcp, &route) {
        return find(Cause::EmptyNetwork, &|ib_device, port| {
            ib_device.pnetid(port) == Some(pnetid)
        });
    }
    let find = |is_near: &dyn Fn(&IbDevice, u32) -> bool| find(Cause::OtherInterface, is_near);
    let of = |netdev| find(&|ib_device, port| ib_device.device.port_netdev_eq(port, netdev));
    let below = of(route.base.address);
    if route.base.address == route.address {
        return below;
    }
    let with_address = || {
        find(&|ib_device, port| {
            let gid = ib_device.device.find_gid(port, |gid| is_on(&route, gid));
            gid.is_some()
        })
    };
    below
        .or_else(|cause| of(route.address).map_err(|other| other.nearer(cause)))
        .or_else(|cause| with_address().map_err(|other| other.nearer(cause)))
}

/// Requirements for the port of another link of a group.
pub(crate) struct PortQuery {
    /// The group's namespace, in which the port must be.
    pub(crate) net: NetNsId,
    /// The link's transport.
    pub(crate) transport: Transport,
    /// The group's version: in version 1 the port needs a RoCE v1 GID, and reaches all others on its network.
    pub(crate) version: Version,
    /// The peer's port, which must be reached
    pub(crate) peer: PeerPort,
    /// without a gateway or through one.
    pub(crate) is_direct: bool,
    /// The physical network of the port; `None` for no named one.
    pub(crate) pnetid: Option<PnetId>,
    /// The VLAN of the group, 0 for none.
    pub(crate) vlan: u16,
}

/// The peer's port for a new link.
#[derive(Clone, Copy)]
pub(crate) enum PeerPort {
    /// It is this one.
    Known(Gid),
    /// Not known; this is another of the peer's ports.
    Other(Gid),
    /// Whether it is reached does not matter.
    Any,
}

/// Returns the entry of a RoCE port's address in its GID table, if it has the address still.
/// Context: process.
pub(super) fn gid_of(device: &Device, port: &PortInfo) -> Option<GidEntry> {
    device.find_gid(port.port, |entry| {
        Gid(entry.gid) == port.gid && entry.kind == port.gid_kind
    })
}

/// Returns a RoCE port with the route to the peer's port, as [`super::toward`].
/// Context: may sleep.
pub(super) fn toward_roce(
    device: &Device,
    port: &PortInfo,
    peer: Gid,
    is_direct: bool,
) -> Option<PortInfo> {
    if port.gid_kind == GidKind::RoceV1 {
        return is_direct.then_some(*port);
    }
    let path = device.resolved_path(port.port, port.sgid_index, peer.ipv4()?.0);
    let next_hop = match (path.ok()?, is_direct) {
        (NextHop::OnLink, true) => None,
        (NextHop::Gateway(mac), false) => Some(Mac(mac?)),
        (NextHop::OnLink, false) | (NextHop::Gateway(_), true) => return None,
    };
    Some(PortInfo { next_hop, ..*port })
}

impl IbDevice {
    /// Returns a port, if it is active, with a RoCE v2 GID for a TCP connection of the namespace `net`: one in the
    /// subnet of the connection's local address if that is an IPv4 address; else of the device of its route if that has
    /// one. The GID's network device must be in that namespace: one that shares the RDMA device must not use the
    /// addresses of others.
    fn find_roce_v2(
        self: &Arc<Self>,
        port: u32,
        route: &RouteDevice,
        own: IpAddr,
        net: NetNsId,
    ) -> Result<PortGid, Cause> {
        self.check_active(port)?;
        let vlan = route.vlan.unwrap_or(NO_VLAN);
        let is_here = |gid: &GidEntry| is_v2(gid) && self.is_in(port, net, gid);
        let found = match own {
            IpAddr::V4(own) => self.port_gid(port, vlan, |gid| {
                is_here(gid) && self.device.is_onlink(port, gid.index, own.octets())
            }),
            IpAddr::V6(_) => self
                .port_gid(port, vlan, |gid| is_here(gid) && is_on(route, gid))
                .or_else(|| self.port_gid(port, vlan, is_here)),
        };
        found.ok_or_else(|| match self.device.find_gid(port, is_here) {
            Some(_) => Cause::WrongSubnet,
            None => Cause::NoAddress,
        })
    }

    /// Returns a port, if it is active, with the first RoCE v1 GID in the VLAN of the route. The GID's network device
    /// must be in the namespace `net`.
    fn find_roce_v1(
        self: &Arc<Self>,
        port: u32,
        route: &RouteDevice,
        net: NetNsId,
    ) -> Result<PortGid, Cause> {
        self.check_active(port)?;
        if !self.device.has_roce_v1(port) {
            return Err(Cause::NoRoceV1);
        }
        let vlan = route.vlan.unwrap_or(NO_VLAN);
        self.port_gid(port, vlan, |gid| is_v1(gid) && self.is_in(port, net, gid))
            .ok_or(Cause::NoRoceV1)
    }

    /// Whether the GID's network device is in the namespace `net`, and packets with the GID are those that the device
    /// would send: what a port below MACsec sends is not encrypted, and beside a VXLAN.
    fn is_in(&self, port: u32, net: NetNsId, gid: &GidEntry) -> bool {
        let is_of_port = |dev| self.device.port_netdev_eq(port, dev);
        let bypasses_none = |dev: &NetdevId| {
            dev.hider
                .is_none_or(|hider| is_of_port(dev.address) || is_of_port(hider))
        };
        let is_it = |dev: &NetdevId| dev.net == net && bypasses_none(dev);
        gid.netdev.as_ref().is_some_and(is_it)
    }

    fn check_active(&self, port: u32) -> Result<(), Cause> {
        match self.is_active(port) {
            true => Ok(()),
            false => Err(Cause::PortDown),
        }
    }

    /// Returns a port, if it is active, with a GID in a VLAN for which `is_it` returns true.
    fn port_gid(
        self: &Arc<Self>,
        port: u32,
        vlan: u16,
        is_it: impl Fn(&GidEntry) -> bool,
    ) -> Option<PortGid> {
        let in_vlan = |gid: &GidEntry| gid.vlan == Some(vlan).filter(|vlan| *vlan != NO_VLAN);
        let gid = self
            .device
            .find_gid(port, |gid| in_vlan(gid) && is_it(gid))?;
        let mac = self.mac(port).or(gid.mac);
        let mac = Mac(mac.filter(|_| self.is_active(port))?);
        if let Some(local) = LOCAL.get() {
            local.set_system_mac(mac);
        }
        Some(PortGid {
            ib_device: self.clone(),
            info: PortInfo {
                transport: Transport::Roce,
                port,
                gid: Gid(gid.gid),
                sgid_index: gid.index,
                gid_kind: gid.kind,
                mac,
                next_hop: None,
                pnetid: self.pnetid(port),
            },
            vlan,
        })
    }

    /// Returns the Ethernet address of a port, taken from its first GID.
    fn mac(&self, port: u32) -> Option<[u8; 6]> {
        self.device.gid(port, 0).ok()?.mac
    }

    /// Returns a port for another link over RoCE.
    pub(super) fn other_roce(self: &Arc<Self>, port: u32, wanted: &PortQuery) -> Option<PortGid> {
        let peer = match wanted.peer {
            PeerPort::Known(peer) | PeerPort::Other(peer) => Some(peer),
            PeerPort::Any => None,
        };
        if wanted.version == Version::V1 {
            let is_it = |gid: &GidEntry| is_v1(gid) && self.is_in(port, wanted.net, gid);
            let found = self.port_gid(port, wanted.vlan, is_it)?;
            return (found.info.pnetid == wanted.pnetid).then_some(found);
        }
        let is_in_net = |gid: &GidEntry| is_v2(gid) && self.is_in(port, wanted.net, gid);
        let Some(peer) = peer.filter(|peer| peer.iwarp().is_none()) else {
            // The peer answers whether it has a reachable RoCE port; a group with gateways would use the route to that
            // one.
            if peer.is_some() && !wanted.is_direct {
                return None;
            }
            let found = self.port_gid(port, wanted.vlan, is_in_net)?;
            return (found.info.pnetid == wanted.pnetid).then_some(found);
        };
        let Ipv4(address) = peer.ipv4()?;
        let mut found = self.port_gid(port, wanted.vlan, |gid| {
            let path = || self.device.path(port, gid.index, address);
            is_in_net(gid) && path().is_ok_and(|path| path.has_gateway() != wanted.is_direct)
        })?;
        found.info = toward_roce(&self.device, &found.info, peer, wanted.is_direct)?;
        (found.info.pnetid == wanted.pnetid).then_some(found)
    }
}

/// A GID for version 1.
fn is_v1(gid: &GidEntry) -> bool {
    gid.kind == GidKind::RoceV1
}

/// A GID for version 2: one of RoCE v2 that is an IPv4 address.
fn is_v2(gid: &GidEntry) -> bool {
    let is_known = |address: Ipv4| address != Ipv4([0; 4]);
    gid.kind == GidKind::RoceV2 && Gid(gid.gid).ipv4().is_some_and(is_known)
}

/// Whether the GID is an address of the route's network device.
fn is_on(route: &RouteDevice, gid: &GidEntry) -> bool {
    let netdev = gid.netdev.as_ref();
    netdev.is_some_and(|dev| dev.address == route.address)
}
