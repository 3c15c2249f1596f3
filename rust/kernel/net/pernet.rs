// SPDX-License-Identifier: GPL-2.0

//! An object of ours per network namespace.
//!
//! C headers: [`include/net/net_namespace.h`](srctree/include/net/net_namespace.h),
//! [`include/net/netns/generic.h`](srctree/include/net/netns/generic.h)

use core::{
    cell::UnsafeCell,
    ffi::c_void,
    marker::PhantomData,
    mem::size_of,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    sync::{
        atomic::{
            Atomic,
            Full,
            Release, //
        },
        Arc, //
    },
    types::{
        ForeignOwnable,
        NotThreadSafe,
        Opaque, //
    }, //
};

use super::sysctl::{
    Directory,
    SysctlEntry,
    Values, //
};
use crate::{
    bindings,
    prelude::*,
    record::Recorded, //
};

/// A reference to a network namespace.
///
/// # Invariants
///
/// The namespace is alive, by a reference that `Drop` releases.
pub struct NetNsRef(NonNull<bindings::net>);

// SAFETY: A reference may be released by any thread; for all else [`NetNs`] is `Sync`.
unsafe impl Send for NetNsRef {}
// SAFETY: As above.
unsafe impl Sync for NetNsRef {}

impl NetNsRef {
    /// # Safety
    ///
    /// The namespace must not have been freed; it may be about to be.
    pub(crate) unsafe fn get(net: *mut bindings::net) -> Option<Self> {
        // SAFETY: By the caller's promise.
        let net = unsafe { bindings::maybe_get_net(net) };
        // INVARIANT: The reference is ours now.
        NonNull::new(net).map(Self)
    }
}

impl Deref for NetNsRef {
    type Target = NetNs;

    fn deref(&self) -> &NetNs {
        // SAFETY: By the type invariant.
        unsafe { NetNs::from_ptr(self.0.as_ptr()) }
    }
}

impl Drop for NetNsRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::put_net(self.0.as_ptr()) };
    }
}

/// A network namespace.
///
/// # Invariants
///
/// The namespace is alive, with the objects of all registered [`PerNet`] types.
#[repr(transparent)]
pub struct NetNs(Opaque<bindings::net>);

// SAFETY: All operations of this type may be done from any thread.
unsafe impl Sync for NetNs {}

/// Identity of a network namespace, for comparisons; holds no reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NetNsId(usize);

impl NetNsId {
    pub(crate) fn of(net: *const bindings::net) -> Self {
        Self(net as usize)
    }

    /// Not to be followed.
    pub(crate) fn as_ptr(self) -> *const bindings::net {
        self.0 as *const _
    }
}

impl NetNs {
    /// # Safety
    ///
    /// `ptr` must be a namespace that lives for `'a`.
    pub(crate) unsafe fn from_ptr<'a>(ptr: *mut bindings::net) -> &'a Self {
        // INVARIANT: By the caller's promise. The objects are created before the namespace has users, and dropped after
        // the last of them.
        // SAFETY: By the caller's promise; the type is transparent.
        unsafe { &*ptr.cast() }
    }

    pub(crate) fn as_ptr(&self) -> *mut bindings::net {
        self.0.get()
    }

    /// The initial network namespace.
    pub fn initial() -> &'static Self {
        // SAFETY: It lives as long as the kernel, and its objects as long as their registration.
        unsafe { Self::from_ptr(&raw mut bindings::init_net) }
    }

    /// Whether this is the initial network namespace.
    pub fn is_initial(&self) -> bool {
        self.id() == Self::initial().id()
    }

    /// Whether it belongs to a user namespace other than the initial one, as any user can make.
    pub fn is_of_user(&self) -> bool {
        // SAFETY: By the type invariant; the owner of a namespace does not change, and the initial one always lives.
        unsafe { (*self.as_ptr()).user_ns != &raw mut bindings::init_user_ns }
    }

    /// Its identity.
    pub fn id(&self) -> NetNsId {
        NetNsId::of(self.as_ptr())
    }

    /// Returns the namespace's object; `None` if its type is not registered.
    /// Context: any.
    ///
    /// The end of the registration waits for the result, so the code that ends it must not hold one.
    pub fn get<T: PerNet>(&self) -> Option<PerNetRef<'_, T>> {
        let section = Section::enter();
        let slot = T::record();
        // SAFETY: Written once, before `is_ready` was set.
        let id = slot
            .is_ready
            .load(kernel::sync::atomic::Acquire)
            .then(|| unsafe { *slot.id.get() })?;
        // SAFETY: The namespace lives, and the id is registered with the size of a pointer.
        let entry = unsafe { bindings::net_generic(self.as_ptr(), id) }.cast::<*mut c_void>();
        // SAFETY: An entry lives as long as its namespace; it was written before the namespace had users.
        let object = NonNull::new(unsafe { *NonNull::new(entry)?.as_ptr() })?;
        // SAFETY: From `into_foreign` in `init_callback`, and taken back only when the namespace has no users any more,
        // or when the registration ends, which waits for the section.
        let held: &NetData<T> = unsafe { KBox::borrow(object.as_ptr()) };
        Some(PerNetRef {
            object: &held.object,
            _section: section,
        })
    }
}

/// A section in which no registration of a [`PerNet`] type ends. It may sleep.
///
/// # Invariants
///
/// The number is that of a read section that was entered by the same context and not yet left.
struct Section(i32, NotThreadSafe);

impl Section {
    fn enter() -> Self {
        // INVARIANT: Entered here. The type is not sent to other threads.
        // SAFETY: No precondition.
        Self(unsafe { bindings::pernet_read_lock() }, NotThreadSafe)
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::pernet_read_unlock(self.0) };
    }
}

/// A namespace's object of a [`PerNet`] type.
pub struct PerNetRef<'a, T: PerNet> {
    object: &'a T,
    _section: Section,
}

impl<T: PerNet> Deref for PerNetRef<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.object
    }
}

/// A type of which each network namespace has an object. [`own_record!`](crate::own_record) gives it its [`PerNetKey`].
pub trait PerNet: Recorded<PerNetKey<Self>> + Send + Sync + Sized + 'static {
    /// Creates the object of a namespace.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Any error; the creation of the namespace then fails.
    fn new(net: &mut NewNetNs) -> Result<KBox<Self>>;
}

/// A network namespace for which an object is created. It may not have those of other types yet, nor users.
///
/// # Invariants
///
/// The namespace is alive as long as this, and until the directories are dropped.
pub struct NewNetNs {
    net: *mut bindings::net,
    directories: KVec<KBox<dyn AnyDirectory>>,
}

/// Settings of a namespace, whatever their number and kind.
pub(super) trait AnyDirectory: Send + Sync {}

impl<const N: usize> AnyDirectory for Directory<N> {}

impl NewNetNs {
    #[cfg(any(not(CONFIG_SMC), CONFIG_SMC_HS_CTRL_BPF))]
    pub(in crate::net) fn as_ptr(&self) -> *mut bindings::net {
        self.net
    }

    /// Creates a directory of settings, which is dropped with the object.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if such files exist already.
    pub fn settings<const N: usize>(
        &mut self,
        path: &'static CStr,
        entries: &'static [SysctlEntry; N],
    ) -> Result<Arc<Values<N>>> {
        // SAFETY: By the type invariant.
        let directory = unsafe { Directory::new(self.net, path, entries)? };
        let values = directory.values().clone();
        self.keep(KBox::new(directory, GFP_KERNEL)?)?;
        Ok(values)
    }

    /// Has the settings dropped with the object, before the namespace; in case of an error, at once.
    pub(super) fn keep(&mut self, directory: KBox<dyn AnyDirectory>) -> Result {
        Ok(self.directories.push(directory, GFP_KERNEL)?)
    }
}

/// What a namespace's entry points to.
struct NetData<T> {
    /// First, so that no settings of a dropped object can be written.
    _directories: KVec<KBox<dyn AnyDirectory>>,
    object: KBox<T>,
}

/// The record of a [`PerNet`] type.
pub struct PerNetKey<T> {
    ops: UnsafeCell<bindings::pernet_operations>,
    id: UnsafeCell<u32>,
    taken: Atomic<bool>,
    is_ready: Atomic<bool>,
    _type: PhantomData<fn(T)>,
}

// SAFETY: The record is written by the caller that has set `taken`, before it is registered; the id is written by the
// kernel before `is_ready` is set.
unsafe impl<T> Sync for PerNetKey<T> {}

impl<T: PerNet> PerNetKey<T> {
    /// A record that is not registered.
    #[expect(clippy::new_without_default, reason = "const")]
    pub const fn new() -> Self {
        Self {
            ops: UnsafeCell::new(pin_init::zeroed()),
            id: UnsafeCell::new(0),
            taken: Atomic::new(false),
            is_ready: Atomic::new(false),
            _type: PhantomData,
        }
    }
}

/// A registered [`PerNet`] type. Dropping it drops the objects of all namespaces, and waits for their users.
pub struct PerNetRegistration<T: PerNet>(PhantomData<fn(T)>);

impl<T: PerNet> PerNetRegistration<T> {
    /// Creates the objects of all existing namespaces, and of all later ones.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the type is registered already; those of [`PerNet::new`].
    pub fn new() -> Result<Self> {
        let slot = T::record();
        if slot.taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        // SAFETY: Taken above, and not registered, so nothing else uses it.
        let ops = unsafe { &mut *slot.ops.get() };
        ops.init = Some(Self::init_callback);
        ops.exit = Some(Self::exit_callback);
        ops.id = slot.id.get();
        ops.size = size_of::<*mut c_void>();
        // SAFETY: A static record that is not registered.
        to_result(unsafe { bindings::register_pernet_subsys(ops) })
            .inspect_err(|_| slot.taken.store(false, Release))?;
        slot.is_ready.store(true, Release);
        Ok(Self(PhantomData))
    }

    /// # Safety
    ///
    /// `net` must be a namespace that is being created, alive, or being destroyed.
    unsafe fn entry(net: *mut bindings::net) -> *mut *mut c_void {
        // SAFETY: The kernel has set the id before it calls us.
        let id = unsafe { *T::record().id.get() };
        // SAFETY: By the caller's promise; the id is registered.
        unsafe { bindings::net_generic(net, id) }.cast()
    }

    unsafe extern "C" fn init_callback(net: *mut bindings::net) -> i32 {
        // INVARIANT: The kernel passes a namespace that is being created, or alive; what is created for it is dropped
        // in `exit_callback`, before the namespace.
        let mut new = NewNetNs {
            net,
            directories: KVec::new(),
        };
        let held = T::new(&mut new).and_then(|object| {
            let held = NetData {
                _directories: new.directories,
                object,
            };
            Ok(KBox::new(held, GFP_KERNEL)?)
        });
        match held {
            Ok(held) => {
                // SAFETY: As above; nothing else uses the entry yet.
                unsafe { *Self::entry(net) = held.into_foreign() };
                0
            }
            Err(e) => e.to_errno(),
        }
    }

    unsafe extern "C" fn exit_callback(net: *mut bindings::net) {
        // SAFETY: The kernel passes a namespace without users.
        let object = unsafe { ptr::replace(Self::entry(net), ptr::null_mut()) };
        // SAFETY: From `init_callback`.
        drop(unsafe { KBox::<NetData<T>>::try_from_foreign(object) });
    }
}

impl<T: PerNet> Drop for PerNetRegistration<T> {
    fn drop(&mut self) {
        let slot = T::record();
        slot.is_ready.store(false, Release);
        // Lookups from now on find nothing.
        // SAFETY: Sleeping is allowed where registrations end.
        unsafe { bindings::pernet_synchronize() };
        // SAFETY: Registered in `new`.
        unsafe { bindings::unregister_pernet_subsys(slot.ops.get()) };
        slot.taken.store(false, Release);
    }
}
