// SPDX-License-Identifier: GPL-2.0
//! A list of operations on the LLC state of one link group, decoded from bytes, with a peer that
//! says anything.
//!
//! Fuzzing and the seeded test share it. The promises: a flow ends once and says so, an idle state
//! ends nothing, a busy one begins nothing, nothing is sent on a link that is not there, the peer's
//! request gets at most one answer, and time ends every flow.

use smc_proto::id::{
    Gid,
    LinkNum,
    Mac,
    QpNum,
    RemoteAddr,
    Rkey, //
};
use smc_proto::lgr::rtoken::Row;
use smc_proto::lgr::{
    Role,
    Rtoken,
    Rtokens,
    LINK_SLOTS, //
};
use smc_proto::llc::first::FirstLink;
use smc_proto::llc::rkey::{
    Announcement,
    Deletion, //
};
use smc_proto::llc::{
    Action,
    Actions,
    Arrival,
    Llc, //
};
use smc_proto::reason::Reason;
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::clc::{
    Limits,
    Release, //
};
use smc_proto::wire::llc::{
    Kind,
    PeerOrder,
    WireRkey,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Received,
    Version,
    SEND_LEN, //
};

/// Reads numbers from the bytes; zeros when they are used up.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// A message: its bytes, with the head mended so that most are read.
    fn message(&mut self, version: Version) -> Vec<u8> {
        let len = match self.byte() {
            tail @ 200.. if version == Version::V2 => 44 + usize::from(tail - 200),
            _ => 44,
        };
        let (here, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        let mut bytes = here.to_vec();
        bytes.resize(len, 0);
        bytes[0] = match version {
            Version::V1 => bytes[0] & 0x0f,
            Version::V2 => bytes[0] & 0x0f | 0x20,
        };
        bytes[1] = 44;
        bytes[2] = 0;
        bytes
    }
}

struct Model {
    llc: Llc,
    version: Version,
    links: [LinkNum; LINK_SLOTS],
    rows: Vec<Row>,
    now: Instant,
    is_preparing: bool,
}

/// Runs the operations that `bytes` encode.
pub fn run(bytes: &[u8]) {
    let mut input = Input(bytes);
    let head = input.byte();
    let role = match head & 1 {
        0 => Role::Client,
        _ => Role::Server,
    };
    let version = match head & 2 {
        0 => Version::V1,
        _ => Version::V2,
    };
    let mut links = [LinkNum::NONE; LINK_SLOTS];
    links[0] = LinkNum(1);
    links[2] = LinkNum(2);
    let mut model = Model {
        llc: Llc::new(role, version),
        version,
        links,
        rows: vec![Row::EMPTY; 3],
        now: Instant::ZERO,
        is_preparing: false,
    };
    while !input.0.is_empty() {
        model.operate(&mut input);
    }
    model.finish();
}

impl Model {
    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 10 {
            0 => self.sleep(u64::from(input.byte()) * 20),
            1 => {
                let slot = usize::from(input.byte() % 4);
                self.call(|model| model.llc.on_link_down(slot, model.now));
            }
            2 => {
                let result = [Ok(()), Err(Reason::LinkNotReady)][usize::from(input.byte() % 2)];
                self.is_preparing = false;
                self.call(|model| model.llc.on_link_prepared(result, model.now));
            }
            3 => self.begin_first_contact(input.byte()),
            4 => self.announce(input.byte()),
            5 => self.delete(input.byte()),
            6 => self.abandon(),
            _ => {
                let slot = [0, 2][usize::from(input.byte() % 2)];
                let bytes = input.message(self.version);
                self.receive(slot, &bytes);
            }
        }
    }

    fn sleep(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        self.call(|model| model.llc.on_timeout(model.now));
    }

    fn begin_first_contact(&mut self, byte: u8) {
        let link = FirstLink {
            slot: 0,
            mac: Mac::NONE,
            gid: Gid::NONE,
            qp_num: QpNum::default(),
            link_num: LinkNum(1),
            group_uid: 0,
            release: [Release::R0, Release::R1][usize::from(byte & 1)],
            limits: Limits {
                max_conns: 255,
                max_links: byte,
            },
            is_direct: true,
        };
        let was_idle = self.llc.is_idle();
        let begun = self.llc.begin_first_contact(link, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    fn announce(&mut self, byte: u8) {
        let here = Rtoken {
            rkey: Rkey(u32::from(byte % 4)),
            addr: RemoteAddr(0),
        };
        let others = List::EMPTY;
        let was_idle = self.llc.is_idle();
        let begun = self
            .llc
            .begin_confirm_rkey(0, Announcement { here, others }, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    fn delete(&mut self, byte: u8) {
        let rkeys = [WireRkey::from(Rkey(u32::from(byte % 4)))];
        let was_idle = self.llc.is_idle();
        let deletion = Deletion::new(&rkeys).expect("one key");
        let begun = self.llc.begin_delete_rkey(0, deletion, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    fn begun(&self, was_idle: bool, has_begun: bool) {
        assert_eq!(has_begun, was_idle);
        assert!(!self.llc.is_idle());
    }

    fn abandon(&mut self) {
        let actions = self.llc.abandon(self.now);
        // A deletion may have waited.
        assert_eq!(actions.iter().count(), usize::from(!self.llc.is_idle()));
        self.is_preparing = false;
    }

    fn receive(&mut self, slot: usize, bytes: &[u8]) {
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            return;
        };
        let was_idle = self.llc.is_idle();
        let mut arrival = Arrival {
            slot,
            links: &self.links,
            rtokens: &mut Rtokens::new(&mut self.rows),
        };
        let actions = self.llc.on_message(&message, &mut arrival, self.now);
        let answers = actions.iter().filter(|action| {
            matches!(action, Action::Send { message, .. } if message.kind == Kind::Response)
        });
        assert!(answers.count() <= usize::from(message.kind == Kind::Request));
        self.check(was_idle, &actions);
    }

    fn call(&mut self, call: impl FnOnce(&mut Self) -> Actions<'static>) {
        let was_idle = self.llc.is_idle();
        let actions = call(self);
        self.check(was_idle, &actions);
    }

    fn check(&mut self, was_idle: bool, actions: &Actions<'_>) {
        let mut finished = 0;
        let mut requests = 0;
        let mut buf = [0; MAX_LEN];
        for action in actions.iter() {
            match action {
                Action::Finished(_) => finished += 1,
                Action::PrepareLink { .. } => self.is_preparing = true,
                Action::Send { slot, message } => {
                    assert!(self.links[*slot].is_link(), "{action:?}");
                    assert_eq!(message.version, self.version);
                    requests += usize::from(message.kind == Kind::Request);
                    let bytes = message.emit(PeerOrder::Linux, &mut buf).expect("it fits");
                    assert_eq!(bytes.len(), SEND_LEN, "more than the peer needs to receive");
                    assert!(matches!(Received::parse(bytes), Ok(Received::Llc(_))));
                }
                Action::TakeDownLink { slot } => assert!(self.links[*slot].is_link()),
                Action::ActivateLink { .. } | Action::TerminateGroup(_) | Action::Ignored(_) => {}
            }
        }
        assert!(finished <= 1, "{actions:?}");
        assert!(finished == 0 || !was_idle, "ended what had not begun");
        if finished == 0 && !was_idle {
            assert!(!self.llc.is_idle(), "ended without a word");
        }
        if finished == 1 && !self.llc.is_idle() {
            assert!(requests > 0, "began without a word");
        }
        if finished == 1 {
            self.is_preparing = false;
        }
    }

    fn finish(&mut self) {
        if self.is_preparing {
            self.call(|model| {
                model
                    .llc
                    .on_link_prepared(Err(Reason::LinkNotReady), model.now)
            });
        }
        // Two flows at most: the one under way, and a deletion that waits for it. The server's
        // request is repeated once.
        for _ in 0..3 {
            self.sleep(5000);
        }
        assert!(self.llc.is_idle());
        assert_eq!(self.llc.deadline(), None);
    }
}
