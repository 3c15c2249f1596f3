// SPDX-License-Identifier: GPL-2.0

//! Decoding of a [`Proposal`].

use crate::error::Malformed;
use crate::id::Features;
use crate::wire::clc::{
    open,
    ClcType,
    Release, //
};
use crate::wire::{
    Reader,
    Version, //
};

use super::{
    raw,
    IpPrefix,
    Proposal,
    ProposedModes,
    SmcTypes,
    SmcdV2Ext,
    SmcdV2Offer,
    V1Offer,
    V2Offer,
    V2SmcTypes, //
};

pub(super) fn proposal(bytes: &[u8]) -> Result<Proposal<'_>, Malformed> {
    let (header, mut reader) = open(bytes, ClcType::Proposal)?;
    let base: &raw::Base = reader.take()?;
    let prefix_offset = usize::from(base.prefix_offset.get());
    if prefix_offset > raw::AREA_LEN {
        return Err(Malformed::Offset);
    }
    let types_v1 = SmcTypes::from_bits(header.type_v1());
    let modes = match header.version() {
        Version::V1 => version_1(&mut reader, types_v1, prefix_offset)?,
        Version::V2 => {
            let types_v2 = SmcTypes::from_bits(header.type_v2());
            version_2(&mut reader, types_v1, types_v2, prefix_offset)?
        }
    };
    reader.finish()?;
    Ok(Proposal {
        peer_id: base.peer_id,
        gid: base.gid,
        mac: base.mac,
        modes,
    })
}

fn version_1<'a>(
    reader: &mut Reader<'a>,
    types_v1: Option<SmcTypes>,
    prefix_offset: usize,
) -> Result<ProposedModes<'a>, Malformed> {
    let technologies = types_v1.ok_or(Malformed::Technology)?;
    let area = if prefix_offset == raw::AREA_LEN {
        Some(smcd_area(reader.take()?))
    } else {
        reader.skip(prefix_offset)?;
        None
    };
    let v1 = V1Offer {
        technologies,
        prefix: ip_prefix(reader)?,
    };
    Ok(ProposedModes::V1 { v1, area })
}

fn version_2<'a>(
    reader: &mut Reader<'a>,
    types_v1: Option<SmcTypes>,
    types_v2: Option<SmcTypes>,
    prefix_offset: usize,
) -> Result<ProposedModes<'a>, Malformed> {
    let area: &raw::Area = reader.take()?;
    let behind_area = reader.remaining();
    let v1 = match types_v1 {
        None => None,
        // The area is always present in this form, so the prefixes can only follow it.
        Some(_) if prefix_offset != raw::AREA_LEN => return Err(Malformed::Offset),
        Some(technologies) => Some(V1Offer {
            technologies,
            prefix: ip_prefix(reader)?,
        }),
    };
    let v2 = match types_v2 {
        None => None,
        Some(technologies) => {
            let passed = behind_area.saturating_sub(reader.remaining());
            if usize::from(area.v2_offset.get()) != passed.saturating_add(raw::AREA_TAIL) {
                return Err(Malformed::Offset);
            }
            Some(v2_offer(reader, technologies)?)
        }
    };
    Ok(ProposedModes::V2 {
        v1,
        area: smcd_area(area),
        v2,
    })
}

fn smcd_area(raw: &raw::Area) -> SmcdV2Ext {
    SmcdV2Ext {
        ism: raw.ism,
        vendor_oui: raw.vendor_oui,
        vendor_options: raw.vendor_options,
    }
}

fn ip_prefix<'a>(reader: &mut Reader<'a>) -> Result<IpPrefix<'a>, Malformed> {
    let head: &raw::Prefix = reader.take()?;
    if head.v6_count == 0 {
        return Ok(IpPrefix::V4 {
            subnet: head.subnet,
            len: head.len,
        });
    }
    Ok(IpPrefix::V6(reader.list(usize::from(head.v6_count))?))
}

fn v2_offer<'a>(reader: &mut Reader<'a>, technologies: SmcTypes) -> Result<V2Offer<'a>, Malformed> {
    let head: &raw::V2 = reader.take()?;
    let behind_head = reader.remaining();
    let eids = reader.list(usize::from(head.eid_count))?;
    let eids_len = behind_head.saturating_sub(reader.remaining());
    let technologies = match technologies {
        SmcTypes::SmcR => V2SmcTypes::SmcR,
        SmcTypes::SmcD => V2SmcTypes::SmcD(smcd_v2_offer(reader, head, eids_len)?),
        SmcTypes::Both => V2SmcTypes::Both(smcd_v2_offer(reader, head, eids_len)?),
    };
    Ok(V2Offer {
        technologies,
        release: Release::from_nibble(head.release_seid >> 4),
        gid: head.gid,
        raw_limits: head.limits,
        features: Features(head.features.get()),
        eids,
        seid: head.release_seid & raw::SEID != 0,
    })
}

fn smcd_v2_offer<'a>(
    reader: &mut Reader<'a>,
    head: &raw::V2,
    eids_len: usize,
) -> Result<SmcdV2Offer<'a>, Malformed> {
    if usize::from(head.smcd_offset.get()) != eids_len.saturating_add(raw::V2_TAIL) {
        return Err(Malformed::Offset);
    }
    let smcd: &raw::SmcdV2 = reader.take()?;
    Ok(SmcdV2Offer {
        seid: smcd.seid,
        devices: reader.list(usize::from(head.device_count))?,
    })
}
