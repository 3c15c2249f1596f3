// SPDX-License-Identifier: GPL-2.0

//! The devices below a network device, following the first lower one of each.
//!
//! C header: [`include/linux/netdevice.h`](srctree/include/linux/netdevice.h)

use core::ptr::NonNull;

use crate::bindings;

/// Returns the id of a VLAN device; `None` for any other.
///
/// # Safety
///
/// `dev` must be valid.
pub(crate) unsafe fn vlan_of(dev: NonNull<bindings::net_device>) -> Option<u16> {
    // SAFETY: By the caller's promise.
    if !unsafe { bindings::is_vlan_dev(dev.as_ptr()) } {
        return None;
    }
    // SAFETY: As above, and it is a VLAN device.
    Some(unsafe { bindings::vlan_id(dev.as_ptr()) })
}

/// Returns the id of a VLAN device, or of the first one below a device that no device between them hides.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(super) unsafe fn vlan_below(dev: NonNull<bindings::net_device>) -> Option<u16> {
    // SAFETY: By the caller's promise.
    let (mut vlan, hides) = unsafe { (vlan_of(dev), hides_packets(dev)) };
    if vlan.is_none() && !hides {
        let mut private = bindings::netdev_nested_priv {
            data: (&raw mut vlan).cast(),
            ..Default::default()
        };
        // SAFETY: By the caller's promise; `private` is what `if_vlan` expects.
        unsafe {
            bindings::netdev_walk_all_lower_dev_rcu(dev.as_ptr(), Some(if_vlan), &raw mut private)
        };
    }
    vlan
}

/// Stops the walk at a VLAN device, or one that hides packets.
///
/// # Safety
///
/// To be called for `vlan_below` only.
unsafe extern "C" fn if_vlan(
    dev: *mut bindings::net_device,
    private: *mut bindings::netdev_nested_priv,
) -> i32 {
    // SAFETY: The device is valid during the walk.
    let vlan = NonNull::new(dev).and_then(|dev| unsafe { vlan_of(dev) });
    // SAFETY: As above.
    let hides = NonNull::new(dev).is_some_and(|dev| unsafe { hides_packets(dev) });
    // SAFETY: `vlan_below` passes a pointer to the result.
    unsafe { (*private).data.cast::<Option<u16>>().write(vlan) };
    i32::from(vlan.is_some() || hides)
}

/// Whether a device encrypts packets (MACsec), or sends them in others (VXLAN): what goes by a device below it is not
/// on its network.
///
/// # Safety
///
/// `dev` must be valid.
unsafe fn hides_packets(dev: NonNull<bindings::net_device>) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { bindings::netif_hides_packets(dev.as_ptr()) }
}

/// Returns the first device that does so, of `dev` and those below it.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(crate) unsafe fn hider_of(
    dev: NonNull<bindings::net_device>,
) -> Option<NonNull<bindings::net_device>> {
    // SAFETY: By the caller's promise.
    let base = unsafe { base_of(dev) };
    // SAFETY: It was found in this RCU read section, and is valid until its end.
    unsafe { hides_packets(base) }.then_some(base)
}

/// Returns the bottom of the device stack below `dev`, or the first device that hides packets.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(super) unsafe fn base_of(dev: NonNull<bindings::net_device>) -> NonNull<bindings::net_device> {
    // SAFETY: By the caller's promise.
    if unsafe { hides_packets(dev) } {
        return dev;
    }
    let mut base = dev;
    let mut private = bindings::netdev_nested_priv {
        data: (&raw mut base).cast(),
        ..Default::default()
    };
    // The first device without a lower one ends the path through the first lower devices.
    // SAFETY: By the caller's promise; `private` is what `if_bottom` expects.
    unsafe {
        bindings::netdev_walk_all_lower_dev_rcu(dev.as_ptr(), Some(if_bottom), &raw mut private)
    };
    base
}

/// Stops the walk at a device without lower devices, or one that hides packets.
///
/// # Safety
///
/// To be called for `base_of` only.
unsafe extern "C" fn if_bottom(
    dev: *mut bindings::net_device,
    private: *mut bindings::netdev_nested_priv,
) -> i32 {
    /// The level of a device without lower devices.
    const BOTTOM: u8 = 1;
    // SAFETY: The device is valid during the walk; a byte is read whole.
    let level = unsafe { (&raw const (*dev).lower_level).read_volatile() };
    // SAFETY: As above.
    let is_end = |dev: &NonNull<_>| level <= BOTTOM || unsafe { hides_packets(*dev) };
    let Some(dev) = NonNull::new(dev).filter(is_end) else {
        return 0;
    };
    // SAFETY: `base_of` passes a pointer to the result.
    unsafe {
        (*private)
            .data
            .cast::<NonNull<bindings::net_device>>()
            .write(dev)
    };
    1
}
