// SPDX-License-Identifier: GPL-2.0

//! Scripts of a server of a connecting socket: everything but a correct handshake.

use smc_user::Errno;

use crate::data::Random;

use super::messages::mutated;
use super::messages::with_byte;
use super::messages::with_bytes;
use super::messages::with_length;
use super::messages::with_more;
use super::messages::without;
use super::messages::Messages;
use super::script::reason;
use super::script::silent_last;
use super::script::Answer;
use super::script::Answer::Again;
use super::script::Answer::Declined;
use super::script::Answer::Lost;
use super::script::Answer::OneOf;
use super::script::Answer::Tcp;
use super::script::Peers;
use super::script::Script;
use super::script::Step::Close;
use super::script::Step::Drip;
use super::script::Step::Receive;
use super::script::Step::Reset;
use super::script::Step::Send;
use super::script::Step::Trickle;
use super::script::ACCEPT_ENDS;
use super::script::HANDSHAKE_S;

/// Seconds that the kernel waits for a new link to work.
const LINK_S: u64 = 2;

/// Returns all scripts.
pub(super) fn scripts(peers: &mut Peers, mutations: u32, random: &mut Random) -> Vec<Script> {
    let mut scripts = silence(&peers.next());
    scripts.extend(answers(&peers.next()));
    scripts.extend(accepts(&peers.next()));
    let mut scripts = silent_last(scripts);
    for number in 0..mutations {
        let accept = mutated(&peers.next().accept, random);
        scripts.push(accept_with(
            format!("changed accept {number}"),
            accept,
            OneOf(&ACCEPT_ENDS),
        ));
    }
    scripts
}

/// Peers that send only part of a message, or nothing.
fn silence(m: &Messages) -> Vec<Script> {
    let half = || m.accept[..50].to_vec();
    let script = Script::new;
    vec![
        script("nothing at all", vec![Receive], Again).after(HANDSHAKE_S),
        script("close at once", vec![Receive, Close], Again),
        script(
            "two bytes, then close",
            vec![Receive, Send(b"hi".to_vec()), Close],
            Again,
        ),
        script(
            "reset at once",
            vec![Receive, Reset],
            Lost(Errno::ECONNRESET),
        ),
        script(
            "half an accept, then close",
            vec![Receive, Send(half()), Close],
            Lost(Errno::ECONNRESET),
        ),
        script(
            "half an accept, then nothing",
            vec![Receive, Send(half())],
            Again,
        )
        .after(HANDSHAKE_S),
        script(
            "an accept of 65535 bytes, a byte at a time",
            vec![
                Receive,
                Send(with_length(&m.accept, 0xffff)),
                Trickle(vec![0; 300]),
            ],
            Again,
        )
        .after(HANDSHAKE_S),
    ]
}

/// Receives the kernel's proposal, then sends `bytes`.
fn accept_with(name: impl Into<String>, bytes: Vec<u8>, answer: Answer) -> Script {
    Script::new(name, vec![Receive, Send(bytes)], answer)
}

/// Messages that are no ACCEPT.
fn answers(m: &Messages) -> Vec<Script> {
    let lost = Lost(Errno::EPROTO);
    let mut scripts = vec![
        accept_with("a decline", m.decline.clone(), Tcp),
        accept_with("a decline of version 1", m.decline_v1.clone(), Tcp),
        accept_with(
            "a decline that is too long",
            with_byte(&m.decline, 7, 0x10),
            lost,
        ),
        // It has connected at the same time, too.
        accept_with("a proposal", m.proposal.clone(), Tcp),
        accept_with("a confirm", m.confirm.clone(), lost),
        accept_with("100 KB of zeroes", vec![0; 100_000], Again),
        accept_with(
            "a greeting of SMTP",
            b"220 mail.example.net ESMTP\r\n".to_vec(),
            Again,
        ),
        Script::new(
            "an accept before the proposal",
            vec![Send(m.accept.clone()), Receive, Receive],
            Declined(reason::TIMEOUT_CONFIRM_LINK),
        )
        .after(LINK_S),
        Script::new(
            "an accept byte by byte, of one whom no packet reaches",
            vec![Receive, Drip(m.accept.clone()), Receive],
            Declined(reason::TIMEOUT_CONFIRM_LINK),
        )
        .after(LINK_S),
        Script::new(
            "an accept of one whom no packet reaches, and a decline that crosses the kernel's",
            vec![Receive, Send(m.accept.clone()), Receive],
            Declined(reason::TIMEOUT_CONFIRM_LINK),
        )
        .crossed_by(&m.decline)
        .after(LINK_S),
    ];
    for (len, errno) in [
        (0, Errno::EPROTO),
        (7, Errno::EPROTO),
        (8, Errno::EPROTO),
        (67, Errno::EPROTO),
        (107, Errno::EPROTO),
        (159, Errno::EPROTO),
        (161, Errno::ECONNRESET),
        (0x7fff, Errno::ECONNRESET),
        (0xffff, Errno::ECONNRESET),
    ] {
        scripts.push(Script::new(
            format!("an accept that says it has {len} bytes"),
            vec![Receive, Send(with_length(&m.accept, len)), Close],
            Lost(errno),
        ));
    }
    scripts
}

/// ACCEPT messages that were not offered, or are invalid.
fn accepts(m: &Messages) -> Vec<Script> {
    const RMBE_INDEX: usize = 45;
    const SIZE_MTU: usize = 50;
    const EID: usize = 64;
    const FIRST_CONTACT: usize = 104;
    const RELEASE: usize = FIRST_CONTACT + 1;
    const MAX_CONNS: usize = FIRST_CONTACT + 36;
    const MAX_LINKS: usize = FIRST_CONTACT + 37;

    let a = &m.accept;
    let lost = Lost(Errno::EPROTO);
    let mode = Declined(reason::MODE_UNSUPPORTED);
    let bad: Vec<(&str, Vec<u8>, Answer)> = vec![
        ("version 1", m.accept_v1.clone(), mode),
        ("SMC-D", with_byte(a, 7, 0x29), mode),
        ("no technology", with_byte(a, 7, 0x2a), lost),
        ("element 0", with_byte(a, RMBE_INDEX, 0), mode),
        ("packets of size 0", with_byte(a, SIZE_MTU, 0x20), mode),
        ("packets of size 6", with_byte(a, SIZE_MTU, 0x26), mode),
        (
            "an EID that was not offered",
            with_bytes(a, EID, b"OTHER"),
            mode,
        ),
        ("shorter than its version", without(a, 64, 156), lost),
        (
            "without what begins a group",
            without(a, FIRST_CONTACT, 156),
            lost,
        ),
        (
            "longer, with nonsense at its end",
            with_byte(&with_more(a, &[0xff; 40]), 199, 0),
            lost,
        ),
        (
            "a release to come",
            with_byte(a, RELEASE, 0x2f),
            Declined(reason::RELEASE_ERROR),
        ),
        (
            "15 connections",
            with_byte(a, MAX_CONNS, 15),
            Declined(reason::MAX_CONNS_ERROR),
        ),
        (
            "no links",
            with_byte(a, MAX_LINKS, 0),
            Declined(reason::MAX_LINKS_ERROR),
        ),
        (
            "more links than offered",
            with_byte(a, MAX_LINKS, 9),
            Declined(reason::MAX_LINKS_ERROR),
        ),
        (
            "a gateway where there is none",
            with_byte(a, FIRST_CONTACT, 0),
            Declined(reason::NO_INDIRECT),
        ),
        (
            "a group that is not there",
            m.reuse.clone(),
            Declined(reason::SYNC_ERROR),
        ),
    ];
    bad.into_iter()
        .map(|(name, bytes, answer)| accept_with(format!("accept: {name}"), bytes, answer))
        .collect()
}
