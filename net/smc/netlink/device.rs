// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and their ports (C file `smc_ib.c`).

use kernel::sync::Arc;
use kernel_ext::{
    genl::{
        Attrs,
        Dump, //
    },
    ib::{
        Device,
        PciId, //
    },
    prelude::*,
    uapi::*, //
};
use smc_proto::{
    id::Mtu,
    lgr::LgrType,
    pnet::PnetId, //
};

use crate::{
    groups,
    ib::{
        self,
        IbDevice,
        MAX_PORTS, //
    }, //
};

pub(super) fn dump(dump: &mut Dump<'_>) -> Result {
    let ib_devices = ib::usable_from(dump.next());
    let records = ib_devices.map(|ib_device| (ib_device.serial(), ib_device));
    dump.each(records, |unit, ib_device| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_DEV_SMCR, |attrs| put(attrs, &ib_device))
        })
    })
}

fn put(attrs: &mut Attrs<'_>, ib_device: &IbDevice) -> Result {
    let device = ib_device.device();
    let usage = Usage::of(device);
    attrs.u8(SMC_NLA_DEV_IS_CRIT, u8::from(usage.is_critical))?;
    if let Some(pci) = device.pci() {
        put_pci(attrs, &pci)?;
    }
    attrs.string(SMC_NLA_DEV_IB_NAME, device.name().as_bytes())?;
    let nests = [SMC_NLA_DEV_PORT, SMC_NLA_DEV_PORT2];
    let ports = ib_device.ports().zip(nests).zip(usage.links);
    for ((port, nest), links) in ports {
        attrs.nest(nest, |attrs| put_port(attrs, ib_device, port, links))?;
    }
    Ok(())
}

fn put_pci(attrs: &mut Attrs<'_>, pci: &PciId) -> Result {
    // Function and channel ids exist on s390 only.
    attrs.u32(SMC_NLA_DEV_PCI_FID, 0)?;
    attrs.u16(SMC_NLA_DEV_PCI_CHID, 0)?;
    attrs.u16(SMC_NLA_DEV_PCI_VENDOR, pci.vendor)?;
    attrs.u16(SMC_NLA_DEV_PCI_DEVICE, pci.device)?;
    attrs.string(SMC_NLA_DEV_PCI_ID, pci.name.as_bytes())
}

/// Adds the attributes of a port that has so many links.
fn put_port(attrs: &mut Attrs<'_>, ib_device: &IbDevice, port: u32, links: u32) -> Result {
    let device = ib_device.device();
    let attr = ib_device.port_attr(port).ok();
    let is_active = attr.as_ref().is_some_and(|attr| attr.active);
    let netdev = device.port_netdev(port);
    // Firmware provides names on s390 only.
    let pnetid = ib_device.pnetid(port);
    attrs.u8(SMC_NLA_DEV_PORT_PNET_USR, u8::from(pnetid.is_some()))?;
    let pnetid = pnetid.as_ref().map_or(&[][..], PnetId::as_bytes);
    attrs.string(SMC_NLA_DEV_PORT_PNETID, pnetid)?;
    attrs.u32(SMC_NLA_DEV_PORT_NETDEV, netdev.map_or(0, |dev| dev.ifindex))?;
    attrs.u8(SMC_NLA_DEV_PORT_VALID, 1)?;
    attrs.u8(SMC_NLA_DEV_PORT_STATE, u8::from(is_active))?;
    if let Some(mtu) = attr.and_then(|attr| Mtu::from_code(attr.active_mtu.code())) {
        attrs.u32(SMC_NLA_DEV_PORT_MTU, mtu.bytes())?;
    }
    attrs.u32(SMC_NLA_DEV_PORT_LNK_CNT, links)
}

/// What the link groups use of a device.
struct Usage {
    /// A group depends on the device alone: it has one link, or all its links use one port here.
    is_critical: bool,
    /// Links on each port.
    links: [u32; MAX_PORTS as usize],
}

impl Usage {
    /// Context: may sleep.
    fn of(device: &Arc<Device>) -> Self {
        let mut usage = Self {
            is_critical: false,
            links: Default::default(),
        };
        groups::for_each(|group| {
            let is_alone = matches!(group.kind(), LgrType::Single | LgrType::AsymmetricLocal);
            let links = group.links();
            for link in links.iter().flatten().filter(|link| link.is_on(device)) {
                usage.is_critical |= is_alone;
                let mut counts = (1..).zip(&mut usage.links);
                if let Some((_, count)) = counts.find(|(port, _)| *port == link.port().port) {
                    *count += 1;
                }
            }
        });
        usage
    }
}
