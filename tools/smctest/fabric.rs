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

    /// Fails unless the devices of a machine have the same number of connections, or one more or less, and each sends
    /// at least what its connections send while `transfer` has each of them transfer the bytes that it returns: more
    /// where a busy machine does not acknowledge them in time. Measures again if connections were moved meanwhile, as
    /// links are lost there, too.
    pub(crate) fn compare(&self, transfer: impl Fn() -> Result<u64>) -> Result<()> {
        let start = Instant::now();
        loop {
            let connections = self.await_even()?;
            let before = self.sent()?;
            let bytes = transfer()?;
            let after = self.sent()?;
            if connections == self.connections()? {
                return self.judge(&connections, bytes, &before, &after);
            }
            ensure!(
                start.elapsed() < CALL_TIMEOUT,
                "connections are moved all the time"
            );
        }
    }

    /// Compares what each device sent with what its connections transferred, `bytes` each.
    fn judge(
        &self,
        connections: &[Vec<u64>],
        bytes: u64,
        before: &[Vec<u64>],
        after: &[Vec<u64>],
    ) -> Result<()> {
        let sent = before.iter().flatten().zip(after.iter().flatten());
        let each = self.devices().zip(connections.iter().flatten());
        for ((device, connections), (before, after)) in each.zip(sent) {
            let share = (after - before) * 100 / (connections * bytes).max(1);
            println!("# failover: {device} sent {share} % of what its {connections} connections transferred");
            ensure!(
                *connections > 0 && share >= 100,
                "{device} does not carry its connections"
            );
        }
        Ok(())
    }

    /// Waits until the numbers of connections of a machine's devices differ by one at most, and returns them.
    fn await_even(&self) -> Result<Vec<Vec<u64>>> {
        let start = Instant::now();
        loop {
            let connections = self.connections()?;
            if connections.iter().all(|counts| is_even(counts)) {
                return Ok(connections);
            }
            ensure!(
                start.elapsed() < CALL_TIMEOUT,
                "the connections of {:?} are not shared out evenly: {connections:?}",
                self.machines
            );
            thread::sleep(LOOK);
        }
    }

    /// Returns the number of connections of each device.
    fn connections(&self) -> Result<Vec<Vec<u64>>> {
        let links = Module::open()?.links().context("the list of links")?;
        let of = |device: &String| -> u64 {
            let links = links.iter().map(|(_, link)| link);
            let own = links.filter(|link| link.device == *device);
            own.map(|link| link.connections).sum()
        };
        let count = |devices: &Vec<String>| devices.iter().map(of).collect();
        Ok(self.machines.iter().map(count).collect())
    }

    fn sent(&self) -> Result<Vec<Vec<u64>>> {
        let of = |devices: &Vec<String>| devices.iter().map(|device| sent(device)).collect();
        self.machines.iter().map(of).collect()
    }
}

fn is_even(counts: &[u64]) -> bool {
    let (least, most) = (counts.iter().min(), counts.iter().max());
    most.zip(least)
        .is_some_and(|(most, least)| most - least <= 1)
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
