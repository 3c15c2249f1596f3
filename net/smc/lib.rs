// SPDX-License-Identifier: GPL-2.0

//! SMC-R (RFC 7609): stream sockets over RDMA, as the `PF_SMC` socket family.

#![crate_name = "smc"]
#![cfg_attr(not(CONFIG_RUST), no_std)]
#![forbid(unsafe_code)]

#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
use kernel_ext::net::hs_ctrl::HsCtrlType;
use kernel_ext::{
    global::Published,
    module::Quiet,
    net::{
        memory,
        PerNetRegistration,
        SynOption, //
    },
    param,
    prelude::*, //
};
use smc_proto::{
    handshake::eid::Ueids,
    id::Eid, //
};

mod blocking;
mod carrier;
mod clc;
mod clock;
mod config;
mod conn;
mod diag;
mod groups;
mod handshake;
#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
mod hs_ctrl;
mod ib;
mod lgr;
mod link;
mod link_work;
mod llc;
mod local;
mod namespace;
mod netlink;
mod paths;
mod pnet;
mod policy;
mod rmb;
mod smcd;
mod sock;
mod stats;
mod turn;
mod workers;

module! {
    type: Smc,
    name: "smc",
    authors: ["SMC developers"],
    description: "SMC-R: stream sockets over RDMA (RFC 7609)",
    license: "GPL",
    alias: [
        "net-pf-43",
        "net-pf-16-proto-16-family-SMC_GEN_NETLINK",
        "net-pf-16-proto-16-family-SMC_PNETID",
        "net-pf-16-proto-16-family-SMC_RS",
        "net-pf-16-proto-4-type-43",
        "net-pf-2-proto-256-type-1",
        "net-pf-10-proto-256-type-1",
        "tcp-ulp-smc",
    ],
}

/// The loaded module. Fields are dropped in order of declaration, which is the order of teardown.
struct Smc {
    _option: SynOption,
    _netlink: netlink::Registration,
    _diag: diag::DiagRegistration,
    _sockets: sock::SmcFamily,
    _quiet: Quiet,
    _groups: groups::LgrRegistry,
    _devices: ib::DeviceRegistry,
    _connections: conn::ConnQueues,
    _smcd: smcd::SmcdDevice,
    _local: Published<local::LocalSystem>,
    _memory: memory::MemLimits,
    _namespaces: PerNetRegistration<namespace::Namespace>,
    _workers: workers::UserWorkers,
    #[cfg(CONFIG_SMC_HS_CTRL_BPF)]
    _hs_ctrls: HsCtrlType,
}

/// Returns the initial user EIDs: the default, or those of the parameter.
fn initial_ueids(parameter: Option<&[u8]>) -> Result<Ueids> {
    let mut ueids = Ueids::EMPTY;
    match parameter {
        None => return Ok(Ueids::DEFAULT),
        Some(b"") => {}
        Some(name) => {
            let eid = Eid::from_name(name).ok_or(EINVAL).inspect_err(|_| {
                pr_err!("ueid: only A to Z, 0 to 9, . and -, at most 32 characters\n");
            })?;
            ueids.add(eid).map_err(|_| EINVAL)?;
        }
    }
    Ok(ueids)
}

impl kernel::Module for Smc {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        #[cfg(CONFIG_SMC_HS_CTRL_BPF)]
        let hs_ctrls = HsCtrlType::new().inspect_err(|e| {
            pr_err!("the BPF type smc_hs_ctrl cannot be registered: {e:?}\n");
        })?;
        let workers = workers::UserWorkers::new()?;
        let namespaces = PerNetRegistration::new()?;
        let memory = memory::MemLimits::new(config::DIRECTORY, c"smcr_mem")?;
        let local =
            local::LOCAL.publish(local::LocalSystem::new(initial_ueids(param::ueid())?)?)?;
        let smcd = smcd::SmcdDevice::new()?;
        let connections = conn::ConnQueues::new()?;
        let groups = groups::LgrRegistry::new()?;
        let devices = ib::DeviceRegistry::new()?;
        // Entry points for user space come last.
        let quiet = Quiet::new();
        let sockets = sock::SmcFamily::new()?;
        let diag = diag::DiagRegistration::new()?;
        let netlink = netlink::Registration::new()?;
        let option = SynOption::enable()?;
        Ok(Self {
            _option: option,
            _netlink: netlink,
            _diag: diag,
            _sockets: sockets,
            _quiet: quiet,
            _groups: groups,
            _devices: devices,
            _connections: connections,
            _smcd: smcd,
            _local: local,
            _memory: memory,
            _namespaces: namespaces,
            _workers: workers,
            #[cfg(CONFIG_SMC_HS_CTRL_BPF)]
            _hs_ctrls: hs_ctrls,
        })
    }
}
