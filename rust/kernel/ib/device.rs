// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and their ports.

use core::{
    ptr::NonNull,
    sync::atomic::{
        AtomicBool,
        AtomicU32,
        Ordering, //
    }, //
};

use kernel::{
    error::to_result,
    fmt::{
        self,
        Display, //
    },
    str::CStr,
    sync::{
        new_mutex,
        rcu,
        Arc,
        Completion,
        Mutex, //
    }, //
};

use super::IbMtu;
use crate::{
    bindings,
    compat::device_limit,
    net::{
        NetNsId,
        NetNsRef, //
    },
    prelude::*,
    route,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};

/// An RDMA device that is registered with the RDMA core.
///
/// The removal of the device waits until all references are dropped, so they must be dropped once
/// [`Client::remove`](super::Client::remove) has been called.
///
/// # Invariants
///
/// - `ptr` is valid: the callbacks of [`Client`](super::Client) do not return from the removal of the device before
///   `gone` is completed.
/// - `reaper` is valid until after the last reference to any device of the client is dropped.
#[pin_data(PinnedDrop)]
pub struct Device {
    ptr: NonNull<bindings::ib_device>,
    reaper: NonNull<bindings::workqueue_struct>,
    // Lock order: innermost, nothing is taken under it.
    #[pin]
    name: SpinLockBh<Name>,
    /// Serialises [`Cq::flush`](super::Cq::flush): a queue that another task has disabled is not polled.
    #[pin]
    pub(super) flushing: Mutex<()>,
    limits: DeviceLimits,
    /// Maximum bytes of inline data, as far as known: the device has refused more.
    inline_len: AtomicU32,
    failed: AtomicBool,
    gone: Arc<Completion>,
}

// SAFETY: Verbs may be called from any thread.
unsafe impl Send for Device {}
// SAFETY: As above; the fields read here are constant once the device is registered.
unsafe impl Sync for Device {}

/// The kind of transport of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeType {
    /// An InfiniBand or RoCE adapter.
    Ca,
    /// An iWARP adapter.
    Rnic,
    /// Anything else.
    Other,
}

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct DeviceLimits {
    /// Pages that one memory region can cover; 0 if the device does not register memory by work requests.
    pub max_fast_reg_pages: u32,
    /// Work requests in one queue of a queue pair.
    pub max_qp_wr: u32,
    /// Memory ranges of a send or write.
    pub max_send_sge: u32,
    /// Memory ranges of a receive.
    pub max_recv_sge: u32,
    /// Completions in one queue.
    pub max_cqe: u32,
    /// Interrupt vectors for completions.
    pub num_comp_vectors: u32,
    /// Bytes of the largest block that can be mapped.
    pub max_map_bytes: usize,
}

/// State of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortAttr {
    /// Whether the port can carry data.
    pub active: bool,
    /// Largest path MTU at present.
    pub active_mtu: IbMtu,
}

/// Identity of a net device, for comparisons; holds no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetdevId {
    /// Interface index, unique in its namespace.
    pub ifindex: u32,
    /// Address of the `struct net_device`, for comparisons only.
    pub address: usize,
    /// Its network namespace.
    pub net: NetNsId,
    /// Address of the device that encrypts its packets (MACsec), or sends them in others (VXLAN): itself, or one below.
    pub hider: Option<usize>,
}

/// Name of a device.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Name {
    bytes: [u8; Name::MAX],
    len: u8,
}

impl Name {
    /// Longest name, `IB_DEVICE_NAME_MAX` less the terminator.
    pub const MAX: usize = 63;

    /// The name's bytes, without terminator.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&[])
    }

    fn new(name: &CStr) -> Self {
        let mut bytes = [0; Self::MAX];
        let mut len = 0;
        for (to, from) in bytes.iter_mut().zip(name.to_bytes()) {
            *to = *from;
            len += 1;
        }
        Self { bytes, len }
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(self.as_bytes()).unwrap_or("?"))
    }
}

/// The PCI function that a device is on.
#[derive(Clone, Copy)]
pub struct PciId {
    /// Its address, such as `0000:00:1f.6`.
    pub name: Name,
    /// The vendor's number.
    pub vendor: u16,
    /// The vendor's number for the device.
    pub device: u16,
}

impl Device {
    /// Creates the handle that is passed to a client, and the completion signalled when the last reference is dropped.
    ///
    /// # Safety
    ///
    /// The caller keeps `ptr` and `reaper` valid until the returned completion is done, and `reaper` also until the
    /// thread that completes it returns. The device must not be renamed meanwhile.
    pub(super) unsafe fn new(
        ptr: NonNull<bindings::ib_device>,
        reaper: NonNull<bindings::workqueue_struct>,
    ) -> Result<(Arc<Self>, Arc<Completion>)> {
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        // SAFETY: `ptr` is valid by the caller's promise.
        let name = unsafe { read_name(ptr) };
        // SAFETY: As above.
        let limits = unsafe { read_limits(ptr) };
        // SAFETY: As above.
        let inline_len = unsafe { max_inline(ptr) };
        let signal = gone.clone();
        // INVARIANT: By the caller's promise.
        let this = Arc::pin_init(
            pin_init!(Self {
                ptr,
                reaper,
                name <- new_spinlock_bh!(name, "ib::Device::name"),
                flushing <- new_mutex!((), "ib::Device::flushing"),
                limits,
                inline_len: AtomicU32::new(inline_len),
                failed: AtomicBool::new(false),
                gone: signal,
            }),
            GFP_KERNEL,
        )?;
        Ok((this, gone))
    }

    /// Updates the stored name after a rename.
    ///
    /// # Safety
    ///
    /// The device must not be renamed meanwhile.
    pub(super) unsafe fn renamed(&self) {
        // SAFETY: By the type invariant and the caller's promise.
        let name = unsafe { read_name(self.ptr) };
        *self.name.lock() = name;
    }

    pub(super) fn as_ptr(&self) -> *mut bindings::ib_device {
        self.ptr.as_ptr()
    }

    pub(super) fn reaper(&self) -> NonNull<bindings::workqueue_struct> {
        self.reaper
    }

    /// The device's current name.
    /// Context: any but interrupts.
    pub fn name(&self) -> Name {
        *self.name.lock()
    }

    /// The device's number, unique while it is registered.
    pub fn index(&self) -> u32 {
        // SAFETY: By the type invariant `ptr` is valid; the number is constant.
        unsafe { (*self.as_ptr()).index }
    }

    /// The kind of device.
    pub fn node_type(&self) -> NodeType {
        // SAFETY: By the type invariant `ptr` is valid; the type is constant.
        let node_type = unsafe { (*self.as_ptr()).node_type };
        match u32::from(node_type) {
            bindings::RDMA_NODE_IB_CA => NodeType::Ca,
            bindings::RDMA_NODE_RNIC => NodeType::Rnic,
            _ => NodeType::Other,
        }
    }

    /// The PCI function of the device, if it is on one.
    pub fn pci(&self) -> Option<PciId> {
        // SAFETY: By the type invariant `ptr` is valid; the parent is constant while registered.
        let parent = NonNull::new(unsafe { bindings::ib_device_parent(self.as_ptr()) })?;
        // SAFETY: A device keeps its parent.
        if !unsafe { bindings::dev_is_pci(parent.as_ptr()) } {
            return None;
        }
        // SAFETY: As above; the name of a PCI device does not change.
        let name = unsafe { CStr::from_ptr(bindings::dev_name(parent.as_ptr()).cast()) };
        // SAFETY: Checked above.
        let pci = unsafe { &*bindings::to_pci_dev(parent.as_ptr()) };
        Some(PciId {
            name: Name::new(name),
            vendor: pci.vendor,
            device: pci.device,
        })
    }

    /// The number of ports; they count from 1.
    pub fn num_ports(&self) -> u32 {
        // SAFETY: By the type invariant `ptr` is valid; the number is constant.
        unsafe { (*self.as_ptr()).phys_port_cnt }
    }

    /// Whether the device has a port with this number.
    pub fn has_port(&self, port: u32) -> bool {
        (1..=self.num_ports()).contains(&port)
    }

    /// Whether a port may have RoCE v1 addresses; 1 is the first port.
    /// Context: any.
    pub fn has_roce_v1(&self, port: u32) -> bool {
        // SAFETY: By the type invariant `ptr` is valid; what a port can do is constant.
        self.has_port(port)
            && unsafe { bindings::rdma_protocol_roce_eth_encap(self.as_ptr(), port) }
    }

    /// Whether the device has reported a fatal error; never reset.
    /// Context: any.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Records that the device has reported a fatal error.
    pub(super) fn set_failed(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The device's limits.
    pub fn limits(&self) -> &DeviceLimits {
        &self.limits
    }

    /// The bytes of inline data to request, at most `wanted`.
    pub(super) fn inline_len(&self, wanted: u32) -> u32 {
        self.inline_len.load(Ordering::Relaxed).min(wanted)
    }

    /// Records that the device grants no more than `len` bytes of inline data.
    pub(super) fn limit_inline_len(&self, len: u32) {
        self.inline_len.fetch_min(len, Ordering::Relaxed);
    }

    /// Whether a port can carry data, by the last event of it, before which the kernel's cache is updated.
    /// Context: any.
    pub fn is_port_active(&self, port: u32) -> bool {
        let mut state = bindings::ib_port_state_IB_PORT_NOP;
        // SAFETY: By the type invariant `ptr` is valid; `ib_get_cached_port_state` checks the port number.
        let ret = unsafe { bindings::ib_get_cached_port_state(self.as_ptr(), port, &mut state) };
        ret == 0 && state == bindings::ib_port_state_IB_PORT_ACTIVE
    }

    /// Queries the state of a port: on hardware, that is several commands for its firmware.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for an invalid port number, else the driver's error.
    pub fn query_port(&self, port: u32) -> Result<PortAttr> {
        let mut attr = bindings::ib_port_attr::default();
        // SAFETY: By the type invariant `ptr` is valid; `ib_query_port` checks the port number.
        to_result(unsafe { bindings::ib_query_port(self.as_ptr(), port, &mut attr) })?;
        Ok(PortAttr {
            active: attr.state == bindings::ib_port_state_IB_PORT_ACTIVE,
            active_mtu: IbMtu::from_code_clamped(attr.active_mtu),
        })
    }

    /// The net device of the port.
    /// Context: may sleep.
    pub fn port_netdev(&self, port: u32) -> Option<NetdevId> {
        // SAFETY: The net device is valid here.
        self.with_port_netdev(port, |netdev| unsafe { NetdevId::new(netdev) })
    }

    /// The network namespace `net`, if the port's net device is in it.
    /// Context: may sleep.
    pub fn port_netns(&self, port: u32, net: NetNsId) -> Option<NetNsRef> {
        self.with_port_netdev(port, |netdev| {
            let _rcu = rcu::read_lock();
            // SAFETY: The net device is valid here.
            let its = unsafe { bindings::dev_net(netdev.as_ptr()) };
            // SAFETY: A namespace just read from a device is not freed within the RCU read section.
            (NetNsId::of(its) == net).then(|| unsafe { NetNsRef::get(its) })
        })??
    }

    /// The IPv4 address of the port's net device, if that is in the network namespace `net`, from which that device
    /// reaches `destination`: in the same subnet, or through a gateway. Without `destination` it is the first address.
    /// Context: may sleep.
    pub fn port_source(
        &self,
        port: u32,
        net: NetNsId,
        destination: Option<[u8; 4]>,
    ) -> Option<[u8; 4]> {
        self.with_port_netdev(port, |netdev| {
            let _rcu = rcu::read_lock();
            // SAFETY: The net device is valid here, and the namespace is only compared.
            let is_there = NetNsId::of(unsafe { bindings::dev_net(netdev.as_ptr()) }) == net;
            // SAFETY: As above, and this is an RCU read section.
            is_there.then(|| unsafe { route::source(netdev, destination) })
        })??
    }

    /// Calls `f` with the port's net device, which is valid during the call.
    /// Context: may sleep.
    fn with_port_netdev<R>(
        &self,
        port: u32,
        f: impl FnOnce(NonNull<bindings::net_device>) -> R,
    ) -> Option<R> {
        // SAFETY: By the type invariant `ptr` is valid; the function checks the port number.
        let netdev = unsafe { bindings::ib_device_get_netdev(self.as_ptr(), port) };
        let netdev = NonNull::new(netdev)?;
        let result = f(netdev);
        // SAFETY: `ib_device_get_netdev` gave us the reference.
        unsafe { bindings::ib_netdev_put(netdev.as_ptr()) };
        Some(result)
    }

    /// Whether the port's net device is at `address` (as in [`NetdevId::address`]).
    /// Context: may sleep.
    pub fn port_netdev_eq(&self, port: u32, address: usize) -> bool {
        self.port_netdev(port)
            .is_some_and(|netdev| netdev.address == address)
    }

    /// Whether the network namespace `net` may use the device.
    /// Context: any.
    pub fn accessible_in(&self, net: NetNsId) -> bool {
        // SAFETY:
        // - By the type invariant `ptr` is valid.
        // - `rdma_dev_access_netns` compares the namespace pointer and does not follow it.
        unsafe { bindings::rdma_dev_access_netns(self.as_ptr(), net.as_ptr()) }
    }
}

#[pinned_drop]
impl PinnedDrop for Device {
    fn drop(self: Pin<&mut Self>) {
        self.gone.complete_all();
    }
}

impl NetdevId {
    /// # Safety
    ///
    /// `netdev` must be valid during the call.
    pub(super) unsafe fn new(netdev: NonNull<bindings::net_device>) -> Self {
        // SAFETY: By the caller's promise. The index may change when the device moves to another namespace; a stale one
        // only gives a wrong result.
        let ifindex = unsafe { (&raw const (*netdev.as_ptr()).ifindex).read_volatile() };
        let _rcu = rcu::read_lock();
        Self {
            ifindex: u32::try_from(ifindex).unwrap_or(0),
            address: netdev.as_ptr() as usize,
            // SAFETY: By the caller's promise.
            net: NetNsId::of(unsafe { bindings::dev_net(netdev.as_ptr()) }),
            // SAFETY: As above, and this is an RCU read section.
            hider: unsafe { route::hider_of(netdev) }.map(|hider| hider.as_ptr() as usize),
        }
    }
}

/// # Safety
///
/// `dev` must be valid and must not be renamed meanwhile.
unsafe fn read_name(dev: NonNull<bindings::ib_device>) -> Name {
    // SAFETY: By the caller's promise.
    let name = unsafe { bindings::ib_device_name(dev.as_ptr()) };
    // SAFETY: A device's name is a C string, valid until it is renamed or freed.
    Name::new(unsafe { CStr::from_ptr(name.cast()) })
}

/// Maximum bytes of inline data that a driver posts rightly for kernel users. Those of `bnxt_re` go out empty
/// (`bnxt_qplib_put_inline` copies from `sg_list`, which `bnxt_re_copy_inline_data` leaves empty). `hns` rounds what
/// does not fit the work request down to multiples of 16 bytes (`fill_ext_sge_inl_data`). Soft iWARP sends up to 32
/// with the header of the packet: of so few from a registered block it takes wrong bytes where they cross a page
/// (`siw_try_1seg`). More it would send from a place that the next work request may have overwritten.
///
/// # Safety
///
/// `dev` must be valid.
unsafe fn max_inline(dev: NonNull<bindings::ib_device>) -> u32 {
    // SAFETY: By the caller's promise; the functions of a device are constant once a client sees it.
    let driver = unsafe { (*dev.as_ptr()).ops.driver_id };
    match driver {
        bindings::rdma_driver_id_RDMA_DRIVER_BNXT_RE | bindings::rdma_driver_id_RDMA_DRIVER_HNS => {
            0
        }
        bindings::rdma_driver_id_RDMA_DRIVER_SIW => 32,
        _ => u32::MAX,
    }
}

/// The device registers memory by work requests.
// CAST: no bits are lost.
const FAST_REG: u64 = bindings::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;

/// # Safety
///
/// `dev` must be valid.
unsafe fn read_limits(dev: NonNull<bindings::ib_device>) -> DeviceLimits {
    // SAFETY: By the caller's promise; the attributes are constant once a client sees the device.
    let attrs = unsafe { &(*dev.as_ptr()).attrs };
    // SAFETY: As above.
    let num_comp_vectors = unsafe { (*dev.as_ptr()).num_comp_vectors };
    let has_fast_reg = attrs.device_cap_flags & FAST_REG != 0;
    DeviceLimits {
        max_fast_reg_pages: match has_fast_reg {
            true => attrs.max_fast_reg_page_list_len,
            false => 0,
        },
        max_qp_wr: device_limit(attrs.max_qp_wr),
        max_send_sge: device_limit(attrs.max_send_sge),
        max_recv_sge: device_limit(attrs.max_recv_sge),
        max_cqe: device_limit(attrs.max_cqe),
        num_comp_vectors: u32::try_from(num_comp_vectors).unwrap_or(0),
        // SAFETY: By the caller's promise.
        max_map_bytes: unsafe { bindings::ib_dma_max_mapping_size(dev.as_ptr()) },
    }
}
