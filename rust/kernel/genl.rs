// SPDX-License-Identifier: GPL-2.0

//! Generic netlink families whose commands are functions here.
//!
//! The in-tree abstraction (`kernel::net::netlink`) sends to multicast groups only.
//!
//! C headers: [`include/net/genetlink.h`](srctree/include/net/genetlink.h),
//! [`include/net/netlink.h`](srctree/include/net/netlink.h)

mod attrs;
mod dump;
mod request;

use core::{
    marker::PhantomData,
    mem::size_of, //
};

use kernel::{
    error::to_result,
    prelude::*,
    types::Opaque, //
};

use crate::bindings;

pub use attrs::Attrs;
pub use dump::{
    Dump,
    Unit, //
};
pub use request::Request;

/// What an attribute of a request must be.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Bytes, with or without a NUL at the end, at most that many without it.
    String(u16),
    /// Bytes with a NUL at the end, at most that many without it.
    NulString(u16),
    /// A number of one byte.
    U8,
}

/// An attribute that a command takes.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Its number.
    pub attr: u32,
    /// What it must be.
    pub kind: Kind,
}

/// A command.
pub struct Op {
    /// Its number.
    pub command: u32,
    /// Answers a single request. May sleep.
    pub call: Option<fn(&Request<'_>) -> Result>,
    /// Answers a request for a list, in as many passes as it takes. May sleep.
    pub dump: Option<fn(&mut Dump<'_>) -> Result>,
    /// Whether `CAP_NET_ADMIN` in the first user namespace is needed.
    pub is_privileged: bool,
    /// The attributes it takes.
    pub attrs: &'static [Policy],
}

/// A generic netlink family.
pub trait Family: Sized + 'static {
    /// Its name, of at most 15 characters.
    const NAME: &'static CStr;
    /// Its version.
    const VERSION: u32;
    /// The first command whose reserved header fields must be zero; those before it are older than
    /// that rule.
    const STRICT_FROM: u32;
    /// Whether attributes that no command knows are passed over, as was usual once.
    const IS_LAX: bool;
    /// Its commands.
    const OPS: &'static [Op];
}

/// A registered family. Dropping it waits until none of its commands runs.
pub struct Registration<F: Family> {
    family: KBox<Opaque<bindings::genl_family>>,
    _ops: KVec<bindings::genl_ops>,
    _policies: KVec<KVec<bindings::nla_policy>>,
    _family: PhantomData<fn(F)>,
}

// SAFETY: The records are not written after the registration but by the kernel, under its locks.
unsafe impl<F: Family> Send for Registration<F> {}
// SAFETY: As above.
unsafe impl<F: Family> Sync for Registration<F> {}

impl<F: Family> Registration<F> {
    /// Registers the family; its commands may be called from then on. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is a family of that name, `EINVAL` for a name that is too long, `ENOMEM`.
    pub fn new() -> Result<Self> {
        let mut ops = KVec::with_capacity(F::OPS.len(), GFP_KERNEL)?;
        let mut policies = KVec::new();
        for op in F::OPS {
            let policy = policy(op.attrs)?;
            ops.push(Self::describe(op, &policy)?, GFP_KERNEL)?;
            // The elements stay where they are when the vector that holds them moves.
            policies.push(policy, GFP_KERNEL)?;
        }
        let mut family = bindings::genl_family {
            version: F::VERSION,
            // Without a policy of its own a command takes no attribute at all.
            maxattr: 1,
            policy: REJECT.0.as_ptr(),
            resv_start_op: u8::try_from(F::STRICT_FROM)?,
            ops: ops.as_ptr(),
            n_ops: u8::try_from(ops.len())?,
            module: crate::net::this_module(),
            ..pin_init::zeroed()
        };
        family.set_netnsok(1);
        let name = F::NAME.to_bytes_with_nul();
        let place = family.name.get_mut(..name.len()).ok_or(EINVAL)?;
        for (to, from) in place.iter_mut().zip(name) {
            *to = *from as _;
        }
        let family = KBox::new(Opaque::new(family), GFP_KERNEL)?;
        // SAFETY: The family and what it points to live until it is unregistered in `drop`.
        to_result(unsafe { bindings::genl_register_family(family.get()) })?;
        Ok(Self {
            family,
            _ops: ops,
            _policies: policies,
            _family: PhantomData,
        })
    }

    fn describe(op: &Op, policy: &KVec<bindings::nla_policy>) -> Result<bindings::genl_ops> {
        let mut described = bindings::genl_ops {
            doit: op.call.map(|_| Self::do_callback as _),
            dumpit: op.dump.map(|_| Self::dump_callback as _),
            cmd: u8::try_from(op.command)?,
            ..pin_init::zeroed()
        };
        if op.is_privileged {
            // CAST: One of eight flags.
            described.flags = bindings::GENL_ADMIN_PERM as u8;
        }
        if F::IS_LAX {
            described.validate = (bindings::genl_validate_flags_GENL_DONT_VALIDATE_STRICT
                | bindings::genl_validate_flags_GENL_DONT_VALIDATE_DUMP)
                as u8;
        }
        if !policy.is_empty() {
            described.policy = policy.as_ptr();
            described.maxattr = u32::try_from(policy.len())?.saturating_sub(1);
        }
        Ok(described)
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
        // SAFETY: The kernel passes a message and the state of a dump, ours during the call.
        let mut dump = unsafe { Dump::new(skb, cb) };
        let fill = Self::op(dump.command()).and_then(|op| op.dump);
        match fill.map_or(Err(EOPNOTSUPP), |fill| fill(&mut dump)) {
            // The kernel calls again until nothing more was put.
            Ok(()) => dump.len(),
            Err(e) => e.to_errno(),
        }
    }
}

impl<F: Family> Drop for Registration<F> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::genl_unregister_family(self.family.get()) };
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

/// The table that the kernel checks requests by; empty for no attributes.
fn policy(attrs: &[Policy]) -> Result<KVec<bindings::nla_policy>> {
    let mut table = KVec::new();
    let Some(most) = attrs.iter().map(|policy| policy.attr).max() else {
        return Ok(table);
    };
    for attr in 0..=most {
        let known = attrs.iter().find(|policy| policy.attr == attr);
        table.push(known.map_or(pin_init::zeroed(), entry), GFP_KERNEL)?;
    }
    Ok(table)
}

fn entry(policy: &Policy) -> bindings::nla_policy {
    let (kind, len) = match policy.kind {
        Kind::String(max) => (bindings::NLA_STRING, max),
        Kind::NulString(max) => (bindings::NLA_NUL_STRING, max),
        Kind::U8 => (bindings::NLA_U8, size_of::<u8>() as u16),
    };
    bindings::nla_policy {
        // CAST: A small number.
        type_: kind as u8,
        len,
        ..pin_init::zeroed()
    }
}
