// SPDX-License-Identifier: GPL-2.0

//! Generic netlink family `SMC_PNETID`, for naming physical networks: the commands, attributes and errors of the C
//! module (C file `smc_pnet.c`).
//!
//! One error differs. C returns `EEXIST` for another port of a device that is in the table, although it has set the
//! port's PNETID by then; here each port has its entry.

use kernel_ext::{
    genl::{
        self,
        Access,
        AttrType,
        Attrs,
        Dump,
        Family,
        Op,
        Policy,
        Request, //
    },
    net::NetNs,
    own_record,
    prelude::*,
    uapi::*, //
};
use smc_proto::pnet::PnetId;

use super::{
    number,
    trim_nul, //
};
use crate::{
    ib,
    namespace,
    paths,
    pnet::{
        FixedStr,
        PnetDevice,
        PnetEntry, //
    }, //
};

/// The registered family.
pub(super) type PnetRegistration = genl::Registration<Pnet>;

/// The commands of the family.
pub(crate) struct Pnet;

const fn policy(attr: u32, kind: AttrType) -> Policy {
    Policy { attr, kind }
}

const ATTRS: &[Policy] = &[
    policy(SMC_PNETID_NAME, AttrType::NulString(PnetId::LEN as u16)),
    policy(SMC_PNETID_ETHNAME, AttrType::NulString(15)),
    policy(SMC_PNETID_IBNAME, AttrType::NulString(63)),
    policy(SMC_PNETID_IBPORT, AttrType::U8),
];

const fn order(command: u32, call: fn(&Request<'_>) -> Result) -> Op {
    Op {
        command,
        call: Some(call),
        dump: None,
        access: Access::Admin,
        attrs: ATTRS,
    }
}

own_record! { Pnet: genl::Record<Pnet> }

impl Family for Pnet {
    const NAME: &'static CStr = c"SMC_PNETID";
    const VERSION: u32 = 1;
    const STRICT_FROM: u32 = SMC_PNETID_FLUSH + 1;
    const DONT_VALIDATE: bool = true;
    const OPS: &'static [Op] = &[
        Op {
            command: SMC_PNETID_GET,
            call: Some(get),
            dump: Some(dump),
            access: Access::All,
            attrs: ATTRS,
        },
        order(SMC_PNETID_ADD, add),
        order(SMC_PNETID_DEL, delete),
        order(SMC_PNETID_FLUSH, flush),
    ];
}

/// Ports of a device that can be named (C: `SMC_MAX_PORTS`).
const PORTS: core::ops::RangeInclusive<u8> = 1..=2;

/// Entries fetched at a time; enough to fill a message.
const DUMP_BATCH: usize = 512;

/// Maximum size of an entry's attributes, bytes: four headers, and values padded to four bytes.
const ENTRY_LEN: usize = 4 * 4 + 20 + 16 + 64 + 4;

/// Returns a name in a request, up to its NUL.
fn text<'a>(request: &Request<'a>, attr: u32) -> Option<&'a [u8]> {
    request.attr(attr).map(trim_nul)
}

fn add(request: &Request<'_>) -> Result {
    let name = text(request, SMC_PNETID_NAME).ok_or(EINVAL)?;
    let pnetid = PnetId::parse(name).ok_or(EINVAL)?;
    let net = request.netns();
    let mut added = Err(EEXIST);
    if let Some(name) = text(request, SMC_PNETID_ETHNAME) {
        added = unless_there(
            namespace::within(net)
                .pnet
                .add(pnetid, PnetDevice::Netdev(FixedStr::new(name)?)),
        )?;
    }
    // RDMA devices are named in the initial namespace only.
    let device = text(request, SMC_PNETID_IBNAME).filter(|_| net.is_initial());
    if let Some(device) = device {
        let port = match request.attr(SMC_PNETID_IBPORT) {
            None => 1,
            Some(port) => port.first().copied().ok_or(EINVAL)?,
        };
        if !PORTS.contains(&port) {
            return Err(EINVAL);
        }
        added = unless_there(add_port(pnetid, device.trim_ascii(), port))?.or(added);
    }
    if added.is_ok() {
        paths::forget_all();
    }
    added
}

/// Returns errors other than `EEXIST` in the outer result, which ends the request.
fn unless_there(result: Result) -> Result<Result> {
    match result {
        Err(e) if e != EEXIST => Err(e),
        result => Ok(result),
    }
}

fn add_port(pnetid: PnetId, device: &[u8], port: u8) -> Result {
    // The port may be in the table under the device's other name.
    if ib::pnetid_of_named(device, port.into()).is_some() {
        return Err(EEXIST);
    }
    namespace::within(NetNs::initial())
        .pnet
        .add(pnetid, PnetDevice::Port(FixedStr::new(device)?, port))
}

fn delete(request: &Request<'_>) -> Result {
    let name = text(request, SMC_PNETID_NAME).ok_or(EINVAL)?;
    // A blank name matches no network.
    let pnetid = PnetId::query(name).ok_or(ENOENT)?;
    match namespace::within(request.netns()).pnet.remove(Some(pnetid)) {
        true => {
            paths::forget_all();
            Ok(())
        }
        false => Err(ENOENT),
    }
}

fn flush(request: &Request<'_>) -> Result {
    namespace::within(request.netns()).pnet.remove(None);
    paths::forget_all();
    Ok(())
}

fn get(request: &Request<'_>) -> Result {
    let name = text(request, SMC_PNETID_NAME).ok_or(EINVAL)?;
    let wanted = PnetId::query(name);
    let found = namespace::within(request.netns())
        .pnet
        .list(0, usize::MAX, |e| Some(e.pnetid) == wanted)?;
    request.answer_list(number(SMC_PNETID_GET)?, ENTRY_LEN, &found, put)
}

fn dump(dump: &mut Dump<'_>) -> Result {
    let entries = namespace::within(dump.netns())
        .pnet
        .list(dump.next(), DUMP_BATCH, |_| true)?;
    let records = entries.iter().map(|entry| (entry.serial, entry));
    dump.each(records, |unit, entry| {
        unit.message(number(SMC_PNETID_GET)?, |attrs| put(attrs, entry))
    })
}

fn put(attrs: &mut Attrs<'_>, entry: &PnetEntry) -> Result {
    /// Placeholders for a missing name and its port.
    const NO_NAME: &[u8] = b"n/a";
    const NO_PORT: u8 = 0xff;
    attrs.string(SMC_PNETID_NAME, entry.pnetid.as_bytes())?;
    let (netdev, device, port) = match &entry.place {
        PnetDevice::Netdev(name) => (name.as_bytes(), NO_NAME, NO_PORT),
        PnetDevice::Port(name, port) => (NO_NAME, name.as_bytes(), *port),
    };
    attrs.string(SMC_PNETID_ETHNAME, netdev)?;
    attrs.string(SMC_PNETID_IBNAME, device)?;
    attrs.u8(SMC_PNETID_IBPORT, port)
}
