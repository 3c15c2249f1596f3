// SPDX-License-Identifier: GPL-2.0

//! Judges the facts: what is well, what is not, and what to type. No function here asks the machine.

mod machine;
mod networks;
mod ports;
#[cfg(test)]
mod tests;

use super::facts::Facts;
use super::firewall;
use super::line::Line;

/// Judges everything. What follows from a fault that was named already is left out.
pub(super) fn judge(facts: &Facts) -> Vec<Line> {
    let mut lines = machine::kernel(facts);
    lines.extend(machine::module(facts));
    if facts.unasked.is_some() {
        return lines;
    }
    if facts.module.is_some() {
        lines.push(machine::syn_option(facts));
        lines.push(machine::handshakes(facts));
        lines.push(machine::rules(facts));
        lines.push(machine::memory(facts));
        lines.push(machine::eids(facts));
        lines.extend(machine::same_host(facts));
    }
    lines.extend(ports::rdma(facts));
    if facts.module.is_some() {
        lines.extend(networks::judge(facts));
    }
    lines.extend(firewall::judge(facts));
    lines
}
