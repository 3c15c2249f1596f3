// SPDX-License-Identifier: GPL-2.0

//! Scripts of a client of a listening socket: everything but a correct handshake.

use smc_user::Errno;

use crate::data::Random;

use super::messages::mutated;
use super::messages::with_byte;
use super::messages::with_bytes;
use super::messages::with_length;
use super::messages::with_more;
use super::messages::without;
use super::messages::Messages;
use super::messages::TRAILER_LEN;
use super::messages::TYPE_ACCEPT;
use super::script::reason;
use super::script::silent_last;
use super::script::Answer;
use super::script::Answer::Declined;
use super::script::Answer::Next;
use super::script::Answer::OneOf;
use super::script::Answer::Tcp;
use super::script::Answer::Unseen;
use super::script::Peers;
use super::script::Script;
use super::script::Step::Close;
use super::script::Step::Drip;
use super::script::Step::Receive;
use super::script::Step::Reset;
use super::script::Step::Send;
use super::script::Step::Trickle;
use super::script::CONFIRM_ENDS;
use super::script::HANDSHAKE_S;
use super::script::PROPOSAL_ENDS;

/// The connection ends, and accept(2) never returns it.
const LOST: Answer = Answer::Lost(Errno::EPROTO);

/// Seconds that the kernel waits for a new link to work.
const LINK_S: u64 = 2;

/// Returns all scripts.
pub(super) fn scripts(peers: &mut Peers, mutations: u32, random: &mut Random) -> Vec<Script> {
    let mut scripts = silence(&peers.next());
    scripts.extend(out_of_order(peers));
    scripts.extend(lengths(&peers.next()));
    scripts.extend(proposals(&peers.next()));
    scripts.extend(confirms(peers));
    let mut scripts = silent_last(scripts);
    for number in 0..mutations {
        let m = peers.next();
        scripts.push(Script::new(
            format!("changed proposal {number}"),
            vec![Send(mutated(&m.proposal, random)), Close],
            OneOf(&PROPOSAL_ENDS),
        ));
        scripts.push(confirm_with(
            &m,
            format!("changed confirm {number}"),
            mutated(&m.confirm, random),
            OneOf(&CONFIRM_ENDS),
        ));
    }
    scripts
}

/// Peers that send only part of a message, or nothing.
fn silence(m: &Messages) -> Vec<Script> {
    let p = &m.proposal;
    let cut = |len: usize| p[..len].to_vec();
    let script = Script::new;
    vec![
        script("nothing, then close", vec![Close], LOST),
        script("nothing, then reset", vec![Reset], Unseen),
        script("nothing at all", vec![], LOST).after(HANDSHAKE_S),
        script("half a header, then nothing", vec![Send(cut(4))], LOST).after(HANDSHAKE_S),
        script(
            "half a proposal, then nothing",
            vec![Send(cut(p.len() / 2))],
            LOST,
        )
        .after(HANDSHAKE_S),
        script(
            "a proposal without its trailer, then close",
            vec![Send(cut(p.len() - TRAILER_LEN)), Close],
            LOST,
        ),
        script(
            "proposal, then nothing",
            vec![Send(p.clone()), Receive],
            LOST,
        )
        .after(HANDSHAKE_S),
        script(
            "proposal, then close",
            vec![Send(p.clone()), Receive, Close],
            LOST,
        ),
        script(
            "proposal, then reset",
            vec![Send(p.clone()), Receive, Reset],
            Unseen,
        ),
        script(
            "proposal, then half a confirm and close",
            vec![
                Send(p.clone()),
                Receive,
                Send(m.confirm[..40].to_vec()),
                Close,
            ],
            LOST,
        ),
    ]
}

/// Valid messages at the wrong time, and data that is no CLC message.
fn out_of_order(peers: &mut Peers) -> Vec<Script> {
    let m = &peers.next();
    let p = &m.proposal;
    let first = |name: &str, bytes: Vec<u8>, answer| Script::new(name, vec![Send(bytes)], answer);
    let second = |name: &str, bytes: &[u8], answer| {
        Script::new(
            name,
            vec![Send(p.clone()), Receive, Send(bytes.to_vec())],
            answer,
        )
    };
    let confirmed = peers.next();
    let crossed = peers.next();
    vec![
        first("an accept first", m.accept.clone(), LOST),
        first("a confirm first", m.confirm.clone(), LOST),
        first("a decline first", m.decline.clone(), Tcp),
        first(
            "a decline that knows a link group, first",
            m.decline_v1.clone(),
            Tcp,
        ),
        first(
            "two proposals at once",
            [&p[..], p].concat(),
            Next(TYPE_ACCEPT),
        ),
        first(
            "a proposal and much more",
            [&p[..], &[0x5a; 100_000]].concat(),
            Next(TYPE_ACCEPT),
        ),
        first("100 KB of zeroes", vec![0; 100_000], LOST),
        first(
            "a request of HTTP",
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            LOST,
        ),
        first("no eye catcher", with_byte(p, 0, 0), LOST),
        first("no trailer", with_byte(p, p.len() - 1, 0), LOST),
        first("an unknown type", with_byte(p, 4, 0x7f), LOST),
        first("version 0", with_byte(p, 7, 0x02), LOST),
        second("proposal, then another", p, LOST),
        second("proposal, then an accept", &m.accept, LOST),
        second("proposal, then a decline", &m.decline, Tcp),
        second("proposal, then a decline of version 1", &m.decline_v1, Tcp),
        second(
            "proposal, then a decline that is too short",
            &with_byte(&m.decline_v1, 7, 0x20),
            LOST,
        ),
        confirm_with(
            &confirmed,
            "proposal byte by byte, then a confirm that names no one",
            confirmed.confirm.clone(),
            Declined(reason::TIMEOUT_CONFIRM_LINK),
        )
        .after(LINK_S),
        confirm_with(
            &crossed,
            "proposal, a confirm that names no one, and a decline that crosses the kernel's",
            crossed.confirm.clone(),
            Declined(reason::TIMEOUT_CONFIRM_LINK),
        )
        .crossed_by(&crossed.decline)
        .after(LINK_S),
        Script::new(
            "a proposal byte by byte",
            vec![Drip(p.clone()), Receive, Close],
            LOST,
        ),
    ]
}

/// Messages whose length field is wrong.
fn lengths(m: &Messages) -> Vec<Script> {
    let p = &m.proposal;
    let mut scripts: Vec<Script> = [0, 7, 8, 11, 51, 155, 157, 651, 652, 653, 0x7fff, 0xffff]
        .into_iter()
        .map(|len| {
            Script::new(
                format!("a proposal that says it has {len} bytes"),
                vec![Send(with_length(p, len)), Close],
                LOST,
            )
        })
        .collect();
    for len in [700, 5000] {
        let filled = with_more(p, &vec![0; len - p.len()]);
        scripts.push(Script::new(
            format!("a proposal of {len} bytes"),
            vec![Send(filled)],
            LOST,
        ));
    }
    scripts.push(
        Script::new(
            "a proposal of 65535 bytes, a byte at a time",
            vec![Send(with_length(p, 0xffff)), Trickle(vec![0; 300])],
            LOST,
        )
        .after(HANDSHAKE_S),
    );
    scripts
}

/// Proposals that are invalid, or cannot lead to SMC. Offsets as in
/// `net/smc/proto/wire/clc/proposal/raw.rs`.
fn proposals(m: &Messages) -> Vec<Script> {
    const PREFIX_OFFSET: usize = 38;
    const V2_OFFSET: usize = 50;
    const PREFIX_COUNT: usize = 87;
    const V2: usize = 80;
    const RELEASE: usize = V2 + 3;
    const SMCD_OFFSET: usize = V2 + 6;
    const GID: usize = V2 + 8;
    const MAX_CONNS: usize = V2 + 24;
    const MAX_LINKS: usize = V2 + 25;
    const EIDS: usize = V2 + 40;

    let (p, both) = (&m.proposal, &m.both_versions);
    let gid_of = |ip: [u8; 4]| [&[0; 10][..], &[0xff; 2], &ip].concat();
    let no_eid = without(&with_byte(p, V2, 0), EIDS, EIDS + 32);
    let smcd_only = with_byte(&with_more(p, &[0; 48]), 7, 0x26);
    let bad: Vec<(&str, Vec<u8>, Answer)> = vec![
        (
            "prefixes beyond the area",
            with_bytes(p, PREFIX_OFFSET, &[0, 41]),
            LOST,
        ),
        (
            "prefixes far away",
            with_bytes(p, PREFIX_OFFSET, &[0xff, 0xff]),
            LOST,
        ),
        (
            "a prefix inside the area",
            with_bytes(both, PREFIX_OFFSET, &[0, 0]),
            LOST,
        ),
        (
            "8 prefixes that are not there",
            with_byte(both, PREFIX_COUNT, 8),
            LOST,
        ),
        ("255 prefixes", with_byte(both, PREFIX_COUNT, 255), LOST),
        ("no extension", with_bytes(p, V2_OFFSET, &[0, 0]), LOST),
        (
            "an extension inside the area",
            with_bytes(p, V2_OFFSET, &[0, 4]),
            LOST,
        ),
        (
            "an extension far away",
            with_bytes(p, V2_OFFSET, &[0xff, 0xff]),
            LOST,
        ),
        ("two EIDs and room for one", with_byte(p, V2, 2), LOST),
        ("255 EIDs", with_byte(p, V2, 255), LOST),
        (
            "SMC-D at an offset far away",
            with_bytes(&smcd_only, SMCD_OFFSET, &[0xff, 0xff]),
            LOST,
        ),
        ("255 devices", with_byte(&smcd_only, V2 + 1, 255), LOST),
        (
            "no technology",
            with_byte(&without(p, V2, EIDS + 32), 7, 0x2a),
            Declined(reason::PEER_NO_SMC),
        ),
        (
            "SMC-D alone",
            with_bytes(&smcd_only, SMCD_OFFSET, &[0, 64]),
            Declined(reason::NO_ISM_V2_SUPPORT),
        ),
        ("no EID", no_eid, Declined(reason::NO_UEID)),
        (
            "an EID that we do not have",
            with_bytes(p, EIDS, b"OTHER"),
            Declined(reason::NO_SMC_DEVICE),
        ),
        (
            "version 1 of another subnet, no EID in common",
            with_bytes(&with_bytes(both, 88 + 40, b"OTHER"), 80, &[1, 2, 3, 0]),
            Declined(reason::DIFFERENT_PREFIX),
        ),
        (
            "a port that has no route",
            with_bytes(p, GID, &gid_of([192, 0, 2, 1])),
            Declined(reason::NO_SMCR_DEVICE),
        ),
        (
            "no port",
            with_bytes(p, GID, &[0; 16]),
            Declined(reason::NO_SMCR_DEVICE),
        ),
        (
            "15 connections",
            with_byte(p, MAX_CONNS, 15),
            Declined(reason::MAX_CONNS_ERROR),
        ),
        (
            "no connections",
            with_byte(p, MAX_CONNS, 0),
            Declined(reason::MAX_CONNS_ERROR),
        ),
        (
            "no links",
            with_byte(p, MAX_LINKS, 0),
            Declined(reason::MAX_LINKS_ERROR),
        ),
    ];
    let mut scripts: Vec<Script> = bad
        .into_iter()
        .map(|(name, bytes, answer)| {
            Script::new(format!("proposal: {name}"), vec![Send(bytes)], answer)
        })
        .collect();
    for (name, release) in [("an old release", 0x00), ("a release to come", 0xf0)] {
        let proposal = with_byte(p, RELEASE, release);
        let steps = vec![Send(proposal), Receive, Send(m.decline.clone())];
        scripts.push(Script::new(format!("proposal: {name}"), steps, Tcp));
    }
    scripts
}

/// A valid proposal, followed by `confirm` in place of a CONFIRM.
fn confirm_with(m: &Messages, name: impl Into<String>, confirm: Vec<u8>, answer: Answer) -> Script {
    Script::new(
        name,
        vec![Send(m.proposal.clone()), Receive, Send(confirm)],
        answer,
    )
}

/// CONFIRM messages that are invalid.
fn confirms(peers: &mut Peers) -> Vec<Script> {
    const RMBE_INDEX: usize = 45;
    const SIZE_MTU: usize = 50;
    const FIRST_CONTACT: usize = 104;
    const RELEASE: usize = FIRST_CONTACT + 1;
    const MAX_CONNS: usize = FIRST_CONTACT + 36;
    const MAX_LINKS: usize = FIRST_CONTACT + 37;
    const GID_COUNT: usize = 156;

    let c = |make: &dyn Fn(&[u8]) -> Vec<u8>, name: &str, answer, peers: &mut Peers| {
        let m = peers.next();
        confirm_with(&m, format!("confirm: {name}"), make(&m.confirm), answer)
    };
    let mode = Declined(reason::MODE_UNSUPPORTED);
    let silent = Declined(reason::TIMEOUT_CONFIRM_LINK);
    let v1 = peers.next();
    vec![
        confirm_with(&v1, "confirm: of version 1", v1.confirm_v1.clone(), mode),
        c(&|c| with_byte(c, 7, 0x29), "of SMC-D", mode, peers),
        c(&|c| with_byte(c, 7, 0x2a), "of no technology", LOST, peers),
        c(&|c| with_byte(c, RMBE_INDEX, 0), "element 0", mode, peers),
        c(
            &|c| with_byte(c, SIZE_MTU, 0x20),
            "packets of size 0",
            mode,
            peers,
        ),
        c(
            &|c| with_byte(c, SIZE_MTU, 0x26),
            "packets of size 6",
            mode,
            peers,
        ),
        c(
            &|c| with_byte(c, SIZE_MTU, 0xf3),
            "the largest element",
            silent,
            peers,
        )
        .after(LINK_S),
        c(
            &|c| without(c, 64, 176),
            "shorter than its version",
            LOST,
            peers,
        ),
        c(
            &|c| without(c, FIRST_CONTACT, 176),
            "without what begins a group",
            LOST,
            peers,
        ),
        c(
            &|c| without(c, GID_COUNT, 176),
            "without ports",
            LOST,
            peers,
        ),
        c(
            &|c| with_byte(c, GID_COUNT, 255),
            "255 ports that are not there",
            LOST,
            peers,
        ),
        c(
            &|c| with_byte(&without(c, FIRST_CONTACT, 176), 7, 0x20),
            "that begins no group",
            Declined(reason::RELEASE_ERROR),
            peers,
        ),
        c(
            &|c| with_byte(c, RELEASE, 0x20),
            "another release",
            Declined(reason::RELEASE_ERROR),
            peers,
        ),
        c(
            &|c| with_byte(c, MAX_CONNS, 99),
            "another limit",
            Declined(reason::MAX_CONNS_ERROR),
            peers,
        ),
        c(
            &|c| with_byte(c, MAX_LINKS, 1),
            "fewer links",
            Declined(reason::MAX_LINKS_ERROR),
            peers,
        ),
    ]
}
