// SPDX-License-Identifier: GPL-2.0

//! What the peer does: everything but a proper handshake.

use crate::data::Random;

use super::messages::mutated;
use super::messages::with_byte;
use super::messages::with_length;
use super::messages::Messages;

/// One step of a peer.
pub(super) enum Step {
    /// Sends bytes.
    Send(Vec<u8>),
    /// Sends bytes one by one.
    Drip(Vec<u8>),
    /// Waits for a message.
    Receive,
    /// Closes its direction.
    Close,
    /// Resets.
    Reset,
}

/// What a peer does before it waits for the answer.
pub(super) type Script = Vec<Step>;

/// What a client may do.
pub(super) fn client_scripts(
    m: &Messages,
    mutations: u32,
    random: &mut Random,
) -> Vec<(String, Script)> {
    use Step::*;

    let p = &m.proposal;
    let cut = |len: usize| p[..len].to_vec();
    let mut scripts: Vec<(String, Script)> = vec![
        ("nothing, then close".into(), vec![Close]),
        ("nothing, then reset".into(), vec![Reset]),
        ("nothing at all".into(), vec![]),
        ("half a header, then nothing".into(), vec![Send(cut(4))]),
        (
            "half a proposal, then nothing".into(),
            vec![Send(cut(p.len() / 2))],
        ),
        (
            "a proposal without its trailer, then close".into(),
            vec![Send(cut(p.len() - 4)), Close],
        ),
        (
            "a proposal byte by byte".into(),
            vec![Drip(p.clone()), Receive, Close],
        ),
        (
            "two proposals at once".into(),
            vec![Send([&p[..], p].concat()), Receive, Close],
        ),
        (
            "a proposal and much more".into(),
            vec![Send([&p[..], &[0x5a; 100_000]].concat()), Close],
        ),
        ("an accept first".into(), vec![Send(m.accept.clone())]),
        ("a confirm first".into(), vec![Send(m.confirm.clone())]),
        (
            "a decline first".into(),
            vec![Send(m.decline.clone()), Close],
        ),
        ("no eye catcher".into(), vec![Send(with_byte(p, 0, 0))]),
        (
            "no trailer".into(),
            vec![Send(with_byte(p, p.len() - 1, 0)), Close],
        ),
        ("an unknown type".into(), vec![Send(with_byte(p, 4, 0x7f))]),
        (
            "an unknown version".into(),
            vec![Send(with_byte(p, 7, 0xf2)), Close],
        ),
        (
            "100 KB of zeroes".into(),
            vec![Send(vec![0; 100_000]), Close],
        ),
        (
            "proposal, then nothing".into(),
            vec![Send(p.clone()), Receive],
        ),
        ("proposal, then close".into(), vec![Send(p.clone()), Close]),
        (
            "proposal, then reset".into(),
            vec![Send(p.clone()), Receive, Reset],
        ),
        (
            "proposal, then a decline".into(),
            vec![Send(p.clone()), Receive, Send(m.decline.clone()), Close],
        ),
        (
            "proposal, then another".into(),
            vec![Send(p.clone()), Receive, Send(p.clone())],
        ),
        (
            "proposal, then a confirm that names no one".into(),
            vec![Send(p.clone()), Receive, Send(m.confirm.clone()), Close],
        ),
        (
            "proposal, then half a confirm".into(),
            vec![
                Send(p.clone()),
                Receive,
                Send(m.confirm[..40].to_vec()),
                Close,
            ],
        ),
    ];
    for len in [0, 7, 8, 11, 51, 155, 157, 1000, 0x7fff, 0xffff] {
        scripts.push((
            format!("a proposal that says it has {len} bytes"),
            vec![Send(with_length(p, len)), Close],
        ));
    }
    for number in 0..mutations {
        scripts.push((
            format!("changed proposal {number}"),
            vec![Send(mutated(p, random)), Close],
        ));
        let confirm = mutated(&m.confirm, random);
        scripts.push((
            format!("changed confirm {number}"),
            vec![Send(p.clone()), Receive, Send(confirm), Close],
        ));
    }
    scripts
}

/// What a server may do.
pub(super) fn server_scripts(
    m: &Messages,
    mutations: u32,
    random: &mut Random,
) -> Vec<(String, Script)> {
    use Step::*;

    let a = &m.accept;
    let mut scripts: Vec<(String, Script)> = vec![
        ("nothing at all".into(), vec![Receive]),
        ("close at once".into(), vec![Receive, Close]),
        ("reset at once".into(), vec![Receive, Reset]),
        (
            "a decline".into(),
            vec![Receive, Send(m.decline.clone()), Close],
        ),
        (
            "half an accept, then close".into(),
            vec![Receive, Send(a[..50].to_vec()), Close],
        ),
        (
            "half an accept, then nothing".into(),
            vec![Receive, Send(a[..50].to_vec())],
        ),
        (
            "an accept byte by byte".into(),
            vec![Receive, Drip(a.clone()), Close],
        ),
        (
            "an accept that names no one".into(),
            vec![Receive, Send(a.clone()), Close],
        ),
        (
            "an accept before the proposal".into(),
            vec![Send(a.clone()), Receive, Close],
        ),
        (
            "a proposal".into(),
            vec![Receive, Send(m.proposal.clone()), Close],
        ),
        (
            "a confirm".into(),
            vec![Receive, Send(m.confirm.clone()), Close],
        ),
        (
            "100 KB of zeroes".into(),
            vec![Receive, Send(vec![0; 100_000]), Close],
        ),
    ];
    for len in [0, 7, 8, 67, 107, 159, 161, 0x7fff, 0xffff] {
        scripts.push((
            format!("an accept that says it has {len} bytes"),
            vec![Receive, Send(with_length(a, len)), Close],
        ));
    }
    for number in 0..mutations {
        scripts.push((
            format!("changed accept {number}"),
            vec![Receive, Send(mutated(a, random)), Close],
        ));
    }
    scripts
}
