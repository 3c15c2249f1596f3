// SPDX-License-Identifier: GPL-2.0
//! The state tables, every state against every event, compared with what lies in `snapshots/`, and as diagrams in
//! `Documentation/states.md`.
//!
//! After a wanted change run once with `SMC_UPDATE_SNAPSHOTS=1` and read the difference.

use std::fmt::{
    Debug,
    Write, //
};
use std::path::Path;

use smc_proto::{
    conn::{
        ConnEvent,
        ConnState, //
    },
    link, //
};

/// One line per state with what each event makes of it; `.` where it stays.
fn matrix<S, E>(states: &[S], events: &[E], next: impl Fn(S, E) -> S) -> String
where
    S: Copy + Debug + PartialEq,
    E: Copy + Debug,
{
    let mut text = String::new();
    for state in states {
        writeln!(text, "{state:?}").unwrap();
        for event in events {
            let after = next(*state, *event);
            if after == *state {
                writeln!(text, "    {:<16} .", format!("{event:?}")).unwrap();
            } else {
                writeln!(text, "    {:<16} {after:?}", format!("{event:?}")).unwrap();
            }
        }
    }
    text
}

/// A state diagram in Mermaid: one arrow for each pair of states, with the events that lead from one to the other.
fn diagram<S, E>(table: &[(S, E, S)]) -> String
where
    S: Copy + Debug + PartialEq,
    E: Copy + Debug,
{
    let mut arrows: Vec<(S, S, String)> = Vec::new();
    for (from, event, to) in table {
        match arrows
            .iter_mut()
            .find(|arrow| (arrow.0, arrow.1) == (*from, *to))
        {
            Some((.., label)) => write!(label, ", {event:?}").unwrap(),
            None => arrows.push((*from, *to, format!("{event:?}"))),
        }
    }
    let mut text = "```mermaid\nstateDiagram-v2\n".to_owned();
    for (from, to, label) in arrows {
        writeln!(text, "    {from:?} --> {to:?}: {label}").unwrap();
    }
    text + "```\n"
}

fn compare(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    if std::env::var_os("SMC_UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(&path, text).expect("the snapshot can be written");
    }
    let saved = std::fs::read_to_string(&path).expect("the snapshot is there");
    assert_eq!(text, saved, "{name}");
}

#[test]
fn close_states_are_as_written_down() {
    let text = matrix(&ConnState::ALL, &ConnEvent::ALL, ConnState::after);
    compare("tests/snapshots/conn.txt", &text);
}

#[test]
fn link_states_are_as_written_down() {
    let events = [
        link::LinkEvent::Created,
        link::LinkEvent::Confirmed,
        link::LinkEvent::WentDown,
        link::LinkEvent::Cleared,
    ];
    let text = matrix(&link::LinkState::ALL, &events, |state, event| {
        state.on(event).unwrap_or(state)
    });
    compare("tests/snapshots/link.txt", &text);
}

#[test]
fn diagrams_are_those_of_the_tables() {
    let text = format!(
        "# States\n\nMade from the tables in `net/smc/proto` by `tests/tables.rs`; do not edit.\n\n\
         ## A connection\n\nRFC 7609 section 4.8, as `smc_close.c` has it: `net/smc/proto/conn/state.rs`.\n\n{}\n\
         ## A link\n\n`enum smc_link_state` of the C module: `net/smc/proto/link.rs`.\n\n{}",
        diagram(ConnState::TRANSITIONS),
        diagram(link::LinkState::TRANSITIONS),
    );
    compare("Documentation/states.md", &text);
}

#[test]
fn close_state_numbers_are_those_of_sock_diag() {
    let numbers = ConnState::ALL.map(ConnState::number);
    assert_eq!(numbers, [1, 2, 7, 10, 20, 21, 22, 23, 24, 25, 26, 27]);
}

#[test]
fn closed_is_final() {
    for event in ConnEvent::ALL {
        assert_eq!(ConnState::Closed.after(event), ConnState::Closed);
    }
}

#[test]
fn every_state_ends_when_the_application_closes_and_the_peer_aborts() {
    for state in ConnState::ALL {
        let end = state
            .after(ConnEvent::Close)
            .after(ConnEvent::PeerAbortedLast)
            .after(ConnEvent::CloseLast);
        assert_eq!(end, ConnState::Closed, "{state:?}");
    }
}
