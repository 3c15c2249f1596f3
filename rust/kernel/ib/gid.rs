// SPDX-License-Identifier: GPL-2.0

//! The GID table of a port: the addresses at which it can be reached.
//!
//! C header: [`include/rdma/ib_cache.h`](srctree/include/rdma/ib_cache.h)

use core::ptr::NonNull;

use kernel::{
    error::{
        from_err_ptr,
        to_result, //
    },
    sync::rcu, //
};

use super::{Device, NetdevId};
use crate::{
    bindings,
    prelude::*,
    route::{
        self,
        NextHop, //
    }, //
};

/// The packet type of a GID table entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GidKind {
    /// InfiniBand, or the MAC address of an iWARP port.
    Ib,
    /// RoCE v1: Ethernet type 0x8915.
    RoceV1,
    /// RoCE v2: UDP port 4791.
    RoceV2,
}

/// A copy of a GID table entry.
#[derive(Clone, Copy, Debug)]
pub struct GidEntry {
    /// Its index in the table. A queue pair can name no other than the first 256.
    pub index: u8,
    /// The address: an IPv6 address, an IPv4-mapped one, or an InfiniBand GID.
    pub gid: [u8; 16],
    /// The packet type.
    pub kind: GidKind,
    /// The net device of the entry, if any.
    pub netdev: Option<NetdevId>,
    /// VLAN id, if that is a VLAN device.
    pub vlan: Option<u16>,
    /// Source MAC address of the packets, if there is a net device.
    pub mac: Option<[u8; 6]>,
}

/// The IPv4 address in an entry's IPv4-mapped GID.
fn ipv4_of(entry: &GidEntry) -> [u8; 4] {
    let [.., a, b, c, d] = entry.gid;
    [a, b, c, d]
}

/// A referenced entry of the GID table.
///
/// # Invariants
///
/// The pointer is valid and holds a reference that `Drop` releases.
struct GidAttr(NonNull<bindings::ib_gid_attr>);

impl Drop for GidAttr {
    fn drop(&mut self) {
        // SAFETY: By the type invariant we hold the reference.
        unsafe { bindings::rdma_put_gid_attr(self.0.as_ptr()) };
    }
}

impl Device {
    /// Copies one entry of a port's GID table.
    /// Context: process.
    ///
    /// # Errors
    ///
    /// `ENODATA` if the entry is not used, `EINVAL` if there is no such entry or port.
    pub fn gid(&self, port: u32, index: u8) -> Result<GidEntry> {
        self.gid_attr(port, index)?.read(index)
    }

    /// Returns the first used entry of a port's GID table for which `is_it` holds, if it is one that a queue pair can
    /// name. Stops there, as the table may be long and mostly unused.
    /// Context: process.
    pub fn find_gid(&self, port: u32, is_it: impl Fn(&GidEntry) -> bool) -> Option<GidEntry> {
        // A loop: the symbol of a chain of iterator adapters contains all their types, and exceeded the longest one
        // that the kernel can look up (`KSYM_NAME_LEN`).
        for index in 0..=u8::MAX {
            match self.gid(port, index) {
                Ok(entry) if is_it(&entry) => return Some(entry),
                // Behind the end of the table.
                Err(e) if e == EINVAL => return None,
                _ => {}
            }
        }
        None
    }

    /// As [`Device::path`], but waits up to 127 ms for a gateway's Ethernet address.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// As there; `EHOSTUNREACH` without an answer of the gateway.
    pub fn resolved_path(&self, port: u32, index: u8, destination: [u8; 4]) -> Result<NextHop> {
        NextHop::resolve(|| self.path(port, index, destination))
    }

    /// Looks up the path to the IPv4 address `destination` from the IPv4 address of an entry of a port's GID table,
    /// through the net device of that entry: in one of its subnets, or through a gateway.
    /// Context: process.
    ///
    /// # Errors
    ///
    /// `ENODATA` or `EINVAL` if the entry does not exist or has no net device; `EHOSTUNREACH` and similar without a
    /// route.
    pub fn path(&self, port: u32, index: u8, destination: [u8; 4]) -> Result<NextHop> {
        let attr = self.gid_attr(port, index)?;
        let source = ipv4_of(&attr.read(index)?);
        attr.with_netdev(|netdev| {
            // SAFETY: The net device is valid here, in an RCU read section.
            let path = unsafe { route::path_by(netdev, source, destination) }?;
            // If a device is given, the routing lookup treats an address without a route as a neighbour.
            // SAFETY: The net device is valid here, in an RCU read section.
            match path.has_gateway() || unsafe { route::is_onlink(netdev, source, destination) } {
                true => Ok(path),
                false => Err(EHOSTUNREACH),
            }
        })?
    }

    /// Whether the IPv4 address of an entry of a port's GID table is in one subnet with `address`, by the addresses of
    /// its net device.
    /// Context: any.
    pub fn is_onlink(&self, port: u32, index: u8, address: [u8; 4]) -> bool {
        let Ok(attr) = self.gid_attr(port, index) else {
            return false;
        };
        let Ok(entry) = attr.read(index) else {
            return false;
        };
        // SAFETY: The net device is valid here, in an RCU read section.
        let is_onlink = |netdev| unsafe { route::is_onlink(netdev, ipv4_of(&entry), address) };
        attr.with_netdev(is_onlink).unwrap_or(false)
    }

    fn gid_attr(&self, port: u32, index: u8) -> Result<GidAttr> {
        // SAFETY: The device is valid by its type invariant; the callee checks port and index.
        let attr = unsafe { bindings::rdma_get_gid_attr(self.as_ptr(), port, i32::from(index)) };
        let attr = NonNull::new(from_err_ptr(attr.cast_mut())?).ok_or(ENODATA)?;
        // INVARIANT: `rdma_get_gid_attr` gave us the reference.
        Ok(GidAttr(attr))
    }
}

impl GidAttr {
    fn read(&self, index: u8) -> Result<GidEntry> {
        // SAFETY: By the type invariant; all fields but `ndev` are constant while it is held.
        let attr = unsafe { self.0.as_ref() };
        let kind = match attr.gid_type {
            bindings::ib_gid_type_IB_GID_TYPE_IB => GidKind::Ib,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE => GidKind::RoceV1,
            bindings::ib_gid_type_IB_GID_TYPE_ROCE_UDP_ENCAP => GidKind::RoceV2,
            _ => return Err(ENODATA),
        };
        // SAFETY: The net device is valid here.
        let vlan = self.with_netdev(|netdev| unsafe { route::vlan_of(netdev) });
        Ok(GidEntry {
            index,
            // SAFETY: Any bytes are a valid array, and the union has no padding.
            gid: unsafe { attr.gid.raw },
            kind,
            netdev: self.netdev(),
            vlan: vlan.ok().flatten(),
            mac: self.mac(),
        })
    }

    fn netdev(&self) -> Option<NetdevId> {
        // SAFETY: The net device is valid here.
        let id = |netdev| unsafe { NetdevId::new(netdev) };
        self.with_netdev(id).ok()
    }

    /// Calls `f` with the net device of the entry, which is valid during the call, in an RCU read section.
    fn with_netdev<R>(&self, f: impl FnOnce(NonNull<bindings::net_device>) -> R) -> Result<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: By the type invariant, inside an RCU read section.
        let netdev = unsafe { bindings::rdma_read_gid_attr_ndev_rcu(self.0.as_ptr()) };
        let netdev = NonNull::new(from_err_ptr(netdev)?).ok_or(ENODATA)?;
        Ok(f(netdev))
    }

    fn mac(&self) -> Option<[u8; 6]> {
        let mut mac = [0; 6];
        // SAFETY: By the type invariant; there is room for an Ethernet address, and the VLAN id is not requested.
        let ret = unsafe {
            bindings::rdma_read_gid_l2_fields(
                self.0.as_ptr(),
                core::ptr::null_mut(),
                mac.as_mut_ptr(),
            )
        };
        to_result(ret).ok().map(|()| mac)
    }
}
