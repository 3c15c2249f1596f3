// SPDX-License-Identifier: GPL-2.0

//! LLC messages of a lying peer: of each type, in both versions, at any time, with bodies that are almost right.

use std::net::Ipv4Addr;

use anyhow::Result;

use crate::data::Random;

use super::llc;
use super::session::Session;

/// Types beside those of [`llc`].
const ADD_LINK_CONT: u8 = 3;
const REQ_ADD_LINK: u8 = 5;
const CONFIRM_RKEY: u8 = 6;
const CONFIRM_RKEY_CONT: u8 = 8;
const DELETE_RKEY: u8 = 9;

/// Longest message of version 2, in one packet.
const LONG: usize = 1000;

/// Keys in a message of such a length.
const MANY: usize = 57;

/// Sends a request of any type.
pub(super) fn request(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let kind = any_kind(random);
    send(session, random, kind, false)
}

/// Sends a response that nobody asked for, or not this one.
pub(super) fn response(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let kind = any_kind(random);
    send(session, random, kind, true)
}

/// Offers a link, or asks for one.
pub(super) fn offer(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let kind = random.pick(&[llc::ADD_LINK, llc::ADD_LINK, ADD_LINK_CONT, REQ_ADD_LINK]);
    let is_response = random.below(4) == 0;
    send(session, random, kind, is_response)
}

/// Deletes a link, or all.
pub(super) fn deletion(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let is_response = random.below(2) == 0;
    send(session, random, llc::DELETE_LINK, is_response)
}

/// Confirms or deletes keys.
pub(super) fn keys(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let kind = random.pick(&[CONFIRM_RKEY, CONFIRM_RKEY_CONT, DELETE_RKEY]);
    let is_response = random.below(4) == 0;
    send(session, random, kind, is_response)
}

/// Sends a message of one version that is all random.
pub(super) fn any(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let len = random.pick(&[44, 44, 88, LONG]);
    // CAST: random numbers.
    let mut message: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    message[0] = random.pick(&[0, llc::V2]) | any_kind(random);
    message[1..3].copy_from_slice(&[0, llc::LEN]);
    session.pair.send(&message)
}

/// The length in the message, or that of the message, is wrong.
pub(super) fn other_length(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let kind = any_kind(random);
    let mut message = body(session, random, kind);
    match random.below(3) {
        0 => message.truncate(random.pick(&[0, 1, 3, 4, 27, 28, 43])),
        1 => message.resize(random.pick(&[45, 48, 60, 100, LONG]), 0xee),
        // CAST: a random number.
        _ => message[1] = random.next() as u8,
    }
    session.pair.send(&message)
}

/// Returns a type, seldom one that there is not.
fn any_kind(random: &mut Random) -> u8 {
    match random.below(10) {
        0 => random.pick(&[0, 10, 15]),
        // CAST: below 9.
        _ => 1 + random.below(9) as u8,
    }
}

fn send(session: &mut Session<'_>, random: &mut Random, kind: u8, is_response: bool) -> Result<()> {
    let mut message = body(session, random, kind);
    if random.below(5) == 0 {
        // Version 1 is that of the group never here.
        message[..3].copy_from_slice(&[kind, llc::LEN, 0]);
    }
    if is_response {
        message[3] |= llc::RESPONSE;
    }
    if random.below(4) == 0 {
        // CAST: an index, and a random number.
        let at = 3 + random.below(message.len() as u64 - 3) as usize;
        message[at] = random.next() as u8;
    }
    session.pair.send(&message)
}

/// Returns a request with numbers that are right, or near what is.
fn body(session: &Session<'_>, random: &mut Random, kind: u8) -> Vec<u8> {
    let mut message = llc::message(kind, 0);
    let link = random.pick(&[session.link, session.link, 0, 1, 2, 3, 255]);
    match kind {
        llc::CONFIRM_LINK => {
            message = llc::confirm_link(session.pair.own(), link);
            message[3] = random.pick(&[0, 1, 2, 3]);
        }
        llc::ADD_LINK => add_link(session, random, link, &mut message),
        ADD_LINK_CONT => {
            message[4..6].copy_from_slice(&[link, random.pick(&[0, 1, 2, 3, 255])]);
            message[8..16].copy_from_slice(&[0xab; 8]);
        }
        llc::DELETE_LINK => {
            message[3] = random.pick(&[0, 0x20, llc::ALL_LINKS, 0x60]);
            message[4] = link;
            let reason = random.pick(&[0, 1 << 16, 4 << 16, 5 << 16, 0x10_0000, u32::MAX]);
            message[5..9].copy_from_slice(&reason.to_be_bytes());
        }
        REQ_ADD_LINK => {
            message[24] = random.pick(&[0, 1, 2, 255]);
            message[28..44].copy_from_slice(&gid(random));
        }
        CONFIRM_RKEY => {
            message[4] = random.pick(&[0, 1, 2, 3, 255]);
            message[3] = random.pick(&[0, 0x10, 0x20]);
            for at in [5, 18, 31] {
                message[at..at + 4].copy_from_slice(&key(session, random).to_be_bytes());
            }
            message[17] = link;
        }
        DELETE_RKEY => delete_rkey(session, random, &mut message),
        // CAST: a random number.
        _ => message[4] = random.next() as u8,
    }
    message
}

/// Fills in an ADD_LINK for a queue pair that is nowhere, or an invitation.
fn add_link(session: &Session<'_>, random: &mut Random, link: u8, message: &mut Vec<u8>) {
    message[4..10].copy_from_slice(&[2, 0, 0, 0, 0, 50]);
    message[12..28].copy_from_slice(&gid(random));
    // CAST: a random number.
    let any = random.next() as u32;
    let pair = random.pick(&[session.pair.own(), 0, any]);
    message[28..31].copy_from_slice(&pair.to_be_bytes()[1..]);
    message[31] = link;
    // CAST: below 16.
    message[32] = random.below(16) as u8;
    message[3] = random.pick(&[0, 0, llc::REJECTED]);
    if random.below(4) > 0 {
        let count = random.pick(&[0, 1, 2, MANY]);
        message.resize(72, 0);
        message[44] = random.pick(&[0x80, 0]);
        message[70..72].copy_from_slice(&random.pick(&[[0, 1], [1, 0], [0xff, 0xff], [0, 2]]));
        for _ in 0..count {
            message.extend(key(session, random).to_be_bytes());
            message.extend([0x11; 12]);
        }
        let len = u16::try_from(message.len()).unwrap_or(u16::MAX);
        message[1..3].copy_from_slice(&len.to_be_bytes());
    }
}

fn delete_rkey(session: &Session<'_>, random: &mut Random, message: &mut Vec<u8>) {
    message[4] = random.pick(&[0, 1, 8, 9, 10, 200, 255]);
    message.truncate(8);
    let count = random.pick(&[9, 9, 200]);
    for _ in 0..count {
        message.extend(key(session, random).to_be_bytes());
    }
}

/// Returns a key that is ours, the kernel's, or nobody's.
fn key(session: &Session<'_>, random: &mut Random) -> u32 {
    // CAST: a random number.
    let any = random.next() as u32;
    random.pick(&[
        session.pair.memory.rkey,
        session.theirs.rkey,
        0,
        u32::MAX,
        any,
    ])
}

/// Returns a GID of somebody.
fn gid(random: &mut Random) -> [u8; 16] {
    // CAST: below 256.
    let host = random.below(256) as u8;
    let address = random.pick(&[Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(10, 9, 0, host)]);
    address.to_ipv6_mapped().octets()
}
