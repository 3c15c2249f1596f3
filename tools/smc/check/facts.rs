// SPDX-License-Identifier: GPL-2.0

//! What is known of this machine and network namespace: collected once, judged by pure functions.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use smc_proto::policy::Rule;
use smc_tools::flow::FlowControl;
use smc_tools::genl::Ueids;
use smc_tools::memory::Memory;
use smc_tools::netdevs::netdevs;
use smc_tools::netdevs::Netdev;
use smc_tools::pnet;
use smc_tools::pnet::Place;
use smc_tools::rdma;
use smc_tools::rules;
use smc_tools::smcd::Loopback;
use smc_tools::socket;
use smc_tools::view;
use smc_tools::view::Module;

/// The facts. What cannot be found out is `None` or empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub(super) kernel: Kernel,
    pub(super) module: Option<Loaded>,
    /// Why this process gets no SMC socket.
    pub(super) refusal: Option<String>,
    /// Why it may not ask the kernel by netlink, so that most is not known.
    pub(super) unasked: Option<String>,
    /// User-defined enterprise IDs.
    pub(super) eids: Vec<String>,
    /// The system's enterprise ID, if it is enabled.
    pub(super) seid: Option<String>,
    pub(super) settings: Settings,
    /// Rules about who may use SMC.
    pub(super) rules: Vec<Rule>,
    /// Where connections go that are asked about.
    pub(super) target: Option<Target>,
    /// Whether connections within this machine may use shared memory.
    pub(super) loopback: Option<Loopback>,
    /// Whether an RDMA device belongs to one network namespace.
    pub(super) is_exclusive: Option<bool>,
    /// RDMA devices that are visible in this namespace.
    pub(super) devices: Vec<rdma::Device>,
    /// Ports of all RDMA devices of the machine that the module uses, as it has them.
    pub(super) ports: Vec<view::Port>,
    /// Whether these are known.
    pub(super) has_ports: bool,
    pub(super) netdevs: Vec<Netdev>,
    /// Flow control of the network devices of adapters with RDMA, by index.
    pub(super) flow: Vec<(u32, FlowControl)>,
    /// The table of physical networks.
    pub(super) networks: Vec<Place>,
    pub(super) firewall: Firewall,
}

/// The kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Kernel {
    /// As `uname -r` has it.
    pub(super) release: String,
    /// `kernel.tainted`.
    pub(super) tainted: u64,
    /// Whether a module smc is installed for this kernel.
    pub(super) is_installed: bool,
}

/// The module that is loaded.
#[derive(Clone, Debug)]
pub(super) struct Loaded {
    /// Whether it is the one of this project.
    pub(super) is_ours: bool,
    /// Version and release.
    pub(super) version: String,
    /// Who adds the SMC option to TCP's SYN.
    pub(super) syn_option: &'static str,
}

/// Settings of the namespace and of the machine.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    /// `net.smc.limit_smc_hs`.
    pub(super) limits_handshakes: bool,
    /// `net.smc.hs_ctrl`.
    pub(super) hs_ctrl: Option<String>,
    /// `net.smc.wmem` and `net.smc.rmem`.
    pub(super) buffers: Option<[u64; 2]>,
    /// Memory of SMC.
    pub(super) smc: Option<Memory>,
    /// Memory of TCP.
    pub(super) tcp: Option<Memory>,
}

/// Where connections go that are asked about.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    /// The local address of a connection there; `None` without a route.
    pub(super) local: Option<IpAddr>,
}

/// The rules of the firewall.
#[derive(Clone, Debug, Default)]
pub(super) enum Firewall {
    /// There are none.
    #[default]
    Absent,
    /// They could not be read, for this reason.
    Unread(String),
    /// What `nft -j list ruleset` prints; and whether there are rules of the old iptables beside.
    Ruleset(Value, bool),
}

impl Facts {
    /// Collects the facts, for connections to `target` or any.
    pub(super) fn collect(target: Option<SocketAddr>) -> Self {
        let mut facts = Self {
            kernel: Kernel::collect(),
            target: target.map(Target::of),
            is_exclusive: rdma::is_exclusive().ok(),
            devices: rdma::devices().unwrap_or_default(),
            netdevs: netdevs().unwrap_or_default(),
            firewall: Firewall::collect(),
            ..Self::default()
        };
        facts.flow = flow_of(&facts.devices);
        // This loads the module if it is installed, as a program that asks for SMC would.
        let module = Module::open();
        // Unlike a module that is not there.
        let refused = module.as_ref().err();
        let refused = refused.filter(|error| error.kind() != io::ErrorKind::NotFound);
        facts.unasked = refused.map(ToString::to_string);
        facts.refusal = socket::open(false).err().map(|refused| refused.to_string());
        if let Ok(mut module) = module {
            facts.module = Some(Loaded::of(&mut module));
            facts.seid = module
                .seid()
                .ok()
                .flatten()
                .and_then(|(seid, on)| on.then_some(seid));
            if let Ok(ports) = module.ports() {
                (facts.ports, facts.has_ports) = (ports, true);
            }
            facts.eids = Ueids::open()
                .and_then(|mut eids| eids.list())
                .unwrap_or_default();
            let networks = pnet::Table::open().and_then(|mut table| table.list());
            facts.networks = networks.unwrap_or_default();
            let rules = rules::Table::open().and_then(|mut table| table.list());
            facts.rules = rules.map(|listed| listed.rules).unwrap_or_default();
            facts.settings = Settings::collect();
            facts.loopback = Loopback::read();
        }
        facts
    }

    /// Returns the network device of this namespace with that index.
    pub(super) fn netdev(&self, index: u32) -> Option<&Netdev> {
        self.netdevs.iter().find(|netdev| netdev.index == index)
    }

    /// Returns the port as the module has it.
    pub(super) fn of_module(&self, device: &str, port: u32) -> Option<&view::Port> {
        let mut ports = self.ports.iter();
        ports.find(|found| found.device == device && found.port == u64::from(port))
    }
}

/// Returns the flow control of the network devices of adapters: soft devices have none of their own.
fn flow_of(devices: &[rdma::Device]) -> Vec<(u32, FlowControl)> {
    let adapters = devices.iter().filter(|device| !device.is_soft);
    let netdevs =
        adapters.flat_map(|device| device.ports.iter().filter_map(|port| port.netdev.as_ref()));
    netdevs
        .map(|(index, name)| (*index, FlowControl::of(*index, name)))
        .collect()
}

impl Kernel {
    fn collect() -> Self {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let release = release.trim().to_string();
        let index = fs::read_to_string(format!("/lib/modules/{release}/modules.dep"));
        Self {
            tainted: number("/proc/sys/kernel/tainted").unwrap_or(0),
            is_installed: index.is_ok_and(|index| has_module(&index)),
            release,
        }
    }
}

/// Returns whether `modules.dep` has a module smc.
fn has_module(index: &str) -> bool {
    let files = index.lines().filter_map(|line| line.split(':').next());
    let mut names = files.filter_map(|file| file.rsplit('/').next());
    names.any(|name| {
        name.strip_prefix("smc.ko")
            .is_some_and(|rest| !rest.contains('/'))
    })
}

impl Loaded {
    fn of(module: &mut Module) -> Self {
        let info = module.info().ok();
        Self {
            is_ours: rules::Table::open().is_ok(),
            syn_option: info.as_ref().map_or("TCP", |info| info.syn_option),
            version: info.map_or("unknown".to_string(), |info| info.version),
        }
    }
}

impl Settings {
    fn collect() -> Self {
        let setting = |name| number(&format!("/proc/sys/net/smc/{name}"));
        let hs_ctrl = fs::read_to_string("/proc/sys/net/smc/hs_ctrl").unwrap_or_default();
        Self {
            limits_handshakes: setting("limit_smc_hs").is_some_and(|on| on != 0),
            hs_ctrl: Some(hs_ctrl.trim().to_string()).filter(|name| !name.is_empty()),
            buffers: setting("wmem").zip(setting("rmem")).map(<[u64; 2]>::from),
            smc: Memory::read(),
            tcp: Memory::of_tcp(),
        }
    }
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

impl Target {
    fn of(address: SocketAddr) -> Self {
        // A UDP socket that connects sends nothing, but finds the route.
        let any: IpAddr = match address {
            SocketAddr::V4(_) => [0; 4].into(),
            SocketAddr::V6(_) => [0; 16].into(),
        };
        let local = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(address)?;
            socket.local_addr()
        });
        Self {
            address,
            local: local.ok().map(|local| local.ip()),
        }
    }
}

impl Firewall {
    fn collect() -> Self {
        let is_legacy = ["/proc/net/ip_tables_names", "/proc/net/ip6_tables_names"]
            .iter()
            .any(|path| fs::read_to_string(path).is_ok_and(|names| !names.trim().is_empty()));
        let output = Command::new("nft").args(["-j", "list", "ruleset"]).output();
        let output = match output {
            Ok(output) => output,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // A part of the kernel that is no module is not seen here, nor are rules likely without the program.
                return match is_legacy || Path::new("/sys/module/nf_tables").exists() {
                    true => Self::Unread("there is no program nft".to_string()),
                    false => Self::Absent,
                };
            }
            Err(error) => return Self::Unread(format!("nft: {error}")),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or_default().trim();
        match serde_json::from_slice(&output.stdout) {
            Ok(ruleset) if output.status.success() => Self::Ruleset(ruleset, is_legacy),
            // A kernel without nf_tables.
            _ if said.contains("not supported") && !is_legacy => Self::Absent,
            _ => Self::Unread(format!("nft: {}, {said}", output.status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_among_those_installed() {
        assert!(has_module("updates/smc.ko.xz: kernel/a.ko\n"));
        assert!(has_module("kernel/net/smc/smc.ko:\n"));
        assert!(!has_module(
            "kernel/drivers/smc.ko/other.ko: kernel/net/smc/smc.ko\n"
        ));
        assert!(!has_module("kernel/drivers/net/smc91x.ko:\n"));
    }

    #[test]
    fn a_route_has_a_local_address() {
        let target = Target::of(([127, 0, 0, 1], 1).into());
        assert_eq!(target.local, Some([127, 0, 0, 1].into()));
    }
}
