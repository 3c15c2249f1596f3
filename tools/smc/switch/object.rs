// SPDX-License-Identifier: GPL-2.0

//! What clang made of `bpf/switch.c`: one program, its maps, and where it names them.

use std::io;

use object::Object;
use object::ObjectSection;
use object::ObjectSymbol;
use object::RelocationTarget;
use smc_user::bpf::MapShape;

/// The compiled file; empty if there was no clang.
const OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/switch.o"));

/// The kernel function that the program hooks.
pub(super) const FUNCTION: &str = "update_socket_protocol";

/// Bytes of an instruction.
const INSTRUCTION: usize = 8;

/// A map that the program uses.
#[derive(Debug)]
pub(super) struct MapUse {
    pub(super) name: String,
    pub(super) shape: MapShape,
    /// The instructions that load its address, as offsets in bytes.
    places: Vec<usize>,
}

/// The program, not yet tied to maps.
#[derive(Debug)]
pub(super) struct Code {
    bytes: Vec<u8>,
    pub(super) license: String,
    pub(super) maps: Vec<MapUse>,
}

fn malformed(what: &str) -> io::Error {
    io::Error::other(format!(
        "the BPF program in this command is malformed: {what}"
    ))
}

impl Code {
    /// Reads it; says what is missing if this command was built without clang.
    pub(super) fn read() -> io::Result<Self> {
        if OBJECT.is_empty() {
            return Err(io::Error::other(
                "this command was built without clang, so it has no BPF program",
            ));
        }
        Self::parse(OBJECT)
    }

    fn parse(object: &[u8]) -> io::Result<Self> {
        let file = object::File::parse(object).map_err(|error| malformed(&error.to_string()))?;
        let section = |name: &str| {
            let section = file.section_by_name(name);
            section.ok_or_else(|| malformed(&format!("no section {name}")))
        };
        let data = |name: &str| {
            let data = section(name)?.data();
            data.map_err(|error| malformed(&error.to_string()))
        };
        let name = format!("fmod_ret/{FUNCTION}");
        let shapes = data("maps")?;
        let mut maps: Vec<MapUse> = Vec::new();
        for (at, relocation) in section(&name)?.relocations() {
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err(malformed("a relocation without a symbol"));
            };
            let symbol = file.symbol_by_index(symbol).ok();
            let symbol = symbol.ok_or_else(|| malformed("a relocation without a symbol"))?;
            let map = symbol.name().unwrap_or_default();
            let at = usize::try_from(at).map_err(|_| malformed("a far relocation"))?;
            match maps.iter_mut().find(|known| known.name == map) {
                Some(known) => known.places.push(at),
                None => maps.push(MapUse {
                    name: map.to_string(),
                    shape: shape_at(shapes, symbol.address()).ok_or_else(|| malformed(map))?,
                    places: vec![at],
                }),
            }
        }
        let license = data("license")?.split(|byte| *byte == 0).next();
        Ok(Self {
            bytes: data(&name)?.to_vec(),
            license: String::from_utf8_lossy(license.unwrap_or_default()).into_owned(),
            maps,
        })
    }

    /// The instructions, with descriptors instead of the names of maps.
    pub(super) fn with_maps(
        &self,
        descriptor: impl Fn(&str) -> Option<i32>,
    ) -> io::Result<Vec<u8>> {
        /// The source register of a load that says: the number is a map's descriptor.
        const PSEUDO_MAP_FD: u8 = 1;
        let mut bytes = self.bytes.clone();
        for map in &self.maps {
            let fd = descriptor(&map.name).ok_or_else(|| malformed(&map.name))?;
            for place in &map.places {
                let instruction = bytes.get_mut(*place..*place + INSTRUCTION);
                let Some([_, registers, _, _, number @ ..]) = instruction else {
                    return Err(malformed("a relocation outside the program"));
                };
                *registers = *registers & 0x0f | PSEUDO_MAP_FD << 4;
                number.copy_from_slice(&fd.to_ne_bytes());
            }
        }
        Ok(bytes)
    }
}

/// `struct map` of `bpf/switch.c`.
fn shape_at(maps: &[u8], at: u64) -> Option<MapShape> {
    let mut words = maps
        .get(usize::try_from(at).ok()?..)?
        .chunks_exact(4)
        .filter_map(|word| word.try_into().ok())
        .map(u32::from_ne_bytes);
    Some(MapShape {
        kind: words.next()?,
        key_size: words.next()?,
        value_size: words.next()?,
        max_entries: words.next()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_uses_its_maps() {
        if OBJECT.is_empty() {
            return;
        }
        let code = Code::read().unwrap();
        assert_eq!(code.license, "GPL");
        let mut maps: Vec<_> = code.maps.iter().map(|map| &*map.name).collect();
        maps.sort_unstable();
        assert_eq!(maps, ["cgroups", "programs", "settings"]);
        let programs = code.maps.iter().find(|map| map.name == "programs").unwrap();
        assert_eq!((programs.shape.kind, programs.shape.key_size), (1, 16));

        let bytes = code.with_maps(|_| Some(0x1234)).unwrap();
        let place = programs.places[0];
        assert_eq!(bytes[place], 0x18);
        assert_eq!(bytes[place + 1] >> 4, 1);
        assert_eq!(bytes[place + 4..place + 8], 0x1234_i32.to_ne_bytes());
        assert!(code.with_maps(|_| None).is_err());
    }

    #[test]
    fn other_files_are_refused() {
        assert!(Code::parse(b"\x7fELF").is_err());
        assert!(Code::parse(&std::fs::read("/proc/self/exe").unwrap()).is_err());
    }
}
