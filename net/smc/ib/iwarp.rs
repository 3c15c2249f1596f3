// SPDX-License-Identifier: GPL-2.0

//! Ports of iWARP devices. The first link of a group uses the addresses of the TCP connection, so only the device is
//! selected; added links use any addresses that reach each other.

use core::net::{
    IpAddr,
    Ipv4Addr, //
};

use kernel::sync::Arc;
use kernel_ext::{
    ib::{
        Device,
        GidKind, //
    },
    net::{
        NetNsId,
        TcpSocket, //
    },
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    id::{
        Gid,
        Ipv4,
        Mac, //
    },
    link::Transport, //
};

use super::{
    devices,
    port::{
        pnetid_of,
        PeerPort,
        PortGid,
        PortQuery, //
    },
    IbDevice, //
};
use crate::{
    link::PortInfo,
    local::LOCAL, //
};

/// Finds an active port of an iWARP device for the TCP connection's route: on the route's physical network if that has
/// a name, else on the route's network device or the lowest device below that.
/// Context: may sleep.
///
/// # Errors
///
/// The cause for the port that comes nearest.
pub(crate) fn find_iwarp(tcp: &TcpSocket) -> Result<PortGid, Cause> {
    let ib_devices = || devices().filter(|ib_device| ib_device.transport() == Transport::Iwarp);
    // Most hosts have none, and are done here.
    if ib_devices().next().is_none() {
        return Err(Cause::NoDevice);
    }
    let route = tcp.route_device().ok_or(Cause::NoInterface)?;
    let own = tcp.local().map_err(|_| Cause::NoInterface)?.ip;
    let name = Gid::of_iwarp(own).ok_or(Cause::NoAddress)?;
    let wanted = pnetid_of(tcp, &route);
    let mut missing = Cause::NoDevice;
    for ib_device in ib_devices().filter(|ib_device| ib_device.device.accessible_in(tcp.netns_id()))
    {
        for port in ib_device.ports() {
            let is_on = |netdev| ib_device.device.port_netdev_eq(port, netdev);
            let is_near = match wanted {
                Some(pnetid) => ib_device.pnetid(port) == Some(pnetid),
                None => is_on(route.base.address) || is_on(route.address),
            };
            let found = match (is_near, ib_device.unusable()) {
                (true, None) => ib_device.iwarp_port(port, name),
                (true, Some(cause)) => Err(cause),
                (false, _) => Err(Cause::OtherInterface),
            };
            match found {
                Ok(found) => return Ok(found),
                Err(cause) => missing = missing.nearer(cause),
            }
        }
    }
    Err(missing)
}

/// Returns the IPv4 address of a GID of either kind.
fn v4(end: Gid) -> Option<[u8; 4]> {
    match (end.ipv4(), end.iwarp()) {
        (Some(Ipv4(ip)), _) => Some(ip),
        (None, Some(IpAddr::V4(ip))) => Some(ip.octets()),
        (None, _) => None,
    }
}

/// Returns the GID for this IPv4 address.
fn name_of(address: [u8; 4]) -> Option<Gid> {
    Gid::of_iwarp(Ipv4Addr::from(address).into())
}

/// Returns the port with the local address from which the peer is reached.
/// Context: may sleep.
pub(super) fn toward(
    device: &Device,
    port: &PortInfo,
    net: NetNsId,
    peer: Gid,
) -> Option<PortInfo> {
    let source = device.port_source(port.port, net, Some(v4(peer)?))?;
    Some(PortInfo {
        gid: name_of(source)?,
        ..*port
    })
}

impl IbDevice {
    /// Returns a port for another link over iWARP, with an IPv4 address from which the peer's end is reached. If that
    /// is not known yet any address is used: the peer decides whether it is reachable.
    pub(super) fn other_iwarp(self: &Arc<Self>, port: u32, wanted: &PortQuery) -> Option<PortGid> {
        if self.pnetid(port) != wanted.pnetid {
            return None;
        }
        let source = |peer| self.device.port_source(port, wanted.net, peer);
        let toward = |peer| source(Some(v4(peer)?));
        let address = match wanted.peer {
            PeerPort::Known(peer) => toward(peer),
            PeerPort::Other(peer) => toward(peer).or_else(|| source(None)),
            PeerPort::Any => source(None),
        };
        self.iwarp_port(port, name_of(address?)?).ok()
    }

    /// Returns a port, if it is active, for links from the address of that GID.
    fn iwarp_port(self: &Arc<Self>, port: u32, name: Gid) -> Result<PortGid, Cause> {
        if !self.is_active(port) {
            return Err(Cause::PortDown);
        }
        let local = LOCAL.get().ok_or(Cause::NoDevice)?;
        let mac = self.iwarp_mac(port).unwrap_or(local.random_mac());
        local.set_system_mac(mac);
        let info = PortInfo {
            transport: Transport::Iwarp,
            port,
            gid: name,
            sgid_index: 0,
            gid_kind: GidKind::Ib,
            mac,
            next_hop: None,
            pnetid: self.pnetid(port),
        };
        Ok(PortGid::without_vlan(self.clone(), info))
    }

    /// Returns the Ethernet address of a port, which is its GID; `lo` has none.
    fn iwarp_mac(&self, port: u32) -> Option<Mac> {
        let [a, b, c, d, e, f, ..] = self.device.gid(port, 0).ok()?.gid;
        Some(Mac([a, b, c, d, e, f])).filter(|mac| !mac.is_zero())
    }
}
