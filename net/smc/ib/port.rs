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
        GidKind, //
    },
    net::{
        NetNsId,
        TcpSocket, //
    },
    prelude::*,
    route::RouteDevice, //
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
    IbDevice,
    ADAPTERS, //
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
    adapter: Arc<IbDevice>,
    pub(crate) info: PortInfo,
    /// VLAN id of the GID; 0 for none.
    pub(crate) vlan: u16,
    has_gateway: bool,
}

impl core::ops::Deref for PortGid {
    type Target = PortInfo;

    fn deref(&self) -> &PortInfo {
        &self.info
    }
}

impl PortGid {
    /// Creates a port without VLAN and gateway.
    pub(super) fn without_vlan(adapter: Arc<IbDevice>, info: PortInfo) -> Self {
        Self {
            adapter,
            info,
            vlan: NO_VLAN,
            has_gateway: false,
        }
    }

    /// Returns the port's device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.adapter.device
    }

    /// Handles an error of the device that gave no link: it is not used any more if it never gives one.
    /// Context: may sleep.
    pub(crate) fn note_failure(&self, error: Error) {
        if error == EOPNOTSUPP {
            self.adapter.set_without_rc();
        }
    }

    /// Returns true if the device is being removed: users that were not notified must end by themselves.
    pub(crate) fn is_gone(&self) -> bool {
        self.adapter.is_gone.load(Acquire)
    }

    /// Returns the path to the peer that was given to [`find_roce_v2`].
    pub(crate) fn path(&self) -> Route {
        match self.has_gateway {
            true => Route::Gateway,
            false => Route::Direct,
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
    pub(crate) fn route_to(&mut self, tcp: &TcpSocket, peer: Gid) -> Option<Route> {
        let (from, to) = (self.info.gid.ipv4()?, peer.ipv4()?);
        let path = tcp.path(from.0, to.0).ok()?;
        self.has_gateway = path.has_gateway;
        self.info.next_hop = path.has_gateway.then_some(Mac(path.mac));
        Some(self.path())
    }
}

/// Returns the physical network of a route's device: of the device below it, or its own.
pub(super) fn pnetid_of(tcp: &TcpSocket, route: &RouteDevice) -> Option<PnetId> {
    let namespace = namespace::within(tcp.netns());
    let table = &namespace.pnet;
    let of_base = table.of_netdev(route.base.name);
    of_base.or_else(|| table.of_netdev(route.name))
}

/// Returns the physical network of a port; the device is given by its name or that of its PCI function.
/// Context: may sleep.
pub(crate) fn pnetid_of_named(name: &[u8], port: u32) -> Result<Option<PnetId>> {
    let adapters = ADAPTERS.get().ok_or(ENODEV)?;
    let list = adapters.list.lock();
    let mut named = list.iter().filter(|adapter| {
        let pci = adapter.device.pci();
        adapter.device.name().as_bytes() == name || pci.is_some_and(|p| p.name.as_bytes() == name)
    });
    Ok(named.find_map(|adapter| adapter.pnetid(port)))
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
    find_roce(tcp, &|adapter, port, route| {
        let found = adapter.find_roce_v2(port, route, own, tcp.netns_id())?;
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
pub(crate) fn find_roce_v1(tcp: &TcpSocket) -> Result<PortGid, Cause> {
    let adapters = ADAPTERS.get().ok_or(Cause::NoDevice)?;
    let has_v1 = |adapter: &Arc<IbDevice>| {
        let mut ports = adapter.ports();
        ports.any(|port| adapter.device.has_roce_v1(port))
    };
    // Many hosts have devices without such addresses only, and are done here.
    let list = adapters.list.lock();
    if !list.is_empty() && !list.iter().any(has_v1) {
        return Err(Cause::NoRoceV1);
    }
    drop(list);
    find_roce(tcp, &|adapter, port, route| {
        adapter.find_roce_v1(port, route, tcp.netns_id())
    })
}

/// Tries a port for a connection with that route.
type TryPort<'a> = &'a dyn Fn(&Arc<IbDevice>, u32, &RouteDevice) -> Result<PortGid, Cause>;

/// Finds a RoCE port that `try_port` accepts: one on the physical network of the TCP connection's route; if that has no
/// name, one of the lowest device below the route's device, or of that itself.
///
/// # Errors
///
/// The cause for the port that comes nearest.
fn find_roce(tcp: &TcpSocket, try_port: TryPort<'_>) -> Result<PortGid, Cause> {
    let route = tcp.route_device().ok_or(Cause::NoInterface)?;
    let adapters = ADAPTERS.get().ok_or(Cause::NoDevice)?;
    let list = adapters.list.lock();
    let find = |elsewhere: Cause, is_near: &dyn Fn(&IbDevice, u32) -> bool| {
        let mut missing = match list.is_empty() {
            true => Cause::NoDevice,
            false => Cause::OtherNamespace,
        };
        let in_reach = |adapter: &&Arc<IbDevice>| adapter.device.accessible_in(tcp.netns_id());
        for adapter in list.iter().filter(in_reach) {
            for port in adapter.ports() {
                let is_near = adapter.transport() == Transport::Roce && is_near(adapter, port);
                let found = match (is_near, adapter.unusable()) {
                    (true, None) => try_port(adapter, port, &route),
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
    let of = |netdev| {
        let is_of = |adapter: &IbDevice, port| adapter.device.port_netdev_eq(port, netdev);
        find(Cause::OtherInterface, &is_of)
    };
    match pnetid_of(tcp, &route) {
        Some(pnetid) => find(Cause::EmptyNetwork, &|adapter, port| {
            adapter.pnetid(port) == Some(pnetid)
        }),
        None => of(route.base.address).or_else(|below| match of(route.address) {
            Err(cause) => Err(cause.nearer(below)),
            found => found,
        }),
    }
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
    let path = device
        .path(port.port, port.sgid_index, peer.ipv4()?.0)
        .ok()?;
    (path.has_gateway != is_direct).then_some(PortInfo {
        next_hop: path.has_gateway.then_some(Mac(path.mac)),
        ..*port
    })
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
        let is_here = |gid: &GidEntry| is_v2(gid) && is_in(net, gid);
        let is_on = |gid: &GidEntry| {
            let address = gid.netdev.as_ref().map(|dev| dev.address);
            address == Some(route.address)
        };
        let found = match own {
            IpAddr::V4(own) => self.port_gid(port, vlan, |gid| {
                is_here(gid) && self.device.is_onlink(port, gid.index, own.octets())
            }),
            IpAddr::V6(_) => self
                .port_gid(port, vlan, |gid| is_here(gid) && is_on(gid))
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
        self.port_gid(port, vlan, |gid| is_v1(gid) && is_in(net, gid))
            .ok_or(Cause::NoRoceV1)
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
            adapter: self.clone(),
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
            has_gateway: false,
        })
    }

    /// Returns the Ethernet address of a port, taken from its first GID.
    fn mac(&self, port: u32) -> Option<[u8; 6]> {
        self.device.gid(port, 0).ok()?.mac
    }

    /// Returns a port for another link over RoCE.
    pub(super) fn other_roce(self: &Arc<Self>, port: u32, wanted: &PortQuery) -> Option<PortGid> {
        let (PeerPort::Known(peer) | PeerPort::Other(peer)) = wanted.peer;
        if wanted.version == Version::V1 {
            let is_it = |gid: &GidEntry| is_v1(gid) && is_in(wanted.net, gid);
            let found = self.port_gid(port, wanted.vlan, is_it)?;
            return (found.info.pnetid == wanted.pnetid).then_some(found);
        }
        let is_in_net = |gid: &GidEntry| is_v2(gid) && is_in(wanted.net, gid);
        if peer.iwarp().is_some() {
            // The peer answers whether it has a reachable RoCE port; a group with gateways would use the route to that
            // one.
            if !wanted.is_direct {
                return None;
            }
            let found = self.port_gid(port, wanted.vlan, is_in_net)?;
            return (found.info.pnetid == wanted.pnetid).then_some(found);
        }
        let Ipv4(address) = peer.ipv4()?;
        let mut found = self.port_gid(port, wanted.vlan, |gid| {
            let path = || self.device.path(port, gid.index, address);
            is_in_net(gid) && path().is_ok_and(|path| path.has_gateway != wanted.is_direct)
        })?;
        found.has_gateway = !wanted.is_direct;
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

/// Whether the GID's network device is in the namespace `net`.
fn is_in(net: NetNsId, gid: &GidEntry) -> bool {
    gid.netdev.as_ref().is_some_and(|dev| dev.net == net)
}
