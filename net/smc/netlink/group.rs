// SPDX-License-Identifier: GPL-2.0

//! Link groups and their links, of the whole host (C file `smc_core.c`).

use kernel_ext::{
    genl::{
        Attrs,
        Dump,
        DumpRecord, //
    },
    ib::BlockKind,
    prelude::*,
    uapi::*, //
};
use smc_proto::{
    id::LinkUid,
    pnet::PnetId,
    wire::Version, //
};

use super::{
    number,
    trim_nul, //
};
use crate::{
    groups,
    lgr::LinkGroup,
    link::Link, //
};

/// Groups fetched at a time; enough to fill a message.
const DUMP_BATCH: usize = 128;

pub(super) fn dump(dump: &mut Dump<'_>) -> Result {
    each(dump, put_group)
}

pub(super) fn dump_links(dump: &mut Dump<'_>) -> Result {
    each(dump, |unit, group| {
        put_group(unit, group)?;
        let (links, loads) = (group.links(), group.loads());
        let mut links = links.present();
        links.try_for_each(|(idx, link)| put_link(unit, group, link, loads[idx]))
    })
}

fn each<'a>(
    dump: &mut Dump<'a>,
    put: impl Fn(&mut DumpRecord<'_, 'a>, &LinkGroup) -> Result,
) -> Result {
    let groups = groups::list(dump.next(), DUMP_BATCH)?;
    let records = groups.iter().map(|listed| (listed.serial, &listed.group));
    dump.each(records, |unit, group| put(unit, group))
}

fn put_group(unit: &mut DumpRecord<'_, '_>, group: &LinkGroup) -> Result {
    unit.message(number(SMC_NETLINK_GET_LGR_SMCR)?, |attrs| {
        attrs.nest(SMC_GEN_LGR_SMCR, |attrs| {
            put_common(attrs, group)?;
            match group.params.version {
                Version::V1 => Ok(()),
                Version::V2 => put_v2(attrs, group),
            }
        })
    })
}

fn put_common(attrs: &mut Attrs<'_>, group: &LinkGroup) -> Result {
    let params = &group.params;
    attrs.u32(SMC_NLA_LGR_R_ID, group.id)?;
    attrs.u32(SMC_NLA_LGR_R_CONNS_NUM, count(group.len()))?;
    attrs.u8(SMC_NLA_LGR_R_ROLE, params.role.number())?;
    attrs.u8(SMC_NLA_LGR_R_TYPE, group.kind().code())?;
    attrs.u8(SMC_NLA_LGR_R_BUF_TYPE, buf_type(params.buf_type))?;
    // CAST: The attribute has one byte, for the low bits.
    attrs.u8(SMC_NLA_LGR_R_VLAN_ID, params.vlan as u8)?;
    attrs.u16(SMC_NLA_LGR_R_VLAN, params.vlan)?;
    attrs.u64(
        SMC_NLA_LGR_R_NET_COOKIE,
        params.net_cookie,
        SMC_NLA_LGR_R_PAD,
    )?;
    let links = group.links();
    let pnetid = links.iter().flatten().find_map(|link| link.port().pnetid);
    let pnetid = pnetid.as_ref().map_or(&[][..], PnetId::as_bytes);
    attrs.string(SMC_NLA_LGR_R_PNETID, pnetid)?;
    attrs.uint(SMC_NLA_LGR_R_SNDBUF_ALLOC, group.sndbufs.bytes())?;
    attrs.uint(SMC_NLA_LGR_R_RMB_ALLOC, group.rmbs.bytes())
}

fn put_v2(attrs: &mut Attrs<'_>, group: &LinkGroup) -> Result {
    let (params, peer) = (&group.params, group.peer());
    attrs.nest(SMC_NLA_LGR_R_V2_COMMON, |attrs| {
        attrs.u8(SMC_NLA_LGR_V2_VER, params.version.number())?;
        attrs.u8(SMC_NLA_LGR_V2_REL, params.release.number())?;
        attrs.u8(SMC_NLA_LGR_V2_OS, peer.os.number())?;
        attrs.string(SMC_NLA_LGR_V2_PEER_HOST, trim_nul(&peer.hostname.0))?;
        let eid = params.eid.as_ref().map_or(&[][..], |eid| trim_nul(&eid.0));
        attrs.string(SMC_NLA_LGR_V2_NEG_EID, eid)
    })?;
    attrs.nest(SMC_NLA_LGR_R_V2, |attrs| {
        attrs.u8(SMC_NLA_LGR_R_V2_DIRECT, u8::from(params.is_direct))?;
        attrs.u8(SMC_NLA_LGR_R_V2_MAX_CONNS, params.limits.max_conns)?;
        attrs.u8(SMC_NLA_LGR_R_V2_MAX_LINKS, params.limits.max_links)
    })
}

/// Adds a link with `load` connections, unless it has failed.
fn put_link(unit: &mut DumpRecord<'_, '_>, group: &LinkGroup, link: &Link, load: usize) -> Result {
    let (info, port) = (link.info(), link.port());
    let Some(device) = info.device.filter(|_| info.state.is_usable()) else {
        return Ok(());
    };
    let netdev = device.port_netdev(port.port);
    unit.message(number(SMC_NETLINK_GET_LINK_SMCR)?, |attrs| {
        attrs.nest(SMC_GEN_LINK_SMCR, |attrs| {
            attrs.u8(SMC_NLA_LINK_ID, info.number.0)?;
            attrs.u32(SMC_NLA_LINK_STATE, info.state.code().into())?;
            attrs.u32(SMC_NLA_LINK_CONN_CNT, count(load))?;
            attrs.u8(SMC_NLA_LINK_IB_PORT, number(port.port)?)?;
            attrs.u32(SMC_NLA_LINK_NET_DEV, netdev.map_or(0, |dev| dev.ifindex))?;
            attrs.string(SMC_NLA_LINK_IB_DEV, device.name().as_bytes())?;
            attrs.u32(SMC_NLA_LINK_UID, raw(group.link_uid(info.number)))?;
            attrs.u32(SMC_NLA_LINK_PEER_UID, raw(info.peer_uid))?;
            attrs.string(SMC_NLA_LINK_GID, &port.gid.text())?;
            attrs.string(SMC_NLA_LINK_PEER_GID, &info.peer_gid.text())?;
            attrs.u8(SMC_NLA_LINK_TRAFFIC_CLASS, link.traffic_class())
        })
    })
}

/// Returns the four bytes as on the wire, as a native integer.
fn raw(uid: LinkUid) -> u32 {
    u32::from_ne_bytes(uid.0.to_be_bytes())
}

/// Returns the value of smcr_buf_type (C: `enum smcr_buf_type`).
fn buf_type(kind: BlockKind) -> u8 {
    match kind {
        BlockKind::Contiguous => 0,
        BlockKind::Virtual => 1,
        BlockKind::Either => 2,
    }
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
