// SPDX-License-Identifier: GPL-2.0

//! Ports for another link of a group, for either transport.

use kernel::sync::Arc;
use kernel_ext::{
    ib::Device,
    net::NetNsId, //
};
use smc_proto::{
    id::Gid,
    link::Transport, //
};

use super::{
    devices,
    iwarp,
    port::{
        self,
        PortGid,
        PortQuery, //
    }, //
};
use crate::link::PortInfo;

/// Finds a port for another link of a group: an active one that the group does not use.
/// Context: may sleep.
pub(crate) fn find_port(
    wanted: &PortQuery,
    is_used: impl Fn(&Arc<Device>, u32) -> bool,
) -> Option<PortGid> {
    devices()
        .filter(|ib_device| ib_device.device.accessible_in(wanted.net))
        .filter(|ib_device| {
            ib_device.transport() == wanted.transport && ib_device.unusable().is_none()
        })
        .find_map(|ib_device| {
            let ports = ib_device.ports();
            ports
                .filter(|port| !is_used(&ib_device.device, *port))
                .find_map(|port| match wanted.transport {
                    Transport::Roce => ib_device.other_roce(port, wanted),
                    Transport::Iwarp => ib_device.other_iwarp(port, wanted),
                })
        })
}

/// Returns a port of an existing link as another link can use it: with the index that its GID has now, which is another
/// one if its address went and came back. `None` if it has the address no more.
/// Context: may sleep.
pub(crate) fn current(device: &Device, port: &PortInfo) -> Option<PortInfo> {
    match port.transport {
        Transport::Roce => port::gid_of(device, port).map(|gid| PortInfo {
            sgid_index: gid.index,
            ..*port
        }),
        Transport::Iwarp => Some(*port),
    }
}

/// Returns a port with the route to the peer's port, if that is reached without a gateway (`is_direct`) or through one;
/// over iWARP either is accepted.
/// Context: may sleep.
pub(crate) fn toward(
    device: &Device,
    from: &PortInfo,
    net: NetNsId,
    peer: Gid,
    is_direct: bool,
) -> Option<PortInfo> {
    match from.transport {
        Transport::Roce => port::toward_roce(device, from, peer, is_direct),
        Transport::Iwarp => iwarp::toward(device, from, net, peer),
    }
}
