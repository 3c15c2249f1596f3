// SPDX-License-Identifier: GPL-2.0

//! An honest peer: every byte, cursor and state of the kernel has to be right, up to the end of the connection.

use std::ops::Range;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;

use crate::data::Random;
use crate::data::Stream;

use super::app::App;
use super::app::Kind;
use super::app::Outcome;
use super::app::Seeds;
use super::cdc;
use super::contact::Contact;
use super::contact::ANY;
use super::contact::SOON;
use super::llc;
use super::session::Offers;
use super::session::Session;
use super::Beginning;
use super::Place;
use super::Wrong;

/// Bytes that fill any ring several times.
const MANY: u64 = 300_000;

/// Time for the last messages.
const SETTLED: Duration = Duration::from_millis(30);

/// How an honest connection ends.
#[derive(Clone, Copy, Debug)]
enum Closing {
    /// The peer shuts down, the application closes, the peer closes.
    ShutDown,
    /// The peer closes.
    Closed,
    /// The peer aborts.
    Aborted,
}

/// Has an application send back what it gets over an honest connection, which has to be all right, and its end as well.
pub(super) fn play(place: &Place<'_>, is_server: bool, random: &mut Random) -> Result<()> {
    play_with(place, is_server, false, random)
}

/// The same as client of a kernel that offers a second link; the first one fails in the middle.
pub(super) fn play_failing_over(place: &Place<'_>, random: &mut Random) -> Result<()> {
    play_with(place, false, true, random)
}

fn play_with(
    place: &Place<'_>,
    is_server: bool,
    fails_over: bool,
    random: &mut Random,
) -> Result<()> {
    let closing = random.pick(&[Closing::ShutDown, Closing::Closed, Closing::Aborted]);
    let kind = random.pick(&[Kind::Echo, Kind::Poller]);
    let seed = random.next();
    let seeds = Seeds {
        read: seed,
        sent: seed,
    };
    let contact = Contact {
        identity: ANY,
        // CAST: below 3.
        ring: random.below(3) as u8,
        links: 1,
        seed,
        immediate: random.below(2) == 0,
        // Of a copy: known seeds keep the rest.
        replaces: random.clone().next() & 1 == 0,
    };
    // CAST: `usize` has 64 bits.
    let few = random.size(100_000) as u64;
    let len = random.pick(&[few, few, MANY]);
    let beginning = Beginning {
        contact,
        is_server,
        kind,
        seeds,
    };
    let transfer = Transfer {
        len,
        seed,
        fails_over,
        closing,
        errno: closing.errno(place.is_of_c),
    };
    let result = || -> Result<()> {
        let (app, mut session) = place.meet_confirmed(&beginning, |session| {
            if fails_over {
                session.offers = Offers::Used;
            }
        })?;
        let result = transfer.run(&app, &mut session);
        // Whatever else failed is less.
        if let Some(what) = session.pair.memory.faults.first() {
            bail!(Wrong(format!("the kernel is wrong: {what}")));
        }
        result
    };
    place
        .promptly(result)
        .with_context(|| format!("an honest peer, {len} bytes, {kind:?}, {closing:?}"))
}

/// What is done over a link that is confirmed.
struct Transfer {
    /// Bytes that go there and back, at least.
    len: u64,
    seed: u64,
    fails_over: bool,
    closing: Closing,
    /// The error with which it ends for the application.
    errno: Option<Errno>,
}

impl Transfer {
    fn run(&self, app: &App, session: &mut Session<'_>) -> Result<()> {
        let (mut len, seed, fails_over) = (self.len, self.seed, self.fails_over);
        let half = if fails_over { len / 2 } else { 0 };
        // What ended for the application, too, is no stall.
        let seen = || format!("the application has seen {:?}", app.end(SETTLED));
        exchange(session, seed, 0..half).with_context(seen)?;
        ensure!(
            !fails_over || session.fail_over(SOON)?,
            "there is no second link"
        );
        exchange(session, seed, half..len).with_context(seen)?;
        // Few bytes are one write, and the kernel has nothing else to say.
        ensure!(
            session.immediates > 0 || !session.sends_immediate || !(1..=1000).contains(&len),
            "the kernel sent no immediate data"
        );
        // More than one ring, so that a larger one is of use; it is made while data are transferred.
        let is_replaced = session.replaces && !fails_over && len >= MANY;
        let start = Instant::now();
        while is_replaced && session.adopted.count == 0 {
            ensure!(start.elapsed() < SOON, "the kernel offered no larger RMBE");
            exchange(session, seed, len..len + MANY).with_context(seen)?;
            len += MANY;
        }
        send_closing(session, self.closing)?;
        let outcome = app.end(SOON).context("the application has not ended")?;
        judge(&outcome, self.errno, len)?;
        session.tcp.reset()?;
        session.pair.send(&llc::delete_all())?;
        session.serve(SETTLED)
    }
}

/// The longest time that an exchange takes while other peers have theirs, on a loaded machine.
const EXCHANGED: Duration = Duration::from_secs(60);

/// Sends the bytes of these positions, and gets them back.
fn exchange(session: &mut Session<'_>, seed: u64, range: Range<u64>) -> Result<()> {
    let start = Instant::now();
    let mut back = Vec::new();
    let len = range.end - range.start;
    while (back.len() as u64) < len {
        ensure!(
            start.elapsed() < EXCHANGED && session.pair.given_up == 0,
            "{} bytes of {} came back; {}, refused with {:?}, no answer to {} packets",
            back.len(),
            session.sent,
            session.progress(),
            session.pair.refused,
            session.pair.given_up
        );
        session.produce(range.end)?;
        session.serve_one(SETTLED)?;
        back.extend(session.consume()?);
    }
    // CAST: `usize` has 64 bits.
    let before = range.start as usize;
    let mut wanted = vec![0; before + back.len()];
    Stream::new(seed).fill(&mut wanted);
    let wanted = wanted.split_off(before);
    let differs = back.iter().zip(&wanted).position(|(a, b)| a != b);
    if differs.is_some() || back.len() as u64 != len {
        let what = format!("of {} bytes the one at {differs:?} is wrong", back.len());
        bail!(Wrong(what));
    }
    Ok(())
}

impl Closing {
    /// Returns the error of the application: that of an abort, of which the C module tells reads nothing.
    fn errno(self, is_of_c: bool) -> Option<Errno> {
        match self {
            Self::ShutDown | Self::Closed => None,
            Self::Aborted if is_of_c => None,
            Self::Aborted => Some(Errno::ECONNRESET),
        }
    }
}

/// Ends the connection, and waits until the kernel does.
fn send_closing(session: &mut Session<'_>, closing: Closing) -> Result<()> {
    session.state |= match closing {
        Closing::ShutDown => cdc::DONE,
        Closing::Closed => cdc::CLOSED,
        Closing::Aborted => cdc::ABORTED,
    };
    session.tell(0)?;
    let has_ended = session.serve_until(SOON, |session| {
        session.their_state & (cdc::CLOSED | cdc::ABORTED) != 0
    })?;
    ensure!(has_ended, "the kernel has not ended the connection");
    session.state |= cdc::CLOSED;
    session.tell(0)?;
    session.serve(SETTLED)?;
    session.tcp.close()
}

/// Checks what the application has seen in the end.
fn judge(outcome: &Outcome, errno: Option<Errno>, len: u64) -> Result<()> {
    if outcome.wrong_at.is_some() {
        bail!(Wrong(format!("the application has seen {outcome:?}")));
    }
    ensure!(
        outcome.errno == errno && outcome.received == len,
        "the application has seen {outcome:?}"
    );
    Ok(())
}
