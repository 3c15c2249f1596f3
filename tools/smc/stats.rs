// SPDX-License-Identifier: GPL-2.0

//! The counters of a network namespace (`SMC_GEN_NETLINK`), as records.

use std::io;

use serde::Deserialize;
use serde::Serialize;
use smc_uapi::*;

use crate::view::Attributes;
use crate::view::Module;

/// Number of size classes: up to 8 KiB, 16 KiB and so on up to 1 MiB, and above.
pub const SIZES: usize = 9;

/// All counters.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Stats {
    /// SMC-D.
    pub smcd: Technology,
    /// SMC-R.
    pub smcr: Technology,
    /// Failed handshakes as client.
    pub client_errors: u64,
    /// Failed handshakes as server.
    pub server_errors: u64,
    /// Fallbacks to TCP.
    pub fallbacks: Fallbacks,
}

/// The counters of one technology.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Technology {
    /// Connections as client, version 1.
    pub client_v1: u64,
    /// Connections as client, version 2.
    pub client_v2: u64,
    /// Connections as server, version 1.
    pub server_v1: u64,
    /// Connections as server, version 2.
    pub server_v2: u64,
    /// Sent to the peer.
    pub sent: Direction,
    /// Received from the peer.
    pub received: Direction,
    /// Calls that cleared TCP_CORK.
    pub cork: u64,
    /// Calls that set TCP_NODELAY.
    pub nodelay: u64,
    /// Calls of sendpage, which newer kernels lack.
    pub sendpage: u64,
    /// Calls of splice.
    pub splice: u64,
    /// Calls with urgent data.
    pub urgent: u64,
}

/// The counters of one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Direction {
    /// Bytes transferred.
    pub bytes: u64,
    /// Calls to send or receive.
    pub calls: u64,
    /// Calls by size class.
    pub call_sizes: [u64; SIZES],
    /// Size of the buffers in use, bytes.
    pub buffer_bytes: u64,
    /// Buffers by size class.
    pub buffer_sizes: [u64; SIZES],
    /// Buffers allocated.
    pub buffers_made: u64,
    /// Buffers reused.
    pub buffers_reused: u64,
    /// Buffers smaller than requested, for lack of memory.
    pub buffers_downgraded: u64,
    /// Number of times that the own buffer was full.
    pub full: u64,
    /// Number of times that the peer's buffer was full.
    pub peer_full: u64,
    /// Calls with more bytes than the buffer has.
    pub too_small: u64,
    /// Calls with more bytes than the peer's buffer has.
    pub peer_too_small: u64,
}

/// Connections that fell back to TCP, by role and by reason.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fallbacks {
    /// Connections as client.
    pub client: u64,
    /// Connections as server.
    pub server: u64,
    /// Counts for each reason.
    pub reasons: Vec<Fallback>,
}

/// Fallbacks for one reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fallback {
    /// `client` or `server`.
    pub end: String,
    /// The reason code.
    pub code: u32,
    /// The description of the reason.
    pub reason: String,
    /// Number of fallbacks.
    pub count: u64,
}

impl Fallbacks {
    /// Takes over one message.
    fn take(&mut self, attributes: Attributes<'_>) {
        self.server += attributes.number(SMC_NLA_FBACK_STATS_SRV_CNT);
        self.client += attributes.number(SMC_NLA_FBACK_STATS_CLNT_CNT);
        // CAST: the attribute has four bytes.
        let code = attributes.number(SMC_NLA_FBACK_STATS_RSN_CODE) as u32;
        let count = attributes.uncut(SMC_NLA_FBACK_STATS_RSN_TOTAL, SMC_NLA_FBACK_STATS_RSN_CNT);
        if count > 0 {
            self.reasons.push(Fallback {
                end: ["client", "server"]
                    [usize::from(attributes.number(SMC_NLA_FBACK_STATS_TYPE) == 1)]
                .to_string(),
                code,
                reason: crate::path::in_words(code),
                count,
            });
        }
    }
}

fn sizes(nest: Option<Attributes<'_>>) -> [u64; SIZES] {
    std::array::from_fn(|i| {
        // CAST: a small number; attributes count from 1.
        nest.map_or(0, |nest| nest.number(i as u16 + 1))
    })
}

impl Technology {
    /// Returns the number of connections as client.
    pub fn client_connections(&self) -> u64 {
        self.client_v1 + self.client_v2
    }

    /// Returns the number of connections as server.
    pub fn server_connections(&self) -> u64 {
        self.server_v1 + self.server_v2
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> u64 {
        self.client_connections() + self.server_connections()
    }

    /// Returns whether it was ever used.
    pub fn is_used(&self) -> bool {
        self.connections() + self.sent.calls + self.received.calls > 0
    }

    fn of(attributes: Attributes<'_>) -> Self {
        let number = |kind| attributes.number(kind);
        let direction = |[bytes, calls, call_sizes, usage, buffer_sizes, buffers]: [u16; 6]| {
            let counts = attributes.nest(buffers);
            let count = |kind| counts.map_or(0, |counts| counts.number(kind));
            Direction {
                bytes: number(bytes),
                calls: number(calls),
                call_sizes: sizes(attributes.nest(call_sizes)),
                buffer_bytes: number(usage),
                buffer_sizes: sizes(attributes.nest(buffer_sizes)),
                buffers_made: count(SMC_NLA_STATS_RMB_ALLOC_CNT),
                buffers_reused: count(SMC_NLA_STATS_RMB_REUSE_CNT),
                buffers_downgraded: count(SMC_NLA_STATS_RMB_DGRADE_CNT),
                full: count(SMC_NLA_STATS_RMB_FULL_CNT),
                peer_full: count(SMC_NLA_STATS_RMB_FULL_PEER_CNT),
                too_small: count(SMC_NLA_STATS_RMB_SIZE_SM_CNT),
                peer_too_small: count(SMC_NLA_STATS_RMB_SIZE_SM_PEER_CNT),
            }
        };
        Self {
            client_v1: number(SMC_NLA_STATS_T_CLNT_V1_SUCC),
            client_v2: number(SMC_NLA_STATS_T_CLNT_V2_SUCC),
            server_v1: number(SMC_NLA_STATS_T_SRV_V1_SUCC),
            server_v2: number(SMC_NLA_STATS_T_SRV_V2_SUCC),
            sent: direction([
                SMC_NLA_STATS_T_TX_BYTES,
                SMC_NLA_STATS_T_TX_CNT,
                SMC_NLA_STATS_T_TXPLOAD_SIZE,
                SMC_NLA_STATS_T_TX_RMB_USAGE,
                SMC_NLA_STATS_T_TX_RMB_SIZE,
                SMC_NLA_STATS_T_TX_RMB_STATS,
            ]),
            received: direction([
                SMC_NLA_STATS_T_RX_BYTES,
                SMC_NLA_STATS_T_RX_CNT,
                SMC_NLA_STATS_T_RXPLOAD_SIZE,
                SMC_NLA_STATS_T_RX_RMB_USAGE,
                SMC_NLA_STATS_T_RX_RMB_SIZE,
                SMC_NLA_STATS_T_RX_RMB_STATS,
            ]),
            cork: number(SMC_NLA_STATS_T_CORK_CNT),
            nodelay: number(SMC_NLA_STATS_T_NDLY_CNT),
            sendpage: number(SMC_NLA_STATS_T_SENDPAGE_CNT),
            splice: number(SMC_NLA_STATS_T_SPLICE_CNT),
            urgent: number(SMC_NLA_STATS_T_URG_DATA_CNT),
        }
    }
}

impl Module {
    /// Returns all counters.
    pub fn stats(&mut self) -> io::Result<Stats> {
        let fallbacks = self.fallbacks()?;
        let messages = self.dump(SMC_NETLINK_GET_STATS)?;
        let stats = messages.first().and_then(Attributes::of);
        let stats = stats.ok_or(io::ErrorKind::InvalidData)?;
        let technology = |kind| stats.nest(kind).map(Technology::of).unwrap_or_default();
        Ok(Stats {
            smcd: technology(SMC_NLA_STATS_SMCD_TECH),
            smcr: technology(SMC_NLA_STATS_SMCR_TECH),
            client_errors: stats.number(SMC_NLA_STATS_CLNT_HS_ERR_CNT),
            server_errors: stats.number(SMC_NLA_STATS_SRV_HS_ERR_CNT),
            fallbacks,
        })
    }

    fn fallbacks(&mut self) -> io::Result<Fallbacks> {
        let mut fallbacks = Fallbacks::default();
        for message in &self.dump(SMC_NETLINK_GET_FBACK_STATS)? {
            if let Some(attributes) = Attributes::of(message) {
                fallbacks.take(attributes);
            }
        }
        Ok(fallbacks)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;

    #[test]
    fn a_reason_is_counted_beyond_two_bytes() {
        let mut attributes = Vec::new();
        let code = 0x0303_0000_u32.to_ne_bytes();
        put_attribute(&mut attributes, SMC_NLA_FBACK_STATS_RSN_CODE, &code);
        let cut = u16::MAX.to_ne_bytes();
        put_attribute(&mut attributes, SMC_NLA_FBACK_STATS_RSN_CNT, &cut);
        let mut of_c = Fallbacks::default();
        of_c.take(Attributes(&attributes));
        assert_eq!(of_c.reasons[0].count, 65_535);
        let count = 70_000_u64.to_ne_bytes();
        put_attribute(&mut attributes, SMC_NLA_FBACK_STATS_RSN_TOTAL, &count);
        let mut of_ours = Fallbacks::default();
        of_ours.take(Attributes(&attributes));
        assert_eq!(of_ours.reasons[0].count, 70_000);
    }
}
