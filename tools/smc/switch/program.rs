// SPDX-License-Identifier: GPL-2.0

//! The program in the kernel: loaded, tied to its maps, attached.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::io::BufRead;
use std::io::BufReader;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;

use smc_user::bpf::Link;
use smc_user::bpf::Map;
use smc_user::bpf::Program;
use smc_user::Errno;

use super::object::Code;
use super::object::FUNCTION;
use super::types;

/// A number of the kernel's own, which the C library has no name for.
const ENOTSUPP: i32 = 524;

/// The program at work, until `link` is dropped or, if it has one, its name is removed.
pub(super) struct Attached {
    pub(super) link: Link,
    /// By name.
    pub(super) maps: HashMap<String, Map>,
}

impl Attached {
    /// Loads and attaches it, with nothing chosen.
    pub(super) fn now() -> io::Result<Self> {
        let code = Code::read()?;
        let function = types::function(FUNCTION)?;
        let maps = code.maps.iter().map(|map| {
            let made = Map::new(&map.name, map.shape).map_err(explained)?;
            Ok((map.name.clone(), made))
        });
        let maps: HashMap<String, Map> = maps.collect::<io::Result<_>>()?;
        if let Some(settings) = maps.get("settings") {
            settings.insert(&0_u32.to_ne_bytes(), &modules_count()?.to_ne_bytes())?;
        }
        let bytes = code.with_maps(|name| maps.get(name).map(|map| map.as_fd().as_raw_fd()))?;
        let program = Program::load("smc_switch", &bytes, &code.license, function);
        let program = program.map_err(|(error, said)| refused(error, &said))?;
        let link = program.attach().map_err(|error| match error {
            Errno::E2BIG => {
                io::Error::other("too many BPF programs are attached to sockets already")
            }
            Errno(ENOTSUPP) | Errno::EOPNOTSUPP | Errno::EBUSY => {
                io::Error::other("this kernel cannot attach it (CONFIG_FUNCTION_TRACER)")
            }
            error => explained(error),
        })?;
        Ok(Self { link, maps })
    }
}

/// Why the kernel's verifier did not take the program.
fn refused(error: Errno, said: &str) -> io::Error {
    if said.contains("is not modifiable") {
        return io::Error::other(format!(
            "this kernel lets no BPF program change {FUNCTION} (CONFIG_MPTCP)"
        ));
    }
    match said
        .lines()
        .rev()
        .find(|line| !line.starts_with("processed "))
    {
        Some(line) => io::Error::other(format!("the kernel refuses the BPF program: {line}")),
        None => explained(error),
    }
}

/// Errors that any BPF call may meet.
fn explained(error: Errno) -> io::Error {
    match error {
        Errno::ENOSYS => io::Error::other("this kernel has no BPF programs (CONFIG_BPF_SYSCALL)"),
        Errno::EINVAL => io::Error::other(
            "this kernel has no BPF programs of this kind (CONFIG_BPF_JIT, CONFIG_BPF_EVENTS)",
        ),
        error => error.into(),
    }
}

/// The address of the static key by which TCP knows whether a module offers SMC, of which the first word
/// counts the modules; 0 if the kernel does not tell.
fn modules_count() -> io::Result<u64> {
    let symbols = BufReader::new(File::open("/proc/kallsyms")?);
    for line in symbols.lines() {
        let line = line?;
        let mut fields = line.split_whitespace();
        let (address, _kind, name) = (fields.next(), fields.next(), fields.next());
        if name == Some("tcp_have_smc") {
            let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            return Ok(address.unwrap_or(0));
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_is_missing() {
        let text = refused(
            Errno::EINVAL,
            "update_socket_protocol() is not modifiable\n",
        );
        assert!(text.to_string().contains("CONFIG_MPTCP"), "{text}");
        let text = refused(Errno::EACCES, "0: (79) r1\nR1 invalid\nprocessed 3 insns\n");
        assert!(text.to_string().ends_with("R1 invalid"), "{text}");
        let kind = refused(Errno::EPERM, "").kind();
        assert_eq!(kind, io::ErrorKind::PermissionDenied);
    }
}
