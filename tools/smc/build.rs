// SPDX-License-Identifier: GPL-2.0

//! Compiles the BPF programs, which are embedded in the command.
//!
//! Without clang, the command is built without them and reports that when they are needed.

use std::env;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// Names of clang; Debian's contain the version.
const CLANG: [&str; 8] = [
    "clang", "clang-22", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16",
];

fn main() {
    const SOURCE: &str = "bpf/switch.c";
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-env-changed=SMC_CLANG");
    let folder = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    let object = PathBuf::from(folder).join("switch.o");
    let chosen = env::var("SMC_CLANG").ok();
    let names = chosen
        .iter()
        .map(String::as_str)
        .chain(CLANG.into_iter().filter(|_| chosen.is_none()));
    for name in names {
        let status = Command::new(name)
            // libbpf needs the type information to find the maps. No paths of the build machine are
            // included.
            .args(["-target", "bpf", "-O2", "-g", "-fdebug-compilation-dir=."])
            .args(["-Wall", "-Werror", "-c", SOURCE, "-o"])
            .arg(&object)
            .status();
        match status {
            Ok(status) if status.success() => return,
            Ok(status) => panic!("{name} does not compile {SOURCE}: {status}"),
            // Not installed: try the next name.
            Err(_) => {}
        }
    }
    println!("cargo::warning=no clang: `smc run --bpf` and `smc switch` will not work");
    // Until one is installed.
    let path = env::var_os("PATH").unwrap_or_default();
    for folder in env::split_paths(&path).filter(|folder| folder.is_dir()) {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    fs::write(&object, "").expect("OUT_DIR can be written to");
}
