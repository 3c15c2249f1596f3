// SPDX-License-Identifier: GPL-2.0

//! What a lying peer sends: CDC messages, RDMA WRITEs, and the end of TCP. LLC messages are in [`super::llc_lies`].

use anyhow::Result;

use crate::data::Random;
use crate::rawclc::packet::Reth;

use super::cdc;
use super::cdc::Cdc;
use super::cdc::Cursor;
use super::immediate;
use super::llc_lies;
use super::session::Element;
use super::session::Session;

/// A lie: its name, and what sends it.
pub(super) type Lie = (
    &'static str,
    fn(&mut Session<'_>, &mut Random) -> Result<()>,
);

/// Most repetitions of a lie that is told without waiting for anything.
const FLOOD: u64 = 300;

const LIES: &[Lie] = &[
    ("producer cursor outside the ring", prod_outside),
    ("producer cursor backwards", prod_backwards),
    ("producer cursor further than the window", prod_too_far),
    ("producer cursor over what was not written", prod_unwritten),
    ("producer cursor with another wrap count", prod_wraps),
    ("consumer cursor outside the ring", cons_outside),
    ("consumer cursor backwards", cons_backwards),
    ("consumer cursor beyond what was produced", cons_too_far),
    ("consumer cursor with another wrap count", cons_wraps),
    ("sequence number of before", seq_again),
    ("sequence number out of order", seq_jumps),
    ("token of nobody", other_token),
    ("producer flags at random", any_flags),
    ("state flags at random", any_state),
    ("urgent data", urgent),
    ("data after the end", data_after_end),
    ("an end that is taken back", end_taken_back),
    ("failover that was none", validation),
    ("CDC at random", any_cdc),
    ("CDC with another length", other_length),
    ("a message of no type", other_type),
    ("RMBEs that were not offered", rmbes_unknown),
    ("RMBEs offered that there are not", rmbes_offered),
    ("write up to the end of the element", write_last),
    ("write around the element", write_around),
    ("write with another key", write_key),
    ("write whose header lies", write_header),
    ("read of the element", read_element),
    (
        "immediate data of what was not written",
        immediate::unwritten,
    ),
    ("immediate data of nothing", immediate::nothing),
    ("immediate data out of order", immediate::other_seq),
    ("immediate data of nobody", immediate::other_token),
    ("data over TCP", over_tcp),
    ("LLC request", llc_lies::request),
    ("LLC response", llc_lies::response),
    ("LLC offer of a link", llc_lies::offer),
    ("LLC deletion of links", llc_lies::deletion),
    ("LLC keys", llc_lies::keys),
    ("LLC at random", llc_lies::any),
    ("LLC of another length", llc_lies::other_length),
];

/// Tells one lie of any kind, now and then many times; returns its name.
pub(super) fn tell_any(session: &mut Session<'_>, random: &mut Random) -> Result<&'static str> {
    let (name, tell) = random.pick(LIES);
    let times = match random.below(12) {
        0 => 1 + random.below(FLOOD),
        1 => 2,
        _ => 1,
    };
    for _ in 0..times {
        tell(session, random)?;
    }
    Ok(name)
}

/// Sends the true message with changes, as the next one.
fn post(session: &mut Session<'_>, change: impl FnOnce(&mut Cdc)) -> Result<()> {
    session.seq = session.seq.wrapping_add(1);
    let mut cdc = session.truth();
    change(&mut cdc);
    session.post(cdc)
}

/// Returns a number near the borders of a ring, or anything.
fn odd(random: &mut Random, size: u32) -> u32 {
    // CAST: a random number.
    let any = random.next() as u32;
    random.pick(&[
        size,
        size + 1,
        size * 2,
        0x7fff_ffff,
        0x8000_0000,
        u32::MAX,
        size | any,
    ])
}

fn prod_outside(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let offset = odd(random, session.theirs.size);
    post(session, |cdc| cdc.prod.offset = offset)
}

/// Returns a distance, of each order of magnitude.
fn some(random: &mut Random, most: u32) -> u64 {
    // CAST: `usize` has 64 bits, both times.
    random.size(most as usize) as u64
}

fn prod_backwards(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = session.theirs.size;
    let back = some(random, size * 2);
    let before = Cursor::at(session.sent.wrapping_sub(back), size);
    post(session, |cdc| cdc.prod = before)
}

fn prod_too_far(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = session.theirs.size;
    let to = session.acked() + u64::from(size) + some(random, size * 3);
    session.distrust();
    post(session, |cdc| cdc.prod = Cursor::at(to, size))
}

fn prod_unwritten(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = session.theirs.size;
    let to = session.sent + some(random, size);
    // What is read there is no part of the stream.
    session.trusted = session.trusted.min(session.sent);
    post(session, |cdc| cdc.prod = Cursor::at(to, size))
}

fn prod_wraps(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.distrust();
    // CAST: a random number.
    let any = random.next() as u16;
    let wraps = random.pick(&[1, 2, 0x7fff, 0x8000, 0xffff, any]);
    post(session, |cdc| {
        cdc.prod.wrap = cdc.prod.wrap.wrapping_add(wraps)
    })
}

fn cons_outside(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let offset = odd(random, session.pair.memory.size());
    post(session, |cdc| cdc.cons.offset = offset)
}

fn cons_backwards(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = session.pair.memory.size();
    let back = some(random, size * 2);
    let before = Cursor::at(session.consumed.wrapping_sub(back), size);
    post(session, |cdc| cdc.cons = before)
}

fn cons_too_far(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = session.pair.memory.size();
    let to = session.pair.memory.written + some(random, size * 3);
    post(session, |cdc| cdc.cons = Cursor::at(to, size))
}

fn cons_wraps(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u16;
    let wraps = random.pick(&[1, 2, 0x7fff, 0x8000, 0xffff, any]);
    post(session, |cdc| {
        cdc.cons.wrap = cdc.cons.wrap.wrapping_add(wraps)
    })
}

fn seq_again(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: below 8.
    let back = random.below(8) as u16;
    let cdc = session.truth();
    session.post(Cdc {
        seq: cdc.seq.wrapping_sub(back),
        ..cdc
    })
}

fn seq_jumps(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u16;
    let by = random.pick(&[2, 100, 0x7fff, 0x8000, 0x8001, any]);
    session.seq = session.seq.wrapping_add(by);
    session.tell(0)
}

fn other_token(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u32;
    let (theirs, ours) = (session.theirs.token, session.token);
    let token = random.pick(&[0, u32::MAX, ours, theirs ^ 1, theirs.swap_bytes(), any]);
    let (flags, state) = (random.next() as u8, random.next() as u8);
    post(session, |cdc| {
        (cdc.token, cdc.flags, cdc.state) = (token, flags, state)
    })
}

fn any_flags(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let flags = random.next() as u8;
    post(session, |cdc| cdc.flags = flags)
}

fn any_state(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let state = random.next() as u8;
    session.state |= state;
    session.tell(0)
}

/// Urgent data is announced, or there, with or without any data.
fn urgent(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.distrust();
    if random.below(2) == 0 {
        let end = session.sent + some(random, session.theirs.size);
        session.produce(end)?;
    }
    let flags = random.pick(&[
        cdc::URGENT_PENDING,
        cdc::URGENT_PRESENT,
        cdc::URGENT_PENDING | cdc::URGENT_PRESENT,
        cdc::URGENT_PRESENT | cdc::WRITE_BLOCKED | cdc::UPDATE_REQUESTED,
    ]);
    let size = session.theirs.size;
    let to = Cursor::at(session.sent + random.below(2) * some(random, 100), size);
    post(session, |cdc| (cdc.flags, cdc.prod) = (flags, to))
}

fn data_after_end(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.state |= random.pick(&[
        cdc::DONE,
        cdc::CLOSED,
        cdc::ABORTED,
        cdc::DONE | cdc::CLOSED,
        cdc::CLOSED | cdc::ABORTED,
    ]);
    session.tell(0)?;
    session.trusted = session.trusted.min(session.sent);
    session.produce(session.sent + some(random, 5000))?;
    Ok(())
}

fn end_taken_back(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.state = random.pick(&[cdc::DONE, cdc::CLOSED, cdc::ABORTED]);
    session.tell(0)?;
    session.state = 0;
    session.tell(0)
}

/// The number in it is one that was sent before, the last one, or one that was not sent.
fn validation(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u16;
    let by = random.pick(&[0, 1, 0xffff, 100, 0x7fff, 0x8000, any]);
    let cdc = Cdc {
        seq: session.seq.wrapping_add(by),
        token: session.theirs.token,
        flags: cdc::VALIDATION,
        ..Cdc::default()
    };
    session.pair.send(&cdc.to_bytes())
}

/// The numbers of RMBEs, and where data begin in them.
fn rmbes_unknown(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.distrust();
    // CAST: a random number, and the lower half.
    let any = random.next() as u32;
    let near = (session.sent as u32).wrapping_add(random.below(100) as u32);
    let since = random.pick(&[0, near, near.wrapping_sub(100), any]);
    let number = |random: &mut Random| random.pick(&[0, 1, 1, 2, 0xff, any as u8]);
    let (prod, cons) = (number(random), number(random));
    post(session, |cdc| {
        (cdc.rmbes.prod, cdc.rmbes.cons, cdc.rmbes.since) = (prod, cons, since)
    })
}

/// One in place of ours. The kernel may write there from then on, even if our device refuses that.
fn rmbes_offered(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let key = session.pair.memory.rkey;
    // CAST: a random number.
    let any = random.next() as u32;
    let rkey = random.pick(&[key, key, key, key ^ 1, session.theirs.rkey, 0, any]);
    let index = random.pick(&[0, 1, 2, 3, 255, any as u8]);
    let size = random.pick(&[0, 0, 1, 2, 5, 15, 16, 255]);
    if session.replaces {
        (session.expected, session.pair.memory.is_anywhere) = (None, true);
    }
    post(session, |cdc| {
        (cdc.rmbes.rkey, cdc.rmbes.index, cdc.rmbes.size) = (rkey, index, size)
    })
}

/// Returns random bytes.
fn bytes(random: &mut Random, len: usize) -> Vec<u8> {
    // CAST: a random number.
    (0..len).map(|_| random.next() as u8).collect()
}

fn any_cdc(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.distrust();
    if session.replaces {
        (session.expected, session.pair.memory.is_anywhere) = (None, true);
    }
    let mut message = bytes(random, usize::from(cdc::LEN));
    message[..2].copy_from_slice(&[cdc::TYPE, cdc::LEN]);
    message[4..8].copy_from_slice(&session.theirs.token.to_be_bytes());
    if let Some(cdc) = Cdc::parse(&message) {
        session.note(&cdc);
    }
    session.pair.send(&message)
}

/// The length in the message, or that of the message, is wrong. Beyond a receive the kernel's device refuses it.
fn other_length(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    session.seq = session.seq.wrapping_add(1);
    let mut message = session.truth().to_bytes();
    match random.below(2) {
        // CAST: a random number.
        0 => message[1] = random.next() as u8,
        _ => {
            let len = random.pick(&[0, 1, 2, 10, 25, 26, 43, 45, 48, 49, 100, 1000]);
            message.resize(len, 0);
        }
    }
    session.pair.send(&message)
}

fn other_type(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let len = random.pick(&[1, 4, 43, 44, 45, 48]);
    let message = bytes(random, len);
    if let Some(cdc) = Cdc::parse(&message) {
        session.note(&cdc);
    }
    session.pair.send(&message)
}

/// Writes without a CDC message about it.
fn write(session: &mut Session<'_>, at: i64, len: usize, random: &mut Random) -> Result<()> {
    session.distrust();
    let reth = Reth {
        addr: session.theirs.addr.wrapping_add_signed(at),
        rkey: session.theirs.rkey,
        // CAST: at most the MTU.
        len: len as u32,
    };
    let data = bytes(random, len);
    session.pair.write(reth, &data)
}

fn write_last(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let len = random.pick(&[1, 2, 3, 1000]);
    // CAST: at most 1000.
    let at = i64::from(session.theirs.size) - len as i64;
    write(session, at, len, random)
}

fn write_around(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let size = i64::from(session.theirs.size);
    let at = random.pick(&[
        -1,
        -100,
        -size,
        size - 1,
        size,
        size + 1,
        size * 255,
        size * 256,
        i64::MAX,
        i64::MIN,
    ]);
    let len = random.pick(&[0, 1, 2, 200, 1000]);
    write(session, at, len, random)
}

fn write_key(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // CAST: a random number.
    let any = random.next() as u32;
    let rkey = session.theirs.rkey;
    let reth = Reth {
        addr: session.theirs.addr,
        rkey: random.pick(&[
            0,
            u32::MAX,
            rkey ^ 1,
            rkey + 0x100,
            rkey.wrapping_sub(0x100),
            any,
        ]),
        len: 8,
    };
    session.distrust();
    session.pair.write(reth, &[0xee; 8])
}

/// The header of the write tells of more or fewer data than follow; not of none, which soft RoCE itself warns of.
fn write_header(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let len = random.pick(&[1, 7, 9, 4096, 1 << 16, 1 << 31, u32::MAX]);
    let Element { addr, rkey, .. } = session.theirs;
    session.distrust();
    session.pair.write(Reth { addr, rkey, len }, &[0xee; 8])
}

fn read_element(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    let len = random.pick(&[0, 1, 1000, session.theirs.size]);
    let Element { addr, rkey, .. } = session.theirs;
    session.pair.read(Reth { addr, rkey, len })
}

fn over_tcp(session: &mut Session<'_>, random: &mut Random) -> Result<()> {
    // In a handshake the kernel may go over to TCP, and reads this.
    session.distrust_all();
    let len = random.size(2000);
    let data = bytes(random, len);
    session.tcp.send(&data)
}
