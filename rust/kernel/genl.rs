// SPDX-License-Identifier: GPL-2.0

//! Generic netlink families whose commands are Rust functions.
//!
//! The in-tree abstraction (`kernel::net::netlink`) sends to multicast groups only.
//!
//! C headers: [`include/net/genetlink.h`](srctree/include/net/genetlink.h),
//! [`include/net/netlink.h`](srctree/include/net/netlink.h)

mod attrs;
mod dump;
mod request;

use core::{
    cell::UnsafeCell,
    marker::PhantomData,
    mem::size_of, //
};

use kernel::{
    error::to_result,
    sync::atomic::{
        Atomic,
        Full,
        Relaxed,
        Release, //
    }, //
};

use crate::{
    bindings,
    module::is_live,
    prelude::*,
    record::Recorded, //
};

pub use attrs::Attrs;
pub use dump::{
    Dump,
    DumpRecord, //
};
pub use request::Request;

/// The type that an attribute of a request must have.
#[derive(Clone, Copy, Debug)]
pub enum AttrType {
    /// Bytes, with or without a trailing NUL; at most this many without it.
    String(u16),
    /// Bytes with a trailing NUL; at most this many without it.
    NulString(u16),
    /// A one-byte number.
    U8,
    /// A four-byte number.
    U32,
    /// At most this many bytes.
    Bytes(u16),
}

/// An attribute that a command accepts.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Its number.
    pub attr: u32,
    /// Its type.
    pub kind: AttrType,
}

/// Who may give a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anybody.
    All,
    /// Who has `CAP_NET_ADMIN` in the user namespace of the network namespace.
    NamespaceAdmin,
    /// Who has `CAP_NET_ADMIN` in the first user namespace.
    Admin,
}

/// A command.
pub struct Op {
    /// Its number.
    pub command: u32,
    /// Handles a single request.
    /// Context: may sleep.
    pub call: Option<fn(&Request<'_>) -> Result>,
    /// Handles a dump request, in one or more passes.
    /// Context: may sleep.
    pub dump: Option<fn(&mut Dump<'_>) -> Result>,
    /// Who may give it.
    pub access: Access,
    /// The attributes it accepts.
    pub attrs: &'static [Policy],
}

/// A generic netlink family. [`own_record!`](crate::own_record) gives it its [`Record`].
pub trait Family: Recorded<Record<Self>> + Sized + 'static {
    /// Its name, of at most 15 characters.
    const NAME: &'static CStr;
    /// Its version.
    const VERSION: u32;
    /// The first command whose reserved header fields must be zero; commands before it predate that rule.
    const STRICT_FROM: u32;
    /// Whether unknown attributes are ignored, as older families do.
    const DONT_VALIDATE: bool;
    /// Its commands.
    const OPS: &'static [Op];
}

/// Maximum number of commands of a family.
const MAX_OPS: usize = 32;
/// Maximum number of attributes of a command, including number 0.
const MAX_ATTRS: usize = 16;

/// The kernel's record of a family.
///
/// # Invariants
///
/// Once `is_filled` is set, only the kernel writes the record.
pub struct Record<F> {
    family: UnsafeCell<bindings::genl_family>,
    is_taken: Atomic<bool>,
    is_filled: Atomic<bool>,
    _family: PhantomData<fn(F)>,
}

// SAFETY: The record is filled by the caller that set `is_taken`; the kernel synchronises its own use.
unsafe impl<F> Sync for Record<F> {}

impl<F> Record<F> {
    /// A record that is not registered.
    #[expect(clippy::new_without_default, reason = "const")]
    pub const fn new() -> Self {
        Self {
            family: UnsafeCell::new(pin_init::zeroed()),
            is_taken: Atomic::new(false),
            is_filled: Atomic::new(false),
            _family: PhantomData,
        }
    }
}

/// A registered family. Dropping it waits until none of its commands is running. A dump in several passes may have
/// passes left: its reader holds a reference to the module, and uses nothing but the module's memory.
pub struct Registration<F: Family>(PhantomData<fn(F)>);

/// A constant table that the kernel reads.
struct SyncTable<T>(T);

// SAFETY: It is never written.
unsafe impl<T> Sync for SyncTable<T> {}

impl<F: Family> Registration<F> {
    const POLICIES: &'static SyncTable<[[bindings::nla_policy; MAX_ATTRS]; MAX_OPS]> =
        &SyncTable(Self::policies());

    const COMMANDS: &'static SyncTable<[bindings::genl_ops; MAX_OPS]> =
        &SyncTable(Self::describe());

    /// Registers the family; its commands may be called from then on.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if it is registered already, `EEXIST` if a family of that name exists, `EINVAL` for a name that is too
    /// long, `ENOMEM`.
    pub fn new() -> Result<Self> {
        let record = F::record();
        if record.is_taken.xchg(true, Full) {
            return Err(EBUSY);
        }
        let registered = Self::fill(record).and_then(|()| {
            // SAFETY: A static record that is filled, and not registered.
            to_result(unsafe { bindings::genl_register_family(record.family.get()) })
        });
        registered.inspect_err(|_| record.is_taken.store(false, Release))?;
        Ok(Self(PhantomData))
    }

    /// Fills the record, once; the caller has set `is_taken`.
    fn fill(record: &Record<F>) -> Result {
        if record.is_filled.load(Relaxed) {
            return Ok(());
        }
        let mut family = bindings::genl_family {
            version: F::VERSION,
            // A command without a policy of its own accepts no attributes.
            maxattr: 1,
            policy: REJECT.0.as_ptr(),
            resv_start_op: u8::try_from(F::STRICT_FROM)?,
            ops: Self::COMMANDS.0.as_ptr(),
            n_ops: u8::try_from(F::OPS.len())?,
            module: crate::module::this_module(),
            ..pin_init::zeroed()
        };
        family.set_netnsok(1);
        let name = F::NAME.to_bytes_with_nul();
        let place = family.name.get_mut(..name.len()).ok_or(EINVAL)?;
        for (to, from) in place.iter_mut().zip(name) {
            *to = *from as _;
        }
        // SAFETY: The caller has set `is_taken`, and by the type invariant the kernel never had the record.
        unsafe { record.family.get().write(family) };
        // INVARIANT: Filled above.
        record.is_filled.store(true, Relaxed);
        Ok(())
    }

    const fn describe() -> [bindings::genl_ops; MAX_OPS] {
        let mut table: [bindings::genl_ops; MAX_OPS] = [pin_init::zeroed(); MAX_OPS];
        let mut i = 0;
        while i < F::OPS.len() {
            table[i] = Self::describe_one(i);
            i += 1;
        }
        table
    }

    const fn describe_one(i: usize) -> bindings::genl_ops {
        let op = &F::OPS[i];
        assert!(op.command <= u8::MAX as u32);
        let mut described: bindings::genl_ops = pin_init::zeroed();
        // CAST: Checked above.
        described.cmd = op.command as u8;
        if op.call.is_some() {
            described.doit = Some(Self::do_callback);
        }
        if op.dump.is_some() {
            described.dumpit = Some(Self::dump_callback);
        }
        // CAST: Two of eight flags.
        described.flags = match op.access {
            Access::All => 0,
            Access::NamespaceAdmin => bindings::GENL_UNS_ADMIN_PERM as u8,
            Access::Admin => bindings::GENL_ADMIN_PERM as u8,
        };
        if F::DONT_VALIDATE {
            described.validate = (bindings::genl_validate_flags_GENL_DONT_VALIDATE_STRICT
                | bindings::genl_validate_flags_GENL_DONT_VALIDATE_DUMP)
                as u8;
        }
        if !op.attrs.is_empty() {
            described.policy = Self::POLICIES.0[i].as_ptr();
            described.maxattr = highest(op.attrs);
        }
        described
    }

    /// The kernel's validation policies, for each command.
    const fn policies() -> [[bindings::nla_policy; MAX_ATTRS]; MAX_OPS] {
        let mut tables = [[pin_init::zeroed(); MAX_ATTRS]; MAX_OPS];
        let mut i = 0;
        while i < F::OPS.len() {
            let attrs = F::OPS[i].attrs;
            let mut j = 0;
            while j < attrs.len() {
                tables[i][attrs[j].attr as usize] = entry(attrs[j]);
                j += 1;
            }
            i += 1;
        }
        tables
    }

    fn op(command: u8) -> Option<&'static Op> {
        F::OPS.iter().find(|op| op.command == u32::from(command))
    }

    /// # Safety
    ///
    /// To be called by the kernel only, for a command of the family.
    unsafe extern "C" fn do_callback(
        _skb: *mut bindings::sk_buff,
        info: *mut bindings::genl_info,
    ) -> i32 {
        // SAFETY: The kernel passes a request, which has a header, that lives during the call.
        let command = unsafe { (*(*info).genlhdr).cmd };
        if !is_live() {
            return ENODEV.to_errno();
        }
        let Some((op, call)) = Self::op(command).and_then(|op| Some((op, op.call?))) else {
            return EOPNOTSUPP.to_errno();
        };
        // SAFETY: As above; the command was registered with these attributes.
        let request = unsafe { Request::new(info, op.attrs) };
        call(&request).map_or_else(Error::to_errno, |()| 0)
    }

    /// # Safety
    ///
    /// As [`Self::do_callback`].
    unsafe extern "C" fn dump_callback(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> i32 {
        if !is_live() {
            return ENODEV.to_errno();
        }
        // SAFETY: The kernel passes a message and the state of a dump, ours during the call.
        let mut dump = unsafe { Dump::new(skb, cb) };
        let fill = Self::op(dump.command()).and_then(|op| op.dump);
        match fill.map_or(Err(EOPNOTSUPP), |fill| fill(&mut dump)) {
            // The kernel calls again until a pass adds nothing.
            Ok(()) => dump.len(),
            Err(e) => e.to_errno(),
        }
    }
}

impl<F: Family> Drop for Registration<F> {
    fn drop(&mut self) {
        let record = F::record();
        // SAFETY: Registered in `new`.
        unsafe { bindings::genl_unregister_family(record.family.get()) };
        record.is_taken.store(false, Release);
    }
}

/// The policy of commands without attributes.
struct Reject([bindings::nla_policy; 2]);

// SAFETY: It is never written.
unsafe impl Sync for Reject {}

static REJECT: Reject = Reject([
    pin_init::zeroed(),
    bindings::nla_policy {
        // CAST: A small number.
        type_: bindings::NLA_REJECT as u8,
        ..pin_init::zeroed()
    },
]);

/// Returns the highest attribute number.
const fn highest(attrs: &[Policy]) -> u32 {
    let (mut i, mut most) = (0, 0);
    while i < attrs.len() {
        if attrs[i].attr > most {
            most = attrs[i].attr;
        }
        i += 1;
    }
    most
}

const fn entry(policy: Policy) -> bindings::nla_policy {
    let (kind, len) = match policy.kind {
        AttrType::String(max) => (bindings::NLA_STRING, max),
        AttrType::NulString(max) => (bindings::NLA_NUL_STRING, max),
        AttrType::U8 => (bindings::NLA_U8, size_of::<u8>() as u16),
        AttrType::U32 => (bindings::NLA_U32, size_of::<u32>() as u16),
        AttrType::Bytes(max) => (bindings::NLA_BINARY, max),
    };
    let mut entry: bindings::nla_policy = pin_init::zeroed();
    // CAST: A small number.
    entry.type_ = kind as u8;
    entry.len = len;
    entry
}
