// SPDX-License-Identifier: GPL-2.0

//! RDMA devices and their events (C file `smc_ib.c`).

mod iwarp;
mod link_port;
mod port;

use kernel::{
    new_mutex,
    sync::{
        atomic::{
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc,
        Mutex, //
    },
    time::Jiffies, //
};
use kernel_ext::{
    delayed_work::{
        DelayedWork,
        Job, //
    },
    global::{
        Global,
        Published, //
    },
    ib::{
        Client,
        ClientKey,
        ClientRegistration,
        Device,
        IbEvent,
        NodeType,
        PortAttr, //
    },
    net::NetNs,
    own_record,
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    link::{
        device::Shortage,
        Transport, //
    },
    pnet::PnetId,
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::{
    clock::now,
    groups,
    link::{
        self,
        PortInfo, //
    },
    namespace,
    paths, //
};
pub(crate) use iwarp::find_iwarp;
pub(crate) use link_port::{
    current,
    find_port,
    toward, //
};
pub(crate) use port::{
    find_roce_v1,
    find_roce_v2,
    pnetid_of_named,
    PeerPort,
    PortGid,
    PortQuery, //
};

static DEVICES: Global<IbDevices> = Global::new();
own_record! { IbDevice: ClientKey<IbDevice> }

/// Ports used of a device (C: `SMC_MAX_PORTS`).
pub(crate) const MAX_PORTS: u32 = 2;

/// Time for which the answer of a port holds.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// What a port answered, and when; `None` before it was asked.
type PortAnswer = Option<(Instant, Result<PortAttr>)>;

#[pin_data]
struct IbDevices {
    #[pin]
    list: Mutex<KVec<Arc<IbDevice>>>,
    /// Why no device in the list can be used, as the number of a [`Cause`]; 0 if one can. Written under its lock.
    missing: Atomic<u32>,
    last_serial: Atomic<u64>,
    #[pin]
    check: DelayedWork<PortEventWork>,
}

/// A device in use.
#[pin_data]
pub(crate) struct IbDevice {
    /// Increases from device to device.
    serial: u64,
    device: Arc<Device>,
    /// Its ports had an event that was not handled yet.
    event_pending: Atomic<bool>,
    /// One of these events was that a port became active.
    port_up_pending: Atomic<bool>,
    /// The device is being removed.
    is_gone: Atomic<bool>,
    /// Why no link can be made on the device, as the number of a [`Cause`]; 0 if one can.
    unusable: Atomic<u32>,
    /// What each port answered last.
    #[pin]
    answers: Mutex<[PortAnswer; MAX_PORTS as usize]>,
}

/// Owns the list of devices while the module is loaded. Dropping it releases them, and may sleep.
pub(crate) struct DeviceRegistry {
    _client: ClientRegistration<IbDevice>,
    _list: Published<IbDevices>,
}

impl DeviceRegistry {
    /// Registers for all devices, present and future.
    pub(crate) fn new() -> Result<Self> {
        let devices = Arc::pin_init(
            pin_init!(IbDevices {
                list <- new_mutex!(KVec::new(), "smc::IbDevices::list"),
                missing: Atomic::new(Cause::NoDevice.code()),
                last_serial: Atomic::new(0),
                check <- DelayedWork::new(PortEventWork),
            }),
            GFP_KERNEL,
        )?;
        let list = DEVICES.publish(devices.clone())?;
        // Devices that were added before one that failed may have had events.
        let client = ClientRegistration::new(c"smc_ib").inspect_err(|_| devices.check.stop())?;
        Ok(Self {
            _client: client,
            _list: list,
        })
    }
}

impl Drop for DeviceRegistry {
    fn drop(&mut self) {
        // The work must not hold the last reference to the object it is part of.
        if let Some(devices) = DEVICES.get() {
            devices.check.stop();
        }
    }
}

/// Checks ports after events.
struct PortEventWork;

impl Job for PortEventWork {
    fn run(&self) -> Option<Jiffies> {
        let devices = DEVICES.get()?;
        let list = devices.list.lock();
        list.iter()
            .filter(|ib_device| ib_device.event_pending.xchg(false, Full))
            .for_each(|ib_device| ib_device.check_ports());
        None
    }
}

impl Client for IbDevice {
    type Data = IbDevice;

    fn add(device: Arc<Device>) -> Result<Arc<IbDevice>> {
        let devices = DEVICES.get().ok_or(ENODEV)?;
        let shortage = link::limits(&device).shortage(&link::needs(transport_of(&device)));
        let mut list = devices.list.lock();
        let serial = devices.last_serial.fetch_add(1, Relaxed) + 1;
        let ib_device = pin_init!(IbDevice {
            serial,
            device,
            event_pending: Atomic::new(false),
            port_up_pending: Atomic::new(false),
            is_gone: Atomic::new(false),
            unusable: Atomic::new(shortage.map_or(0, |shortage| shortage.cause.code())),
            answers <- new_mutex!([None; MAX_PORTS as usize], "smc::IbDevice::answers"),
        });
        let ib_device = Arc::pin_init(ib_device, GFP_KERNEL)?;
        list.push(ib_device.clone(), GFP_KERNEL)?;
        devices.update_missing(&list);
        drop(list);
        let name = ib_device.device.name();
        match shortage {
            None => pr_info!("adding RDMA device {name}\n"),
            Some(Shortage {
                limit, has, needs, ..
            }) => pr_warn!("RDMA device {name} cannot be used: {limit}: {has}, {needs} needed\n"),
        }
        Ok(ib_device)
    }

    fn remove(ib_device: Arc<IbDevice>) {
        pr_info!("removing RDMA device {}\n", ib_device.device.name());
        if let Some(devices) = DEVICES.get() {
            let mut list = devices.list.lock();
            list.retain(|other| !Arc::ptr_eq(other, &ib_device));
            devices.update_missing(&list);
        }
        // Checked by groups that are added from now on.
        ib_device.is_gone.store(true, Release);
        groups::fail_links_on(&ib_device.device, |_| true);
    }

    fn event(ib_device: &IbDevice, event: IbEvent) {
        if matches!(event, IbEvent::Listening | IbEvent::PortActive(_)) {
            ib_device.port_up_pending.store(true, Release);
        }
        match event {
            IbEvent::Listening
            | IbEvent::PortActive(_)
            | IbEvent::PortError(_)
            | IbEvent::GidChange(_)
            | IbEvent::DeviceFatal => {
                ib_device.event_pending.store(true, Release);
                DEVICES.with(|devices| devices.check.run_within(0));
            }
        }
    }
}

impl IbDevices {
    /// Updates [`why_none`] for the devices that there are now.
    fn update_missing(&self, list: &[Arc<IbDevice>]) {
        let all = list.iter().map(|ib_device| ib_device.unusable());
        let missing = all.fold(Some(Cause::NoDevice), |missing, one| missing.and(one));
        self.missing
            .store(missing.map_or(0, |cause| cause.code()), Relaxed);
    }
}

/// Returns the devices that can be used, from serial number `from` on, oldest first, as [`devices`].
/// Context: may sleep.
pub(crate) fn usable_from(from: u64) -> impl Iterator<Item = Arc<IbDevice>> {
    devices_from(from).filter(|ib_device| ib_device.unusable().is_none())
}

/// Returns all devices, oldest first. The list is locked to get each of them, not while it is looked at: that may ask
/// its firmware.
/// Context: may sleep.
fn devices() -> impl Iterator<Item = Arc<IbDevice>> {
    devices_from(0)
}

fn devices_from(mut from: u64) -> impl Iterator<Item = Arc<IbDevice>> {
    core::iter::from_fn(move || {
        let devices = DEVICES.get()?;
        let list = devices.list.lock();
        let next = list.iter().find(|ib_device| ib_device.serial >= from)?;
        from = next.serial + 1;
        Some(next.clone())
    })
}

/// Returns why there is no device that can be used; `None` if there is one.
/// Context: any.
pub(crate) fn why_none() -> Option<Cause> {
    let devices = DEVICES.get();
    devices.map_or(Some(Cause::NoDevice), |devices| {
        Cause::from_code(devices.missing.load(Relaxed))
    })
}

/// Returns the transport of links on a device.
fn transport_of(device: &Device) -> Transport {
    match device.node_type() {
        NodeType::Rnic => Transport::Iwarp,
        _ => Transport::Roce,
    }
}

/// Returns true if a device is present, and not being removed.
/// Context: may sleep.
pub(crate) fn is_there(device: &Arc<Device>) -> bool {
    DEVICES.get().is_some_and(|devices| {
        let list = devices.list.lock();
        list.iter()
            .any(|ib_device| Arc::ptr_eq(&ib_device.device, device))
    })
}

impl IbDevice {
    /// Returns a number that increases from device to device.
    pub(crate) fn serial(&self) -> u64 {
        self.serial
    }

    /// Returns the device. The reference must not be kept.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns why no link can be made on the device; `None` if one can.
    /// Context: any.
    fn unusable(&self) -> Option<Cause> {
        Cause::from_code(self.unusable.load(Relaxed))
    }

    /// Does not use the device any more: it has no reliable connected queue pairs, which no attribute tells.
    /// Context: may sleep.
    fn set_without_rc(&self) {
        if self.unusable.xchg(Cause::DeviceRc.code(), Relaxed) != 0 {
            return;
        }
        pr_warn!(
            "RDMA device {} cannot be used: it has no reliable connected queue pairs\n",
            self.device.name()
        );
        if let Some(devices) = DEVICES.get() {
            devices.update_missing(&devices.list.lock());
        }
    }

    /// Returns the transport of links on the device.
    fn transport(&self) -> Transport {
        transport_of(&self.device)
    }

    /// Returns the ports used.
    pub(crate) fn ports(&self) -> core::ops::RangeInclusive<u32> {
        1..=self.device.num_ports().min(MAX_PORTS)
    }

    /// Takes down links whose port cannot carry data or has lost their GID; calls [`groups::on_port`] if a port is
    /// active. If one has become so, paths that failed may work; other addresses alone, which each container brings,
    /// are no reason to try them again.
    /// Context: may sleep.
    fn check_ports(&self) {
        groups::fail_links_on(&self.device, |port| !self.has(port));
        if self.port_up_pending.xchg(false, Full) {
            paths::forget_all();
        }
        if self.ports().any(|port| self.device.is_port_active(port)) {
            groups::on_port();
        }
    }

    /// Returns true if a port can carry data. A port that has just come up may not have told so yet, and is asked.
    /// Context: may sleep.
    fn is_active(&self, port: u32) -> bool {
        let is_up = || self.port_attr(port).is_ok_and(|attr| attr.active);
        !self.device.has_failed() && (self.device.is_port_active(port) || is_up())
    }

    /// Returns the state of a port as it is now, or was a moment ago: each connection and any user may want to know it,
    /// and it takes several commands of the device's firmware.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// As [`Device::query_port`].
    pub(crate) fn port_attr(&self, port: u32) -> Result<PortAttr> {
        let mut answers = self.answers.lock();
        let mut ports = (1..).zip(&mut *answers);
        let (_, answer) = ports.find(|(number, _)| *number == port).ok_or(EINVAL)?;
        if let Some((at, attr)) = *answer {
            if !at.saturating_add(ASK_AGAIN).is_due(now()) {
                return attr;
            }
        }
        let attr = self.device.query_port(port);
        *answer = Some((now(), attr));
        attr
    }

    /// Returns true if a port is active and still has its address. Asks no firmware: that may take long, and the lists
    /// of devices and groups are locked.
    /// Context: does not sleep.
    fn has(&self, port: &PortInfo) -> bool {
        if self.device.has_failed() || !self.device.is_port_active(port.port) {
            return false;
        }
        match port.transport {
            Transport::Roce => port::gid_of(&self.device, port).is_some(),
            // The link's TCP connection detects the loss of its address.
            Transport::Iwarp => true,
        }
    }

    /// Returns the physical network of a port, if it has a name.
    /// Context: may sleep.
    pub(crate) fn pnetid(&self, port: u32) -> Option<PnetId> {
        let first = NetNs::initial();
        let namespace = namespace::within(first);
        let is_there = self.device.accessible_in(first.id());
        is_there.then(|| namespace.pnet.of_port(&self.device, port))?
    }
}
