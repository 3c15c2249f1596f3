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
        IbDevice, //
    },
    link::Link, //
};

/// Devices fetched at a time.
const DUMP_BATCH: usize = 32;

pub(super) fn dump(dump: &mut Dump<'_>) -> Result {
    let adapters = ib::list(dump.next(), DUMP_BATCH)?;
    let records = adapters.iter().map(|adapter| (adapter.serial(), adapter));
    dump.each(records, |unit, adapter| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_DEV_SMCR, |attrs| put(attrs, adapter))
        })
    })
}

fn put(attrs: &mut Attrs<'_>, adapter: &IbDevice) -> Result {
    let device = adapter.device();
    attrs.u8(SMC_NLA_DEV_IS_CRIT, u8::from(is_critical(device)))?;
    if let Some(pci) = device.pci() {
        put_pci(attrs, &pci)?;
    }
    attrs.string(SMC_NLA_DEV_IB_NAME, device.name().as_bytes())?;
    let nests = [SMC_NLA_DEV_PORT, SMC_NLA_DEV_PORT2];
    adapter
        .ports()
        .zip(nests)
        .try_for_each(|(port, nest)| attrs.nest(nest, |attrs| put_port(attrs, adapter, port)))
}

fn put_pci(attrs: &mut Attrs<'_>, pci: &PciId) -> Result {
    // Function and channel ids exist on s390 only.
    attrs.u32(SMC_NLA_DEV_PCI_FID, 0)?;
    attrs.u16(SMC_NLA_DEV_PCI_CHID, 0)?;
    attrs.u16(SMC_NLA_DEV_PCI_VENDOR, pci.vendor)?;
    attrs.u16(SMC_NLA_DEV_PCI_DEVICE, pci.device)?;
    attrs.string(SMC_NLA_DEV_PCI_ID, pci.name.as_bytes())
}

fn put_port(attrs: &mut Attrs<'_>, adapter: &IbDevice, port: u32) -> Result {
    let device = adapter.device();
    let attr = device.query_port(port).ok();
    let is_active = attr.as_ref().is_some_and(|attr| attr.active);
    let netdev = device.port_netdev(port);
    // Firmware provides names on s390 only.
    let pnetid = adapter.pnetid(port);
    attrs.u8(SMC_NLA_DEV_PORT_PNET_USR, u8::from(pnetid.is_some()))?;
    let pnetid = pnetid.as_ref().map_or(&[][..], PnetId::as_bytes);
    attrs.string(SMC_NLA_DEV_PORT_PNETID, pnetid)?;
    attrs.u32(SMC_NLA_DEV_PORT_NETDEV, netdev.map_or(0, |dev| dev.ifindex))?;
    attrs.u8(SMC_NLA_DEV_PORT_VALID, 1)?;
    attrs.u8(SMC_NLA_DEV_PORT_STATE, u8::from(is_active))?;
    if let Some(mtu) = attr.and_then(|attr| Mtu::from_code(attr.active_mtu.code())) {
        attrs.u32(SMC_NLA_DEV_PORT_MTU, mtu.bytes())?;
    }
    attrs.u32(SMC_NLA_DEV_PORT_LNK_CNT, links_on(device, port))
}

/// Returns true if a group depends on the device alone: it has one link, or all its links use one port here.
fn is_critical(device: &Arc<Device>) -> bool {
    let mut found = false;
    groups::for_each(|group| {
        let links = group.links();
        found |= matches!(group.kind(), LgrType::Single | LgrType::AsymmetricLocal)
            && links.iter().flatten().any(|link| link.is_on(device));
    });
    found
}

fn links_on(device: &Arc<Device>, port: u32) -> u32 {
    let mut count = 0;
    groups::for_each(|group| {
        let links = group.links();
        let on_port = |link: &&Arc<Link>| link.port().port == port && link.is_on(device);
        // CAST: A group has only a few links.
        count += links.iter().flatten().filter(on_port).count() as u32;
    });
    count
}
