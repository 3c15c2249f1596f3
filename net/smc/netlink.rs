// SPDX-License-Identifier: GPL-2.0

//! Generic netlink family `SMC_GEN_NETLINK` for administration: the commands, attributes and errors of the C module (C
//! file `smc_netlink.c`).

mod device;
mod eid;
mod group;
mod pnet;
mod policy;
mod smcd;
mod stats;
mod system;

use kernel_ext::{
    genl::{
        self,
        Access,
        AttrType,
        Dump,
        Family,
        Op,
        Policy,
        Request, //
    },
    own_record,
    prelude::*,
    uapi::*, //
};

/// The registered families.
pub(crate) struct Registration {
    _commands: genl::Registration<Commands>,
    _pnet: pnet::PnetRegistration,
    _policy: policy::PolicyRegistration,
}

impl Registration {
    /// Registers all; their commands may be called from then on.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Self> {
        Ok(Self {
            _commands: genl::Registration::new()?,
            _pnet: pnet::PnetRegistration::new()?,
            _policy: policy::PolicyRegistration::new()?,
        })
    }
}

/// The commands of the family.
pub(crate) struct Commands;

/// A dump without privileges.
const fn list(command: u32, dump: fn(&mut Dump<'_>) -> Result) -> Op {
    Op {
        command,
        call: None,
        dump: Some(dump),
        access: Access::All,
        attrs: &[],
    }
}

/// A command that requires administrator privileges.
const fn order(command: u32, call: fn(&Request<'_>) -> Result, attrs: &'static [Policy]) -> Op {
    Op {
        command,
        call: Some(call),
        dump: None,
        access: Access::Admin,
        attrs,
    }
}

/// The attribute of the commands about user EIDs.
const UEID: &[Policy] = &[Policy {
    attr: SMC_NLA_EID_TABLE_ENTRY,
    kind: AttrType::String(eid::LEN),
}];

own_record! { Commands: genl::Record<Commands> }

impl Family for Commands {
    const NAME: &'static CStr = c"SMC_GEN_NETLINK";
    const VERSION: u32 = 1;
    const STRICT_FROM: u32 = SMC_NETLINK_DISABLE_HS_LIMITATION + 1;
    const DONT_VALIDATE: bool = false;
    const OPS: &'static [Op] = &[
        list(SMC_NETLINK_GET_SYS_INFO, system::info),
        list(SMC_NETLINK_GET_LGR_SMCR, group::dump),
        list(SMC_NETLINK_GET_LINK_SMCR, group::dump_links),
        list(SMC_NETLINK_GET_LGR_SMCD, smcd::dump),
        list(SMC_NETLINK_GET_DEV_SMCD, dump_no_devices),
        list(SMC_NETLINK_GET_DEV_SMCR, device::dump),
        list(SMC_NETLINK_GET_STATS, stats::dump),
        list(SMC_NETLINK_GET_FBACK_STATS, stats::dump_fallbacks),
        list(SMC_NETLINK_DUMP_UEID, eid::dump_user),
        order(SMC_NETLINK_ADD_UEID, eid::add, UEID),
        order(SMC_NETLINK_REMOVE_UEID, eid::remove, UEID),
        order(SMC_NETLINK_FLUSH_UEID, eid::flush, &[]),
        list(SMC_NETLINK_DUMP_SEID, eid::dump_system),
        order(SMC_NETLINK_ENABLE_SEID, eid::no_system, &[]),
        order(SMC_NETLINK_DISABLE_SEID, eid::no_system, &[]),
        list(SMC_NETLINK_DUMP_HS_LIMITATION, system::dump_limitation),
        order(SMC_NETLINK_ENABLE_HS_LIMITATION, system::limit, &[]),
        order(SMC_NETLINK_DISABLE_HS_LIMITATION, system::no_limit, &[]),
    ];
}

/// No device of SMC-D is shown: the C module does not show an emulated one either.
fn dump_no_devices(_dump: &mut Dump<'_>) -> Result {
    Ok(())
}

/// Converts to a one-byte number, such as that of a command.
fn number(n: u32) -> Result<u8> {
    u8::try_from(n).map_err(|_| EINVAL)
}

/// Returns the text of a field of fixed length, without padding.
fn trim_nul(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}
