// SPDX-License-Identifier: GPL-2.0

//! Handshake controls: pairs of BPF programs that TCP asks whether a SYN, or a SYN-ACK, carries the SMC option.
//!
//! A control is a `struct smc_hs_ctrl` that lies in a BPF map. User space registers it under its name by an update of
//! the map, and takes it back by a deletion. A namespace has one or none, to which it holds a reference: so a control
//! that was taken back goes on where it is in use. Each map holds a reference to the module.
//!
//! C headers: [`include/net/smc.h`](srctree/include/net/smc.h), [`include/linux/bpf.h`](srctree/include/linux/bpf.h)

use core::{
    cell::UnsafeCell,
    ffi::c_void,
    mem::offset_of,
    ops::Deref,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    error::to_result,
    new_mutex,
    sync::{
        Arc,
        Mutex, //
    },
    types::Opaque, //
};

use super::{
    pernet::{
        AnyDirectory,
        NetNs,
        NewNetNs, //
    },
    text_setting::{
        TextFile,
        TextSetting, //
    }, //
};
use crate::{
    bindings,
    global::{
        Global,
        Published, //
    },
    module::__this_module,
    prelude::*,
    rcu, //
};

/// Bytes of a name, with its NUL.
pub const NAME_LEN: usize = bindings::SMC_HS_CTRL_NAME_MAX as usize;

/// A control.
///
/// # Invariants
///
/// It lies in a BPF map that is not freed while this is borrowed. It is or was registered, so its name and its flags do
/// not change, and the name ends with NUL.
#[repr(transparent)]
pub struct HsCtrl(Opaque<bindings::smc_hs_ctrl>);

impl HsCtrl {
    /// # Safety
    ///
    /// `ptr` must be a control that is or was registered, in a map that is not freed for `'a`.
    unsafe fn from_ptr<'a>(ptr: NonNull<bindings::smc_hs_ctrl>) -> &'a Self {
        // INVARIANT: By the caller's promise.
        // SAFETY: By the caller's promise; the type is transparent.
        unsafe { ptr.cast().as_ref() }
    }

    /// Its name, followed by NULs.
    pub fn name(&self) -> &[u8; NAME_LEN] {
        // SAFETY: By the type invariant.
        unsafe { &(*self.0.get()).name }
    }

    /// Whether new network namespaces have it if the initial one does.
    pub fn is_inheritable(&self) -> bool {
        // SAFETY: By the type invariant.
        let flags = unsafe { (*self.0.get()).flags };
        // CAST: A bit.
        flags & bindings::SMC_HS_CTRL_FLAG_INHERITABLE as i32 != 0
    }

    /// Returns a reference to it; `None` if the last one was released.
    /// Context: any.
    pub fn get(&self) -> Option<HsCtrlRef> {
        // SAFETY: By the type invariant.
        let is_ours = unsafe { bindings::bpf_struct_ops_get(self.0.get().cast()) };
        // INVARIANT: The reference is ours now.
        is_ours
            .then(|| NonNull::new(self.0.get()))
            .flatten()
            .map(HsCtrlRef)
    }
}

/// A reference to a control.
///
/// # Invariants
///
/// The control is or was registered. `Drop` releases a reference to its map.
pub struct HsCtrlRef(NonNull<bindings::smc_hs_ctrl>);

// SAFETY: A reference may be released by any thread; all else only reads.
unsafe impl Send for HsCtrlRef {}
// SAFETY: As above.
unsafe impl Sync for HsCtrlRef {}

impl HsCtrlRef {
    /// Returns the control that is registered under this name.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is none, `EBUSY` if it is about to go.
    pub fn find(name: &CStr) -> Result<Self> {
        let registry = REGISTRY.get().ok_or(EINVAL)?;
        let list = registry.list.lock();
        list.iter()
            .map(Entry::ctrl)
            .find(|ctrl| text(ctrl.name()) == name.to_bytes())
            .ok_or(EINVAL)?
            .get()
            .ok_or(EBUSY)
    }

    /// Passes the reference to the caller.
    fn into_raw(self) -> *mut bindings::smc_hs_ctrl {
        let ptr = self.0.as_ptr();
        core::mem::forget(self);
        ptr
    }
}

impl Deref for HsCtrlRef {
    type Target = HsCtrl;

    fn deref(&self) -> &HsCtrl {
        // SAFETY: By the type invariant.
        unsafe { HsCtrl::from_ptr(self.0) }
    }
}

impl Drop for HsCtrlRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { bindings::bpf_struct_ops_put(self.0.as_ptr().cast()) };
    }
}

/// Returns what of a name precedes the first NUL.
fn text(name: &[u8; NAME_LEN]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}

// The control of a namespace -----------------------------------------------------------------

/// Makes `ctrl`, with a reference or null, the control of a namespace.
///
/// # Safety
///
/// The namespace must be alive. The reference passes to it.
unsafe fn replace(net: *mut bindings::net, ctrl: *mut bindings::smc_hs_ctrl) {
    // SAFETY: By the caller's promise.
    let old = unsafe { bindings::net_xchg_hs_ctrl(net, ctrl) };
    // A reader may still be at it: its map is freed after an RCU grace period.
    // INVARIANT: The namespace had the reference.
    drop(NonNull::new(old).map(HsCtrlRef));
}

impl NetNs {
    /// Runs `f` with the control of the namespace, if it has one. `f` must not sleep.
    /// Context: any.
    pub fn with_hs_ctrl<R>(&self, f: impl FnOnce(&HsCtrl) -> R) -> Option<R> {
        let _rcu = rcu::read_lock();
        // SAFETY: The namespace lives, and this is an RCU read section.
        let ctrl = NonNull::new(unsafe { bindings::net_hs_ctrl(self.as_ptr()) })?;
        // SAFETY: The namespace has a reference or had one when the section began, and a map is freed after an RCU
        // grace period only.
        Some(f(unsafe { HsCtrl::from_ptr(ctrl) }))
    }

    /// Gives the namespace another control, or none.
    /// Context: any.
    pub fn set_hs_ctrl(&self, ctrl: Option<HsCtrlRef>) {
        let ctrl = ctrl.map_or(ptr::null_mut(), HsCtrlRef::into_raw);
        // SAFETY: The namespace lives.
        unsafe { replace(self.as_ptr(), ctrl) };
    }
}

impl NewNetNs {
    /// Gives the namespace a control, or none, and a setting for it, by which it may get others. When the object is
    /// dropped, the setting goes, then the control.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, also if such a file exists already.
    pub fn hs_ctrl<T: TextSetting<N>, const N: usize>(
        &mut self,
        path: &'static CStr,
        ctrl: Option<HsCtrlRef>,
    ) -> Result {
        let net = self.as_ptr();
        // INVARIANT: The namespace lives until its settings are dropped.
        let owner = HsCtrlOwner(net);
        let ctrl = ctrl.map_or(ptr::null_mut(), HsCtrlRef::into_raw);
        // SAFETY: As above.
        unsafe { replace(net, ctrl) };
        // SAFETY: As above.
        let file = unsafe { TextFile::new::<T, N>(net, path)? };
        let setting = HsCtrlFile {
            _file: file,
            _owner: owner,
        };
        self.keep(KBox::new(setting, GFP_KERNEL)?)
    }
}

/// Takes the control from a namespace in the end.
///
/// # Invariants
///
/// The namespace is alive.
struct HsCtrlOwner(*mut bindings::net);

// SAFETY: The namespace may lose its control in any thread.
unsafe impl Send for HsCtrlOwner {}
// SAFETY: There is nothing to do with a reference to this.
unsafe impl Sync for HsCtrlOwner {}

impl Drop for HsCtrlOwner {
    fn drop(&mut self) {
        // SAFETY: By the type invariant.
        unsafe { replace(self.0, ptr::null_mut()) };
    }
}

/// Fields are dropped in order of declaration: first the setting, by which the namespace gets controls.
struct HsCtrlFile {
    _file: TextFile,
    _owner: HsCtrlOwner,
}

impl AnyDirectory for HsCtrlFile {}

// The struct_ops -----------------------------------------------------------------------------

/// The registered controls.
#[pin_data]
struct Registry {
    #[pin]
    list: Mutex<KVec<Entry>>,
}

static REGISTRY: Global<Registry> = Global::new();

/// A registered control.
///
/// # Invariants
///
/// Its map is not freed before the entry was removed, since it holds a reference to itself while it is registered.
struct Entry(NonNull<bindings::smc_hs_ctrl>);

// SAFETY: It only leads to what is not written.
unsafe impl Send for Entry {}

impl Entry {
    fn ctrl(&self) -> &HsCtrl {
        // SAFETY: By the type invariant.
        unsafe { HsCtrl::from_ptr(self.0) }
    }
}

impl Registry {
    fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(KVec::new(), "net::hs_ctrl::Registry::list"),
        })
    }

    fn add(&self, entry: Entry) -> Result {
        let mut list = self.list.lock();
        let name = entry.ctrl().name();
        if list.iter().any(|other| other.ctrl().name() == name) {
            return Err(EEXIST);
        }
        Ok(list.push(entry, GFP_KERNEL)?)
    }

    fn remove(&self, ctrl: *mut bindings::smc_hs_ctrl) {
        self.list.lock().retain(|entry| entry.0.as_ptr() != ctrl);
    }
}

/// The registered type `smc_hs_ctrl`. The kernel forgets it with the module, so dropping this does not end that; but no
/// control is registered any more.
pub struct HsCtrlType(#[expect(dead_code, reason = "for its drop")] Published<Registry>);

impl HsCtrlType {
    /// Lets user space register controls, once the module has been initialised. A module without type information (BTF)
    /// gets none, which is no error.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` or `EEXIST` if the type is registered already, `EINVAL` if the module's type information lacks it.
    pub fn new() -> Result<Self> {
        let registry = Arc::pin_init(Registry::new(), GFP_KERNEL)?;
        let published = REGISTRY.publish(registry)?;
        // SAFETY: A static record, which nothing here writes. The kernel writes the part that it keeps there, unless
        // the record is registered already.
        to_result(unsafe { bindings::register_smc_hs_ctrl(OPS.0.get()) })?;
        Ok(Self(published))
    }
}

/// The kernel's record of the type, a part of which it writes.
#[repr(transparent)]
struct StructOps(UnsafeCell<bindings::bpf_struct_ops>);

// SAFETY: Only passed to the kernel, which writes it when it is registered.
unsafe impl Sync for StructOps {}

/// A record of functions for the kernel.
#[repr(transparent)]
struct Functions<T>(T);

// SAFETY: Never written; private to this file, which has functions in it only.
unsafe impl<T> Sync for Functions<T> {}

static OPS: StructOps = StructOps(UnsafeCell::new(bindings::bpf_struct_ops {
    verifier_ops: &raw const VERIFIER_OPS.0,
    init: Some(init_callback),
    init_member: Some(init_member_callback),
    reg: Some(reg_callback),
    unreg: Some(unreg_callback),
    cfi_stubs: (&raw const STUBS.0).cast_mut().cast(),
    owner: (&raw const __this_module).cast_mut().cast(),
    name: c"smc_hs_ctrl".as_ptr().cast(),
    ..pin_init::zeroed()
}));

static VERIFIER_OPS: Functions<bindings::bpf_verifier_ops> =
    Functions(bindings::bpf_verifier_ops {
        get_func_proto: Some(bindings::bpf_base_func_proto),
        is_valid_access: Some(bindings::bpf_tracing_btf_ctx_access),
        ..pin_init::zeroed()
    });

/// By these the kernel knows which members are programs, and how to check calls of them. It looks for their types in
/// the module's BTF, so they are C functions.
static STUBS: Functions<bindings::smc_hs_ctrl> = Functions(bindings::smc_hs_ctrl {
    syn_option: Some(bindings::hs_ctrl_syn_option),
    synack_option: Some(bindings::hs_ctrl_synack_option),
    ..pin_init::zeroed()
});

unsafe extern "C" fn init_callback(_: *mut bindings::btf) -> i32 {
    0
}

/// A member of a control that user space wants to register is checked and copied. Returns 1 for the members that this
/// knows; the kernel itself does the programs, and insists on zeroes for the rest.
unsafe extern "C" fn init_member_callback(
    ty: *const bindings::btf_type,
    member: *const bindings::btf_member,
    kdata: *mut c_void,
    udata: *const c_void,
) -> i32 {
    const NAME: usize = offset_of!(bindings::smc_hs_ctrl, name);
    const FLAGS: usize = offset_of!(bindings::smc_hs_ctrl, flags);
    // SAFETY: The kernel passes a structure and one of its members.
    let bits = unsafe { bindings::__btf_member_bit_offset(ty, member) };
    let (to, from) = (
        kdata.cast::<bindings::smc_hs_ctrl>(),
        udata.cast::<bindings::smc_hs_ctrl>(),
    );
    // CAST: An offset.
    match bits as usize / 8 {
        NAME => {
            // CAST: A small number.
            let len = NAME_LEN as u32;
            // SAFETY: The kernel passes a control that is not registered yet, and what user space wants to be in it.
            let copied = unsafe {
                bindings::bpf_obj_name_cpy(
                    (&raw mut (*to).name).cast(),
                    (&raw const (*from).name).cast(),
                    len,
                )
            };
            match copied > 0 {
                true => 1,
                false => EINVAL.to_errno(),
            }
        }
        FLAGS => {
            // SAFETY: As above.
            let flags = unsafe { (*from).flags };
            // CAST: Bits.
            if flags & !(bindings::SMC_HS_CTRL_ALL_FLAGS as i32) != 0 {
                return EINVAL.to_errno();
            }
            // SAFETY: As above.
            unsafe { (*to).flags = flags };
            1
        }
        _ => 0,
    }
}

/// User space registers a control. The kernel only calls this while a reference to the module is held.
unsafe extern "C" fn reg_callback(kdata: *mut c_void, link: *mut bindings::bpf_link) -> i32 {
    if !link.is_null() {
        return EOPNOTSUPP.to_errno();
    }
    let added = NonNull::new(kdata.cast()).ok_or(EINVAL).and_then(|ctrl| {
        // INVARIANT: The map takes a reference to itself when this succeeds, and releases it after `unreg_callback`.
        let entry = Entry(ctrl);
        REGISTRY.get().ok_or(ENODEV)?.add(entry)
    });
    added.map_or_else(Error::to_errno, |()| 0)
}

/// User space takes a control back.
unsafe extern "C" fn unreg_callback(kdata: *mut c_void, _: *mut bindings::bpf_link) {
    if let Some(registry) = REGISTRY.get() {
        registry.remove(kdata.cast());
    }
}
