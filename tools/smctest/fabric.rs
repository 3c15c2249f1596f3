// SPDX-License-Identifier: GPL-2.0

//! RDMA devices as the kernel shows them: which of them have a link, and how much they have sent.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::view::Module;

use crate::context::CALL_TIMEOUT;

/// Interval between checks.
const LOOK: Duration = Duration::from_millis(50);

/// Consecutive checks that must succeed: a link that was just created may not have been tested yet.
const LOOKS: usize = 3;

/// Allowed deviation from an equal share of the bytes sent, percent: the first link also carries LLC messages. The
/// numbers of connections differ by one at most.
const UNEVEN: u64 = 20;

/// The devices of several machines, each with one link once recovery is complete.
pub(crate) struct Fabric {
    machines: Vec<Vec<String>>,
}

impl Fabric {
    /// Takes the device names, one string per machine.
    pub(crate) fn new(linked: &[String]) -> Self {
        let devices = |names: &String| names.split_whitespace().map(str::to_owned).collect();
        Self {
            machines: linked.iter().map(devices).collect(),
        }
    }

    /// Waits until each device has one link.
    pub(crate) fn await_links(&self) -> Result<()> {
        let start = Instant::now();
        let mut seen = 0;
        while seen < LOOKS {
            let links = links()?;
            seen = match self.has_all(&links) {
                true => seen + 1,
                false => 0,
            };
            if start.elapsed() > CALL_TIMEOUT {
                bail!("no link on each device again, but on: {links:?}");
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    fn has_all(&self, links: &[String]) -> bool {
        let count = |device: &String| links.iter().filter(|link| *link == device).count();
        self.devices().all(|device| count(device) == 1)
    }

    fn devices(&self) -> impl Iterator<Item = &String> {
        self.machines.iter().flatten()
    }

    /// Measures for `time` how much each device sends, and fails unless the devices of a machine have the same number
    /// of connections, or one more or less, and send about equal shares.
    pub(crate) fn compare(&self, time: Duration) -> Result<()> {
        let before = self.sent()?;
        thread::sleep(time);
        let after = self.sent()?;
        self.compare_connections()?;
        for (devices, (before, after)) in self.machines.iter().zip(before.iter().zip(&after)) {
            let sent: Vec<u64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
            let even = sent.iter().sum::<u64>() / sent.len().max(1) as u64;
            ensure!(even > 0, "{devices:?} sent nothing");
            for (device, sent) in devices.iter().zip(sent) {
                println!(
                    "# failover: {device} sent {} % of an even share",
                    sent * 100 / even
                );
                ensure!(
                    sent.abs_diff(even) * 100 <= even * UNEVEN,
                    "the share of {device} is not even"
                );
            }
        }
        Ok(())
    }

    fn compare_connections(&self) -> Result<()> {
        let links = Module::open()?.links().context("the list of links")?;
        for devices in &self.machines {
            let of = |device: &String| -> u64 {
                let links = links.iter().map(|(_, link)| link);
                let own = links.filter(|link| link.device == *device);
                own.map(|link| link.connections).sum()
            };
            let counts: Vec<u64> = devices.iter().map(of).collect();
            println!("# failover: {devices:?} have {counts:?} connections");
            let (least, most) = (counts.iter().min(), counts.iter().max());
            ensure!(
                most.zip(least)
                    .is_some_and(|(most, least)| most - least <= 1),
                "the connections of {devices:?} are not shared out evenly: {counts:?}"
            );
        }
        Ok(())
    }

    fn sent(&self) -> Result<Vec<Vec<u64>>> {
        let of = |devices: &Vec<String>| devices.iter().map(|device| sent(device)).collect();
        self.machines.iter().map(of).collect()
    }
}

/// Returns the bytes that a device has sent.
fn sent(device: &str) -> Result<u64> {
    let device = Path::new("/sys/class/infiniband").join(device);
    let path = device.join("ports/1/hw_counters/sent_bytes");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    Ok(text.trim().parse()?)
}

/// Returns the device of each link that its group uses. A queue pair that can send is no link yet: it still has to be
/// confirmed, by way of the other links.
fn links() -> Result<Vec<String>> {
    let links = Module::open()?.links().context("the list of links")?;
    let active = links.into_iter().filter(|(_, link)| link.state == "active");
    Ok(active.map(|(_, link)| link.device).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_needs_one_link() {
        let fabric = Fabric::new(&["a1 a2".to_owned(), "b1".to_owned()]);
        let all = |links: &[&str]| {
            let links: Vec<String> = links.iter().map(|link| (*link).to_owned()).collect();
            fabric.has_all(&links)
        };
        assert!(all(&["b1", "a1", "a2"]));
        assert!(!all(&["a1", "b1"]));
        assert!(!all(&["a1", "a2", "b1", "b1"]));
    }
}
