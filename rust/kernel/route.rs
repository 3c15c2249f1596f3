// SPDX-License-Identifier: GPL-2.0

//! Routes to peers. The kernel crate has no network devices, routes or neighbours yet.
//!
//! C header: [`include/net/route.h`](srctree/include/net/route.h)

use core::{
    net::{
        IpAddr,
        Ipv4Addr,
        Ipv6Addr, //
    },
    ops::ControlFlow,
    ptr::NonNull, //
};

use kernel::{
    error::from_err_ptr,
    sync::rcu,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};

use crate::{
    bindings,
    ifaddr,
    net::{
        InetAddr,
        NetNs,
        NetNsId,
        NetNsRef,
        TcpSocket, //
    },
    prelude::*, //
};

mod lower;

use lower::{
    base_of,
    vlan_below, //
};
pub(crate) use lower::{
    hider_of,
    vlan_of, //
};

/// The network device of a route, for comparisons only: it may have been removed.
pub struct RouteDevice {
    /// Address of the `struct net_device`.
    pub address: usize,
    /// Its interface index.
    pub ifindex: i32,
    /// Its name.
    pub name: NetdevName,
    /// VLAN id of the packets: that of the device if it is a VLAN device, else that of the first VLAN device below it
    /// which no device above hides.
    pub vlan: Option<u16>,
    /// The bottom of the device stack, following the first lower device of each, or above that the first one that hides
    /// packets (see `lower::hides_packets`); the device itself if it has no lower one, or hides them.
    pub base: LowerDevice,
}

/// A network device below others, for comparisons only: it may have been removed.
pub struct LowerDevice {
    /// Address of the `struct net_device`.
    pub address: usize,
    /// Its name.
    pub name: NetdevName,
    /// Its network namespace, which may be another one than that of the devices above; `None` if that is being removed.
    pub net: Option<NetNsRef>,
}

/// The name of a network device at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetdevName([u8; Self::MAX + 1]);

impl NetdevName {
    /// Longest name, `IFNAMSIZ` less the terminator.
    pub const MAX: usize = 15;

    /// The name's bytes, without terminator.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// # Safety
    ///
    /// `dev` must be valid.
    unsafe fn of(dev: NonNull<bindings::net_device>) -> Self {
        // SAFETY: By the caller's promise. With a concurrent rename the result is a mixture, which names no device, or
        // another one, as the name might a moment later.
        let name = unsafe { (&raw const (*dev.as_ptr()).name).read_volatile() };
        // CAST: Bytes, whatever their signedness here.
        Self(name.map(|byte| byte as u8))
    }
}

/// How an IPv4 address is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// It is on the link.
    OnLink,
    /// Through a gateway with this Ethernet address; `None` if that is not known: the gateway is being asked for it.
    Gateway(Option<[u8; 6]>),
}

impl NextHop {
    /// Whether it is reached through a gateway.
    pub fn has_gateway(&self) -> bool {
        matches!(self, Self::Gateway(_))
    }

    /// Calls `look` until it finds no gateway whose address is not known, for at most 127 ms: a gateway that is there
    /// answers much sooner.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of `look`; `EHOSTUNREACH` without an answer of the gateway.
    pub(crate) fn resolve(look: impl Fn() -> Result<Self>) -> Result<Self> {
        for wait in [1, 2, 4, 8, 16, 32, 64] {
            match look()? {
                Self::Gateway(None) => fsleep(Delta::from_millis(wait)),
                found => return Ok(found),
            }
        }
        match look()? {
            Self::Gateway(None) => Err(EHOSTUNREACH),
            found => Ok(found),
        }
    }
}

impl TcpSocket {
    /// The device through which the connection's packets are sent.
    /// Context: any.
    pub fn route_device(&self) -> Option<RouteDevice> {
        let describe = |dev: NonNull<bindings::net_device>| RouteDevice {
            address: dev.as_ptr() as usize,
            // SAFETY: The device is valid here, in an RCU read section.
            ifindex: unsafe { (*dev.as_ptr()).ifindex },
            // SAFETY: As above.
            name: unsafe { NetdevName::of(dev) },
            // SAFETY: As above.
            vlan: unsafe { vlan_below(dev) },
            // SAFETY: As above.
            base: unsafe { LowerDevice::below(dev) },
        };
        self.with_netdev(describe)
    }

    /// Calls `visit` with each IPv4 address of that device and the length of its mask in bits, until it breaks. The
    /// address of a point-to-point connection is that of the other end. `visit` must not sleep.
    /// Context: any.
    pub fn ipv4_subnets<B>(
        &self,
        mut visit: impl FnMut(Ipv4Addr, u8) -> ControlFlow<B>,
    ) -> Option<B> {
        let visit = |ifa: NonNull<bindings::in_ifaddr>| {
            // SAFETY: The address is valid during the call; neither field changes while it is in the list.
            let (address, len) =
                unsafe { ((*ifa.as_ptr()).ifa_address, (*ifa.as_ptr()).ifa_prefixlen) };
            visit(Ipv4Addr::from(address.to_ne_bytes()), len)
        };
        // SAFETY: The device is valid here, in an RCU read section.
        let found = self.with_netdev(|dev| unsafe { ifaddr::ipv4_addresses(dev, visit) });
        found?.break_value()
    }

    /// The same for IPv6 addresses, without link-local ones. A kernel without IPv6 has none.
    /// Context: any.
    pub fn ipv6_subnets<B>(&self, visit: impl FnMut(Ipv6Addr, u8) -> ControlFlow<B>) -> Option<B> {
        // SAFETY: The device is valid here, in an RCU read section.
        let found = self.with_netdev(|dev| unsafe { ifaddr::ipv6_addresses(dev, visit) });
        found?.break_value()
    }

    /// Calls `f` with the network device through which the connection's packets are sent, if there is one; it is valid
    /// during the call, in an RCU read section.
    fn with_netdev<R>(&self, f: impl FnOnce(NonNull<bindings::net_device>) -> R) -> Option<R> {
        // SAFETY: The entry is valid inside the RCU read section, and so is its device.
        self.with_dst(|dst| unsafe { NonNull::new(bindings::dst_dev_rcu(dst.as_ptr())) }.map(f))
            .flatten()
    }

    /// Calls `f` with the route that the connection has cached, if there is one; it is valid during the call, in an RCU
    /// read section.
    fn with_dst<R>(&self, f: impl FnOnce(NonNull<bindings::dst_entry>) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The socket is alive, and this is an RCU read section.
        NonNull::new(unsafe { bindings::sk_dst_get_rcu(self.sk_ptr()) }).map(f)
    }

    /// Whether IPsec protects the connection's packets: by a policy of the socket, or by one of the machine that
    /// transforms what its route carries. The C module looks at the former only (`using_ipsec`).
    /// Context: any.
    pub fn has_ipsec(&self) -> bool {
        // SAFETY: The route is valid here, in an RCU read section.
        let is_transformed =
            self.with_dst(|dst| unsafe { !bindings::dst_xfrm(dst.as_ptr()).is_null() });
        // SAFETY: The socket is alive.
        is_transformed == Some(true) || unsafe { bindings::sk_has_xfrm_policy(self.sk_ptr()) }
    }

    /// Whether the connection's packets are sent by a device that is made by software alone (loopback, veth, bridge,
    /// macvlan and others), so that they may stay on this machine.
    /// Context: any.
    pub fn has_virtual_route(&self) -> bool {
        // SAFETY: The device is valid here, in an RCU read section.
        self.with_netdev(|dev| unsafe { is_virtual(dev) })
            .unwrap_or(false)
    }

    /// Whether packets to `peer` would be sent by such a device. An IPv6 route is not looked up: it may be one.
    /// Context: may sleep.
    pub fn may_reach_virtually(&self, peer: &InetAddr) -> bool {
        let IpAddr::V4(ip) = peer.ip else {
            return true;
        };
        let sk = self.sk_ptr();
        // SAFETY: The socket is alive and holds its namespace; the field is read whole.
        let route = unsafe {
            let ifindex = (&raw const (*sk).__sk_common.skc_bound_dev_if).read_volatile();
            Route::lookup(bindings::sock_net(sk), ifindex, [0; 4], ip.octets())
        };
        route.is_ok_and(|route| route.is_virtual())
    }

    /// The network namespace.
    pub fn netns(&self) -> &NetNs {
        // SAFETY: The socket holds its namespace.
        unsafe { NetNs::from_ptr(bindings::sock_net(self.sk_ptr())) }
    }

    /// The identity of the network namespace.
    pub fn netns_id(&self) -> NetNsId {
        // SAFETY: The socket is alive and has a namespace.
        NetNsId::of(unsafe { bindings::sock_net(self.sk_ptr()) })
    }

    /// Looks up the path from `source` to `destination`, in the connection's namespace and VRF, and waits up to 127 ms
    /// for a gateway's Ethernet address.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EHOSTUNREACH` and similar without a route, or a gateway that answers.
    pub fn path(&self, source: [u8; 4], destination: [u8; 4]) -> Result<NextHop> {
        // SAFETY: The device is valid here, in an RCU read section.
        let vrf = |dev: NonNull<_>| unsafe { bindings::netdev_vrf_rcu(dev.as_ptr()) };
        let vrf = self.with_netdev(vrf).unwrap_or(0);
        NextHop::resolve(|| {
            // SAFETY: The socket holds its namespace.
            unsafe { path(bindings::sock_net(self.sk_ptr()), vrf, source, destination) }
        })
    }
}

/// Looks up the path from `source` to `destination`. If `ifindex` is not 0, through that device, or by the table of the
/// VRF that it is.
/// Context: any.
///
/// # Safety
///
/// `net` must be alive during the call.
///
/// # Errors
///
/// `EHOSTUNREACH` and similar without a route.
unsafe fn path(
    net: *mut bindings::net,
    ifindex: i32,
    source: [u8; 4],
    destination: [u8; 4],
) -> Result<NextHop> {
    // SAFETY: By the caller's promise.
    let route = unsafe { Route::lookup(net, ifindex, source, destination)? };
    route.path(u32::from_ne_bytes(destination))
}

/// Looks up the path from `source` to `destination`, through a network device.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
///
/// # Errors
///
/// As [`path`].
pub(crate) unsafe fn path_by(
    dev: NonNull<bindings::net_device>,
    source: [u8; 4],
    destination: [u8; 4],
) -> Result<NextHop> {
    // SAFETY: By the caller's promise; a namespace just read from a device is not freed within the RCU read section.
    unsafe {
        let ifindex = (&raw const (*dev.as_ptr()).ifindex).read_volatile();
        path(
            bindings::dev_net(dev.as_ptr()),
            ifindex,
            source,
            destination,
        )
    }
}

impl NetNs {
    /// Returns the address of the network device that has that name here, as its first one or as another, for
    /// comparisons only; `None` if there is none, or the name is longer than [`NetdevName::MAX`].
    /// Context: any.
    pub fn netdev_named(&self, name: &[u8]) -> Option<usize> {
        let mut text = [0u8; NetdevName::MAX + 1];
        let (to, _nul) = text.split_at_mut(NetdevName::MAX);
        to.get_mut(..name.len())?.copy_from_slice(name);
        let _rcu = rcu::read_lock();
        // SAFETY: The namespace is alive, the text ends with a NUL, and this is an RCU read section.
        let dev = unsafe { bindings::dev_get_by_name_rcu(self.as_ptr(), text.as_ptr().cast()) };
        NonNull::new(dev).map(|dev| dev.as_ptr() as usize)
    }
}

impl LowerDevice {
    /// Returns the bottom of the device stack below `dev`.
    ///
    /// # Safety
    ///
    /// `dev` must be valid, and this an RCU read section.
    unsafe fn below(dev: NonNull<bindings::net_device>) -> Self {
        // SAFETY: By the caller's promise.
        let base = unsafe { base_of(dev) };
        Self {
            address: base.as_ptr() as usize,
            // SAFETY: It was found in this RCU read section, and is valid until its end.
            name: unsafe { NetdevName::of(base) },
            // SAFETY: As above; a namespace just read from a device is not freed within the RCU read section.
            net: unsafe { NetNsRef::get(bindings::dev_net(base.as_ptr())) },
        }
    }
}

/// Returns whether a device is made by software alone: those of hardware have no `rtnl_link_ops`, but for a few of
/// which a peer on this machine is no less likely.
///
/// # Safety
///
/// `dev` must be valid.
unsafe fn is_virtual(dev: NonNull<bindings::net_device>) -> bool {
    // SAFETY: By the caller's promise; the fields are read whole.
    let (ops, flags) = unsafe {
        (
            (&raw const (*dev.as_ptr()).rtnl_link_ops).read_volatile(),
            (&raw const (*dev.as_ptr()).flags).read_volatile(),
        )
    };
    !ops.is_null() || flags & bindings::net_device_flags_IFF_LOOPBACK != 0
}

/// Whether the network device has an IPv4 address whose subnet contains both addresses.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(crate) unsafe fn is_onlink(
    dev: NonNull<bindings::net_device>,
    one: [u8; 4],
    other: [u8; 4],
) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { find_address(dev, |has| has(one) && has(other)) }.is_some()
}

/// Returns the IPv4 address of a network device from which it reaches `destination`: in one of its subnets, or through
/// a gateway. Without `destination` it is the device's first one.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
pub(crate) unsafe fn source(
    dev: NonNull<bindings::net_device>,
    destination: Option<[u8; 4]>,
) -> Option<[u8; 4]> {
    // SAFETY: By the caller's promise.
    let first = || unsafe { find_address(dev, |_| true) };
    let Some(destination) = destination else {
        return first();
    };
    // SAFETY: As above.
    let onlink = unsafe { find_address(dev, |has| has(destination)) };
    onlink.or_else(|| {
        let source = first()?;
        // SAFETY: As above.
        let path = unsafe { path_by(dev, source, destination) };
        path.ok().filter(NextHop::has_gateway).map(|_| source)
    })
}

/// Returns the first IPv4 address of a network device for which `is_it` holds; its argument tests whether an address is
/// in the same subnet.
///
/// # Safety
///
/// `dev` must be valid, and this an RCU read section.
unsafe fn find_address(
    dev: NonNull<bindings::net_device>,
    is_it: impl Fn(&dyn Fn([u8; 4]) -> bool) -> bool,
) -> Option<[u8; 4]> {
    let visit = |ifa: NonNull<bindings::in_ifaddr>| {
        // SAFETY: The address is valid during the call.
        let has = |address| unsafe {
            bindings::inet_ifa_match(u32::from_ne_bytes(address), ifa.as_ptr())
        };
        match is_it(&has) {
            // SAFETY: As above.
            true => ControlFlow::Break(unsafe { (*ifa.as_ptr()).ifa_local }.to_ne_bytes()),
            false => ControlFlow::Continue(()),
        }
    };
    // SAFETY: By the caller's promise.
    let found = unsafe { ifaddr::ipv4_addresses(dev, visit) };
    found.break_value()
}

/// A referenced routing entry.
struct Route(NonNull<bindings::rtable>);

impl Route {
    /// Looks up the route from `source`, which may be zeroes, to `destination`, through the device `ifindex` if that is
    /// not 0.
    ///
    /// # Safety
    ///
    /// `net` must be alive during the call.
    unsafe fn lookup(
        net: *mut bindings::net,
        ifindex: i32,
        source: [u8; 4],
        destination: [u8; 4],
    ) -> Result<Self> {
        let mut flow = bindings::flowi4::default();
        let (saddr, daddr) = (u32::from_ne_bytes(source), u32::from_ne_bytes(destination));
        // SAFETY: `flow` may be written.
        unsafe { bindings::flow4_init(&mut flow, saddr, daddr) };
        flow.__fl_common.flowic_oif = ifindex;
        // SAFETY: By the caller's promise.
        let rt = unsafe { bindings::route_output(net, &mut flow) };
        Ok(Self(NonNull::new(from_err_ptr(rt)?).ok_or(EHOSTUNREACH)?))
    }

    /// Whether packets are sent by a device that is made by software alone.
    fn is_virtual(&self) -> bool {
        let _rcu = rcu::read_lock();
        // SAFETY: The entry is referenced, and its device is valid inside the RCU read section.
        let dev = unsafe { bindings::dst_dev_rcu(&raw const (*self.0.as_ptr()).dst) };
        // SAFETY: As above.
        NonNull::new(dev).is_some_and(|dev| unsafe { is_virtual(dev) })
    }

    /// Returns the path to `daddr`, in network byte order, by this route to it. A neighbour that is not resolved is
    /// only made by the lookup, not asked for: that is done here.
    fn path(&self, daddr: u32) -> Result<NextHop> {
        let rt = self.0.as_ptr();
        // SAFETY: The entry is referenced, and these fields of it do not change.
        let (uses_gateway, family) = unsafe { ((*rt).rt_uses_gateway, (*rt).rt_gw_family) };
        if uses_gateway == 0 {
            return Ok(NextHop::OnLink);
        }
        if u32::from(family) != bindings::AF_INET {
            return Err(EHOSTUNREACH);
        }
        // SAFETY: The entry is referenced; the address is read during the call.
        let neigh = unsafe { bindings::rt_neigh_lookup(rt, (&raw const daddr).cast()) };
        let neigh = NonNull::new(from_err_ptr(neigh)?).ok_or(EHOSTUNREACH)?;
        // SAFETY: The neighbour is referenced.
        let is_known = unsafe { bindings::neigh_event_send(neigh.as_ptr()) } == 0;
        let mut mac = [0; 6];
        // SAFETY: As above, and there is room for an Ethernet address.
        unsafe { bindings::neigh_mac(neigh.as_ptr(), mac.as_mut_ptr()) };
        // SAFETY: The reference is ours.
        unsafe { bindings::neigh_put(neigh.as_ptr()) };
        Ok(NextHop::Gateway(is_known.then_some(mac)))
    }
}

impl Drop for Route {
    fn drop(&mut self) {
        // SAFETY: The reference is ours.
        unsafe { bindings::rt_put(self.0.as_ptr()) };
    }
}
