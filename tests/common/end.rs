// SPDX-License-Identifier: GPL-2.0
//! One side of a link group, whose peer is the test.

use smc_proto::id::{
    Gid,
    LinkNum,
    Mac,
    QpNum,
    RemoteAddr,
    Rkey, //
};
use smc_proto::lgr::rtoken::RtokenEntry;
use smc_proto::lgr::{
    LinkIdx,
    LinkMap,
    Role,
    Rtoken,
    Rtokens, //
};
use smc_proto::llc::first_contact::PeerModule;
use smc_proto::llc::rkey::ConfirmRkeyParams;
use smc_proto::llc::{
    Action,
    Actions,
    Arrival,
    Busy,
    Llc,
    LocalEnd,
    Params, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::clc::{
    Limits,
    Release, //
};
use smc_proto::wire::llc::{
    Body,
    Kind,
    LlcMessage,
    PeerOrder,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Received,
    Version, //
};

use super::params;

pub const LINK: LinkNum = LinkNum(1);

pub const FIRST: LinkIdx = LinkIdx::FIRST;
pub const SECOND: LinkIdx = LinkIdx::ALL[1];

/// One side of a link group with link number 1 at index 0 and link number 2 at index 1.
pub struct End {
    pub llc: Llc,
    pub version: Version,
    pub links: LinkMap<LinkNum>,
    pub rows: Vec<RtokenEntry>,
    /// An index for a further link.
    pub spare: Option<LinkIdx>,
    pub now: Instant,
}

impl End {
    pub fn new(role: Role, version: Version) -> Self {
        let mut links = LinkMap::default();
        links[FIRST] = LINK;
        links[SECOND] = LinkNum(2);
        Self {
            llc: Llc::new(Params {
                max_links: client_link(version).limits.max_links,
                ..params(role, version)
            }),
            version,
            links,
            rows: vec![RtokenEntry::EMPTY; 4],
            spare: None,
            now: Instant::ZERO,
        }
    }

    /// Delivers bytes on link `idx`.
    pub fn receive<'a>(&mut self, idx: LinkIdx, bytes: &'a [u8]) -> Vec<Action<'a>> {
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            panic!("not an LLC message");
        };
        self.deliver(idx, &message)
    }

    pub fn deliver<'a>(&mut self, idx: LinkIdx, message: &LlcMessage<'a>) -> Vec<Action<'a>> {
        let mut arrival = Arrival {
            idx,
            spare: self.spare,
            links: &self.links,
            rtokens: &mut Rtokens::new(&mut self.rows),
        };
        list(self.llc.on_message(message, &mut arrival, self.now))
    }

    pub fn deliver_body<'a>(&mut self, kind: Kind, body: Body<'a>) -> Vec<Action<'a>> {
        let message = LlcMessage {
            version: self.version,
            kind,
            body,
        };
        self.deliver(FIRST, &message)
    }

    pub fn sleep(&mut self, millis: u64) -> Vec<Action<'static>> {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        list(self.llc.on_timeout(self.now))
    }

    /// Sleeps as the thread that waits for the end of a first contact.
    pub fn wait(&mut self, millis: u64) -> Vec<Action<'static>> {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        self.llc.on_awake(self.now);
        list(self.llc.on_timeout(self.now))
    }

    pub fn confirm_rkey(&mut self, rkey: u32) -> Result<Vec<Action<'static>>, Busy> {
        let here = Rtoken {
            rkey: Rkey(rkey),
            addr: RemoteAddr(0x1000),
        };
        let others = List::EMPTY;
        self.llc
            .begin_confirm_rkey(FIRST, ConfirmRkeyParams { here, others }, self.now)
            .map(list)
    }
}

pub fn list(actions: Actions<'_>) -> Vec<Action<'_>> {
    actions.into_iter().collect()
}

/// An end that begins the first contact with that peer.
pub fn begin_with(role: Role, version: Version, peer: PeerModule) -> (End, Vec<Action<'static>>) {
    let mut end = End::new(role, version);
    let link = match role {
        Role::Client => client_link(version),
        Role::Server => server_link(version),
    };
    let actions = end.llc.begin_first_contact(link, peer, end.now).unwrap();
    (end, list(actions))
}

/// The bytes of the only action, a message on the first link.
pub fn sent(actions: &[Action<'_>]) -> Vec<u8> {
    let [Action::Send {
        idx: FIRST,
        message,
    }] = actions
    else {
        panic!("{actions:?}");
    };
    bytes(message)
}

pub fn bytes(message: &LlcMessage<'_>) -> Vec<u8> {
    let mut buf = [0; MAX_LEN];
    message.emit(PeerOrder::Little, &mut buf).unwrap().to_vec()
}

pub fn vector(name: &str) -> Vec<u8> {
    std::fs::read(format!("tests/vectors/{name}.bin")).unwrap()
}

pub const BOTH: [Role; 2] = [Role::Client, Role::Server];

/// The client's end in the vectors.
pub fn client_link(version: Version) -> LocalEnd {
    let mut gid = [0; 16];
    gid[0] = 0xfe;
    gid[1] = 0x80;
    gid[11] = 0xff;
    gid[12] = 0xfe;
    gid[15] = 1;
    LocalEnd {
        idx: FIRST,
        mac: Mac([2, 0, 0, 0, 0, 1]),
        gid: Gid(gid),
        qp_num: QpNum::new(0x456).unwrap(),
        link_num: LinkNum::NONE,
        group_uid: 0x0100_0001,
        release: match version {
            Version::V1 => Release::R0,
            Version::V2 => Release::R1,
        },
        limits: Limits {
            max_conns: 255,
            max_links: match version {
                Version::V1 => 2,
                Version::V2 => 1,
            },
        },
        is_direct: true,
    }
}

pub fn server_link(version: Version) -> LocalEnd {
    let mut link = client_link(version);
    link.mac = Mac([2, 0, 0, 0, 0, 2]);
    link.gid.0[15] = 2;
    link.qp_num = QpNum::new(0x123).unwrap();
    link.link_num = LINK;
    link
}

pub fn begin(role: Role, version: Version) -> (End, Vec<Action<'static>>) {
    begin_with(role, version, PeerModule::Other)
}
