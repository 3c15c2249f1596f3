// SPDX-License-Identifier: GPL-2.0

//! Physical networks named by administrators: the network devices and ports of RDMA devices on each (C file
//! `smc_pnet.c`; smc_pnet(8)).
//!
//! Each namespace has a table for network devices. RDMA devices are only in the table of the initial namespace, which
//! applies to all namespaces that may use them. A device is looked up by name when a port is selected: it need not
//! exist when it is added. (C binds an entry to the first device of that name, and misses one renamed to it.)

use kernel::{
    new_mutex,
    sync::Mutex, //
};
use kernel_ext::{
    ib::Device,
    net::NetNs,
    prelude::*,
    route::NetdevName, //
};
use smc_proto::pnet::PnetId;

/// A place on a physical network.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PnetDevice {
    /// A network device.
    Netdev(FixedStr<{ NetdevName::MAX }>),
    /// A port of an RDMA device, given by its name or that of its PCI function.
    Port(FixedStr<{ kernel_ext::ib::Name::MAX }>, u8),
}

/// A name of at most `MAX` bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct FixedStr<const MAX: usize> {
    bytes: [u8; MAX],
    len: usize,
}

impl<const MAX: usize> FixedStr<MAX> {
    /// Copies a name; `EINVAL` if it is too long.
    pub(crate) fn new(name: &[u8]) -> Result<Self> {
        let mut bytes = [0; MAX];
        let place = bytes.get_mut(..name.len()).ok_or(EINVAL)?;
        place.copy_from_slice(name);
        Ok(Self {
            bytes,
            len: name.len(),
        })
    }

    /// Returns the name's bytes.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// A line of the table.
#[derive(Clone, Copy)]
pub(crate) struct PnetEntry {
    /// Increases from entry to entry.
    pub(crate) serial: u64,
    pub(crate) pnetid: PnetId,
    pub(crate) place: PnetDevice,
}

/// The table of a namespace.
#[pin_data]
pub(crate) struct PnetTable {
    #[pin]
    lines: Mutex<PnetEntries>,
}

struct PnetEntries {
    /// There may be thousands.
    entries: KVVec<PnetEntry>,
    last_serial: u64,
}

impl PnetTable {
    /// Creates an empty table.
    pub(crate) fn new() -> impl PinInit<Self> {
        const NONE: PnetEntries = PnetEntries {
            entries: KVVec::new(),
            last_serial: 0,
        };
        pin_init!(Self {
            lines <- new_mutex!(NONE, "smc::PnetTable::lines"),
        })
    }

    /// Adds a place.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if it is in the table, for any network; `ENOMEM`.
    pub(crate) fn add(&self, pnetid: PnetId, place: PnetDevice) -> Result {
        let mut lines = self.lines.lock();
        if lines.entries.iter().any(|entry| entry.place == place) {
            return Err(EEXIST);
        }
        let serial = lines.last_serial + 1;
        let entry = PnetEntry {
            serial,
            pnetid,
            place,
        };
        lines.entries.push(entry, GFP_KERNEL)?;
        lines.last_serial = serial;
        Ok(())
    }

    /// Removes all places of a network, or all places; returns whether there was one.
    /// Context: may sleep.
    pub(crate) fn remove(&self, pnetid: Option<PnetId>) -> bool {
        let mut lines = self.lines.lock();
        let before = lines.entries.len();
        lines
            .entries
            .retain(|entry| pnetid.is_some_and(|pnetid| entry.pnetid != pnetid));
        lines.entries.len() < before
    }

    /// Returns at most `max` entries from that serial number on for which `is_wanted` returns true, oldest first.
    /// Context: may sleep.
    pub(crate) fn list(
        &self,
        from: u64,
        max: usize,
        is_wanted: impl Fn(&PnetEntry) -> bool,
    ) -> Result<KVVec<PnetEntry>> {
        let mut found = KVVec::new();
        let lines = self.lines.lock();
        let start = lines.entries.partition_point(|entry| entry.serial < from);
        let rest = lines.entries.get(start..).unwrap_or_default();
        for entry in rest.iter().filter(|entry| is_wanted(entry)).take(max) {
            found.push(*entry, GFP_KERNEL)?;
        }
        Ok(found)
    }

    /// Returns the network of a network device of the namespace `net`, whose table this is: by its name, or by another
    /// one that it has there (`ip link property add dev DEVICE altname NAME`). `address` is that of the device.
    /// Context: may sleep.
    pub(crate) fn of_netdev(
        &self,
        net: &NetNs,
        name: NetdevName,
        address: usize,
    ) -> Option<PnetId> {
        let find = |is_it: &dyn Fn(&[u8]) -> bool| {
            self.find(|place| match place {
                PnetDevice::Netdev(text) => is_it(text.as_bytes()),
                PnetDevice::Port(..) => false,
            })
        };
        find(&|text| text == name.as_bytes())
            .or_else(|| find(&|text| net.netdev_named(text) == Some(address)))
    }

    /// Returns the network of a port of an RDMA device.
    /// Context: may sleep.
    pub(crate) fn of_port(&self, device: &Device, port: u32) -> Option<PnetId> {
        let name = device.name();
        let pci = device.pci().map(|pci| pci.name);
        self.find(|place| match place {
            PnetDevice::Netdev(_) => false,
            PnetDevice::Port(text, its_port) => {
                let text = text.as_bytes();
                u32::from(*its_port) == port
                    && (text == name.as_bytes() || pci.is_some_and(|pci| text == pci.as_bytes()))
            }
        })
    }

    fn find(&self, is_it: impl Fn(&PnetDevice) -> bool) -> Option<PnetId> {
        let lines = self.lines.lock();
        let entry = lines.entries.iter().find(|entry| is_it(&entry.place))?;
        Some(entry.pnetid)
    }
}
