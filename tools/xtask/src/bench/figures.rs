// SPDX-License-Identifier: GPL-2.0
//! The results of all rounds, and their medians.

use std::collections::BTreeMap;

use anyhow::{bail, Context, Result};

use super::System;

/// A measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    BulkGbps,
    PingpongUs,
    ConnsPerS,
    ConnsPerS8,
    LlcPerConn,
    IdleConnKib,
    /// With this many connections.
    ManyGbps(u32),
}

impl Key {
    /// Parses the name that the script uses.
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "bulk_gbps" => Self::BulkGbps,
            "pingpong_64b_us" => Self::PingpongUs,
            "conns_per_s" => Self::ConnsPerS,
            "conns_per_s_8" => Self::ConnsPerS8,
            "llc_per_conn" => Self::LlcPerConn,
            "idle_conn_kib" => Self::IdleConnKib,
            other => match other.strip_prefix("many_gbps.") {
                Some(count) => Self::ManyGbps(count.parse()?),
                None => bail!("unknown figure `{other}`"),
            },
        })
    }

    /// Returns its key in the report; quantities of many connections share one.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::BulkGbps => "bulk_gbps",
            Self::PingpongUs => "pingpong_64b_us",
            Self::ConnsPerS => "conns_per_s",
            Self::ConnsPerS8 => "conns_per_s_8",
            Self::LlcPerConn => "llc_per_conn",
            Self::IdleConnKib => "idle_conn_kib",
            Self::ManyGbps(_) => "many_gbps",
        }
    }

    /// Returns the description, with the unit.
    pub(super) fn words(self) -> String {
        match self {
            Self::BulkGbps => "iperf3, one stream, Gb/s".to_owned(),
            Self::PingpongUs => "64 B there and back, us".to_owned(),
            Self::ConnsPerS => "connections/s, 1 process".to_owned(),
            Self::ConnsPerS8 => "connections/s, 8 processes".to_owned(),
            Self::LlcPerConn => "LLC messages/connection".to_owned(),
            Self::IdleConnKib => "idle connection, KiB".to_owned(),
            Self::ManyGbps(1) => "1 connection, Gb/s".to_owned(),
            Self::ManyGbps(count) => format!("{count} connections, Gb/s"),
        }
    }

    /// Returns whether lower is better.
    pub(super) fn is_cost(self) -> bool {
        matches!(
            self,
            Self::PingpongUs | Self::LlcPerConn | Self::IdleConnKib
        )
    }

    /// Returns whether it may be zero, as counts are.
    fn may_be_zero(self) -> bool {
        self == Self::LlcPerConn
    }
}

/// All values by system and key.
#[derive(Default)]
pub(super) struct Figures(BTreeMap<(System, Key), Vec<f64>>);

impl Figures {
    /// Adds the output of one run of the script.
    pub(super) fn add(&mut self, system: System, text: &str) -> Result<()> {
        for line in text.lines() {
            let wrong = || format!("not a figure: `{line}`");
            let (name, value) = line.split_once(' ').with_context(wrong)?;
            let value: f64 = value.trim().parse().with_context(wrong)?;
            let key = Key::parse(name).with_context(wrong)?;
            let is_enough = value > 0.0 || (value == 0.0 && key.may_be_zero());
            if !value.is_finite() || !is_enough {
                bail!(wrong());
            }
            self.0.entry((system, key)).or_default().push(value);
        }
        Ok(())
    }

    /// Returns the quantities that were measured for at least one system.
    pub(super) fn keys(&self) -> Vec<Key> {
        let mut keys: Vec<Key> = self.0.keys().map(|(_, key)| *key).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// Returns the median.
    pub(super) fn median(&self, system: System, key: Key) -> Option<f64> {
        median(self.0.get(&(system, key))?)
    }

    /// Returns the difference between minimum and maximum, relative to the median.
    pub(super) fn spread(&self, system: System, key: Key) -> Option<f64> {
        spread(self.0.get(&(system, key))?)
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

/// Returns the median.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let at = |i: usize| sorted.get(i).copied();
    let middle = sorted.len() / 2;
    match sorted.len() % 2 {
        0 => Some((at(middle.checked_sub(1)?)? + at(middle)?) / 2.0),
        _ => at(middle),
    }
}

/// Returns the difference between minimum and maximum, relative to the median.
pub(super) fn spread(values: &[f64]) -> Option<f64> {
    let sorted = sorted(values);
    let range = sorted.last()? - sorted.first()?;
    match median(values)? {
        0.0 => None,
        median => Some(range / median),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_odd_and_even_counts() {
        let mut all = Figures::default();
        for value in ["3.0", "1.0", "10"] {
            all.add(System::Tcp, &format!("bulk_gbps {value}\n"))
                .unwrap();
        }
        assert_eq!(all.median(System::Tcp, Key::BulkGbps), Some(3.0));
        assert_eq!(all.spread(System::Tcp, Key::BulkGbps), Some(3.0));
        all.add(System::Tcp, "bulk_gbps 5").unwrap();
        assert_eq!(all.median(System::Tcp, Key::BulkGbps), Some(4.0));
        assert_eq!(all.median(System::Ours, Key::BulkGbps), None);
    }

    #[test]
    fn what_is_counted_may_be_zero() {
        let mut all = Figures::default();
        all.add(System::Ours, "llc_per_conn 0.000").unwrap();
        assert_eq!(all.median(System::Ours, Key::LlcPerConn), Some(0.0));
        assert_eq!(all.spread(System::Ours, Key::LlcPerConn), None);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        let mut all = Figures::default();
        for text in [
            "bulk_gbps",
            "bulk_gbps x",
            "bulk_gbps 0",
            "bulk_gbps NaN",
            "bulky 1",
            "many_gbps.x 1",
            "llc_per_conn -1",
        ] {
            assert!(all.add(System::Ours, text).is_err(), "{text}");
        }
    }
}
