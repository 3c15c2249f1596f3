// SPDX-License-Identifier: GPL-2.0

//! Our end of a link, and the messages that describe it.

use crate::id::{
    Gid,
    LinkNum,
    LinkUid,
    Mac,
    Mtu,
    Psn,
    QpNum, //
};
use crate::lgr::{
    LinkIdx,
    MAX_LINKS_DEFAULT, //
};
use crate::wire::clc::{
    Limits,
    Release, //
};
use crate::wire::iwarp::IwListenAddr;
use crate::wire::llc::{
    AddLink,
    AddLinkV2,
    Body,
    ConfirmLink,
    NewLink,
    NewLinkRkey, //
};
use crate::wire::List;

/// Our end of a link.
#[derive(Clone, Copy, Debug)]
pub struct LocalEnd {
    /// Index of the link.
    pub idx: LinkIdx,
    /// The port's Ethernet address.
    pub mac: Mac,
    /// The port's GID.
    pub gid: Gid,
    /// The queue pair.
    pub qp_num: QpNum,
    /// The link's number, given by the server. The client of a first contact does not know it yet.
    pub link_num: LinkNum,
    /// Our UID for link number zero of the group, for diagnosis.
    pub group_uid: u32,
    /// The release of version 2; [`Release::R0`] in version 1.
    pub release: Release,
    /// The limits of the group.
    pub limits: Limits,
    /// No gateway is between the two ports.
    pub is_direct: bool,
}

impl LocalEnd {
    pub(super) fn confirm_link(&self, link_num: LinkNum) -> ConfirmLink {
        let limits = match self.release >= Release::R1 {
            true => self.limits,
            false => Limits {
                max_conns: 0,
                max_links: MAX_LINKS_DEFAULT,
            },
        };
        ConfirmLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: self.qp_num,
            link_num,
            uid: LinkUid(self.group_uid.wrapping_add(link_num.0.into())),
            limits,
            no_eye_catcher: true,
        }
    }

    /// Makes a request that shows the client that no second link follows.
    ///
    /// A C client whose limit is above one waits three seconds for an ADD_LINK. One without a path MTU is rejected at
    /// once and ends the wait (RFC 7609 appendix A.3.2, reason 2). In version 2 the part with the keys belongs to every
    /// such request, even without a key.
    pub(super) fn no_more_links(&self) -> Body<'static> {
        let number = self.link_num.0.checked_add(1).unwrap_or(1);
        let link = NewLink {
            mac: self.mac,
            gid: self.gid,
            qp_num: self.qp_num,
            link_num: LinkNum(number),
            mtu: None,
            psn: Psn::default(),
            listen_addr: None,
        };
        let v2 = AddLinkV2 {
            direct: self.is_direct,
            target_gid: self.gid,
            rkeys: List::EMPTY,
        };
        Body::AddLink(AddLink::Link { link, v2: Some(v2) })
    }
}

/// Our end of a link that is to be added, and our buffers on it.
#[derive(Clone, Copy, Debug)]
pub struct NewEnd<'a> {
    /// The end.
    pub end: LocalEnd,
    /// The port's path MTU; for the client, the lower of both.
    pub mtu: Mtu,
    /// The first packet number of the queue pair.
    pub psn: Psn,
    /// The address where we listen for the connection, as the client of a link over iWARP.
    pub listen_addr: Option<IwListenAddr>,
    /// All buffers known to the peer, by their keys on the link that the flow runs on.
    pub keys: Keys<'a>,
}

/// Buffers on a link that is added.
pub type Keys<'a> = List<'a, NewLinkRkey, 255>;

impl<'a> NewEnd<'a> {
    /// Makes the message that offers the link, or accepts it.
    pub(super) fn add_link(&self) -> Body<'a> {
        let link = NewLink {
            mac: self.end.mac,
            gid: self.end.gid,
            qp_num: self.end.qp_num,
            link_num: self.end.link_num,
            mtu: Some(self.mtu),
            psn: self.psn,
            listen_addr: self.listen_addr,
        };
        let v2 = AddLinkV2 {
            direct: self.end.is_direct,
            target_gid: self.end.gid,
            rkeys: self.keys,
        };
        Body::AddLink(AddLink::Link { link, v2: Some(v2) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::clc::OsType;
    use crate::wire::llc::{
        Kind,
        LlcMessage,
        PeerOrder, //
    };
    use crate::wire::Version;

    #[test]
    fn no_second_link_is_said_in_a_whole_message_without_an_mtu() {
        let link = LocalEnd {
            idx: LinkIdx::FIRST,
            mac: Mac([2, 0, 0, 0, 0, 1]),
            gid: Gid([1; 16]),
            qp_num: QpNum::default(),
            link_num: LinkNum(1),
            group_uid: 0,
            release: Release::R1,
            limits: Limits {
                max_conns: 255,
                max_links: 2,
            },
            is_direct: true,
        };
        for (version, len) in [(Version::V1, 44), (Version::V2, 72)] {
            let message = LlcMessage {
                version,
                kind: Kind::Request,
                body: link.no_more_links(),
            };
            let mut buf = [0; 128];
            let bytes = message
                .emit(PeerOrder::of(OsType::LINUX), &mut buf)
                .unwrap();
            assert_eq!((bytes.len(), bytes[32] & 0x0f), (len, 0), "{version:?}");
        }
    }
}
