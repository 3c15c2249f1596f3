// SPDX-License-Identifier: GPL-2.0

//! The kernel, the module and its settings.

use smc_proto::lgr::Role;
use smc_proto::policy::decide;
use smc_proto::policy::Decision;
use smc_proto::policy::End;
use smc_proto::policy::Ends;
use smc_proto::policy::RuleAction;
use smc_tools::memory::Memory;

use super::super::facts::Facts;
use super::super::line::Line;
use super::ports::has_v1_port;
use crate::policy::AsArguments;

/// Bits of `kernel.tainted` after which nothing that the kernel does proves anything, and what they mean.
const BROKEN: [(u32, &str); 5] = [
    (4, "a machine check"),
    (5, "a bad page"),
    (7, "an oops"),
    (9, "a warning"),
    (14, "a processor that hung"),
];

/// The others that are common, by their letters.
const LETTERS: [(u32, char); 4] = [(0, 'P'), (1, 'F'), (12, 'O'), (13, 'E')];

/// The oldest kernel for which the module is built.
const OLDEST: (u32, u32) = (7, 2);

/// Smallest buffers with which throughput does not suffer: the default.
const BUFFER: u64 = 64 * 1024;

pub(super) fn kernel(facts: &Facts) -> Vec<Line> {
    let (release, tainted) = (&facts.kernel.release, facts.kernel.tainted);
    let is_set = |bit: u32| tainted >> bit & 1 != 0;
    let seen: Vec<_> = BROKEN
        .iter()
        .filter(|(bit, _)| is_set(*bit))
        .map(|(_, what)| *what)
        .collect();
    let letters: String = LETTERS
        .iter()
        .filter(|(bit, _)| is_set(*bit))
        .map(|(_, c)| *c)
        .collect();
    let taints = match letters.as_str() {
        "" => String::new(),
        letters => format!(", tainted {letters} (a module from outside the kernel is O and E)"),
    };
    vec![match seen.as_slice() {
        [] => Line::ok("kernel", format!("The kernel is {release}{taints}.")),
        seen => Line::warn(
            "kernel/tainted",
            format!("The kernel {release} has seen {} since it was started.", seen.join(", ")),
            "See what it was (dmesg | grep -A20 'cut here\\|BUG\\|Oops'), and start the machine again before judging SMC.",
        ),
    }]
}

/// Returns the first two numbers of a release.
fn series(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next()?.parse().ok();
    Some((next()?, next()?))
}

pub(super) fn module(facts: &Facts) -> Vec<Line> {
    let release = &facts.kernel.release;
    if let Some(error) = &facts.unasked {
        const HINT: &str = "Run this outside the container or service, or allow AF_NETLINK there (systemd: RestrictAddressFamilies).";
        return vec![match &facts.refusal {
            None => Line::warn(
                "module/unread",
                format!("This process gets SMC sockets, but may not ask the kernel by netlink ({error}): all else is not known."),
                HINT,
            ),
            Some(refusal) => Line::fail(
                "module/refused",
                format!("This process gets no SMC sockets ({refusal}), and may not ask the kernel by netlink ({error})."),
                HINT,
            ),
        }];
    }
    let Some(module) = &facts.module else {
        let is_old = series(release).is_some_and(|series| series < OLDEST);
        return vec![match facts.kernel.is_installed {
            true => Line::fail(
                "module/not-loaded",
                "The module smc is installed for this kernel, but not loaded.",
                "modprobe smc; if that fails, dmesg | tail says why (with Secure Boot the module has to be signed, see dkms(8)).",
            ),
            false if is_old => Line::fail(
                "module/not-loaded",
                format!("The module smc is not loaded, nor installed; it needs a kernel 7.2 or newer, and this is {release}."),
                "Install a newer kernel with its headers (on Debian those of its backports), then the package smc-rs-dkms, and restart.",
            ),
            false => Line::fail(
                "module/not-loaded",
                format!("The module smc is not loaded, nor installed for the kernel {release}."),
                "Install the package smc-rs-dkms (or make && make install), then modprobe smc; dkms status says for which kernels it was built.",
            ),
        }];
    };
    let version = &module.version;
    if let Some(error) = &facts.refusal {
        return vec![Line::fail(
            "module/refused",
            format!("The module is loaded, but this process gets no SMC sockets ({error})."),
            "Run this outside the container or service, or allow AF_INET and AF_INET6 with protocol 256 there (systemd: RestrictAddressFamilies; containers: the seccomp profile), or AF_SMC.",
        )];
    }
    vec![match module.is_ours {
        true => Line::ok("module", format!("The module smc of this project is loaded, SMC version {version}.")),
        false => Line::warn(
            "module/c-module",
            format!("The C module is loaded, SMC version {version}: rules, causes and MTUs are not known of it."),
            "For this project's module: rmmod smc_diag smc; modprobe smc (make install and DKMS have depmod prefer it).",
        ),
    }]
}

pub(super) fn syn_option(facts: &Facts) -> Line {
    let way = facts
        .module
        .as_ref()
        .map_or("TCP", |module| module.syn_option);
    let way = match way {
        "netfilter" => "a netfilter hook of the module, as this kernel has no CONFIG_SMC",
        _ => "TCP itself (the kernel has CONFIG_SMC)",
    };
    Line::ok(
        "syn-option",
        format!("TCP's SYN gets the SMC option from {way}."),
    )
}

pub(super) fn handshakes(facts: &Facts) -> Line {
    let settings = &facts.settings;
    if let Some(name) = &settings.hs_ctrl {
        return Line::warn(
            "handshake/hs-ctrl",
            format!("BPF programs ({name}) decide in this network namespace which connections may use SMC."),
            "To let all: smc hs-ctrl off (net.smc.hs_ctrl).",
        );
    }
    if settings.limits_handshakes {
        return Line::warn(
            "handshake/limited",
            "Listeners offer no SMC to clients that come while many handshakes are at work (net.smc.limit_smc_hs is 1).",
            "To offer it always: sysctl net.smc.limit_smc_hs=0 (smcr and smcd do not show it).",
        );
    }
    if let Some([wmem, rmem]) = settings.buffers {
        if wmem < BUFFER || rmem < BUFFER {
            return Line::warn(
                "handshake/small-buffers",
                format!("Buffers of connections are small: net.smc.wmem is {wmem} and net.smc.rmem {rmem} bytes."),
                format!("sysctl net.smc.wmem={BUFFER} net.smc.rmem={BUFFER}"),
            );
        }
    }
    Line::ok("handshake", "No setting keeps handshakes from SMC.")
}

pub(super) fn rules(facts: &Facts) -> Line {
    let end = |ip, port| End::new(ip, port);
    let ends = match &facts.target {
        Some(target) => Ends {
            local: target.local.map_or(End::UNKNOWN, |ip| end(ip, 0)),
            peer: end(target.address.ip(), target.address.port()),
        },
        None => Ends {
            local: End::UNKNOWN,
            peer: End::UNKNOWN,
        },
    };
    let denied_by = |role| match decide(&facts.rules, role, &ends) {
        Decision::By(index, RuleAction::Deny) => {
            facts.rules.get(index).map(|rule| (index + 1, rule))
        }
        _ => None,
    };
    let roles = match facts.target {
        Some(_) => &[Role::Client][..],
        None => &[Role::Client, Role::Server],
    };
    let denied = roles
        .iter()
        .find_map(|role| Some((*role, denied_by(*role)?)));
    if let Some((role, (number, rule))) = denied {
        let which = match (&facts.target, role) {
            (Some(target), _) => format!("connections to {}", target.address),
            (None, Role::Client) => "all connections that are opened here".to_string(),
            (None, Role::Server) => "all connections that are accepted here".to_string(),
        };
        return Line::fail(
            "policy/denied",
            format!(
                "Rule {number} has {which} go over TCP: {}.",
                AsArguments(rule)
            ),
            format!("smc policy del {number} (all rules: smc policy show)"),
        );
    }
    let count = facts
        .rules
        .iter()
        .filter(|rule| rule.action == RuleAction::Deny)
        .count();
    match (count, &facts.target) {
        (0, _) => Line::ok("policy", "No rule keeps connections from SMC."),
        (_, Some(target)) => Line::ok(
            "policy",
            format!("No rule keeps connections to {} from SMC.", target.address),
        ),
        (count, None) => Line::warn(
            "policy/some-denied",
            format!(
                "{count} of {} rules have some connections go over TCP.",
                facts.rules.len()
            ),
            "If that is not wanted: smc policy show, then smc policy del NUMBER.",
        ),
    }
}

pub(super) fn memory(facts: &Facts) -> Line {
    let over = |memory: &Option<Memory>, which: usize| {
        let memory = memory.as_ref()?;
        let limit = *memory.limits.as_ref()?.get(which)?;
        (memory.pages > limit).then_some((memory.pages, limit))
    };
    let settings = &facts.settings;
    if let Some((pages, limit)) = over(&settings.smc, 2) {
        return Line::fail(
            "memory/full",
            format!("SMC sockets have {pages} pages, more than the {limit} that they may: new connections go over TCP."),
            "Raise the third number of net.smc.smcr_mem (sysctl net.smc.smcr_mem), or lower net.smc.rmem.",
        );
    }
    let short = over(&settings.smc, 1).map(|found| ("SMC", "net.smc.smcr_mem", found));
    let short =
        short.or_else(|| over(&settings.tcp, 1).map(|found| ("TCP", "net.ipv4.tcp_mem", found)));
    match short {
        Some((kind, name, (pages, limit))) => Line::warn(
            "memory/short",
            format!("{kind} sockets have {pages} pages; above {limit} they get as little as possible."),
            format!("Raise the numbers of {name} (sysctl {name})."),
        ),
        None => Line::ok("memory", "Sockets have memory left. A limit for locked memory (ulimit -l) does not matter to SMC."),
    }
}

/// Says whether there is more than RDMA: no machine is at fault that has switched it off.
pub(super) fn same_host(facts: &Facts) -> Option<Line> {
    let loopback = facts.loopback?;
    Some(Line::ok(
        "same-host",
        format!("Connections within this machine by shared memory (SMC-D): {loopback}."),
    ))
}

pub(super) fn eids(facts: &Facts) -> Line {
    let all: Vec<_> = facts
        .eids
        .iter()
        .chain(&facts.seid)
        .map(String::as_str)
        .collect();
    let hint = "smc ueid add SMCV2-DEFAULT-UEID (or smcr ueid add), here and at the peer.";
    match all.as_slice() {
        [] if has_v1_port(facts) => Line::warn(
            "eid/none",
            "This machine has no enterprise ID, so only SMC-R version 1 is possible: within one subnet, by RoCE v1.",
            hint,
        ),
        [] => Line::fail(
            "eid/none",
            "This machine has no enterprise ID, without which there is no SMC-R version 2.",
            hint,
        ),
        all => Line::ok("eid", format!("Enterprise IDs: {}. The peer needs one of them, too.", all.join(", "))),
    }
}
