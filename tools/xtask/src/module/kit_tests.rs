// SPDX-License-Identifier: GPL-2.0
//! Metadata of a kernel's Rust crates that were made once, and what is upgraded afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tests::script;

/// A machine with headers of Linux 7.3.4-1 and what `rust-kit` needs, all of it fake: nothing is unpacked or compiled.
struct Machine {
    dir: PathBuf,
    scripts: PathBuf,
}

impl Machine {
    fn new() -> Self {
        let dir = std::env::temp_dir().join(format!("xtask-made-{}", std::process::id()));
        let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernel");
        let machine = Self {
            scripts: dir.join("scripts"),
            dir,
        };
        machine.file("kdir/include/config/kernel.release", "7.3.4-amd64\n");
        machine.file(
            "kdir/.config",
            "CONFIG_MODULES=y\nCONFIG_RUST=y\nCONFIG_NETFILTER=y\nCONFIG_INFINIBAND=m\n\
             CONFIG_CC_VERSION_TEXT=\"gcc-14 (Debian) 14.2.0\"\nCONFIG_GCC_VERSION=140200\n\
             CONFIG_RUSTC_VERSION_TEXT=\"rustc 9.9.9 (none)\"\n",
        );
        machine.file("kdir/Module.symvers", &symvers("_R1"));
        machine.file("lib/rustlib/src/rust/library/core/src/lib.rs", "");
        for name in ["check-kdir", "rust-kit"] {
            let text = fs::read_to_string(tree.join(name)).unwrap();
            machine.program(&format!("scripts/{name}"), &text);
        }
        machine.program(
            "bin/gcc-14",
            "[ \"$1\" = -E ] || echo 'gcc-14 (Debian) 14.2.0'",
        );
        machine.program("bin/tar", "[ \"$1\" != -tf ] || echo linux-source-7.3/");
        let make = "case $* in *kernelversion*) echo 7.3.4; exit;; esac\n\
                    for word; do case $word in O=*) out=${word#O=};; esac; done\n\
                    mkdir -p $out/include/config $out/rust\necho 7.3.4-amd64 >$out/include/config/kernel.release\n\
                    echo 'EXPORT_SYMBOL_RUST_GPL(_R1);' >$out/rust/exports_core_generated.h";
        machine.program("bin/make", make);
        for name in ["flex", "bison", "bc", "pahole", "python3", "xz", "apt-get"] {
            machine.program(&format!("bin/{name}"), "");
        }
        machine.has_rustc();
        machine.has_bindgen("0.71.1");
        machine.has_source("7.3.4-1");
        machine
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn program(&self, name: &str, text: &str) {
        self.file(name, "");
        script(&self.dir.join(name), text);
    }

    fn has_rustc(&self) {
        let says = "case $1 in --print) echo DIR;; *) echo 'rustc 9.9.9 (none)';; esac";
        let says = says.replace("DIR", self.dir.to_str().unwrap());
        self.program("bin/rustc", &says);
    }

    fn has_bindgen(&self, version: &str) {
        self.program("bin/bindgen", &format!("echo bindgen {version}"));
    }

    /// This version of the package linux-source-7.3 is installed.
    fn has_source(&self, version: &str) {
        let says = "case $1 in -S) case $2 in *.config) echo \"linux-headers-7.3.4: $2\";; \
                                              *) echo \"linux-source-7.3: $2\";; esac;; \
                    *) case $4 in *headers*) echo $4 7.3.4-1;; *) echo $4 VERSION;; esac;; esac";
        self.program("bin/dpkg-query", &says.replace("VERSION", version));
    }

    /// Runs one of the scripts; returns what it prints, and what it says if it fails.
    fn run(&self, name: &str, args: &[&str]) -> Result<String, String> {
        let bin = self.dir.join("bin");
        let out = Command::new(self.scripts.join(name))
            .args(args)
            .current_dir(&self.dir)
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", bin.display()))
            .output()
            .unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        match out.status.success() {
            true => Ok(text(out.stdout)),
            false => Err(text(out.stderr)),
        }
    }
}

fn symvers(symbol: &str) -> String {
    format!("0x1\t{symbol}\tvmlinux\tEXPORT_SYMBOL_GPL\t\n")
}

#[test]
fn metadata_that_were_made_serve_when_their_source_is_upgraded() {
    let machine = Machine::new();
    let making = ["kdir", "cache"];
    let checking = ["--check", "kdir", "cache"];
    let built = "cache/rust-kit/7.3.4-amd64/build\n";
    assert_eq!(machine.run("rust-kit", &checking).as_deref(), Ok(""));
    assert_eq!(machine.run("rust-kit", &making).as_deref(), Ok(built));

    // The next one of the series takes its place, and the package of the module brings another script.
    machine.has_source("7.3.5-1");
    machine.has_bindgen("0.72.0");
    let text = fs::read_to_string(machine.scripts.join("rust-kit")).unwrap();
    machine.program("scripts/rust-kit", &(text + "# The next version.\n"));
    assert_eq!(machine.run("rust-kit", &checking).as_deref(), Ok(""));
    assert_eq!(machine.run("rust-kit", &making).as_deref(), Ok(built));
    // What else is missing is named alone.
    fs::remove_file(machine.dir.join("bin/rustc")).unwrap();
    let said = machine.run("check-kdir", &["kdir", "cache"]).unwrap_err();
    let install = "\nas root:\n  apt install rustc rust-src\n";
    assert!(said.ends_with(install), "{said}");

    // They are not those of another build, nor is there a cache unless it is named.
    machine.has_rustc();
    let wanted = "the source of the very version, linux-source-7.3 7.3.4-1 (there is linux-source-7.3 7.3.5-1)";
    let said = machine.run("rust-kit", &checking[..2]).unwrap_err();
    assert!(said.contains(wanted), "{said}");
    machine.file("kdir/Module.symvers", &symvers("_R2"));
    for args in [&making[..], &checking] {
        let said = machine.run("rust-kit", args).unwrap_err();
        assert!(said.contains(wanted), "{said}");
    }
    fs::remove_dir_all(machine.dir).unwrap();
}
