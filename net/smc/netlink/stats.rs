// SPDX-License-Identifier: GPL-2.0

//! The counters of a namespace (C file `smc_stats.c`).

use kernel_ext::{
    genl::{
        Attrs,
        Dump, //
    },
    prelude::*,
    uapi::*, //
};
use smc_proto::reason::Reason;

use crate::{
    namespace,
    stats::{
        Buffers,
        Counter,
        Stats,
        Technology,
        SIZES, //
    }, //
};

pub(super) fn dump(dump: &mut Dump<'_>) -> Result {
    let namespace = namespace::within(dump.netns());
    let stats = &namespace.stats;
    dump.each([(0, ())], |unit, ()| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_STATS, |attrs| put(attrs, stats))
        })
    })
}

fn put(attrs: &mut Attrs<'_>, stats: &Stats) -> Result {
    attrs.nest(SMC_NLA_STATS_SMCD_TECH, |a| put_tech(a, &stats.smcd))?;
    attrs.nest(SMC_NLA_STATS_SMCR_TECH, |a| put_tech(a, &stats.smcr))?;
    let pad = SMC_NLA_STATS_PAD;
    attrs.u64(
        SMC_NLA_STATS_CLNT_HS_ERR_CNT,
        stats.client.errors.get(),
        pad,
    )?;
    attrs.u64(SMC_NLA_STATS_SRV_HS_ERR_CNT, stats.server.errors.get(), pad)
}

/// Adds the counters of one technology.
fn put_tech(attrs: &mut Attrs<'_>, stats: &Technology) -> Result {
    let (sends, receives) = (&stats.send_buffers, &stats.rmbs);
    attrs.nest(SMC_NLA_STATS_T_TX_RMB_STATS, |a| put_buffers(a, sends))?;
    attrs.nest(SMC_NLA_STATS_T_RX_RMB_STATS, |a| put_buffers(a, receives))?;
    let sizes = [
        (SMC_NLA_STATS_T_TXPLOAD_SIZE, &stats.sent.sizes),
        (SMC_NLA_STATS_T_RXPLOAD_SIZE, &stats.received.sizes),
        (SMC_NLA_STATS_T_TX_RMB_SIZE, &sends.sizes),
        (SMC_NLA_STATS_T_RX_RMB_SIZE, &receives.sizes),
    ];
    for (nest, sizes) in sizes {
        attrs.nest(nest, |attrs| put_sizes(attrs, sizes))?;
    }
    put_counters(attrs, &CONNECTIONS, stats)?;
    attrs.uint(SMC_NLA_STATS_T_RX_RMB_USAGE, receives.in_use.get())?;
    attrs.uint(SMC_NLA_STATS_T_TX_RMB_USAGE, sends.in_use.get())?;
    put_counters(attrs, &CALLS, stats)
}

/// An attribute and its value, if that is counted here.
type Field = (u32, Option<fn(&Technology) -> u64>);

/// In the order of the C module, like the next table.
const CONNECTIONS: [Field; 6] = [
    (SMC_NLA_STATS_T_CLNT_V1_SUCC, Some(|s| s.client.v1.get())),
    (SMC_NLA_STATS_T_CLNT_V2_SUCC, Some(|s| s.client.v2.get())),
    (SMC_NLA_STATS_T_SRV_V1_SUCC, Some(|s| s.server.v1.get())),
    (SMC_NLA_STATS_T_SRV_V2_SUCC, Some(|s| s.server.v2.get())),
    (SMC_NLA_STATS_T_RX_BYTES, Some(|s| s.received.bytes.get())),
    (SMC_NLA_STATS_T_TX_BYTES, Some(|s| s.sent.bytes.get())),
];

const CALLS: [Field; 7] = [
    (SMC_NLA_STATS_T_RX_CNT, Some(|s| s.received.calls())),
    (SMC_NLA_STATS_T_TX_CNT, Some(|s| s.sent.calls())),
    // The kernel has no sendpage any more.
    (SMC_NLA_STATS_T_SENDPAGE_CNT, None),
    (SMC_NLA_STATS_T_CORK_CNT, Some(|s| s.uncorked.get())),
    (SMC_NLA_STATS_T_NDLY_CNT, Some(|s| s.nodelay.get())),
    // splice(2) uses our recvmsg.
    (SMC_NLA_STATS_T_SPLICE_CNT, None),
    (SMC_NLA_STATS_T_URG_DATA_CNT, Some(|s| s.urgent.get())),
];

fn put_counters(attrs: &mut Attrs<'_>, fields: &[Field], stats: &Technology) -> Result {
    for (attr, counter) in fields {
        let count = counter.map_or(0, |counter| counter(stats));
        attrs.u64(*attr, count, SMC_NLA_STATS_PAD)?;
    }
    Ok(())
}

fn put_buffers(attrs: &mut Attrs<'_>, buffers: &Buffers) -> Result {
    let fields: [(u32, fn(&Buffers) -> &Counter); 7] = [
        (SMC_NLA_STATS_RMB_REUSE_CNT, |b| &b.reused),
        (SMC_NLA_STATS_RMB_SIZE_SM_PEER_CNT, |b| &b.peer_small),
        (SMC_NLA_STATS_RMB_SIZE_SM_CNT, |b| &b.small),
        (SMC_NLA_STATS_RMB_FULL_PEER_CNT, |b| &b.peer_full),
        (SMC_NLA_STATS_RMB_FULL_CNT, |b| &b.full),
        (SMC_NLA_STATS_RMB_ALLOC_CNT, |b| &b.made),
        (SMC_NLA_STATS_RMB_DGRADE_CNT, |b| &b.shrunk),
    ];
    for (attr, counter) in fields {
        attrs.u64(attr, counter(buffers).get(), SMC_NLA_STATS_RMB_PAD)?;
    }
    Ok(())
}

fn put_sizes(attrs: &mut Attrs<'_>, sizes: &[Counter; SIZES]) -> Result {
    // The attributes are consecutive.
    for (attr, count) in (SMC_NLA_STATS_PLOAD_8K..).zip(sizes) {
        attrs.u64(attr, count.get(), SMC_NLA_STATS_PLOAD_PAD)?;
    }
    Ok(())
}

/// Dumps the reasons for fallbacks, one per message, and the totals in the first.
pub(super) fn dump_fallbacks(dump: &mut Dump<'_>) -> Result {
    let namespace = namespace::within(dump.netns());
    let stats = &namespace.stats;
    let (server, client) = (&stats.server.fallbacks, &stats.client.fallbacks);
    let mut is_first = dump.next() == 0;
    let records = (0..).zip(Reason::ALL).flat_map(|(i, reason)| {
        let count = move |counters: &[Counter]| counters.get(i).map_or(0, Counter::get);
        [
            (2 * i as u64, (1, *reason, count(&server.by_reason))),
            (2 * i as u64 + 1, (0, *reason, count(&client.by_reason))),
        ]
    });
    let records = records.filter(|(_, (_, _, count))| *count > 0);
    dump.each(records, |unit, (end, reason, count)| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_FBACK_STATS, |attrs| {
                attrs.u8(SMC_NLA_FBACK_STATS_TYPE, end)?;
                if is_first {
                    let pad = SMC_NLA_FBACK_STATS_PAD;
                    attrs.u64(SMC_NLA_FBACK_STATS_SRV_CNT, server.total.get(), pad)?;
                    attrs.u64(SMC_NLA_FBACK_STATS_CLNT_CNT, client.total.get(), pad)?;
                }
                attrs.u32(SMC_NLA_FBACK_STATS_RSN_CODE, reason.code())?;
                let pad = SMC_NLA_FBACK_STATS_PAD;
                attrs.u64(SMC_NLA_FBACK_STATS_RSN_TOTAL, count, pad)?;
                // Saturates at the attribute's maximum.
                let count = u16::try_from(count).unwrap_or(u16::MAX);
                attrs.u16(SMC_NLA_FBACK_STATS_RSN_CNT, count)
            })
        })?;
        is_first = false;
        Ok(())
    })
}
