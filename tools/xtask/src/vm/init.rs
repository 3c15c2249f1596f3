// SPDX-License-Identifier: GPL-2.0
//! The guest's init program: a few settings, then `guest/init.sh`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::Guest;
use crate::dirs::Dirs;
use crate::kernel::Flavour;

/// Writes the program for one guest and returns its path.
pub(super) fn write(
    dirs: &Dirs,
    guest: &Guest<'_>,
    run: &Path,
    interactive: bool,
) -> Result<PathBuf> {
    let uml = guest.kernel.flavour.is_uml();
    let console = match guest.kernel.flavour {
        Flavour::Arm64 => "/dev/hvc0",
        _ if uml => "/dev/tty0",
        _ => "/dev/ttyS1",
    };
    let home = guest.script.parent().unwrap_or(Path::new("/"));
    let keep = [&*dirs.repo, &*dirs.cache, home]
        .map(|p| quote(&p.to_string_lossy()))
        .join(" ");
    let mut words = vec![quote(&guest.script.to_string_lossy())];
    words.extend(guest.args.iter().map(|a| quote(a)));

    let mut text = String::from("#!/bin/sh\n");
    for (name, value) in [
        ("VM_CONSOLE", console),
        ("VM_SHARE", &*guest.share.to_string_lossy()),
        ("VM_SHARE_TYPE", if uml { "hostfs" } else { "9p" }),
        ("VM_OFF", if uml { "o" } else { "b" }),
        ("VM_INTERACTIVE", if interactive { "1" } else { "" }),
        ("VM_NAME", &guest.name),
    ] {
        text.push_str(&format!("{name}={}\n", quote(value)));
    }
    text.push_str(&format!(
        "vm_keep() {{ for dir in {keep}; do \"$@\" \"$dir\"; done; }}\n"
    ));
    text.push_str("vm_env() {\n");
    for (name, value) in &guest.env {
        text.push_str(&format!("\texport {name}={}\n", quote(value)));
    }
    text.push_str(&format!(
        "}}\nvm_main() {{ \"$@\" {}; }}\n\n",
        words.join(" ")
    ));
    text.push_str(include_str!("../../guest/init.sh"));

    let path = run.join("init");
    fs::write(&path, text)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Quotes a word for the shell.
fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn words_survive_the_shell() {
        let word = "it's $HOME; \"x\"";
        let echo = format!("printf %s {}", quote(word));
        let out = std::process::Command::new("sh")
            .args(["-c", &echo])
            .output()
            .unwrap();
        assert_eq!(String::from_utf8(out.stdout).unwrap(), word);
    }
}
