// SPDX-License-Identifier: GPL-2.0
//! Keys of buffers: what the peer's announcements do to the table, and announcements of both sides
//! that cross, come late or come twice.

mod common;

use std::collections::BTreeMap;

use common::net::{
    Event,
    Net,
    Verdict, //
};
use common::rng::{
    for_seeds,
    Rng, //
};
use common::Side;
use smc_proto::id::{
    LinkNum,
    RemoteAddr,
    Rkey, //
};
use smc_proto::lgr::rtoken::{
    Refused,
    RtokenEntry,
    MAX_ROWS, //
};
use smc_proto::lgr::{
    LinkIdx,
    LinkMap,
    Role,
    Rtoken,
    RtokenIdx,
    Rtokens,
    MAX_LINKS, //
};
use smc_proto::llc::rkey::{
    ConfirmRkeyParams,
    Deletion, //
};
use smc_proto::llc::RkeyError;
use smc_proto::llc::{
    Action,
    Actions,
    Arrival,
    Busy,
    Finished,
    Ignored,
    Llc, //
};
use smc_proto::time::{
    Duration,
    Instant, //
};
use smc_proto::wire::llc::{
    PeerOrder,
    WireRkey,
    MAX_LEN, //
};
use smc_proto::wire::{
    List,
    Received,
    Version, //
};

const LINKS: LinkMap<LinkNum> = {
    let mut links = [LinkNum::NONE; MAX_LINKS];
    links[0] = LinkNum(1);
    links[3] = LinkNum(2);
    LinkMap(links)
};

const FIRST: LinkIdx = LinkIdx::FIRST;
const OTHER: LinkIdx = LinkIdx::ALL[3];

fn token(rkey: u32, addr: u64) -> Rtoken {
    Rtoken {
        rkey: Rkey(rkey),
        addr: RemoteAddr(addr),
    }
}

struct End {
    llc: Llc,
    rows: Vec<RtokenEntry>,
    now: Instant,
}

impl End {
    fn new(role: Role, version: Version, rows: usize) -> Self {
        Self {
            llc: Llc::new(common::params(role, version)),
            rows: vec![RtokenEntry::EMPTY; rows],
            now: Instant::ZERO,
        }
    }

    fn table(&mut self) -> Rtokens<'_> {
        Rtokens::new(&mut self.rows)
    }

    fn receive<'a>(&mut self, idx: LinkIdx, bytes: &'a [u8]) -> Actions<'a> {
        let Ok(Received::Llc(message)) = Received::parse(bytes) else {
            panic!("not an LLC message");
        };
        let mut arrival = Arrival {
            idx,
            spare: None,
            links: &LINKS,
            rtokens: &mut Rtokens::new(&mut self.rows),
        };
        self.llc.on_message(&message, &mut arrival, self.now)
    }

    fn confirm_rkey(&mut self, rkey: u32) -> Result<Actions<'static>, Busy> {
        let here = token(rkey, u64::from(rkey) << 12);
        let others = List::EMPTY;
        self.llc
            .begin_confirm_rkey(FIRST, ConfirmRkeyParams { here, others }, self.now)
    }

    fn delete<'a>(&mut self, rkeys: &'a [WireRkey]) -> Result<Actions<'a>, Busy> {
        let deletion = Deletion::new(rkeys).expect("1 to 8 keys");
        self.llc.begin_delete_rkey(FIRST, deletion, self.now)
    }
}

fn sent(actions: Actions<'_>) -> Vec<u8> {
    let mut actions = actions.into_iter();
    let Some(Action::Send { message, .. }) = actions.next() else {
        panic!("nothing is sent");
    };
    assert!(actions.next().is_none());
    let mut buf = [0; MAX_LEN];
    message.emit(PeerOrder::Linux, &mut buf).unwrap().to_vec()
}

fn only(actions: Actions<'_>) -> Action<'_> {
    let mut actions = actions.into_iter();
    let action = actions.next().expect("an action");
    assert!(actions.next().is_none());
    action
}

fn vector(name: &str) -> Vec<u8> {
    std::fs::read(format!("tests/vectors/{name}.bin")).unwrap()
}

#[test]
fn the_vectors_fill_the_row_and_clear_it() {
    let mut end = End::new(Role::Client, Version::V1, 2);
    let request = vector("L9");
    let mut answer = request.clone();
    answer[3] = 0x80;
    assert_eq!(sent(end.receive(FIRST, &request)), answer);
    assert_eq!(sent(end.receive(FIRST, &request)), answer, "twice is once");
    let row = end.table().find(FIRST, Rkey(0x1111)).unwrap();
    assert_eq!(
        end.table().get(row, FIRST),
        Some(token(0x1111, 0x1234_0000))
    );
    assert_eq!(
        end.table().get(row, OTHER),
        Some(token(0x3333, 0x9abc_0000))
    );
    assert_eq!(end.table().get(row, LinkIdx::ALL[1]), None);

    let request = vector("L11");
    let mut answer = request.clone();
    answer[3] = 0x80;
    assert_eq!(sent(end.receive(FIRST, &request)), answer);
    assert_eq!(end.table().get(row, FIRST), None);
    assert_eq!(end.table().get(row, OTHER), None);
    // Now it is unknown: negative, the first of the mask.
    answer[3] = 0xa0;
    answer[5] = 0x80;
    assert_eq!(sent(end.receive(FIRST, &request)), answer);
}

#[test]
fn a_buffer_known_on_another_link_only_is_the_same_one() {
    let request = vector("L9");
    let mut end = End::new(Role::Client, Version::V1, 2);
    drop(sent(end.receive(FIRST, &request)));
    let whole = end.table().find(FIRST, Rkey(0x1111)).unwrap();
    let other = end.table().get(whole, OTHER).unwrap();

    // It could not be registered on the first link when it was announced.
    let mut end = End::new(Role::Client, Version::V1, 2);
    let row = end.table().add(OTHER, other).unwrap();
    drop(sent(end.receive(FIRST, &request)));
    assert_eq!(end.table().find(FIRST, Rkey(0x1111)), Some(row));
}

#[test]
fn a_full_table_asks_for_another_try_and_key_zero_does_not() {
    let mut end = End::new(Role::Server, Version::V1, 1);
    let mut request = vector("L9");
    sent(end.receive(FIRST, &request));
    request[8] ^= 1;
    assert_eq!(sent(end.receive(FIRST, &request))[3], 0xb0);
    request[5..9].fill(0);
    assert_eq!(sent(end.receive(FIRST, &request))[3], 0xa0);
}

#[test]
fn other_links_that_are_not_there_are_passed_over() {
    let mut end = End::new(Role::Client, Version::V1, 2);
    for number in [0, 9] {
        let mut request = vector("L9");
        request[8] = number;
        request[17] = number;
        assert_eq!(sent(end.receive(FIRST, &request))[3], 0x80);
        let rkey = Rkey(0x1100 | u32::from(number));
        let row = end.table().find(FIRST, rkey).unwrap();
        for idx in &LinkIdx::ALL[1..] {
            assert_eq!(end.table().get(row, *idx), None);
        }
    }
}

#[test]
fn keys_are_those_of_the_link_that_carries_the_message() {
    let mut end = End::new(Role::Client, Version::V1, 2);
    sent(end.receive(FIRST, &vector("L9")));
    let request = vector("L11");
    assert_eq!(
        sent(end.receive(OTHER, &request))[3],
        0xa0,
        "not 0x1111 there"
    );
    assert!(end.table().find(FIRST, Rkey(0x1111)).is_some());
}

#[test]
fn version_2_counts_unknown_keys_and_names_one() {
    let mut end = End::new(Role::Client, Version::V2, 4);
    end.table().add(FIRST, token(1, 0)).unwrap();
    let mut request = vec![0; 52];
    request[..5].copy_from_slice(&[0x29, 52, 0, 0, 11]);
    for (at, place) in request[8..52].chunks_exact_mut(4).enumerate() {
        place[3] = at as u8 + 1;
    }
    let answer = sent(end.receive(FIRST, &request));
    assert_eq!(answer[3], 0xa0);
    assert_eq!(answer[5], 10, "all but one");
    assert_eq!(answer[4], 1, "one key follows");
    assert_eq!(answer[8..12], [0, 0, 0, 2], "the first unknown one");
    assert!(end.table().find(FIRST, Rkey(1)).is_none());
}

#[test]
fn an_answer_has_44_bytes_however_many_keys_were_deleted() {
    let mut end = End::new(Role::Server, Version::V2, 255);
    let mut request = vec![0; 8 + 255 * 4];
    request[..5].copy_from_slice(&[0x29, 44, 0, 0, 255]);
    for (at, place) in request[8..].chunks_exact_mut(4).enumerate() {
        place[3] = at as u8 + 1;
        end.table().add(FIRST, token(at as u32 + 1, 0)).unwrap();
    }
    let answer = sent(end.receive(FIRST, &request));
    assert_eq!(answer.len(), 44);
    assert_eq!((answer[3], answer[5]), (0x80, 0));
    assert_eq!(answer[8..12], [0, 0, 0, 1]);
    // All again: 255 unknown ones.
    let answer = sent(end.receive(FIRST, &request));
    assert_eq!(answer.len(), 44);
    assert_eq!((answer[3], answer[5]), (0xa0, 255));
}

#[test]
fn a_late_answer_does_not_end_the_next_request() {
    let mut us = End::new(Role::Client, Version::V1, 4);
    let mut peer = End::new(Role::Server, Version::V1, 4);
    let first = sent(us.confirm_rkey(1).unwrap());
    let late = sent(peer.receive(FIRST, &first));

    us.now = Instant::ZERO.saturating_add(Duration::from_secs(2));
    let timed_out = Finished::ConfirmRkey(Err(RkeyError::TimedOut));
    assert_eq!(only(us.llc.on_timeout(us.now)), Action::Finished(timed_out));

    let second = sent(us.confirm_rkey(2).unwrap());
    assert_eq!(
        only(us.receive(FIRST, &late)),
        Action::Ignored(Ignored::OtherAnswer)
    );
    let right = sent(peer.receive(FIRST, &second));
    assert_eq!(
        only(us.receive(OTHER, &right)),
        Action::Ignored(Ignored::OtherLink)
    );
    assert_eq!(
        only(us.receive(FIRST, &right)),
        Action::Finished(Finished::ConfirmRkey(Ok(())))
    );
    assert_eq!(
        only(us.receive(FIRST, &right)),
        Action::Ignored(Ignored::Unexpected)
    );
}

#[test]
fn an_answer_of_the_other_kind_is_no_answer() {
    let mut us = End::new(Role::Client, Version::V2, 4);
    let mut peer = End::new(Role::Server, Version::V2, 4);
    let confirm = sent(us.confirm_rkey(7).unwrap());
    let confirmed = sent(peer.receive(FIRST, &confirm));
    assert_eq!(us.llc.abandon(us.now), Actions::default());
    let keys = [WireRkey::from(Rkey(7))];
    let delete = sent(us.delete(&keys).unwrap());
    assert_eq!(
        only(us.receive(FIRST, &confirmed)),
        Action::Ignored(Ignored::OtherAnswer)
    );
    let deleted = sent(peer.receive(FIRST, &delete));
    assert_eq!(
        only(us.receive(FIRST, &deleted)),
        Action::Finished(Finished::DeleteRkey(Ok(())))
    );
}

#[test]
fn an_answer_without_keys_counts_in_version_2() {
    let mut us = End::new(Role::Client, Version::V2, 4);
    let keys = [WireRkey::from(Rkey(7))];
    for (flags, result) in [
        (0x80, Ok(())),
        (0xa0, Err(RkeyError::Refused)), //
    ] {
        let mut answer = sent(us.delete(&keys).unwrap());
        answer[3] = flags;
        answer[8..12].fill(0);
        assert_eq!(
            only(us.receive(FIRST, &answer)),
            Action::Finished(Finished::DeleteRkey(result))
        );
    }
}

#[test]
fn a_request_ends_with_its_link() {
    let mut us = End::new(Role::Server, Version::V2, 4);
    sent(us.confirm_rkey(1).unwrap());
    assert_eq!(us.confirm_rkey(2).map(only), Err(Busy));
    assert_eq!(us.llc.on_link_down(OTHER, us.now), Actions::default());
    let lost = Finished::ConfirmRkey(Err(RkeyError::LinkLost));
    assert_eq!(
        only(us.llc.on_link_down(FIRST, us.now)),
        Action::Finished(lost)
    );
    assert!(us.confirm_rkey(2).is_ok());
}

#[test]
fn a_deletion_takes_one_to_eight_keys() {
    let keys = [WireRkey::from(Rkey(1)); 9];
    assert!(Deletion::new(&keys[..0]).is_none());
    assert!(Deletion::new(&keys[..1]).is_some());
    assert!(Deletion::new(&keys[..8]).is_some());
    assert!(Deletion::new(&keys).is_none());
}

/// What the table should hold: for each live row what was put into it.
type Model = BTreeMap<usize, (RtokenIdx, LinkMap<Option<Rtoken>>)>;

fn check(table: &Rtokens<'_>, model: &Model, dead: &[RtokenIdx]) {
    for (row, tokens) in model.values() {
        for idx in LinkIdx::ALL {
            assert_eq!(table.get(*row, idx), tokens[idx]);
        }
    }
    for row in dead {
        for idx in LinkIdx::ALL {
            assert_eq!(table.get(*row, idx), None, "a dead row came back");
        }
    }
}

#[test]
fn the_table_does_what_a_simple_model_does() {
    for_seeds(500, |seed| {
        let mut rng = Rng::new(seed);
        let mut rows = vec![RtokenEntry::EMPTY; 6];
        let mut table = Rtokens::new(&mut rows);
        let mut model = Model::new();
        let mut dead = Vec::new();
        let mut next = 0;
        for _ in 0..100 {
            let idx = *rng.pick(&LinkIdx::ALL[..3]);
            let this = token(rng.below(8), rng.below(2).into());
            match rng.below(5) {
                0 | 1 => {
                    let known = model.values().find(|(_, tokens)| tokens[idx] == Some(this));
                    let known = known.map(|(row, _)| *row);
                    let result = table.add(idx, this);
                    match (this.rkey.0, known) {
                        (0, _) => assert_eq!(result, Err(Refused::NoKey)),
                        (_, Some(row)) => {
                            // Of several rows with the same token any is right.
                            let found = result.unwrap();
                            assert!(found == row || table.get(found, idx) == Some(this));
                        }
                        (_, None) if model.len() == 6 => assert_eq!(result, Err(Refused::Full)),
                        (_, None) => {
                            let mut tokens = LinkMap::default();
                            tokens[idx] = Some(this);
                            model.insert(next, (result.unwrap(), tokens));
                            next += 1;
                        }
                    }
                }
                2 => {
                    let keys: Vec<usize> = model.keys().copied().collect();
                    if let Some(key) = keys.first() {
                        let (row, tokens) = model.get_mut(key).unwrap();
                        if table.set(*row, idx, this).is_ok() {
                            tokens[idx] = Some(this);
                        } else {
                            assert_eq!(this.rkey.0, 0);
                        }
                    }
                }
                3 => {
                    let is_meant = |tokens: &LinkMap<Option<Rtoken>>| {
                        tokens[idx].is_some_and(|token| token.rkey == this.rkey)
                    };
                    let meant = model.values().any(|(_, tokens)| is_meant(tokens));
                    assert_eq!(table.delete(idx, this.rkey), meant);
                    model.retain(|_, (row, tokens)| {
                        let goes = is_meant(tokens);
                        if goes {
                            dead.push(*row);
                        }
                        !goes
                    });
                }
                _ if rng.one_in(8) => {
                    table.delete_link(idx);
                    model.retain(|_, (row, tokens)| {
                        tokens[idx] = None;
                        let goes = tokens.iter().all(Option::is_none);
                        if goes {
                            dead.push(*row);
                        }
                        !goes
                    });
                }
                _ => {}
            }
            check(&table, &model, &dead);
            assert_eq!(table.is_full(), model.len() == 6);
        }
    });
}

#[test]
fn the_table_takes_as_many_rows_as_the_protocol_allows() {
    let mut rows = vec![RtokenEntry::EMPTY; MAX_ROWS + 1];
    let mut table = Rtokens::new(&mut rows);
    for key in 1..=MAX_ROWS as u32 {
        table.add(FIRST, token(key, 0)).unwrap();
    }
    assert_eq!(table.add(FIRST, token(999, 0)), Err(Refused::Full));
}

/// Both sides announce and delete at once; answers are late or come twice.
#[test]
fn crossing_announcements_leave_each_side_with_what_the_other_has() {
    for_seeds(300, |seed| {
        let mut rng = Rng::new(seed);
        let version = *rng.pick(&[Version::V1, Version::V2]);
        let mut ends = [
            End::new(Role::Client, version, 32),
            End::new(Role::Server, version, 32),
        ];
        let mut net: Net<Vec<u8>> = Net::new(seed);
        let mut rule = rng.clone();
        net.add_rule(move |_| match rule.one_in(10) {
            true => Verdict::Delay(Duration::from_millis(rule.between(1, 3000).into())),
            false => Verdict::Pass,
        });
        // Keys that a side asked to announce and to delete, last wish first.
        let mut wishes = [BTreeMap::<u32, bool>::new(), BTreeMap::new()];
        for step in 0..400 {
            let side = *rng.pick(&Side::BOTH);
            let end = &mut ends[side.index()];
            let keys = [WireRkey::from(Rkey(1 + rng.below(12)))];
            let rkey = keys[0].get().0;
            if step < 60 && end.llc.is_idle() {
                let confirm_rkey = rng.one_in(2);
                let actions = match confirm_rkey {
                    true => end.confirm_rkey(rkey),
                    false => end.delete(&keys),
                };
                wishes[side.index()].insert(rkey, confirm_rkey);
                carry(side, actions.unwrap(), end, &mut net, &mut rng);
            }
            match net.step() {
                None => {}
                Some(Event::Timer { side, .. }) => {
                    let end = &mut ends[side.index()];
                    end.now = net.now();
                    let actions = end.llc.on_timeout(end.now);
                    carry(side, actions, end, &mut net, &mut rng);
                }
                Some(Event::Arrived(packet)) => {
                    let side = packet.from.peer();
                    let end = &mut ends[side.index()];
                    end.now = net.now();
                    let actions = end.receive(FIRST, &packet.message);
                    carry(side, actions, end, &mut net, &mut rng);
                }
            }
        }
        for side in Side::BOTH {
            let there = &mut ends[side.peer().index()];
            for (rkey, announced) in &wishes[side.index()] {
                let found = there.table().find(FIRST, Rkey(*rkey)).is_some();
                assert_eq!(found, *announced, "{side:?} key {rkey}");
            }
        }
    });
}

/// Sends what is to be sent; a TCP-like channel keeps the order, some answers go out twice.
fn carry(side: Side, actions: Actions<'_>, end: &mut End, net: &mut Net<Vec<u8>>, rng: &mut Rng) {
    for action in actions {
        if let Action::Send { message, .. } = action {
            let mut buf = [0; MAX_LEN];
            let bytes = message.emit(PeerOrder::Linux, &mut buf).unwrap().to_vec();
            if bytes[3] & 0x80 != 0 && rng.one_in(6) {
                net.send(side, 1, bytes.clone());
            }
            net.send(side, 1, bytes);
        }
    }
    if let Some(at) = end.llc.deadline() {
        net.set_timer(side, at, 0);
    }
}
