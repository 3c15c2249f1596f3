// SPDX-License-Identifier: GPL-2.0

//! Addresses of network devices. The kernel crate has no network devices yet.
//!
//! C headers: [`include/linux/inetdevice.h`](srctree/include/linux/inetdevice.h),
//! [`include/net/if_inet6.h`](srctree/include/net/if_inet6.h)

use core::{
    net::Ipv6Addr,
    ops::ControlFlow,
    ptr::NonNull, //
};

use crate::bindings;

/// Calls `visit` with each IPv4 address of a network device, valid during the call, until it breaks.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(crate) unsafe fn ipv4_addresses<B>(
    dev: NonNull<bindings::net_device>,
    mut visit: impl FnMut(NonNull<bindings::in_ifaddr>) -> ControlFlow<B>,
) -> ControlFlow<B> {
    // SAFETY: By the caller's promise.
    let in_dev = unsafe { bindings::in_dev_get_rcu(dev.as_ptr()) };
    if in_dev.is_null() {
        return ControlFlow::Continue(());
    }
    // SAFETY: As above.
    let mut next = unsafe { bindings::ifa_first_rcu(in_dev) };
    while let Some(ifa) = NonNull::new(next.cast_mut()) {
        visit(ifa)?;
        // SAFETY: As above; no entry is freed within the RCU read section.
        next = unsafe { bindings::ifa_next_rcu(ifa.as_ptr()) };
    }
    ControlFlow::Continue(())
}

/// Calls `visit` with each IPv6 address of a network device and the length of its prefix, until it breaks; not with
/// link-local ones.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
#[cfg(CONFIG_IPV6)]
pub(crate) unsafe fn ipv6_addresses<B>(
    dev: NonNull<bindings::net_device>,
    mut visit: impl FnMut(Ipv6Addr, u8) -> ControlFlow<B>,
) -> ControlFlow<B> {
    // SAFETY: By the caller's promise.
    let in6_dev = unsafe { bindings::in6_dev_get_rcu(dev.as_ptr()) };
    if in6_dev.is_null() {
        return ControlFlow::Continue(());
    }
    // SAFETY: As above.
    let mut next = unsafe { bindings::if6_first_rcu(in6_dev) };
    while let Some(ifa) = NonNull::new(next.cast_mut()) {
        // SAFETY: As above; the address does not change, and the length is read whole.
        let (bytes, len) = unsafe {
            (
                (*ifa.as_ptr()).addr.in6_u.u6_addr8,
                (&raw const (*ifa.as_ptr()).prefix_len).read_volatile(),
            )
        };
        let address = Ipv6Addr::from(bytes);
        if !address.is_unicast_link_local() {
            visit(address, u8::try_from(len).unwrap_or(u8::MAX))?;
        }
        // SAFETY: As above.
        next = unsafe { bindings::if6_next_rcu(in6_dev, ifa.as_ptr()) };
    }
    ControlFlow::Continue(())
}

/// # Safety
///
/// None: there are no such addresses.
#[cfg(not(CONFIG_IPV6))]
pub(crate) unsafe fn ipv6_addresses<B>(
    _: NonNull<bindings::net_device>,
    _: impl FnMut(Ipv6Addr, u8) -> ControlFlow<B>,
) -> ControlFlow<B> {
    ControlFlow::Continue(())
}
