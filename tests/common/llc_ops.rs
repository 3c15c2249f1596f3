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
    Mtu,
    Psn,
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
use smc_proto::llc::first_contact::Grace;
use smc_proto::llc::first_contact::PeerModule;
use smc_proto::llc::link_work::LinkWork;
use smc_proto::llc::rkey::{
    ConfirmRkeyParams,
    Deletion, //
};
use smc_proto::llc::{
    Action,
    Actions,
    Arrival,
    Finished,
    Llc,
    LocalEnd,
    NewEnd, //
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
    Body,
    Kind,
    NewLink,
    NewLinkRkey,
    PeerOrder,
    RejectReason,
    WireRkey,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Received,
    Version,
    SEND_LEN, //
};

use super::params;

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

/// Where a link is added.
const FIRST: LinkIdx = LinkIdx::FIRST;
const SPARE: LinkIdx = LinkIdx::ALL[1];

fn end(idx: LinkIdx, link_num: LinkNum, byte: u8) -> LocalEnd {
    LocalEnd {
        idx,
        mac: Mac::NONE,
        gid: Gid::NONE,
        qp_num: QpNum::default(),
        link_num,
        group_uid: 0,
        release: [Release::R0, Release::R1][usize::from(byte & 1)],
        limits: Limits {
            max_conns: 255,
            max_links: byte,
        },
        is_direct: true,
    }
}

fn keys(byte: u8) -> Vec<NewLinkRkey> {
    let key = |n: u8| NewLinkRkey::new(Rkey(n.into()), Rkey(n.into()), RemoteAddr(0));
    (0..byte % 8).map(key).collect()
}

fn new_end(number: LinkNum, byte: u8, keys: &[NewLinkRkey]) -> NewEnd<'_> {
    NewEnd {
        end: end(SPARE, number, byte),
        mtu: Mtu::B1024,
        psn: Psn::default(),
        listen_addr: None,
        keys: List::new(keys).expect("few"),
    }
}

struct Model {
    llc: Llc,
    version: Version,
    role: Role,
    links: LinkMap<LinkNum>,
    rows: Vec<RtokenEntry>,
    now: Instant,
    /// The index of a link that the caller prepares.
    preparing: Option<LinkIdx>,
    /// The index of a link that the server offered, and the offer.
    offered: Option<(LinkIdx, NewLink)>,
    last_number: u8,
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
    let mut links = LinkMap::default();
    links[FIRST] = LinkNum(1);
    links[LinkIdx::ALL[2]] = LinkNum(2);
    let mut model = Model {
        llc: Llc::new(params(role, version)),
        version,
        role,
        links,
        rows: vec![RtokenEntry::EMPTY; 3],
        now: Instant::ZERO,
        preparing: None,
        offered: None,
        last_number: 2,
    };
    while !input.0.is_empty() {
        model.operate(&mut input);
    }
    model.finish();
}

impl Model {
    fn operate(&mut self, input: &mut Input<'_>) {
        match input.byte() % 13 {
            0 => self.sleep(u64::from(input.byte()) * 20),
            1 => {
                let idx = LinkIdx::ALL[usize::from(input.byte() % 4)];
                self.call(|model| model.llc.on_link_down(idx, model.now));
            }
            2 => {
                let result = [Ok(()), Err(Reason::LinkNotReady)][usize::from(input.byte() % 2)];
                let idx = self.preparing.take().unwrap_or(FIRST);
                self.call(|model| model.llc.on_link_prepared(idx, result, model.now));
            }
            3 => self.begin_first_contact(input.byte()),
            4 => self.confirm_rkey(input.byte()),
            5 => self.delete(input.byte()),
            6 => self.abandon(),
            7 => self.offer(input.byte()),
            8 => self.answer_offer(input.byte()),
            9 => self.work(),
            _ => {
                let idx = [FIRST, LinkIdx::ALL[2], SPARE][usize::from(input.byte() % 3)];
                let bytes = input.message(self.version);
                if !self.links[idx].is_link() {
                    return;
                }
                self.receive(idx, &bytes);
            }
        }
    }

    fn sleep(&mut self, millis: u64) {
        self.now = self.now.saturating_add(Duration::from_millis(millis));
        self.call(|model| model.llc.on_timeout(model.now));
    }

    fn begin_first_contact(&mut self, byte: u8) {
        let link = end(FIRST, LinkNum(1), byte);
        let was_idle = self.llc.is_idle();
        let peer = match byte & 0x80 {
            0 => PeerModule::Other,
            _ => PeerModule::Same(Grace::new(Duration::ZERO)),
        };
        let begun = self.llc.begin_first_contact(link, peer, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    /// The server adds a link in the spare place.
    fn offer(&mut self, byte: u8) {
        let is_busy = self.links[SPARE].is_link() || !self.llc.is_idle();
        if is_busy || self.role == Role::Client {
            return;
        }
        self.last_number = self.last_number.checked_add(1).unwrap_or(3);
        let number = LinkNum(self.last_number);
        self.links[SPARE] = number;
        self.llc.hold().expect("it is idle");
        let keys = keys(byte);
        let new = new_end(number, byte, &keys);
        let actions = self.llc.begin_add_link(FIRST, &new, self.now);
        self.check(true, &actions.expect("it is held"));
    }

    /// The client answers an offer.
    fn answer_offer(&mut self, byte: u8) {
        let Some((idx, offer)) = self.offered.take() else {
            return;
        };
        let was_idle = self.llc.is_idle();
        let keys = keys(byte);
        let result = match byte % 4 {
            0 => Err(RejectReason::NO_ALTERNATE_PATH),
            _ => Ok(new_end(offer.link_num, byte, &keys)),
        };
        if result.is_ok() {
            self.links[idx] = offer.link_num;
        }
        let actions = self.llc.on_offer_answered(offer, result, self.now);
        if actions.iter().any(|a| matches!(a, Action::Ignored(_))) {
            self.links[idx] = LinkNum::NONE;
        }
        self.check(was_idle, &actions);
    }

    fn confirm_rkey(&mut self, byte: u8) {
        let here = Rtoken {
            rkey: Rkey(u32::from(byte % 4)),
            addr: RemoteAddr(0),
        };
        let others = List::EMPTY;
        let was_idle = self.llc.is_idle();
        let begun =
            self.llc
                .begin_confirm_rkey(FIRST, ConfirmRkeyParams { here, others }, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    fn delete(&mut self, byte: u8) {
        let rkeys = [WireRkey::from(Rkey(u32::from(byte % 4)))];
        let was_idle = self.llc.is_idle();
        let deletion = Deletion::new(&rkeys).expect("one key");
        let begun = self.llc.begin_delete_rkey(FIRST, deletion, self.now);
        self.begun(was_idle, begun.is_ok());
    }

    fn begun(&self, was_idle: bool, has_begun: bool) {
        assert_eq!(has_begun, was_idle);
        assert!(!self.llc.is_idle());
    }

    fn abandon(&mut self) {
        // Whoever gives a flow up takes away what was made for it.
        if self.links[SPARE].is_link() {
            self.call(|model| model.llc.on_link_down(SPARE, model.now));
            self.links[SPARE] = LinkNum::NONE;
        }
        let actions = self.llc.abandon(self.now);
        // A deletion may have waited.
        assert_eq!(actions.iter().count(), usize::from(!self.llc.is_idle()));
        self.preparing = None;
        self.offered = None;
        self.check(true, &actions);
    }

    fn receive(&mut self, idx: LinkIdx, bytes: &[u8]) {
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            return;
        };
        let was_idle = self.llc.is_idle();
        let mut arrival = Arrival {
            idx,
            spare: (!self.links[SPARE].is_link()).then_some(SPARE),
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
        let mut is_established = false;
        let mut is_superseded = false;
        let mut requests = 0;
        let mut buf = [0; MAX_LEN];
        for action in actions.iter() {
            match action {
                Action::Finished(how) => {
                    finished += 1;
                    if let Finished::AddLink {
                        idx,
                        result: Err(_),
                    } = how
                    {
                        self.links[*idx] = LinkNum::NONE;
                        self.offered = None;
                        is_superseded = is_established && finished == 2;
                    }
                    is_established |= matches!(how, Finished::FirstContact(Ok(())));
                }
                Action::PrepareLink { idx, .. } => self.preparing = Some(*idx),
                Action::LinkWork(work) => self.check_work(work),
                Action::Send { idx, message } => {
                    // The module sends a DELETE_LINK on another link if that one is gone.
                    let takes_any = matches!(message.body, Body::DeleteLink(_));
                    assert!(self.links[*idx].is_link() || takes_any, "{action:?}");
                    assert_eq!(message.version, self.version);
                    requests += usize::from(message.kind == Kind::Request);
                    let bytes = message.emit(PeerOrder::Linux, &mut buf).expect("it fits");
                    let is_long = matches!(message.body, Body::AddLink(_));
                    assert!(is_long || bytes.len() == SEND_LEN, "{action:?}");
                    assert!(matches!(Received::parse(bytes), Ok(Received::Llc(_))));
                }
                Action::SendKeys { on, .. } => assert!(self.links[*on].is_link()),
                Action::ActivateLink { idx, .. } => assert!(self.links[*idx].is_link()),
                Action::LinkDead { .. } => panic!("links are not tested"),
                Action::TerminateGroup(_) | Action::Ignored(_) => {}
            }
        }
        // An offer that ends the first contact begins what had to wait for that; and an older offer, if that is what
        // waited, is superseded at once.
        assert!(
            finished <= 1 || is_superseded && finished == 2,
            "{actions:?}"
        );
        assert!(finished == 0 || !was_idle, "ended what had not begun");
        if finished == 0 && !was_idle {
            assert!(!self.llc.is_idle(), "ended without a word");
        }
        if finished > 0 && !self.llc.is_idle() {
            assert!(
                requests > 0 || self.offered.is_some(),
                "began without a word"
            );
        }
        if finished > 0 {
            self.preparing = None;
        }
    }

    fn check_work(&mut self, work: &LinkWork) {
        assert!(self.llc.has_link_work() || !self.llc.is_idle());
        match work {
            LinkWork::ConnectLink(idx, _) | LinkWork::PrepareLink(idx) => {
                self.preparing = Some(*idx);
            }
            LinkWork::AcceptAddLink { idx, link, .. } => {
                assert!(!self.links[*idx].is_link());
                self.offered = Some((*idx, *link));
            }
            LinkWork::DeleteLink(idx, _) => assert!(self.links[*idx].is_link()),
            LinkWork::AddLink(_) => assert_eq!(self.role, Role::Server),
            LinkWork::FlushRx | LinkWork::Rebalance => panic!("{work:?}"),
        }
    }

    /// The work of the links is done, as far as it can be now.
    fn work(&mut self) {
        while self.llc.has_link_work() {
            assert!(self.llc.next_link_work().is_some());
        }
        assert_eq!(self.llc.next_link_work(), None);
    }

    fn finish(&mut self) {
        // The flow under way, and what waits for it: a deletion for each link, and an offer. A step of
        // the caller's, and two waits, make the longest flow.
        for _ in 0..40 {
            self.answer_offer(0);
            if let Some(idx) = self.preparing.take() {
                let result = Err(Reason::LinkNotReady);
                self.call(|model| model.llc.on_link_prepared(idx, result, model.now));
            }
            self.sleep(5000);
        }
        assert!(self.llc.is_idle());
    }
}
