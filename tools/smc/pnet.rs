// SPDX-License-Identifier: GPL-2.0

//! The table of physical networks (PNETIDs) of the caller's network namespace (`SMC_PNETID`).

use std::io;

use serde::Serialize;
use smc_uapi::SMC_PNETID_ADD as ADD;
use smc_uapi::SMC_PNETID_DEL as DEL;
use smc_uapi::SMC_PNETID_ETHNAME as NETDEV;
use smc_uapi::SMC_PNETID_FLUSH as FLUSH;
use smc_uapi::SMC_PNETID_GET as GET;
use smc_uapi::SMC_PNETID_IBNAME as DEVICE;
use smc_uapi::SMC_PNETID_IBPORT as PORT;
use smc_uapi::SMC_PNETID_NAME as NAME;

use crate::genl::header;
use crate::genl::Family;
use crate::genl::Message;
use crate::genl::PNET_FAMILY;
use crate::netlink::attribute;
use crate::netlink::put_attribute;
use crate::netlink::put_text;
use crate::netlink::text;

/// What the kernel returns for an absent name.
const NO_NAME: &str = "n/a";

/// An entry: a network device, or a port of an RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The PNETID.
    pub pnetid: String,
    /// The network device.
    pub netdev: Option<String>,
    /// The RDMA device.
    pub device: Option<String>,
    /// Port number of the RDMA device.
    pub port: Option<u8>,
}

impl Place {
    fn of(message: &Message) -> Option<Self> {
        let name = |kind| attribute(&message.attributes, kind).map(text);
        let known = |kind| name(kind).filter(|name| name != NO_NAME);
        let device = known(DEVICE);
        let port = attribute(&message.attributes, PORT).and_then(|value| value.first().copied());
        Some(Self {
            pnetid: name(NAME)?,
            netdev: known(NETDEV),
            port: port.filter(|_| device.is_some()),
            device,
        })
    }
}

/// The table of a namespace.
pub struct Table(Family);

impl Table {
    /// Opens it; `NotFound` if no SMC module is loaded.
    pub fn open() -> io::Result<Self> {
        Family::open(PNET_FAMILY).map(Self)
    }

    /// Returns all entries.
    pub fn list(&mut self) -> io::Result<Vec<Place>> {
        let messages = self.0.dump(GET)?;
        Ok(messages.iter().filter_map(Place::of).collect())
    }

    /// Returns the entries of one physical network.
    pub fn get(&mut self, pnetid: &str) -> io::Result<Vec<Place>> {
        let mut payload = header(GET);
        put_text(&mut payload, NAME, pnetid);
        let messages = self.0.ask(0, &payload)?;
        Ok(messages.iter().filter_map(Place::of).collect())
    }

    /// Adds a network device, an RDMA port, or both. EEXIST if all exist already, EINVAL for
    /// invalid names.
    pub fn add(&mut self, place: &Place) -> io::Result<()> {
        let mut attributes = Vec::new();
        put_text(&mut attributes, NAME, &place.pnetid);
        for (kind, name) in [(NETDEV, &place.netdev), (DEVICE, &place.device)] {
            if let Some(name) = name {
                put_text(&mut attributes, kind, name);
            }
        }
        if let Some(port) = place.port {
            put_attribute(&mut attributes, PORT, &[port]);
        }
        self.0.call(ADD, &attributes).map(drop)
    }

    /// Removes the entries of a physical network; ENOENT if there are none.
    pub fn remove(&mut self, pnetid: &str) -> io::Result<()> {
        let mut attributes = Vec::new();
        put_text(&mut attributes, NAME, pnetid);
        self.0.call(DEL, &attributes).map(drop)
    }

    /// Removes all entries.
    pub fn flush(&mut self) -> io::Result<()> {
        self.0.call(FLUSH, &[]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_there_are_left_out() {
        let mut attributes = Vec::new();
        put_text(&mut attributes, NAME, "NET1");
        put_text(&mut attributes, NETDEV, "eth0");
        put_text(&mut attributes, DEVICE, "n/a");
        put_attribute(&mut attributes, PORT, &[0xff]);
        let message = Message {
            command: GET,
            attributes,
        };
        let place = Place {
            pnetid: "NET1".to_string(),
            netdev: Some("eth0".to_string()),
            device: None,
            port: None,
        };
        assert_eq!(Place::of(&message), Some(place));
    }
}
