// SPDX-License-Identifier: GPL-2.0
//! Guest scripts: the requirements in their headers, and how they are run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{anyhow, bail, ensure, Context, Result};
use clap::ValueEnum;
use nix::fcntl::Flock;

use crate::dirs::Dirs;
use crate::kernel::{arm64, Flavour, Kernel};
use crate::packing::{Load, UNKNOWN_LOAD, UNKNOWN_PAIR_LOAD};
use crate::run::lock;
use crate::suites::Suite;
use crate::vm::{self, Fate, Guest, Outcome, Power, Wire};

/// Which module a guest loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ModuleKind {
    Ours,
    C,
}

impl ModuleKind {
    fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::C => "c",
        }
    }
}

/// How many guests a script runs in, and with which modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topology {
    One,
    /// Two kernels on one wire, both running the script.
    Pair(ModuleKind, ModuleKind),
}

impl Topology {
    /// Returns whether a guest loads the C module.
    pub(crate) fn has_c_module(self) -> bool {
        matches!(self, Self::Pair(a, b) if a == ModuleKind::C || b == ModuleKind::C)
    }

    /// Returns what a script takes of the processors that never ran.
    pub(crate) fn unknown_load(self) -> Load {
        match self {
            Self::One => UNKNOWN_LOAD,
            Self::Pair(..) => UNKNOWN_PAIR_LOAD,
        }
    }
}

/// What a script needs beside the modules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Extra {
    /// DMA mappings that need synchronisation.
    Bounced,
    /// Verbs that fail on demand.
    Verbs,
    /// Random delays around locks and atomics.
    RaceDelays,
    /// The module as an administrator installs it.
    Installed,
    /// Soft RoCE with addresses of RoCE version 1.
    RoceV1,
    /// Soft RoCE with limits as hardware has them.
    RoceLimits,
    /// Soft RoCE with two ports a device.
    RoceTwoPorts,
    /// A test suite of another project.
    Tests(Suite),
}

/// The requirements in a script's header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GuestSpec {
    /// The kernel; of a pair, that of guest a.
    pub(crate) flavour: Flavour,
    /// The kernel of guest b of a pair.
    pub(crate) peer_flavour: Flavour,
    /// Further kernels that the script runs on, those of both guests.
    pub(crate) other_kernels: Vec<(Flavour, Flavour)>,
    pub(crate) topology: Topology,
    pub(crate) timeout: Duration,
    pub(crate) cpus: u32,
    pub(crate) mem: String,
    /// Patterns of messages in the kernel log that must occur: the script plants faults.
    pub(crate) trouble: Vec<String>,
    /// Whether allocations fail, so that the kernel's messages about that are expected.
    pub(crate) shortage: bool,
    pub(crate) extras: Vec<Extra>,
    /// Whether guest b of a pair is to be killed by guest a.
    pub(crate) is_b_killed: bool,
    /// Whether the guest's clock counts its instructions, one a nanosecond.
    pub(crate) counts_instructions: bool,
    /// Of how many days one is the script's turn in a daily run.
    pub(crate) every: u64,
    /// No other script runs beside it.
    pub(crate) is_alone: bool,
}

/// The same for a script on its further kernels.
const FURTHER_KERNELS_EVERY: u64 = 5;

impl GuestSpec {
    /// Returns a copy for each kernel that the script runs on.
    pub(crate) fn for_each_kernel(self) -> Vec<Self> {
        let others = self.other_kernels.clone();
        let with = |(flavour, peer_flavour), every| Self {
            flavour,
            peer_flavour,
            other_kernels: Vec::new(),
            every,
            ..self.clone()
        };
        let first = with((self.flavour, self.peer_flavour), self.every);
        let every = self.every.max(FURTHER_KERNELS_EVERY);
        std::iter::once(first)
            .chain(others.into_iter().map(|kernels| with(kernels, every)))
            .collect()
    }

    /// Returns the kernels of its guests.
    pub(crate) fn kernels(&self) -> Vec<Flavour> {
        match self.topology {
            Topology::Pair(..) if self.peer_flavour != self.flavour => {
                vec![self.flavour, self.peer_flavour]
            }
            _ => vec![self.flavour],
        }
    }

    /// Returns a name for a run of a script with these guests.
    pub(crate) fn run_name(&self, script: &Path) -> String {
        let stem = script.file_stem().unwrap_or_default().to_string_lossy();
        let kernels = self.kernels();
        let names: Vec<&str> = kernels.iter().map(|k| k.name()).collect();
        format!("{stem}-{}", names.join("-"))
    }

    /// Reads the header; `None` if there is none, as in libraries.
    pub(crate) fn read(script: &Path) -> Result<Option<Self>> {
        let text = fs::read_to_string(script)
            .with_context(|| format!("cannot read {}", script.display()))?;
        Self::parse(&text).with_context(|| format!("header of {}", script.display()))
    }

    fn parse(text: &str) -> Result<Option<Self>> {
        let head: Vec<&str> = text.lines().take_while(|l| l.starts_with('#')).collect();
        let field = |name: &str| {
            head.iter()
                .find_map(|l| l.strip_prefix("# ")?.strip_prefix(name)?.strip_prefix(':'))
                .map(str::trim)
        };
        let flag = |name: &str, value: &str| match field(name) {
            None => Ok(false),
            Some(said) if said == value => Ok(true),
            Some(other) => bail!("{name}: `{other}` is not `{value}`"),
        };
        let roce = match field("roce") {
            None => None,
            Some("v1") => Some(Extra::RoceV1),
            Some("limits") => Some(Extra::RoceLimits),
            Some("two-ports") => Some(Extra::RoceTwoPorts),
            Some(other) => bail!("roce: `{other}` is none of `v1`, `limits`, `two-ports`"),
        };
        let Some(guest) = field("guest") else {
            return Ok(None);
        };
        let (flavour, topology) = topology(guest)?;
        let mut kernels = match topology {
            Topology::One => vec![(flavour, flavour)],
            Topology::Pair(..) if field("kernels").is_some() => Vec::new(),
            Topology::Pair(..) => vec![(flavour, flavour)],
        };
        let name = match topology {
            Topology::One => "also",
            Topology::Pair(..) => "kernels",
        };
        for names in field(name).into_iter().flat_map(|names| names.split(", ")) {
            kernels.push(match (topology, names.split_once(" and ")) {
                (Topology::Pair(..), Some((a, b))) => (kernel(a)?, kernel(b)?),
                (Topology::Pair(..), None) => bail!("kernels: `{names}` names no two"),
                (Topology::One, _) => (kernel(names)?, kernel(names)?),
            });
        }
        let (flavour, peer_flavour) = kernels.remove(0);
        let is_b_killed = flag("killed", "b")?;
        ensure!(
            !is_b_killed || topology != Topology::One,
            "killed: there is no guest b"
        );
        let timeout = field("timeout")
            .unwrap_or("120")
            .parse()
            .context("timeout: seconds wanted")?;
        let cpus = field("cpus")
            .unwrap_or("2")
            .parse()
            .context("cpus: a number wanted")?;
        let every = field("every").map_or(Ok(1), |days| {
            let number = days.strip_suffix(" days").map(str::parse);
            number
                .and_then(Result::ok)
                .filter(|&number| number > 0)
                .context("every: `N days` wanted")
        })?;
        let mem = field("mem").unwrap_or("2G").to_owned();
        let mut extras = Vec::from_iter(roce);
        for (name, value, extra) in [
            ("dma", "bounced", Extra::Bounced),
            ("verbs", "fail", Extra::Verbs),
            ("races", "delayed", Extra::RaceDelays),
            ("modules", "installed", Extra::Installed),
        ] {
            if flag(name, value)? {
                extras.push(extra);
            }
        }
        if let Some(name) = field("tests") {
            let suite = Suite::from_str(name, false)
                .map_err(|_| anyhow!("tests: there is no suite `{name}`"))?;
            extras.push(Extra::Tests(suite));
        }
        Ok(Some(Self {
            flavour,
            peer_flavour,
            other_kernels: kernels,
            topology,
            timeout: Duration::from_secs(timeout),
            cpus,
            mem,
            trouble: head
                .iter()
                .filter_map(|l| l.strip_prefix("# trouble: "))
                .map(str::to_owned)
                .collect(),
            shortage: flag("memory", "short")?,
            extras,
            is_b_killed,
            counts_instructions: flag("clock", "instructions")?,
            every,
            is_alone: flag("beside", "nothing")?,
        }))
    }
}

fn topology(guest: &str) -> Result<(Flavour, Topology)> {
    match guest.replace(' ', "").as_str() {
        "pair(ours,c)" => Ok((
            Flavour::UmDebug,
            Topology::Pair(ModuleKind::Ours, ModuleKind::C),
        )),
        "pair(c,ours)" => Ok((
            Flavour::UmDebug,
            Topology::Pair(ModuleKind::C, ModuleKind::Ours),
        )),
        "pair(ours,ours)" => Ok((
            Flavour::UmDebug,
            Topology::Pair(ModuleKind::Ours, ModuleKind::Ours),
        )),
        "pair(c,c)" => Ok((
            Flavour::UmDebug,
            Topology::Pair(ModuleKind::C, ModuleKind::C),
        )),
        one => Ok((kernel(one)?, Topology::One)),
    }
}

/// Parses the name of a kernel.
fn kernel(name: &str) -> Result<Flavour> {
    Flavour::from_str(name, false).map_err(|_| {
        anyhow!("guest: `{name}` is none of um-debug, um-no-smc, um, um-6.12, x86_64, x86_64-kcsan, arm64, debian-7.3, debian-7.2, pair(ours,c), pair(c,ours)")
    })
}

/// A kernel, and our module for it if that is built.
#[derive(Clone)]
pub(crate) struct Booted<'a> {
    pub(crate) kernel: &'a Kernel,
    pub(crate) module: Option<PathBuf>,
}

/// A script with the resources that its guests need.
pub(crate) struct ScriptRun<'a> {
    pub(crate) script: PathBuf,
    pub(crate) args: Vec<String>,
    pub(crate) spec: GuestSpec,
    /// The kernel; of a pair, that of guest a.
    pub(crate) kernel: Booted<'a>,
    /// That of guest b of a pair, if it is another one.
    pub(crate) peer: Option<Booted<'a>>,
    /// Added to the script's environment.
    pub(crate) env: Vec<(String, String)>,
    pub(crate) echo: bool,
}

impl<'a> ScriptRun<'a> {
    /// A script with the kernels of its guests, in their order: one, or two if those of a pair differ.
    pub(crate) fn new(
        script: PathBuf,
        spec: GuestSpec,
        mut kernels: Vec<Booted<'a>>,
    ) -> Result<Self> {
        let peer = (kernels.len() > 1).then(|| kernels.pop()).flatten();
        Ok(Self {
            script,
            args: Vec::new(),
            spec,
            kernel: kernels.pop().context("no kernel")?,
            peer,
            env: Vec::new(),
            echo: false,
        })
    }

    /// Returns the name for logs and run directories.
    pub(crate) fn name(&self) -> String {
        self.spec.run_name(&self.script)
    }

    /// Runs the guests until they end; returns one outcome for each.
    pub(crate) fn run(&self, dirs: &Dirs) -> Result<Vec<Outcome>> {
        let _lock = self.lock(dirs)?;
        let share = self.share(dirs)?;
        match self.spec.topology {
            Topology::One => Ok(vec![vm::run(
                dirs,
                &self.guest(dirs, &self.name(), &share, None),
            )?]),
            Topology::Pair(left, right) => {
                let has_qemu = self.spec.kernels().iter().any(|kernel| !kernel.is_uml());
                let (a, b) = Wire::pair(has_qemu)?;
                let mut a = self.guest(
                    dirs,
                    &format!("{}-a", self.name()),
                    &share,
                    Some(("a", left, a)),
                );
                let mut b = self.guest(
                    dirs,
                    &format!("{}-b", self.name()),
                    &share,
                    Some(("b", right, b)),
                );
                let power = Power::default();
                if self.spec.is_b_killed {
                    a.fate = Some(Fate::Survivor(&power));
                    b.fate = Some(Fate::Victim(&power));
                }
                let ended = AtomicU32::new(0);
                let run = |guest: &Guest<'_>| {
                    let outcome = vm::run(dirs, guest);
                    ended.fetch_add(1, Ordering::Relaxed);
                    if let Some(wire) = &guest.wire {
                        wire.drain(|| ended.load(Ordering::Relaxed) < 2)?;
                    }
                    outcome
                };
                let (a, b) = std::thread::scope(|s| {
                    let other = s.spawn(|| run(&b));
                    (run(&a), other.join())
                });
                let b = b.map_err(|_| anyhow::anyhow!("the second guest's watcher failed"))?;
                Ok(vec![a?, b?])
            }
        }
    }

    /// Runs a single guest with this terminal as its console.
    pub(crate) fn interact(&self, dirs: &Dirs) -> Result<()> {
        let _lock = self.lock(dirs)?;
        let share = self.share(dirs)?;
        vm::interact(dirs, &self.guest(dirs, &self.name(), &share, None))
    }

    /// Prevents concurrent runs of the same script, which would use the same directories.
    fn lock(&self, dirs: &Dirs) -> Result<Flock<File>> {
        let vm = dirs.out("vm");
        fs::create_dir_all(&vm)?;
        lock(
            &vm.join(format!("{}.lock", self.name())),
            &format!("run of {}", self.name()),
        )
    }

    /// Returns the directory that guests access as `$OUT`; its content is kept until the next run
    /// of the script.
    pub(crate) fn share_dir(&self, dirs: &Dirs) -> PathBuf {
        dirs.out("vm").join(self.name()).join("share")
    }

    /// Creates an empty directory for files of the guests and for signals between them.
    fn share(&self, dirs: &Dirs) -> Result<PathBuf> {
        let share = self.share_dir(dirs);
        if share.exists() {
            fs::remove_dir_all(&share)?;
        }
        fs::create_dir_all(&share)?;
        Ok(share)
    }

    fn guest(
        &self,
        dirs: &Dirs,
        name: &str,
        share: &Path,
        role: Option<(&str, ModuleKind, Wire)>,
    ) -> Guest<'_> {
        let other = self.peer.as_ref().unwrap_or(&self.kernel);
        let (booted, other) = match role {
            Some(("b", ..)) => (other, &self.kernel),
            _ => (&self.kernel, other),
        };
        let mut env = common_env(dirs, booted);
        let mut set = |name: &str, value: &str| env.push((name.to_owned(), value.to_owned()));
        if let Some((role, which, _)) = role {
            let (here, there, peer) = if role == "a" {
                (1, 2, "b")
            } else {
                (2, 1, "a")
            };
            set("ROLE", role);
            set("PEER", peer);
            set("PEER_FLAVOUR", other.kernel.flavour.name());
            set("MODULE", which.name());
            set(
                "WIRE",
                if booted.kernel.flavour.is_uml() {
                    "vec0"
                } else {
                    "eth0"
                },
            );
            set("LOCAL_IP", &format!("10.0.0.{here}"));
            set("PEER_IP", &format!("10.0.0.{there}"));
        } else {
            set("MODULE", "ours");
        }
        env.extend(self.env.iter().cloned());
        Guest {
            name: name.to_owned(),
            kernel: booted.kernel,
            script: self.script.clone(),
            args: self.args.clone(),
            env,
            cpus: self.spec.cpus,
            mem: self.spec.mem.clone(),
            shortage: self.spec.shortage,
            counts_instructions: self.spec.counts_instructions,
            timeout: self.spec.timeout * booted.kernel.flavour.slowness(),
            wire: role.map(|(_, _, wire)| wire),
            fate: None,
            share: share.to_path_buf(),
            echo: self.echo,
        }
    }
}

/// Returns what each script finds in its environment.
fn common_env(dirs: &Dirs, booted: &Booted<'_>) -> Vec<(String, String)> {
    let bin = match booted.kernel.flavour {
        Flavour::Arm64 => arm64::programs(dirs),
        _ => dirs.repo.join("target/release"),
    };
    let selftests = dirs.repo.join("tools/testing/selftests/net/smc");
    let text = |p: &Path| p.to_string_lossy().into_owned();
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", text(&bin));
    let c_module = booted.kernel.dir.join("net/smc/smc.ko");
    let mut env = vec![
        ("PATH", path),
        ("BIN", text(&bin)),
        ("REPO", text(&dirs.repo)),
        ("LIB", text(&selftests.join("lib.sh"))),
        ("KMODS", text(&booted.kernel.modules)),
        ("C_SMC_KO", text(&c_module)),
        ("FLAVOUR", booted.kernel.flavour.name().to_owned()),
    ];
    if let Some(ko) = &booted.module {
        env.push(("SMC_KO", text(ko)));
    }
    env.into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read() {
        let spec = GuestSpec::parse(
            "#!/bin/bash\n# SPDX\n# guest: pair(ours, c)\n# timeout: 60\n# cpus: 3\n# mem: 1G\n",
        )
        .unwrap()
        .unwrap();
        assert_eq!(
            spec.topology,
            Topology::Pair(ModuleKind::Ours, ModuleKind::C)
        );
        assert_eq!(
            (spec.timeout.as_secs(), spec.cpus, spec.mem.as_str()),
            (60, 3, "1G")
        );
        assert!(!spec.is_b_killed);
        assert_eq!(spec.kernels(), [Flavour::UmDebug]);
        let spec = GuestSpec::parse(
            "# guest: pair(c,ours)\n# kernels: um-debug and um-no-smc, um-debug and debian-7.3\n",
        );
        let specs = spec.unwrap().unwrap().for_each_kernel();
        assert_eq!(specs[0].kernels(), [Flavour::UmDebug, Flavour::UmNoSmc]);
        assert_eq!(specs[1].kernels(), [Flavour::UmDebug, Flavour::Debian73]);
        let spec = GuestSpec::parse("# guest: pair(ours,ours)\n# killed: b\n");
        assert!(spec.unwrap().unwrap().is_b_killed);
        let spec = GuestSpec::parse("# guest: um-debug\n# also: um-no-smc\n# every: 2 days\n");
        let specs = spec.unwrap().unwrap().for_each_kernel();
        assert_eq!([specs[0].every, specs[1].every], [2, 5]);
        assert_eq!(
            GuestSpec::parse("#!/bin/sh\n# guest: x86_64\n")
                .unwrap()
                .unwrap()
                .flavour,
            Flavour::X86
        );
    }

    #[test]
    fn only_scripts_with_a_header_are_tests() {
        assert_eq!(
            GuestSpec::parse("#!/bin/bash\n# a library\nx=1\n# guest: um\n").unwrap(),
            None
        );
        assert!(GuestSpec::parse("# guest: vax\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# timeout: soon\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# dma: coherent\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# memory: plenty\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# killed: b\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# every: 0 days\n").is_err());
        assert!(GuestSpec::parse("# guest: um\n# every: week\n").is_err());
        assert!(GuestSpec::parse("# guest: pair(ours,c)\n# killed: a\n").is_err());
        assert!(GuestSpec::parse("# guest: pair(ours,c)\n# kernels: um-debug\n").is_err());
    }
}
