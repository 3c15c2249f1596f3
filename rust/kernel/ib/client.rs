// SPDX-License-Identifier: GPL-2.0

//! Clients of the RDMA core: notified of each device that is added or removed.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_client`

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::MaybeUninit,
    ptr,
    ptr::NonNull,
    sync::atomic::{AtomicBool, AtomicPtr, Ordering},
};

use kernel::{
    error::{
        from_result,
        to_result, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    str::CStr,
    sync::{
        Arc,
        Completion, //
    }, //
};

use super::Device;
use crate::{
    bindings,
    prelude::*,
    record::Recorded, //
};

/// An RDMA client. [`own_record!`](crate::own_record) gives it its [`ClientKey`].
pub trait Client: Recorded<ClientKey<Self>> + Sized + 'static {
    /// The client's data for a device.
    type Data: Send + Sync + 'static;

    /// Starts to use a device.
    /// Context: may sleep, must not register or unregister clients.
    ///
    /// # Errors
    ///
    /// On an error the device is not used; if references to it remain, the call waits for them.
    fn add(dev: Arc<Device>) -> Result<Arc<Self::Data>>;

    /// Stops using a device: all holders of a reference to it, or to an object made from it, must be about to release
    /// it when this returns. The removal of the device then waits for them. No event is delivered once the call began.
    /// Context: may sleep.
    fn remove(data: Arc<Self::Data>);

    /// Handles an event of a device.
    /// Context: does not sleep.
    fn event(data: &Self::Data, event: IbEvent);
}

/// Device events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IbEvent {
    /// Events are delivered from now on: those since [`Client::add`] began may have been missed.
    Listening,
    /// A port can carry data.
    PortActive(u32),
    /// A port cannot carry data any more.
    PortError(u32),
    /// The GID table of a port changed.
    GidChange(u32),
    /// The device has failed.
    DeviceFatal,
}

/// The static record by which the RDMA core knows a [`Client`].
///
/// # Invariants
///
/// While `used` is set by a [`ClientRegistration`], `client` is initialised and registered, and
/// `reaper` is a work queue that outlives the registration of `client`.
pub struct ClientKey<T> {
    client: UnsafeCell<MaybeUninit<bindings::ib_client>>,
    reaper: AtomicPtr<bindings::workqueue_struct>,
    used: AtomicBool,
    _client: PhantomData<fn(T)>,
}

// SAFETY: The raw client is written by the one owner of `used` before it is registered; after that only the RDMA core
// accesses it.
unsafe impl<T> Sync for ClientKey<T> {}

impl<T> ClientKey<T> {
    /// Creates an unused record.
    #[expect(clippy::new_without_default, reason = "const")]
    pub const fn new() -> Self {
        // INVARIANT: `used` is not set.
        Self {
            client: UnsafeCell::new(MaybeUninit::zeroed()),
            reaper: AtomicPtr::new(ptr::null_mut()),
            used: AtomicBool::new(false),
            _client: PhantomData,
        }
    }

    fn as_ptr(&self) -> *mut bindings::ib_client {
        self.client.get().cast()
    }

    fn destroy_reaper(&self) {
        let reaper = self.reaper.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: The queue was allocated in `ClientRegistration::new`, and nothing is queued on it once the client is
        // unregistered; destroying it waits for the last work function.
        unsafe { bindings::destroy_workqueue(reaper) };
    }
}

/// Keeps a [`Client`] registered. Dropping it removes all devices and waits for their removal.
/// Context: may sleep.
pub struct ClientRegistration<T: Client>(PhantomData<fn() -> T>);

impl<T: Client> ClientRegistration<T> {
    /// Registers the client; [`Client::add`] is called for every device before this returns.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the client's record is in use, `ENOMEM`, or the RDMA core's error.
    pub fn new(name: &'static CStr) -> Result<Self> {
        let slot = T::record();
        if slot.used.swap(true, Ordering::Acquire) {
            return Err(EBUSY);
        }
        Self::register(slot, name).inspect_err(|_| slot.used.store(false, Ordering::Release))?;
        Ok(Self(PhantomData))
    }

    fn register(slot: &'static ClientKey<T>, name: &'static CStr) -> Result {
        // SAFETY: No precondition.
        let reaper = unsafe { bindings::ib_alloc_workqueue() };
        if reaper.is_null() {
            return Err(ENOMEM);
        }
        slot.reaper.store(reaper, Ordering::Release);
        // SAFETY: All zeroes are a valid `ib_client`.
        let mut client: bindings::ib_client = unsafe { MaybeUninit::zeroed().assume_init() };
        client.name = name.as_ptr().cast();
        client.add = Some(add_callback::<T>);
        client.remove = Some(remove_callback::<T>);
        client.rename = Some(rename_callback::<T>);
        // SAFETY: We own `used`, and the client is not registered: nothing else accesses it.
        unsafe { slot.as_ptr().write(client) };
        // SAFETY: The client is initialised, static, and its functions are for this `T`.
        // INVARIANT: `reaper` was set above.
        let ret = to_result(unsafe { bindings::ib_register_client(slot.as_ptr()) });
        ret.inspect_err(|_| slot.destroy_reaper())
    }
}

impl<T: Client> Drop for ClientRegistration<T> {
    fn drop(&mut self) {
        let slot = T::record();
        // SAFETY: By the type invariant of `ClientKey` the client is registered, as `self` exists.
        unsafe { bindings::ib_unregister_client(slot.as_ptr()) };
        slot.destroy_reaper();
        slot.used.store(false, Ordering::Release);
    }
}

/// A device in use by a client.
struct ClientDevice<T: Client> {
    device: Arc<Device>,
    data: Arc<T::Data>,
    gone: Arc<Completion>,
    handler: UnsafeCell<bindings::ib_event_handler>,
}

/// Drops a reference and waits until all others are dropped.
fn await_gone(device: Arc<Device>, gone: &Completion) {
    drop(device);
    gone.wait_for_completion();
}

unsafe extern "C" fn add_callback<T: Client>(raw: *mut bindings::ib_device) -> c_int {
    from_result(|| {
        let raw = NonNull::new(raw).ok_or(EINVAL)?;
        let place = KBox::<ClientDevice<T>>::new_uninit(GFP_KERNEL)?;
        let reaper = NonNull::new(T::record().reaper.load(Ordering::Acquire)).ok_or(EINVAL)?;
        // SAFETY:
        // - The RDMA core keeps the device valid until `remove_callback` has returned, or this
        //   function with an error; both wait for the completion.
        // - By the type invariant of `ClientKey` the queue outlives the registration; destroying it waits for the
        //   worker that drops the last reference.
        // - Renaming excludes `add`: both hold `devices_rwsem`.
        let (device, gone) = unsafe { Device::new(raw, reaper)? };
        match T::add(device.clone()) {
            Ok(data) => {
                let entry = ClientDevice::<T> {
                    device,
                    data,
                    gone,
                    handler: UnsafeCell::default(),
                };
                listen(raw, KBox::write(place, entry));
                Ok(0)
            }
            Err(err) => {
                await_gone(device, &gone);
                Err(err)
            }
        }
    })
}

/// Passes `entry` to the RDMA core and enables events.
fn listen<T: Client>(raw: NonNull<bindings::ib_device>, entry: KBox<ClientDevice<T>>) {
    let entry = KBox::into_raw(entry);
    // SAFETY: The device is valid and calls `add` for this client, which is registered.
    unsafe { bindings::ib_set_client_data(raw.as_ptr(), T::record().as_ptr(), entry.cast()) };
    // SAFETY: `entry` stays valid until `remove_callback`, which waits for `add` to end.
    let entry = unsafe { &*entry };
    let handler = entry.handler.get();
    // SAFETY: The handler is ours and not registered yet.
    unsafe {
        bindings::ib_event_handler_init(handler, raw.as_ptr(), Some(event_callback::<T>));
    };
    // SAFETY: The handler is initialised and unregistered before `entry` is freed.
    unsafe { bindings::ib_register_event_handler(handler) };
    T::event(&entry.data, IbEvent::Listening);
}

unsafe extern "C" fn remove_callback<T: Client>(_: *mut bindings::ib_device, data: *mut c_void) {
    if data.is_null() {
        return;
    }
    let entry = data.cast::<ClientDevice<T>>();
    // Event callbacks borrow the entry until the handler is unregistered, so it is not exclusively ours before.
    // SAFETY: The client data is what `listen` stored, which registered the handler. No event is delivered after this.
    unsafe { bindings::ib_unregister_event_handler((*entry).handler.get()) };
    // SAFETY: As above, and this is the last use of it.
    let entry = unsafe { KBox::from_raw(entry) };
    let ClientDevice {
        device, data, gone, ..
    } = KBox::into_inner(entry);
    T::remove(data);
    await_gone(device, &gone);
}

unsafe extern "C" fn rename_callback<T: Client>(_: *mut bindings::ib_device, data: *mut c_void) {
    // SAFETY: The client data is null or what `listen` stored; `remove_callback`, which frees it, is not called while a
    // client's data is in use.
    let Some(entry) = (unsafe { data.cast::<ClientDevice<T>>().as_ref() }) else {
        return;
    };
    // SAFETY: The RDMA core holds `devices_rwsem`, which another rename needs for writing.
    unsafe { entry.device.renamed() };
}

unsafe extern "C" fn event_callback<T: Client>(
    handler: *mut bindings::ib_event_handler,
    event: *mut bindings::ib_event,
) {
    // SAFETY: `handler` is the field of an `ClientDevice<T>`, see `listen`.
    let entry = unsafe { handler.byte_sub(core::mem::offset_of!(ClientDevice<T>, handler)) };
    // SAFETY: As above; the entry is freed after the handler was unregistered, which waits for us.
    let entry = unsafe { &*entry.cast::<ClientDevice<T>>() };
    // SAFETY: The RDMA core passes a valid event.
    let event = unsafe { &*event };
    // For all events below except the last this is the active member; any member may be read as it.
    // SAFETY: Any bits are a valid `u32`, and the union is fully initialised up to its length.
    let port = unsafe { event.element.port_num };
    let event = match event.event {
        bindings::ib_event_type_IB_EVENT_PORT_ACTIVE => IbEvent::PortActive(port),
        bindings::ib_event_type_IB_EVENT_PORT_ERR => IbEvent::PortError(port),
        bindings::ib_event_type_IB_EVENT_GID_CHANGE => IbEvent::GidChange(port),
        bindings::ib_event_type_IB_EVENT_DEVICE_FATAL => {
            entry.device.set_failed();
            IbEvent::DeviceFatal
        }
        _ => return,
    };
    T::event(&entry.data, event);
}
