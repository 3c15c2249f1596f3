// SPDX-License-Identifier: GPL-2.0

//! Loads and attaches the BPF program of `bpf/switch.c` and its maps with libbpf.

use std::io;

use libbpf_rs::btf::types::Func;
use libbpf_rs::btf::Btf;
use libbpf_rs::Error;
use libbpf_rs::ErrorKind;
use libbpf_rs::Link;
use libbpf_rs::MapCore;
use libbpf_rs::MapHandle;
use libbpf_rs::Object;
use libbpf_rs::ObjectBuilder;
use libbpf_rs::OpenObject;

use super::Tables;
use crate::libbpf::collect;
use crate::libbpf::failed;
use crate::libbpf::failed_by;
use crate::libbpf::said;
use crate::libbpf::verdict;

/// The compiled object file; empty if clang was not found.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.o"));

/// The kernel function that the program hooks.
const FUNCTION: &str = "update_socket_protocol";

/// The attached program. It is detached when `link` is dropped or, if the link is pinned, unpinned.
pub(super) struct Attached {
    pub(super) link: Link,
    pub(super) tables: Tables,
}

impl Attached {
    /// Loads and attaches it, with empty maps.
    pub(super) fn now() -> io::Result<Self> {
        collect();
        let object = open()?;
        check_function()?;
        let object = object.load().map_err(|error| refused(&error, &said()))?;
        let program = object.progs_mut().next().ok_or_else(incomplete)?;
        let link = program.attach().map_err(|error| match error.kind() {
            ErrorKind::TooBig => {
                io::Error::other("too many BPF programs are attached to sockets already")
            }
            // ENOTSUPP, EOPNOTSUPP, EBUSY.
            ErrorKind::Other | ErrorKind::Unsupported => {
                io::Error::other("this kernel cannot attach it (CONFIG_FUNCTION_TRACER)")
            }
            _ => explained(&error),
        })?;
        let tables = Tables::of(|name| map(&object, name))?;
        Ok(Self { link, tables })
    }
}

/// Opens the object file; returns an error if this command was built without clang.
fn open() -> io::Result<OpenObject> {
    if OBJECT.is_empty() {
        return Err(io::Error::other(
            "this command was built without clang, so it has no BPF program",
        ));
    }
    ObjectBuilder::default()
        .open_memory(OBJECT)
        .map_err(|_| incomplete())
}

fn incomplete() -> io::Error {
    io::Error::other("the BPF program in this command is malformed")
}

fn map(object: &Object, name: &str) -> io::Result<MapHandle> {
    let map = object.maps().find(|map| map.name() == name);
    MapHandle::try_from(&map.ok_or_else(incomplete)?).map_err(failed)
}

/// Returns an error with the reason unless the kernel has the hooked function.
fn check_function() -> io::Result<()> {
    let types = Btf::from_vmlinux().map_err(|_| {
        io::Error::other(
            "this kernel has no type information for BPF programs (CONFIG_DEBUG_INFO_BTF)",
        )
    })?;
    let function = types.type_by_name::<Func<'_>>(FUNCTION);
    function
        .map(|_| ())
        .ok_or_else(|| io::Error::other(format!("this kernel has no function {FUNCTION} to hook")))
}

/// Returns why the kernel rejected the program.
fn refused(error: &Error, said: &str) -> io::Error {
    if said.contains("is not modifiable") {
        return io::Error::other(format!(
            "this kernel lets no BPF program change {FUNCTION} (CONFIG_MPTCP)"
        ));
    }
    match verdict(said) {
        Some(line) => io::Error::other(format!("the kernel refuses the BPF program: {line}")),
        None => explained(error),
    }
}

/// Converts errors of loading and attaching to messages.
fn explained(error: &Error) -> io::Error {
    match error.kind() {
        ErrorKind::Unsupported => {
            io::Error::other("this kernel has no BPF programs (CONFIG_BPF_SYSCALL)")
        }
        ErrorKind::InvalidInput => io::Error::other(
            "this kernel has no BPF programs of this kind (CONFIG_BPF_JIT, CONFIG_BPF_EVENTS)",
        ),
        _ => failed_by(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_uses_its_maps() {
        if OBJECT.is_empty() {
            return;
        }
        let object = open().unwrap();
        let maps = object.maps();
        let mut maps: Vec<_> = maps
            .map(|map| (map.name().to_owned(), map.key_size(), map.value_size()))
            .collect();
        maps.sort_unstable();
        assert_eq!(maps, [("cgroups".into(), 8, 1), ("programs".into(), 16, 1)]);
        let sections: Vec<_> = object.progs().map(|program| program.section()).collect();
        assert_eq!(sections, [&*format!("fmod_ret/{FUNCTION}")]);
    }

    #[test]
    fn a_refusal_says_what_is_missing() {
        let refused = |error, log: &str| {
            let said = format!(
                "libbpf: prog 'x': -- BEGIN PROG LOAD LOG --\n{log}-- END PROG LOAD LOG --\n\
                 libbpf: failed to load object\n"
            );
            refused(&Error::from_raw_os_error(error), &said)
        };
        let text = refused(libc::EINVAL, "update_socket_protocol() is not modifiable\n");
        assert!(text.to_string().contains("CONFIG_MPTCP"), "{text}");
        let text = refused(libc::EACCES, "0: (79) r1\nR1 invalid\nprocessed 3 insns\n");
        assert!(text.to_string().ends_with("R1 invalid"), "{text}");
        let text = refused(libc::EACCES, "R1 invalid\nprocessed 3 insns\n");
        assert!(text.to_string().ends_with("R1 invalid"), "{text}");
        let kind = refused(libc::EPERM, "").kind();
        assert_eq!(kind, io::ErrorKind::PermissionDenied);
    }
}
