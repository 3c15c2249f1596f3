// SPDX-License-Identifier: GPL-2.0

//! SMC-D within this kernel, of the whole host (C function `smcd_nl_get_lgr`): all connections are shown as members of
//! one link group. The emulated device itself is not shown, as by the C module.

use kernel_ext::{
    genl::Dump,
    prelude::*,
    uapi::*, //
};
use smc_proto::{
    handshake::RELEASE,
    smcd::CHID,
    wire::{
        clc::OsType,
        Version, //
    }, //
};

use super::trim_nul;
use crate::{
    local::LOCAL,
    smcd, //
};

pub(super) fn dump(dump: &mut Dump<'_>) -> Result {
    let (connections, Some(device)) = (smcd::connections(), smcd::own_gid()) else {
        return Ok(());
    };
    let records = (connections > 0).then_some((0, ()));
    dump.each(records, |unit, ()| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_LGR_SMCD, |attrs| {
                let pad = SMC_NLA_LGR_D_PAD;
                attrs.u32(SMC_NLA_LGR_D_ID, smcd::group_id())?;
                attrs.u64(SMC_NLA_LGR_D_GID, device.gid, pad)?;
                attrs.u64(SMC_NLA_LGR_D_EXT_GID, device.gid_ext, pad)?;
                attrs.u64(SMC_NLA_LGR_D_PEER_GID, device.gid, pad)?;
                attrs.u64(SMC_NLA_LGR_D_PEER_EXT_GID, device.gid_ext, pad)?;
                attrs.u8(SMC_NLA_LGR_D_VLAN_ID, 0)?;
                let connections = u32::try_from(connections).unwrap_or(u32::MAX);
                attrs.u32(SMC_NLA_LGR_D_CONNS_NUM, connections)?;
                attrs.u32(SMC_NLA_LGR_D_CHID, CHID.into())?;
                // The peer reads where this end writes.
                attrs.uint(SMC_NLA_LGR_D_SNDBUF_ALLOC, 0)?;
                attrs.uint(SMC_NLA_LGR_D_DMB_ALLOC, smcd::ring_bytes())?;
                attrs.string(SMC_NLA_LGR_D_PNETID, &[])?;
                attrs.nest(SMC_NLA_LGR_D_V2_COMMON, |attrs| {
                    attrs.u8(SMC_NLA_LGR_V2_VER, Version::V2.number())?;
                    attrs.u8(SMC_NLA_LGR_V2_REL, RELEASE.number())?;
                    attrs.u8(SMC_NLA_LGR_V2_OS, OsType::LINUX.number())?;
                    let local = LOCAL.get();
                    let hostname = local.as_ref().map(|local| local.hostname.0);
                    let hostname = hostname.as_ref().map_or(&[][..], |name| trim_nul(name));
                    attrs.string(SMC_NLA_LGR_V2_PEER_HOST, hostname)?;
                    // Both ends have the same list, of which they agree on the first.
                    let eid =
                        local.and_then(|local| local.ueids.lock().as_slice().first().copied());
                    let eid = eid.as_ref().map_or(&[][..], |eid| trim_nul(&eid.0));
                    attrs.string(SMC_NLA_LGR_V2_NEG_EID, eid)
                })
            })
        })
    })
}
