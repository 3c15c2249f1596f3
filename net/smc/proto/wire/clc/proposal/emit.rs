// SPDX-License-Identifier: GPL-2.0

//! Encoding of a [`Proposal`].

use zerocopy::byteorder::big_endian::U16;

use crate::id::Ipv4;
use crate::wire::clc::{
    begin,
    ClcType,
    SMCR,
    TRAILER_LEN, //
};
use crate::wire::{
    List,
    NoSpace,
    Writer, //
};

use super::{
    raw,
    IpPrefix,
    Proposal,
    ProposedModes,
    SmcTypes,
    SmcdV2Ext,
    V1Offer,
    V2Offer, //
};

pub(super) fn proposal<'b>(this: &Proposal<'_>, buf: &'b mut [u8]) -> Result<&'b [u8], NoSpace> {
    let types = SmcTypes::bits(this.v1().map(|v1| v1.technologies));
    let types = match &this.modes {
        // Reserved in the version 1 form.
        ProposedModes::V1 { .. } => types,
        ProposedModes::V2 { v2, .. } => {
            SmcTypes::bits(v2.map(|v2| v2.technologies.technologies())) << 2 | types
        }
    };
    let prefix_len = this.v1().map_or(0, |v1| ip_prefix_len(&v1.prefix));
    let area_len = this.area().map_or(0, |_| raw::AREA_LEN);
    let len = [
        raw::BASE_END,
        area_len,
        prefix_len,
        this.v2().map_or(0, v2_len),
        TRAILER_LEN,
    ]
    .into_iter()
    .fold(0, usize::saturating_add);

    let mut writer = begin(buf, ClcType::Proposal, this.version(), types, SMCR, len)?;
    writer.put(&raw::Base {
        peer_id: this.peer_id,
        gid: this.gid,
        mac: this.mac,
        prefix_offset: be16(this.v1().map_or(0, |_| area_len)),
    })?;
    if let Some(area) = this.area() {
        // Offset of the version 2 extension, if there is one.
        let offset = this
            .v2()
            .map_or(0, |_| prefix_len.saturating_add(raw::AREA_TAIL));
        smcd_area(&mut writer, area, offset)?;
    }
    if let Some(v1) = this.v1() {
        v1_offer(&mut writer, v1)?;
    }
    if let Some(v2) = this.v2() {
        v2_offer(&mut writer, v2)?;
    }
    writer.put(&SMCR)?;
    writer.finish()
}

fn smcd_area(writer: &mut Writer<'_>, area: &SmcdV2Ext, v2_offset: usize) -> Result<(), NoSpace> {
    writer.put(&raw::Area {
        ism: area.ism,
        v2_offset: be16(v2_offset),
        vendor_oui: area.vendor_oui,
        vendor_options: area.vendor_options,
        reserved: [0; 20],
    })
}

fn v1_offer(writer: &mut Writer<'_>, v1: &V1Offer<'_>) -> Result<(), NoSpace> {
    let (subnet, len, prefixes) = match v1.prefix {
        IpPrefix::V4 { subnet, len } => (subnet, len, List::EMPTY),
        IpPrefix::V6(prefixes) => (Ipv4::default(), 0, prefixes),
    };
    writer.put(&raw::Prefix {
        subnet,
        len,
        reserved: [0; 2],
        v6_count: prefixes.count(),
    })?;
    writer.put(prefixes.as_slice())
}

fn v2_offer(writer: &mut Writer<'_>, v2: &V2Offer<'_>) -> Result<(), NoSpace> {
    let smcd = v2.technologies.smcd();
    let smcd_offset = smcd.map_or(0, |_| {
        size_of_val(v2.eids.as_slice()).saturating_add(raw::V2_TAIL)
    });
    writer.put(&raw::V2 {
        eid_count: v2.eids.count(),
        device_count: smcd.map_or(0, |smcd| smcd.devices.count()),
        reserved: 0,
        release_seid: v2.release.number() << 4 | if v2.seid { raw::SEID } else { 0 },
        reserved2: [0; 2],
        smcd_offset: be16(smcd_offset),
        gid: v2.gid,
        limits: v2.raw_limits,
        features: U16::new(v2.features.0),
        reserved3: [0; 12],
    })?;
    writer.put(v2.eids.as_slice())?;
    if let Some(smcd) = smcd {
        writer.put(&raw::SmcdV2 {
            seid: smcd.seid,
            reserved: [0; 16],
        })?;
        writer.put(smcd.devices.as_slice())?;
    }
    Ok(())
}

fn ip_prefix_len(prefix: &IpPrefix<'_>) -> usize {
    match prefix {
        IpPrefix::V4 { .. } => raw::PREFIX_LEN,
        IpPrefix::V6(prefixes) => size_of_val(prefixes.as_slice()).saturating_add(raw::PREFIX_LEN),
    }
}

fn v2_len(v2: &V2Offer<'_>) -> usize {
    let smcd = v2.technologies.smcd().map_or(0, |smcd| {
        size_of_val(smcd.devices.as_slice()).saturating_add(raw::SMCD_V2_LEN)
    });
    [raw::V2_LEN, size_of_val(v2.eids.as_slice()), smcd]
        .into_iter()
        .fold(0, usize::saturating_add)
}

/// Converts an offset or length within a message, of which the longest has 652 bytes.
fn be16(value: usize) -> U16 {
    U16::new(u16::try_from(value).unwrap_or(u16::MAX))
}
