// SPDX-License-Identifier: GPL-2.0

//! Generic netlink: the module's own family, `SMC_GEN_NETLINK`.

use std::io;

use crate::netlink::attribute;
use crate::netlink::get_u16;
use crate::netlink::put_attribute;
use crate::netlink::text;
use crate::netlink::Netlink;

const NETLINK_GENERIC: i32 = 16;
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// `struct genlmsghdr`.
const HEADER_LEN: usize = 4;

const DUMP_UEID: u8 = 9;
const ADD_UEID: u8 = 10;
const REMOVE_UEID: u8 = 11;
const FLUSH_UEID: u8 = 12;

/// The one attribute of an enterprise ID message, to and from the kernel.
const ATTR_EID: u16 = 1;

/// Characters of an enterprise ID on the wire; shorter ones are padded with blanks.
const EID_LEN: usize = 32;

/// A connection to the module's generic netlink family.
pub struct SmcFamily {
    netlink: Netlink,
    id: u16,
}

impl SmcFamily {
    /// Finds the family; `NotFound` when no SMC module is loaded.
    pub fn open() -> io::Result<Self> {
        let mut netlink = Netlink::open(NETLINK_GENERIC)?;
        let mut payload = header(CTRL_CMD_GETFAMILY);
        put_attribute(&mut payload, CTRL_ATTR_FAMILY_NAME, b"SMC_GEN_NETLINK\0");

        let replies = netlink.request(GENL_ID_CTRL, &payload)?;
        let id = replies
            .iter()
            .filter_map(|reply| attribute(reply.payload.get(HEADER_LEN..)?, CTRL_ATTR_FAMILY_ID))
            .find_map(|value| get_u16(value, 0))
            .ok_or(io::ErrorKind::NotFound)?;

        Ok(Self { netlink, id })
    }

    /// The user-defined enterprise IDs, without their padding.
    pub fn eids(&mut self) -> io::Result<Vec<String>> {
        let replies = self.netlink.dump(self.id, &header(DUMP_UEID))?;
        Ok(replies
            .iter()
            .filter_map(|reply| attribute(reply.payload.get(HEADER_LEN..)?, ATTR_EID))
            .map(|value| text(value).trim_end().to_string())
            .collect())
    }

    /// Adds an enterprise ID: EEXIST if it is there, ERANGE if there are four, EINVAL if it has
    /// other characters than upper-case letters, digits, `.` and `-`.
    pub fn add_eid(&mut self, eid: &str) -> io::Result<()> {
        self.change(ADD_UEID, eid)
    }

    /// Removes an enterprise ID; ENOENT if it is not there.
    pub fn remove_eid(&mut self, eid: &str) -> io::Result<()> {
        self.change(REMOVE_UEID, eid)
    }

    /// Removes all user-defined enterprise IDs.
    pub fn flush_eids(&mut self) -> io::Result<()> {
        self.netlink.request(self.id, &header(FLUSH_UEID))?;
        Ok(())
    }

    fn change(&mut self, command: u8, eid: &str) -> io::Result<()> {
        let mut payload = header(command);
        put_attribute(
            &mut payload,
            ATTR_EID,
            format!("{eid:EID_LEN$}\0").as_bytes(),
        );
        self.netlink.request(self.id, &payload)?;
        Ok(())
    }
}

fn header(command: u8) -> Vec<u8> {
    const VERSION: u8 = 1;
    vec![command, VERSION, 0, 0]
}
