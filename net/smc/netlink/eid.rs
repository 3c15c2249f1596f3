// SPDX-License-Identifier: GPL-2.0

//! Enterprise ids: user EIDs, and the system EID, which exists on one architecture only.

use kernel_ext::{
    genl::{
        Dump,
        Request, //
    },
    prelude::*,
    uapi::*, //
};
use smc_proto::{
    handshake::eid::{
        UeidError,
        Ueids, //
    },
    id::Eid, //
};

use crate::local::LOCAL;

/// Length of an EID.
pub(super) const LEN: u16 = 32;

pub(super) fn dump_user(dump: &mut Dump<'_>) -> Result {
    let ueids = LOCAL.get().ok_or(ENODEV)?.ueids.lock().clone();
    let entries = (0..).zip(ueids.as_slice());
    dump.each(entries, |unit, eid| {
        unit.message(unit.command(), |attrs| {
            attrs.string(SMC_NLA_EID_TABLE_ENTRY, &eid.0)
        })
    })
}

/// Returns the EID in a request, where a NUL follows it.
fn named(request: &Request<'_>) -> Result<Eid> {
    let bytes = request.attr(SMC_NLA_EID_TABLE_ENTRY).ok_or(EINVAL)?;
    match bytes.split_last() {
        Some((0, name)) => Ok(Eid(name.try_into().map_err(|_| EINVAL)?)),
        _ => Err(EINVAL),
    }
}

fn change(edit: impl FnOnce(&mut Ueids) -> Result<(), UeidError>) -> Result {
    let local = LOCAL.get().ok_or(ENODEV)?;
    let result = edit(&mut local.ueids.lock());
    result.map_err(|e| match e {
        UeidError::Invalid => EINVAL,
        UeidError::Exists => EEXIST,
        UeidError::Full => ERANGE,
        UeidError::Unknown => ENOENT,
    })
}

pub(super) fn add(request: &Request<'_>) -> Result {
    let eid = named(request)?;
    change(|ueids| ueids.add(eid))
}

pub(super) fn remove(request: &Request<'_>) -> Result {
    let eid = named(request)?;
    change(|ueids| ueids.remove(eid))
}

pub(super) fn flush(_request: &Request<'_>) -> Result {
    change(|ueids| {
        ueids.flush();
        Ok(())
    })
}

/// Sends an empty message: this host has none.
pub(super) fn dump_system(dump: &mut Dump<'_>) -> Result {
    dump.each([(0, ())], |unit, ()| {
        unit.message(unit.command(), |_| Ok(()))
    })
}

pub(super) fn no_system(_request: &Request<'_>) -> Result {
    Err(EOPNOTSUPP)
}
