// SPDX-License-Identifier: GPL-2.0

//! Generic netlink: the families of the module.

use std::io;

use libc::NETLINK_GENERIC;
use smc_uapi::SMC_MAX_EID_LEN;
use smc_uapi::SMC_NETLINK_ADD_UEID;
use smc_uapi::SMC_NETLINK_DUMP_UEID;
use smc_uapi::SMC_NETLINK_FLUSH_UEID;
use smc_uapi::SMC_NETLINK_REMOVE_UEID;
use smc_uapi::SMC_NLA_EID_TABLE_ENTRY;

use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::put_text;
use crate::netlink::text;
use crate::netlink::Netlink;
use crate::netlink::Reply;
use crate::netlink::NLM_F_ACK;
use crate::netlink::NLM_F_DUMP;

const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;

/// Length of `struct genlmsghdr`, bytes.
const HEADER_LEN: usize = 4;

pub use smc_uapi::SMCR_GENL_FAMILY_NAME as PNET_FAMILY;
pub use smc_uapi::SMC_GENL_FAMILY_NAME as SMC_FAMILY;

/// One message of a family.
pub struct Message {
    /// The command; most answers repeat that of the request.
    pub command: u8,
    /// Its attributes.
    pub attributes: Vec<u8>,
}

/// A generic netlink family.
pub struct Family {
    netlink: Netlink,
    id: u16,
}

impl Family {
    /// Finds a family; `NotFound` if there is none of that name.
    pub fn open(name: &str) -> io::Result<Self> {
        Self::find(name, Netlink::open(NETLINK_GENERIC)?)
    }

    /// As [`Family::open`], but dumps are received in parts of at most `len` bytes.
    pub fn open_for_parts(name: &str, len: usize) -> io::Result<Self> {
        let mut netlink = Netlink::open(NETLINK_GENERIC)?;
        netlink.set_buffer_len(len);
        Self::find(name, netlink)
    }

    fn find(name: &str, netlink: Netlink) -> io::Result<Self> {
        let id = GENL_ID_CTRL;
        let mut family = Self { netlink, id };
        let mut attributes = Vec::new();
        put_text(&mut attributes, CTRL_ATTR_FAMILY_NAME, name);
        // Without a number, unlike an ENOENT that the family itself returns.
        let absent = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => io::ErrorKind::NotFound.into(),
            _ => error,
        };
        let replies = family
            .call(CTRL_CMD_GETFAMILY, &attributes)
            .map_err(absent)?;
        let mut ids = replies
            .iter()
            .filter_map(|reply| attribute(&reply.attributes, CTRL_ATTR_FAMILY_ID));
        let id = ids.find_map(|value| get(value, 0));
        family.id = id.ok_or(io::ErrorKind::NotFound)?;
        Ok(family)
    }

    /// Requests a dump.
    pub fn dump(&mut self, command: u8) -> io::Result<Vec<Message>> {
        self.ask(NLM_F_DUMP, &header(command))
    }

    /// Sends a request that is no dump, and waits for the acknowledgement.
    pub fn call(&mut self, command: u8, attributes: &[u8]) -> io::Result<Vec<Message>> {
        let payload = [&header(command), attributes].concat();
        self.ask(NLM_F_ACK, &payload)
    }

    /// Sends a request with these netlink flags, and a payload that begins with the generic netlink
    /// header.
    pub fn ask(&mut self, flags: u16, payload: &[u8]) -> io::Result<Vec<Message>> {
        let replies = self.netlink.ask(self.id, flags, payload)?;
        Ok(replies.iter().filter_map(Message::of).collect())
    }

    /// Begins a dump whose parts [`Family::next_part`] returns.
    pub fn begin_dump(&mut self, command: u8) -> io::Result<()> {
        self.netlink.begin_dump(self.id, &header(command))
    }

    /// Returns the next part of a dump; `None` at its end.
    pub fn next_part(&mut self) -> io::Result<Option<Vec<Message>>> {
        let part = self.netlink.next_part()?;
        Ok(part.map(|replies| replies.iter().filter_map(Message::of).collect()))
    }
}

impl Message {
    fn of(reply: &Reply) -> Option<Self> {
        Some(Self {
            command: *reply.payload.first()?,
            attributes: reply.payload.get(HEADER_LEN..)?.to_vec(),
        })
    }
}

/// The table of user-defined enterprise IDs.
pub struct Ueids(Family);

impl Ueids {
    /// Finds the family; `NotFound` if no SMC module is loaded.
    pub fn open() -> io::Result<Self> {
        Family::open(SMC_FAMILY).map(Self)
    }

    /// Returns the user-defined enterprise IDs, without padding.
    pub fn list(&mut self) -> io::Result<Vec<String>> {
        let messages = self.0.dump(SMC_NETLINK_DUMP_UEID)?;
        Ok(messages
            .iter()
            .filter_map(|message| attribute(&message.attributes, SMC_NLA_EID_TABLE_ENTRY))
            .map(|value| text(value).trim_end().to_string())
            .collect())
    }

    /// Adds an enterprise ID of up to 32 bytes. EEXIST if it exists, ERANGE if there are four already, EINVAL if it
    /// contains other characters than upper-case letters, digits, `.` and `-`, or two dots in a row,
    /// which the kernel takes but smc-tools refuses.
    pub fn add(&mut self, eid: &str) -> io::Result<()> {
        match eid.contains("..") {
            true => Err(io::Error::from_raw_os_error(libc::EINVAL)),
            false => self.change(SMC_NETLINK_ADD_UEID, eid),
        }
    }

    /// Removes an enterprise ID; ENOENT if it does not exist.
    pub fn remove(&mut self, eid: &str) -> io::Result<()> {
        self.change(SMC_NETLINK_REMOVE_UEID, eid)
    }

    /// Removes all user-defined enterprise IDs.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.call(SMC_NETLINK_FLUSH_UEID, &[])?;
        Ok(())
    }

    fn change(&mut self, command: u8, eid: &str) -> io::Result<()> {
        let mut attributes = Vec::new();
        put_text(&mut attributes, SMC_NLA_EID_TABLE_ENTRY, &padded(eid)?);
        self.0.call(command, &attributes)?;
        Ok(())
    }
}

/// Returns an enterprise ID with blanks up to the length that the kernel wants. For one that is longer, the kernel has
/// the same error as for too many.
fn padded(eid: &str) -> io::Result<String> {
    let lacking = SMC_MAX_EID_LEN.checked_sub(eid.len());
    let long = || io::Error::other(format!("EID is longer than {SMC_MAX_EID_LEN} characters"));
    let lacking = lacking.ok_or_else(long)?;
    Ok(eid.to_string() + &" ".repeat(lacking))
}

/// Returns a `struct genlmsghdr`.
pub fn header(command: u8) -> Vec<u8> {
    const VERSION: u8 = 1;
    vec![command, VERSION, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_enterprise_id_has_32_bytes() {
        assert_eq!(padded("A").unwrap(), format!("A{}", " ".repeat(31)));
        // What the kernel refuses for its letters, not for its length.
        assert_eq!(padded("\u{c4}").unwrap().len(), 32);
        assert_eq!(padded(&"A".repeat(32)).unwrap().len(), 32);
        let long = padded(&"A".repeat(33)).unwrap_err();
        assert_eq!(long.to_string(), "EID is longer than 32 characters");
    }
}
