// SPDX-License-Identifier: GPL-2.0

//! `smc hs-ctrl`: handshake controls, which are pairs of BPF programs (a struct_ops `smc_hs_ctrl`) that TCP
//! asks whether a SYN, or a SYN-ACK, carries the SMC option. Each network namespace uses one or none, by the
//! sysctl `net.smc.hs_ctrl`.

use std::fs;
use std::io;
use std::path::Path;
use std::path::PathBuf;

use clap::Subcommand;
use libbpf_rs::btf::types::MemberAttr;
use libbpf_rs::btf::types::Struct;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::HasSize;
use libbpf_rs::query::BtfInfoIter;
use libbpf_rs::query::MapInfoIter;
use libbpf_rs::Error;
use libbpf_rs::ErrorKind;
use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;
use libbpf_rs::MapType;
use libbpf_rs::ObjectBuilder;
use serde::Serialize;

use crate::libbpf::collect;
use crate::libbpf::failed;
use crate::libbpf::failed_by;
use crate::libbpf::said;
use crate::libbpf::verdict;
use crate::out;
use crate::switch::with_need;
use crate::table::json;
use crate::table::or_dash;
use crate::table::table;

/// The setting of a network namespace.
const SETTING: &str = "/proc/sys/net/smc/hs_ctrl";

/// The name of the type in the kernel's type information.
const TYPE: &str = "smc_hs_ctrl";

/// The module, as which its type information is known.
const MODULE: &str = "smc";

/// The flag of the kernel, `SMC_HS_CTRL_FLAG_INHERITABLE`.
const INHERITABLE: i32 = 1;

/// The only key of a map with a control.
const KEY: [u8; 4] = [0; 4];

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the controls that are loaded, and which one this network namespace uses
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Load the controls of a BPF object file; they stay until they are unloaded
    #[command(
        after_help = "A control is a variable `SEC(\".struct_ops\") struct smc_hs_ctrl x = { .name = \"NAME\", ... }`. \
                      No namespace uses it before `smc hs-ctrl use NAME`."
    )]
    Load {
        /// The object file
        file: PathBuf,
    },
    /// From now on this control decides in this network namespace
    Use {
        /// Its name
        name: String,
    },
    /// From now on none decides in this network namespace
    Off,
    /// Unload a control; namespaces that use it keep it until they use another or none
    Unload {
        /// Its name
        name: String,
    },
}

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    let current = current()?;
    collect();
    match command {
        Command::List { json } => list(&current, *json),
        Command::Load { file } => load(file),
        Command::Use { name } => set(name),
        Command::Off => set(""),
        Command::Unload { name } => unload(name),
    }
    .map_err(with_need)
}

/// Returns the name of the control that this network namespace uses, which may be empty; an error with the
/// reason if there can be none.
fn current() -> io::Result<String> {
    let text = fs::read_to_string(SETTING).map_err(|error| {
        let folder = Path::new(SETTING).parent();
        match (error.kind(), folder.is_some_and(Path::is_dir)) {
            (io::ErrorKind::NotFound, true) => io::Error::other(
                "this kernel has no handshake controls (CONFIG_SMC_HS_CTRL_BPF); smc policy does the same by \
                 addresses and ports",
            ),
            (io::ErrorKind::NotFound, false) => {
                io::Error::other("the SMC module is not loaded")
            }
            _ => error,
        }
    })?;
    Ok(text.trim_end_matches('\n').to_owned())
}

fn set(name: &str) -> io::Result<()> {
    if name.contains(['\n', '\0']) {
        return Err(unknown(name));
    }
    // A write without any byte would not reach the setting.
    fs::write(SETTING, format!("{name}\n")).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => unknown(name),
        Some(libc::EBUSY) => io::Error::other(format!("{name} is being unloaded")),
        _ => io::Error::new(error.kind(), format!("{SETTING}: {error}")),
    })?;
    // The kernel cuts off what is too long for a name.
    match current()? == name {
        true => Ok(()),
        false => Err(io::Error::other(format!(
            "no name is as long as {name}; {} is used now",
            current()?
        ))),
    }
}

fn unknown(name: &str) -> io::Error {
    io::Error::other(format!("no control {name} is loaded"))
}

/// A control, as listed.
#[derive(Debug, Serialize)]
struct Control {
    name: String,
    /// Of the BPF map in which it lies, as for `bpftool map`.
    map_id: u32,
    /// New network namespaces use it if the initial one does.
    inheritable: bool,
    /// False for one that was unloaded and is still used.
    loaded: bool,
}

/// The output of `list`.
#[derive(Debug, Serialize)]
struct Listed {
    used: Option<String>,
    controls: Vec<Control>,
}

fn list(current: &str, as_json: bool) -> io::Result<()> {
    let listed = Listed {
        used: (!current.is_empty()).then(|| current.to_owned()),
        controls: controls()?,
    };
    if as_json {
        return json(&listed);
    }
    let word = |is_so: bool, word: &str| or_dash(if is_so { word } else { "" });
    let rows: Vec<_> = listed
        .controls
        .iter()
        .map(|control| {
            vec![
                control.name.clone(),
                control.map_id.to_string(),
                word(control.inheritable, "inheritable"),
                word(!control.loaded, "unloaded"),
            ]
        })
        .collect();
    let current = match current {
        "" => "none",
        name => name,
    };
    out::line(format_args!("This network namespace uses {current}."))?;
    match rows.is_empty() {
        true => Ok(()),
        false => table(&["NAME", "MAP", "FLAGS", "STATE"], &rows),
    }
}

/// Returns all controls of this kernel.
fn controls() -> io::Result<Vec<Control>> {
    let ids: Vec<u32> = BtfInfoIter::default()
        .filter(|info| info.name == MODULE)
        .map(|info| info.id)
        .collect();
    if ids.is_empty() {
        // Without privileges nothing is told at all.
        let text =
            "the type information of the SMC module cannot be read: it was built without (BTF, \
                    CONFIG_DEBUG_INFO_BTF_MODULES), or this needs root";
        return Err(io::Error::other(text));
    }
    let layout = Layout::find()?;
    let maps = MapInfoIter::default().filter(|map| map.ty == MapType::StructOps);
    let mut controls = Vec::new();
    for map in maps {
        // It may have gone since.
        let Ok(handle) = MapHandle::from_map_id(map.id) else {
            continue;
        };
        let info = handle.info().map_err(failed)?.info;
        if !ids.contains(&info.btf_vmlinux_id) {
            continue;
        }
        let value = handle.lookup(&KEY, MapFlags::ANY).map_err(failed)?;
        controls.extend(value.and_then(|value| layout.control(map.id, &value)));
    }
    controls.sort_by(|a, b| (&a.name, a.map_id).cmp(&(&b.name, b.map_id)));
    Ok(controls)
}

/// Where members are in the value of a map. The type is the kernel's own, so its type information tells.
#[derive(Debug)]
struct Layout {
    size: usize,
    name: usize,
    flags: usize,
}

impl Layout {
    fn find() -> io::Result<Self> {
        let types = Btf::from_vmlinux().map_err(failed)?;
        let missing = || io::Error::other(format!("this kernel has no type {TYPE}"));
        let ty: Struct<'_> = types.type_by_name(TYPE).ok_or_else(missing)?;
        let place = |name: &str| {
            let member = ty
                .iter()
                .find(|member| member.name.is_some_and(|n| n == name))?;
            match member.attr {
                MemberAttr::Normal { offset } => usize::try_from(offset / 8).ok(),
                MemberAttr::BitField { .. } => None,
            }
        };
        Ok(Self {
            size: ty.size(),
            name: place("name").ok_or_else(missing)?,
            flags: place("flags").ok_or_else(missing)?,
        })
    }

    /// Returns where the control begins in a value of that length. Before it are a counter and the state, and
    /// it begins with a cache line, of which the value has whole ones.
    fn begin(&self, len: usize) -> Option<usize> {
        (3..=12)
            .map(|bits| 1_usize << bits)
            .find(|line| line + self.size.next_multiple_of(*line) == len)
    }

    /// Reads a control; `None` if it is not registered (yet).
    fn control(&self, map_id: u32, value: &[u8]) -> Option<Control> {
        /// States of the kernel, `enum bpf_struct_ops_state`.
        const IN_USE: i32 = 1;
        const TO_BE_FREED: i32 = 2;
        let number = |at: usize| Some(i32::from_ne_bytes(value.get(at..at + 4)?.try_into().ok()?));
        let state = number(4)?;
        if state != IN_USE && state != TO_BE_FREED {
            return None;
        }
        let begin = self.begin(value.len())?;
        let name = value.get(begin + self.name..)?.split(|byte| *byte == 0);
        let name = name.into_iter().next()?;
        Some(Control {
            name: String::from_utf8_lossy(name).into_owned(),
            map_id,
            inheritable: number(begin + self.flags)? & INHERITABLE != 0,
            loaded: state == IN_USE,
        })
    }
}

fn load(file: &Path) -> io::Result<()> {
    let named = |text: &str| io::Error::other(format!("{}: {text}", file.display()));
    if !file.is_file() {
        return Err(named("no such file"));
    }
    let object = ObjectBuilder::default()
        .open_file(file)
        .map_err(|_| named("is no BPF object file"))?;
    let mut object = object.load().map_err(|error| refused(&error, &said()))?;
    // Dropped, they take back what was loaded before one that fails.
    let mut links = Vec::new();
    for mut map in object.maps_mut() {
        if map.map_type() == MapType::StructOps {
            let what = map.name().to_string_lossy().into_owned();
            links.push(
                map.attach_struct_ops()
                    .map_err(|error| not_registered(&what, &error))?,
            );
        }
    }
    if links.is_empty() {
        return Err(named(
            "has no control (SEC(\".struct_ops\") struct smc_hs_ctrl)",
        ));
    }
    links.iter_mut().for_each(libbpf_rs::Link::disconnect);
    Ok(())
}

/// Returns why the kernel does not load the programs.
fn refused(error: &Error, said: &str) -> io::Error {
    if said.contains("is not found in kernel BTF") {
        return io::Error::other(
            "the SMC module has no type information (BTF): it was built without, or the kernel's (vmlinux) was not \
             there (CONFIG_DEBUG_INFO_BTF_MODULES)",
        );
    }
    match verdict(said) {
        Some(line) => io::Error::other(format!("the kernel refuses the BPF program: {line}")),
        None => failed_by(error),
    }
}

/// Returns why a control is not registered.
fn not_registered(what: &str, error: &Error) -> io::Error {
    match error.kind() {
        ErrorKind::AlreadyExists => {
            io::Error::other(format!("{what}: a control of that name is loaded already"))
        }
        ErrorKind::InvalidInput => io::Error::other(format!(
            "{what}: wrong name or flags: a name has 1 to 15 letters, digits, _ and ., and the only flag is 1"
        )),
        ErrorKind::Unsupported => io::Error::other(format!(
            "{what}: controls have no BPF link; SEC(\".struct_ops\") instead of SEC(\".struct_ops.link\")"
        )),
        _ => failed_by(error),
    }
}

fn unload(name: &str) -> io::Result<()> {
    let controls = controls()?;
    let control = controls
        .iter()
        .find(|control| control.loaded && control.name == name)
        .ok_or_else(|| unknown(name))?;
    let map = MapHandle::from_map_id(control.map_id).map_err(failed)?;
    map.delete(&KEY).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        size: 64,
        name: 24,
        flags: 40,
    };

    #[test]
    fn a_value_begins_with_a_cache_line() {
        assert_eq!(LAYOUT.begin(128), Some(64));
        assert_eq!(LAYOUT.begin(256), Some(128));
        assert_eq!(LAYOUT.begin(512), Some(256));
        assert_eq!(LAYOUT.begin(96), Some(32));
        assert_eq!(LAYOUT.begin(64), None);
    }

    #[test]
    fn a_control_is_read() {
        let mut value = [0; 128];
        value[88..92].copy_from_slice(b"only");
        assert!(LAYOUT.control(7, &value).is_none());
        value[4] = 1;
        let control = LAYOUT.control(7, &value).unwrap();
        assert_eq!((control.name.as_str(), control.map_id), ("only", 7));
        assert!(control.loaded && !control.inheritable);
        (value[4], value[104]) = (2, 1);
        let control = LAYOUT.control(7, &value).unwrap();
        assert!(!control.loaded && control.inheritable);
    }
}
