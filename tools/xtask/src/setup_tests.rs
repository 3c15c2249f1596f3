// SPDX-License-Identifier: GPL-2.0
//! What the Makefile and the scripts beside it do on a machine whose programs are fake.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::module::tests::script;

/// A folder with programs.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("xtask-setup-{}-{name}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn program(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        script(&path, text);
    }

    /// A command in the tree whose programs are those of the folder, and of the machine where there is none.
    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(name);
        let path = format!(
            "{}:/usr/sbin:/usr/bin:/sbin:/bin",
            self.0.join("bin").display()
        );
        command.current_dir(tree()).env("PATH", path);
        command
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn tree() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns what a command says, both outputs, and whether it succeeds.
fn said(command: &mut Command) -> (bool, String) {
    let out = command.output().unwrap();
    let text = [out.stdout, out.stderr].concat();
    (out.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn what_outlives_the_tools_ends_before_they_go() {
    let machine = Machine::new("uninstall");
    let note = format!(
        "echo \"${{0##*/}} $*\" >>{}/ran\nexit 1",
        machine.0.display()
    );
    machine.program("bin/systemctl", &note);
    let uninstall = |uid: u32, destdir: &str| {
        machine.program("bin/id", &format!("echo {uid}"));
        machine.program("usr/bin/smc", &note);
        machine.program("units/smc-switch.service", "");
        let _ = fs::remove_file(machine.0.join("ran"));
        let folder = |name: &str, of: &str| format!("{name}={}/{of}", machine.0.display());
        let (done, text) = said(machine.command("make").args([
            "uninstall-tools".to_string(),
            format!("DESTDIR={destdir}"),
            folder("PREFIX", "usr"),
            folder("UNITDIR", "units"),
            folder("UDEVDIR", "rules"),
            folder("SYSCONFDIR", "etc"),
        ]));
        assert!(done, "{text}");
        let is_there = machine.0.join("usr/bin/smc").exists();
        assert_eq!(is_there, !destdir.is_empty(), "{text}");
        fs::read_to_string(machine.0.join("ran")).unwrap_or_default()
    };
    // Neither what fails nor units that were not installed matter.
    let ends = "systemctl disable --now smc-switch.service\nsmc switch off\n";
    assert_eq!(uninstall(0, ""), ends);
    assert_eq!(uninstall(1000, ""), "");
    let elsewhere = machine.0.join("destdir").display().to_string();
    assert_eq!(uninstall(0, &elsewhere), "");
}

#[test]
fn a_cargo_that_is_too_old_is_not_used() {
    let machine = Machine::new("cargo");
    let cargo = |name: &str, version: &str| {
        let says = format!(
            "case $1 in --version) echo 'cargo {version} (none)';; *) echo {version} $*;; esac"
        );
        machine.program(name, &says);
    };
    let run = |home: &str| {
        let mut command = machine.command("tools/xtask/run");
        // Without the cargo of this machine.
        command.env("PATH", machine.0.join("bin"));
        said(command.env("HOME", machine.0.join(home)).arg("demo"))
    };
    fs::create_dir_all(machine.0.join("bin")).unwrap();
    for name in ["sh", "cat", "sed", "dirname", "env"] {
        std::os::unix::fs::symlink(
            Path::new("/usr/bin").join(name),
            machine.0.join("bin").join(name),
        )
        .unwrap();
    }
    for (name, text) in [
        ("cc", ""),
        ("id", "echo 0"),
        ("apt-get", "echo apt-get $*"),
        ("apt-cache", "echo '  Candidate: 1.63.0'"),
    ] {
        machine.program(&format!("bin/{name}"), text);
    }
    cargo("home/.cargo/bin/cargo", "1.90.0");
    for (version, used) in [
        ("1.63.0", "1.90.0"),
        ("1.85.1", "1.85.1"),
        ("2.0.0", "2.0.0"),
    ] {
        cargo("bin/cargo", version);
        assert_eq!(run("home"), (true, format!("{used} xtask demo\n")));
    }
    cargo("bin/cargo", "1.63.0");
    let (done, text) = run("nobody");
    assert!(!done && text.contains("apt offers no cargo 1.85"), "{text}");
    // The one that apt installs may come behind the old one.
    machine.program("bin/apt-cache", "echo '  Candidate: 1.85.0'");
    let (done, text) = run("nobody");
    assert!(
        !done && text.contains("bin/cargo is older than 1.85"),
        "{text}"
    );
    let fresh = machine.0.join("fresh").display().to_string();
    cargo("fresh", "1.85.0");
    let install = format!("case $* in *install*) cat {fresh} >${{0%/*}}/cargo;; esac");
    machine.program("bin/apt-get", &install);
    let (done, text) = run("nobody");
    assert!(done && text.starts_with("1.85.0 xtask demo\n"), "{text}");
}

#[test]
fn the_tools_are_where_cargo_is_told_to_build_them() {
    let machine = Machine::new("target");
    for (of_user, folder) in [(None, "target"), (Some("/elsewhere"), "/elsewhere")] {
        let mut make = machine.command("make");
        make.env_remove("CARGO_TARGET_DIR").args(["-n", "tools"]);
        make.envs(of_user.map(|folder| ("CARGO_TARGET_DIR", folder)));
        let (done, text) = said(&mut make);
        let (told, used) = (
            format!("--target-dir '{folder}' "),
            format!("\n{folder}/release/smc man "),
        );
        assert!(
            done && text.contains(&told) && text.contains(&used),
            "{text}"
        );
    }
}

/// Returns a value that dkms.conf sets, by the beginning of its line.
fn dkms_value(conf: &str, beginning: &str) -> String {
    let mut lines = conf.lines();
    let value = lines.find_map(|line| line.strip_prefix(beginning));
    value.unwrap().trim_matches('"').to_string()
}

#[test]
fn dkms_leaves_out_kernels_of_later_series() {
    let machine = Machine::new("dkms");
    let conf = fs::read_to_string(tree().join("dkms.conf")).unwrap();
    let any = machine.0.join("any-kernel");
    let here = conf.replace("/etc/smc/any-kernel", any.to_str().unwrap());
    fs::write(machine.0.join("dkms.conf"), here).unwrap();
    fs::write(machine.0.join(".config"), "").unwrap();
    for name in ["check-kdir", "rust-kit"] {
        machine.program(&format!("tools/kernel/{name}"), "");
    }
    // As DKMS reads it.
    let read = |kernel: &str| {
        let script = ". ./dkms.conf && echo \"only <${BUILD_EXCLUSIVE_KERNEL:-}>\"";
        let mut bash = machine.command("bash");
        bash.current_dir(&machine.0).args(["-c", script]);
        bash.env("kernelver", kernel)
            .env("kernel_source_dir", &machine.0);
        said(&mut bash)
    };
    let fine = (true, "only <>\n".to_string());
    for kernel in [
        "7.2.30+deb13-amd64",
        "7.3.4+deb13-amd64",
        "7.3.0",
        "7.3-rc2",
        "",
    ] {
        assert_eq!(read(kernel), fine, "{kernel}");
    }
    for kernel in ["7.4.0-amd64", "7.4-rc1", "7.10.1-arch1-1", "8.0.0"] {
        let (_, text) = read(kernel);
        let told = format!("not built for {kernel}.");
        assert!(
            text.contains("only <^none$>") && text.contains(&told),
            "{text}"
        );
    }
    fs::write(any, "").unwrap();
    assert_eq!(read("7.4.0-amd64"), fine);
}

#[test]
fn the_series_are_the_same_wherever_they_are_stated() {
    let conf = fs::read_to_string(tree().join("dkms.conf")).unwrap();
    let oldest = dkms_value(&conf, "BUILD_EXCLUSIVE_KERNEL_MIN=");
    let newest = dkms_value(&conf, "newest=");
    let readme = fs::read_to_string(tree().join("README.md")).unwrap();
    let stated = format!("It runs on Linux {oldest} and {newest} with");
    assert!(readme.contains(&stated), "{stated}");
    let tested = crate::kernel::KernelOptions::default().series;
    assert_eq!(tested, newest);
}
