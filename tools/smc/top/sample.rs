// SPDX-License-Identifier: GPL-2.0

//! A snapshot of all counters.

use std::fs;
use std::io;
use std::time::Instant;

use smc_tools::diag;
use smc_tools::diag::Mode;
use smc_tools::diag::State;
use smc_tools::smcd::SmcdGroup;
use smc_tools::stats::Stats;
use smc_tools::view::Group;
use smc_tools::view::Link;
use smc_tools::view::Module;
use smc_tools::view::Port;

/// A snapshot.
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) stats: Stats,
    pub(super) sockets: Sockets,
    pub(super) groups: Vec<Group>,
    pub(super) smcd_groups: Vec<SmcdGroup>,
    pub(super) links: Vec<Link>,
    /// With the bytes that the port has sent and received, if the device counts them.
    pub(super) ports: Vec<(Port, Option<[u64; 2]>)>,
}

/// Numbers of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub(super) struct Sockets {
    /// Connected over SMC.
    pub(super) smc: usize,
    /// Those of them that are connected over SMC-D.
    pub(super) smcd: usize,
    /// Connected over TCP.
    pub(super) tcp: usize,
    /// Listening.
    pub(super) listening: usize,
}

impl Sample {
    /// Takes a snapshot.
    pub(super) fn take(module: &mut Module) -> io::Result<Self> {
        let ports = module.ports()?.into_iter();
        Ok(Self {
            at: Instant::now(),
            stats: module.stats()?,
            sockets: Sockets::of(&diag::sockets()?),
            groups: module.groups()?,
            smcd_groups: module.smcd_groups()?,
            links: module.links()?.into_iter().map(|(_, link)| link).collect(),
            ports: ports
                .map(|port| {
                    let bytes = counters(&port);
                    (port, bytes)
                })
                .collect(),
        })
    }
}

impl Sockets {
    fn of(entries: &[diag::Entry]) -> Self {
        let mut sockets = Self::default();
        for entry in entries {
            match (entry.state, entry.mode) {
                (State::LISTEN, _) => sockets.listening += 1,
                (State::INIT, _) => {}
                (_, Mode::Tcp) => sockets.tcp += 1,
                (_, Mode::SmcR) => sockets.smc += 1,
                (_, Mode::SmcD) => {
                    sockets.smc += 1;
                    sockets.smcd += 1;
                }
            }
        }
        sockets
    }
}

/// Returns the bytes sent and received by a port: most devices count 4-byte words, soft RoCE bytes.
fn counters(port: &Port) -> Option<[u64; 2]> {
    const WORD: u64 = 4;
    let folder = format!("/sys/class/infiniband/{}/ports/{}", port.device, port.port);
    let read = |name: &str| -> Option<u64> {
        let text = fs::read_to_string(format!("{folder}/{name}")).ok()?;
        text.trim().parse().ok()
    };
    let words = |name| read(name).map(|words| words.wrapping_mul(WORD));
    let sent = words("counters/port_xmit_data").or_else(|| read("hw_counters/sent_bytes"))?;
    let received = words("counters/port_rcv_data").or_else(|| read("hw_counters/rcvd_bytes"))?;
    Some([sent, received])
}
