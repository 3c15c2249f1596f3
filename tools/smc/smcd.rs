// SPDX-License-Identifier: GPL-2.0

//! SMC-D: its link groups, and whether connections within this machine may use shared memory.

use std::fmt;
use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;
use smc_uapi::*;

use crate::genl::Message;
use crate::view::os;
use crate::view::version;
use crate::view::Attributes;
use crate::view::Module;

/// An SMC-D link group. All connections within this machine are in one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SmcdGroup {
    /// Its id on this machine.
    pub id: u32,
    /// VLAN id, 0 for none.
    pub vlan: u64,
    /// The PNETID.
    pub pnetid: String,
    /// Number of connections.
    pub connections: u64,
    /// Size of all send buffers, bytes.
    pub send_bytes: u64,
    /// Size of all rings that data are received from, bytes.
    pub receive_bytes: u64,
    /// The GID of the device: 16 hexadecimal digits, and 16 more for an emulated device.
    pub gid: String,
    /// The GID of the peer's device. Both ends are on one kernel if it is the same.
    pub peer_gid: String,
    /// The channel of the device.
    pub chid: u64,
    /// Properties that only version 2 has.
    pub v2: Option<SmcdGroupV2>,
}

/// Properties of an SMC-D link group of version 2.
#[derive(Clone, Debug, Serialize)]
pub struct SmcdGroupV2 {
    /// Version and release, such as `2.1`.
    pub version: String,
    /// The peer's host name.
    pub peer: String,
    /// The peer's operating system.
    pub os: &'static str,
    /// The negotiated enterprise ID; empty if none was needed.
    pub eid: String,
}

impl SmcdGroup {
    fn of(message: &Message) -> Option<Self> {
        let attributes = Attributes::of(message)?;
        let number = |kind| attributes.number(kind);
        Some(Self {
            // CAST: the attribute has four bytes.
            id: number(SMC_NLA_LGR_D_ID) as u32,
            vlan: number(SMC_NLA_LGR_D_VLAN_ID),
            pnetid: attributes.text(SMC_NLA_LGR_D_PNETID),
            connections: number(SMC_NLA_LGR_D_CONNS_NUM),
            send_bytes: number(SMC_NLA_LGR_D_SNDBUF_ALLOC),
            receive_bytes: number(SMC_NLA_LGR_D_DMB_ALLOC),
            gid: gid(number(SMC_NLA_LGR_D_GID), number(SMC_NLA_LGR_D_EXT_GID)),
            peer_gid: gid(
                number(SMC_NLA_LGR_D_PEER_GID),
                number(SMC_NLA_LGR_D_PEER_EXT_GID),
            ),
            chid: number(SMC_NLA_LGR_D_CHID),
            v2: attributes
                .nest(SMC_NLA_LGR_D_V2_COMMON)
                .map(|common| SmcdGroupV2 {
                    version: version(common),
                    peer: common.text(SMC_NLA_LGR_V2_PEER_HOST),
                    os: os(common),
                    eid: common.text(SMC_NLA_LGR_V2_NEG_EID),
                }),
        })
    }
}

/// Formats a GID; devices that are hardware have the first half alone.
fn gid(first: u64, second: u64) -> String {
    match second {
        0 => format!("{first:016x}"),
        _ => format!("{first:016x}{second:016x}"),
    }
}

impl Module {
    /// Returns all SMC-D link groups.
    pub fn smcd_groups(&mut self) -> io::Result<Vec<SmcdGroup>> {
        let messages = self.dump(SMC_NETLINK_GET_LGR_SMCD)?;
        Ok(messages.iter().filter_map(SmcdGroup::of).collect())
    }
}

/// Whether connections within this machine may use shared memory: `net.smc.smcd_loopback`. Off in
/// the initial network namespace is off for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Loopback {
    /// The setting of this network namespace.
    pub here: bool,
    /// The setting of the initial network namespace; `None` if that is another one, from which it
    /// cannot be read.
    pub initial: Option<bool>,
}

impl Loopback {
    /// Reads it; `None` if the module has no such setting.
    pub fn read() -> Option<Self> {
        Self::below(Path::new("/proc/sys/net/smc"))
    }

    fn below(settings: &Path) -> Option<Self> {
        let here = fs::read_to_string(settings.join("smcd_loopback")).ok()?;
        let here = here.trim() != "0";
        // Only the initial network namespace has this one.
        let is_initial = settings.join("smcr_mem").exists();
        let initial = is_initial.then_some(here);
        Some(Self { here, initial })
    }
}

impl fmt::Display for Loopback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.here, self.initial) {
            (true, Some(_)) => "on",
            (true, None) => {
                "on, unless net.smc.smcd_loopback is 0 in the initial network namespace"
            }
            (false, Some(_)) => "off for all network namespaces (net.smc.smcd_loopback is 0)",
            (false, None) => "off in this network namespace (net.smc.smcd_loopback is 0)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::put_attribute;
    use crate::netlink::put_text;
    use crate::netlink::NLA_F_NESTED;

    fn group(has_v2: bool) -> SmcdGroup {
        let mut nest = Vec::new();
        let mut put = |kind, value: &[u8]| put_attribute(&mut nest, kind, value);
        put(SMC_NLA_LGR_D_ID, &0x100u32.to_ne_bytes());
        put(SMC_NLA_LGR_D_GID, &0xa1u64.to_ne_bytes());
        put(SMC_NLA_LGR_D_EXT_GID, &0xa2u64.to_ne_bytes());
        put(SMC_NLA_LGR_D_PEER_GID, &0xa3u64.to_ne_bytes());
        put(SMC_NLA_LGR_D_CONNS_NUM, &7u32.to_ne_bytes());
        put(SMC_NLA_LGR_D_CHID, &0xffffu32.to_ne_bytes());
        put(SMC_NLA_LGR_D_SNDBUF_ALLOC, &0u32.to_ne_bytes());
        put(SMC_NLA_LGR_D_DMB_ALLOC, &(5u64 << 30).to_ne_bytes());
        if has_v2 {
            let mut common = Vec::new();
            put_attribute(&mut common, SMC_NLA_LGR_V2_VER, &[2]);
            put_attribute(&mut common, SMC_NLA_LGR_V2_REL, &[1]);
            put_attribute(&mut common, SMC_NLA_LGR_V2_OS, &[2]);
            put_text(&mut common, SMC_NLA_LGR_V2_PEER_HOST, "host");
            put_attribute(&mut nest, SMC_NLA_LGR_D_V2_COMMON | NLA_F_NESTED, &common);
        }
        let mut attributes = Vec::new();
        let kind = u16::from(SMC_NETLINK_GET_LGR_SMCD) | NLA_F_NESTED;
        put_attribute(&mut attributes, kind, &nest);
        let message = Message {
            command: SMC_NETLINK_GET_LGR_SMCD,
            attributes,
        };
        SmcdGroup::of(&message).unwrap()
    }

    #[test]
    fn a_group_is_read() {
        let group = group(true);
        assert_eq!(
            (group.id, group.connections, group.chid),
            (0x100, 7, 0xffff)
        );
        assert_eq!((group.send_bytes, group.receive_bytes), (0, 5 << 30));
        assert_eq!(group.gid, "00000000000000a100000000000000a2");
        assert_eq!(group.peer_gid, "00000000000000a3");
        let v2 = group.v2.unwrap();
        assert_eq!((&*v2.version, &*v2.peer, v2.os), ("2.1", "host", "Linux"));
        assert!(v2.eid.is_empty());
    }

    #[test]
    fn version_1_has_no_more() {
        assert!(group(false).v2.is_none());
    }

    #[test]
    fn the_setting_of_the_initial_namespace_counts_for_all() {
        let settings = std::env::temp_dir().join(format!("smcd-loopback-{}", std::process::id()));
        fs::create_dir_all(&settings).unwrap();
        let read = |here: &str| {
            fs::write(settings.join("smcd_loopback"), here).unwrap();
            Loopback::below(&settings).unwrap()
        };
        let (on, off) = (read("1\n"), read("0\n"));
        assert_eq!((on.here, on.initial), (true, None));
        assert_eq!((off.here, off.initial), (false, None));
        fs::write(settings.join("smcr_mem"), "1 2 3\n").unwrap();
        assert_eq!(read("1\n").initial, Some(true));
        assert_eq!(read("0\n").initial, Some(false));
        fs::remove_dir_all(&settings).unwrap();
        assert_eq!(Loopback::below(&settings), None);
    }

    #[test]
    fn on_and_off_say_where() {
        let say = |here, initial| Loopback { here, initial }.to_string();
        assert_eq!(say(true, Some(true)), "on");
        assert!(say(true, None).starts_with("on, unless "));
        assert!(say(false, None).starts_with("off in this network namespace "));
        assert!(say(false, Some(false)).starts_with("off for all "));
    }
}
