// SPDX-License-Identifier: GPL-2.0

//! Flow control of a network device: pause frames (ethtool netlink), and those of single priorities (PFC, by DCB
//! netlink). Few drivers tell both.

use std::io;

use libc::NETLINK_ROUTE;

use crate::genl::Family;
use crate::netlink::attribute;
use crate::netlink::put_attribute;
use crate::netlink::put_text;
use crate::netlink::Netlink;
use crate::netlink::NLA_F_NESTED;

/// Of `linux/ethtool_netlink.h`.
const ETHTOOL: &str = "ethtool";
const ETHTOOL_MSG_PAUSE_GET: u8 = 21;
const ETHTOOL_A_HEADER_DEV_INDEX: u16 = 1;
const ETHTOOL_A_PAUSE_HEADER: u16 = 1;
const ETHTOOL_A_PAUSE_RX: u16 = 3;
const ETHTOOL_A_PAUSE_TX: u16 = 4;

/// Of `linux/dcbnl.h`, and `RTM_GETDCB`.
const RTM_GETDCB: u16 = 78;
const DCB_CMD_IEEE_GET: u8 = 21;
const DCB_ATTR_IFNAME: u16 = 1;
const DCB_ATTR_IEEE: u16 = 13;
const DCB_ATTR_IEEE_PFC: u16 = 2;

/// Length of `struct dcbmsg`, bytes.
const DCB_HEADER_LEN: usize = 4;

/// Flow control; what the driver does not tell is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowControl {
    /// Whether pause frames are sent or heeded.
    pub pause: Option<bool>,
    /// The priorities with PFC, a bit each.
    pub pfc: Option<u8>,
}

impl FlowControl {
    /// Asks for that of a network device of this namespace.
    pub fn of(index: u32, name: &str) -> Self {
        Self {
            pause: pause(index).ok().flatten(),
            pfc: pfc(name).ok().flatten(),
        }
    }

    /// Whether it is known that there is none.
    pub fn is_off(&self) -> bool {
        let is_pfc_off = self.pfc.is_none_or(|priorities| priorities == 0);
        self.pause == Some(false) && is_pfc_off
    }
}

fn pause(index: u32) -> io::Result<Option<bool>> {
    let (mut header, mut request) = (Vec::new(), Vec::new());
    put_attribute(
        &mut header,
        ETHTOOL_A_HEADER_DEV_INDEX,
        &index.to_ne_bytes(),
    );
    put_attribute(&mut request, ETHTOOL_A_PAUSE_HEADER | NLA_F_NESTED, &header);
    let replies = Family::open(ETHTOOL)?.call(ETHTOOL_MSG_PAUSE_GET, &request)?;
    Ok(replies
        .first()
        .and_then(|reply| pause_in(&reply.attributes)))
}

fn pause_in(attributes: &[u8]) -> Option<bool> {
    let on = |kind| attribute(attributes, kind).and_then(|value| value.first().copied());
    let (rx, tx) = (on(ETHTOOL_A_PAUSE_RX)?, on(ETHTOOL_A_PAUSE_TX)?);
    Some(rx != 0 || tx != 0)
}

fn pfc(name: &str) -> io::Result<Option<u8>> {
    // The family does not matter.
    let mut request = vec![0, DCB_CMD_IEEE_GET, 0, 0];
    put_text(&mut request, DCB_ATTR_IFNAME, name);
    // One message and the acknowledgement.
    let mut netlink = Netlink::open(NETLINK_ROUTE)?;
    let replies = netlink.ask(RTM_GETDCB, crate::netlink::NLM_F_ACK, &request)?;
    Ok(replies.first().and_then(|reply| pfc_in(&reply.payload)))
}

fn pfc_in(payload: &[u8]) -> Option<u8> {
    let ieee = attribute(payload.get(DCB_HEADER_LEN..)?, DCB_ATTR_IEEE)?;
    // The second byte of `struct ieee_pfc`.
    attribute(ieee, DCB_ATTR_IEEE_PFC)?.get(1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_frames_in_one_direction_are_flow_control() {
        let said = |rx, tx| {
            let mut attributes = Vec::new();
            put_attribute(&mut attributes, ETHTOOL_A_PAUSE_RX, &[rx]);
            put_attribute(&mut attributes, ETHTOOL_A_PAUSE_TX, &[tx]);
            pause_in(&attributes)
        };
        assert_eq!([said(0, 0), said(1, 0)], [Some(false), Some(true)]);
        assert_eq!(pause_in(&[]), None);
    }

    #[test]
    fn priorities_with_flow_control_are_bits() {
        let (mut ieee, mut payload) = (Vec::new(), vec![0; DCB_HEADER_LEN]);
        put_attribute(&mut ieee, DCB_ATTR_IEEE_PFC, &[8, 1 << 3, 0, 0, 0, 0]);
        put_attribute(&mut payload, DCB_ATTR_IEEE | NLA_F_NESTED, &ieee);
        assert_eq!(pfc_in(&payload), Some(1 << 3));
        assert_eq!(pfc_in(&payload[..3]), None);
    }

    #[test]
    fn it_is_off_only_where_a_driver_says_so() {
        let is_off = |pause, pfc| FlowControl { pause, pfc }.is_off();
        assert!(is_off(Some(false), None) && is_off(Some(false), Some(0)));
        assert!(!is_off(None, None) && !is_off(None, Some(0)));
        assert!(!is_off(Some(true), None) && !is_off(Some(false), Some(8)));
    }
}
