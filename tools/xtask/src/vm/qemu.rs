// SPDX-License-Identifier: GPL-2.0
//! A guest in QEMU, with this machine's files over 9p.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{bail, Context, Result};

use super::{Guest, Machine, Wire};
use crate::dirs::Dirs;
use crate::kernel::{arm64, Flavour};
use crate::run;

pub(super) fn machine(
    dirs: &Dirs,
    guest: &Guest<'_>,
    init: &Path,
    interactive: bool,
) -> Result<Machine> {
    std::fs::create_dir_all(dirs.logs())?;
    let kernel_log = dirs.logs().join(format!("{}.kernel.log", guest.name));
    let mut cmd = Command::new("setpriv");
    let is_arm64 = guest.kernel.flavour == Flavour::Arm64;
    let (program, machine) = match is_arm64 {
        true => ("qemu-system-aarch64", "virt,gic-version=3"),
        false => ("qemu-system-x86_64", "q35"),
    };
    cmd.args(["--pdeathsig", "KILL", program]);
    cmd.args(["-nodefaults", "-no-user-config", "-no-reboot"]);
    cmd.args(["-machine", machine, "-display", "none"]);
    cmd.args(["-device", "virtio-rng-pci"]);
    if is_arm64 {
        cmd.args(ARM64);
    } else if guest.counts_instructions {
        cmd.args(COUNTING);
        // Where the functions of a distribution's kernel are is not known before it runs: there its clock has to do.
        if guest.kernel.stock.is_none() {
            cmd.arg("-plugin").arg(counter(dirs, guest)?);
        }
    } else {
        cmd.args(accelerator(guest));
    }
    // The table of processors that a kernel without ACPI reads has one entry for each socket.
    let processors = format!("{0},sockets={0}", guest.cpus);
    cmd.args(["-smp", &processors, "-m", &guest.mem]);
    cmd.arg("-kernel").arg(&guest.kernel.image);
    if let Some(stock) = &guest.kernel.stock {
        cmd.arg("-initrd").arg(&stock.initrd);
    }
    if let Some(wire) = &guest.wire {
        let Wire::Udp { here, there } = wire else {
            bail!("a wire of User-Mode Linux");
        };
        // As the device of User-Mode Linux, which needs these session numbers.
        cmd.arg("-netdev").arg(format!(
            "l2tpv3,id=wire,src=127.0.0.1,dst=127.0.0.1,udp=on,srcport={here},dstport={there},rxsession=5,txsession=5"
        ));
        let mac = 1 + u32::from(here < there);
        let mtu = wire.mtu();
        cmd.arg("-device").arg(format!(
            "virtio-net-pci,netdev=wire,host_mtu={mtu},mac=52:54:00:00:00:{mac:02x}"
        ));
    }
    let root = guest.kernel.root.as_deref().unwrap_or(Path::new("/"));
    share(&mut cmd, "host", root, true);
    share(&mut cmd, "share", &guest.share, false);
    // The kernel uses the first port, the script another, so that their lines do not mix.
    if interactive {
        cmd.args(["-serial", "null"]);
    } else {
        cmd.arg("-serial")
            .arg(format!("file:{}", kernel_log.display()));
    }
    let (console, boot) = match is_arm64 {
        true => {
            share(&mut cmd, "files", Path::new("/"), true);
            cmd.args([
                "-device",
                "virtio-serial-pci",
                "-chardev",
                "stdio,id=script",
            ]);
            cmd.args(["-device", "virtconsole,chardev=script"]);
            let (repo, cache) = (dirs.repo.display(), dirs.cache.display());
            let init = init.display();
            (
                "ttyAMA0",
                format!("init={} -- {repo} {cache} {init}", arm64::INIT_PATH),
            )
        }
        false => {
            cmd.args(["-serial", "stdio"]);
            ("ttyS0", format!("init={}", init.display()))
        }
    };
    // The kernel gives up if no timer interrupt arrives while it counts to a number, as on a busy host.
    cmd.arg("-append").arg(format!(
        "console={console} root=host rootfstype=9p rootflags=trans=virtio,version=9p2000.L,msize=262144,cache=loose \
         ro panic=-1 no_timer_check {boot}",
    ));
    Ok(Machine {
        cmd,
        stdin: None,
        kernel_log: Some(kernel_log),
        _pin: None,
    })
}

/// One processor whose clock is the number of its instructions; copies are loops of moves, and not one instruction
/// for any number of bytes.
const COUNTING: &[&str] = &[
    "-icount",
    "shift=0,sleep=off",
    "-accel",
    "tcg,thread=single",
    "-cpu",
    "max,-erms,-fsrm",
];

/// The same as where x86-64 is emulated. Without pointer authentication, which takes half of the time.
const ARM64: &[&str] = &["-accel", "tcg,thread=single", "-cpu", "max,pauth=off"];

/// The kernel function at whose calls the plugin writes what it counted: that of `kernel.domainname`.
const MARK: &str = "proc_do_uts_string";

/// Builds the plugin that counts what a guest executes, and returns its argument. It writes to the guest's share.
fn counter(dirs: &Dirs, guest: &Guest<'_>) -> Result<String> {
    let map = guest.kernel.dir.join("System.map");
    let symbols = std::fs::read_to_string(&map).context("the kernel has no System.map")?;
    let is_mark = |line: &&str| line.ends_with(&format!(" {MARK}"));
    let mark = symbols
        .lines()
        .find(is_mark)
        .and_then(|line| line.split(' ').next());
    let mark = mark.with_context(|| format!("the kernel has no {MARK}"))?;
    let plugin = dirs.out("vm").join("counter.so");
    run::gcc(
        &dirs.repo.join("tools/bench/counter.c"),
        &plugin,
        &[
            "-shared",
            "-fPIC",
            "-Wno-unused-parameter",
            "-fvisibility=hidden",
        ],
    )?;
    Ok(format!(
        "{},dir={},mark={mark}",
        plugin.display(),
        guest.share.display()
    ))
}

/// Returns the options for KVM if this user can use it, else for emulation.
///
/// The emulated processors take turns in one thread. Where each has a thread, one may still run the old code of a
/// jump label or tracepoint that another has changed: a guest in fifty died of that while it booted.
fn accelerator(guest: &Guest<'_>) -> &'static [&'static str] {
    const KVM: &[&str] = &["-accel", "kvm", "-cpu", "host"];
    static HAS_KVM: OnceLock<bool> = OnceLock::new();
    let image = &guest.kernel.image;
    match HAS_KVM.get_or_init(|| Path::new("/dev/kvm").exists() && boots(KVM, image)) {
        true => KVM,
        false => &["-accel", "tcg,thread=single", "-cpu", "max"],
    }
}

/// How long a kernel may take until its first line, with KVM and on a busy machine.
const FIRST_LINE: Duration = Duration::from_secs(15);

/// Returns whether a kernel comes to say its first line. If the host is a guest itself, the device may exist, but
/// reject features of the processor, or instructions.
fn boots(accelerator: &[&str], image: &Path) -> bool {
    let child = Command::new("timeout")
        .args(["--signal=KILL", &FIRST_LINE.as_secs().to_string()])
        .args(["qemu-system-x86_64", "-nodefaults", "-no-user-config"])
        .args(["-no-reboot", "-machine", "q35", "-m", "512"])
        .args(["-display", "none", "-serial", "stdio"])
        .args(accelerator)
        .arg("-kernel")
        .arg(image)
        .args(["-append", "console=ttyS0 panic=-1"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return false;
    };
    let lines = child.stdout.take().map(BufReader::new);
    let mut lines = lines.into_iter().flat_map(|out| out.split(b'\n'));
    let is_up = lines.any(|line| line.is_ok_and(|line| contains(&line, b"Linux version")));
    // It has no root file system, and ends by itself.
    let _ = child.wait();
    is_up
}

fn contains(line: &[u8], words: &[u8]) -> bool {
    line.windows(words.len()).any(|part| part == words)
}

fn share(cmd: &mut Command, tag: &str, path: &Path, readonly: bool) {
    let mut fsdev = format!(
        "local,id={tag},path={},security_model=none,multidevs=remap",
        path.display()
    );
    if readonly {
        fsdev.push_str(",readonly=on");
    }
    cmd.arg("-fsdev").arg(fsdev);
    cmd.arg("-device")
        .arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
}
