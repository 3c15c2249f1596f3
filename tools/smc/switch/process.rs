// SPDX-License-Identifier: GPL-2.0

//! Whether the sockets of a process are converted by a BPF program.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Component;
use std::path::Path;

use super::choice;
use super::choice::Name;
use super::Selected;
use super::Tables;
use super::FOLDER;
use super::RUN_CGROUP;

/// Where this process may see the mounts of the first one, if it has others, as under `ip netns exec`.
const FIRST: &str = "/proc/1";

/// On whose behalf the sockets of a process are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    /// `smc run --bpf` has started it.
    Run,
    /// `smc switch` selects it.
    Switch,
}

impl By {
    /// Returns the command.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Run => "smc run --bpf",
            Self::Switch => "smc switch",
        }
    }
}

/// Returns who has sockets of process `pid` converted; `None` if nobody has, or that cannot be read.
pub(crate) fn by(pid: i32) -> Option<By> {
    let read = |name| fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let cgroup = read("cgroup").and_then(|lines| choice::cgroup_in(&lines));
    if cgroup.as_deref().is_some_and(is_of_run) {
        return Some(By::Run);
    }
    let first = format!("{FIRST}/root{FOLDER}");
    let mut places = [FOLDER, &first].into_iter();
    let tables = places.find_map(|place| Tables::open(Path::new(place)).ok().flatten())?;
    let selected = Selected::of(&tables).ok()?;
    let name = read("comm").and_then(|name| name.trim_end_matches('\n').parse::<Name>().ok());
    let is_program = name.is_some_and(|name| selected.programs.contains(&name.key()));
    let is_cgroup = || {
        let mut ids = cgroup.iter().flat_map(|path| ids(path));
        ids.any(|id| selected.cgroups.contains(&id.to_ne_bytes()))
    };
    (is_program || is_cgroup()).then_some(By::Switch)
}

/// Returns whether this or one above is the cgroup of a `smc run --bpf`.
fn is_of_run(cgroup: &Path) -> bool {
    let names = cgroup.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        _ => None,
    });
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut numbers = names.filter_map(|name| name.strip_prefix(RUN_CGROUP));
    numbers.any(is_number)
}

/// Returns the ids of a cgroup and of those above.
fn ids(cgroup: &Path) -> Vec<u64> {
    let first = Path::new(FIRST);
    let own = choice::mounted("cgroup2").unwrap_or_default();
    let others = choice::mounted_at(&first.join("mounts"), "cgroup2").unwrap_or_default();
    let others = others
        .iter()
        .map(|place| choice::below(&first.join("root"), place));
    let root = own
        .into_iter()
        .chain(others)
        .find(|place| choice::below(place, cgroup).exists());
    let at = |path: &Path| {
        Some(
            fs::metadata(choice::below(root.as_ref()?, path))
                .ok()?
                .ino(),
        )
    };
    cgroup.ancestors().filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cgroup_of_a_run_is_known_by_its_name() {
        let is = |lines: &str| is_of_run(&choice::cgroup_in(lines).unwrap());
        assert!(is("1:cpu:/x\n0::/user.slice/smc-run-17/below\n"));
        assert!(!is("0::/user.slice/smc-run-/smc-run-x/a-smc-run-17\n"));
        assert_eq!(choice::cgroup_in("1:cpu:/smc-run-17\n"), None);
    }
}
