// SPDX-License-Identifier: GPL-2.0

//! Plays a script, and judges what became of the kernel's application: it has to end soon, with an error, the end of
//! the stream or the right data, and with no more data than it was told of.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;

use crate::data::Random;
use crate::data::Stream;
use crate::rawclc::packet::Reth;

use super::app::App;
use super::app::Kind;
use super::app::Outcome;
use super::app::Seeds;
use super::cdc;
use super::contact::confirm_link;
use super::contact::Contact;
use super::contact::ANY;
use super::contact::SOON;
use super::lies;
use super::llc;
use super::script::Ending;
use super::script::Moment;
use super::script::Script;
use super::session::Offers;
use super::session::Session;
use super::Beginning;
use super::Place;

/// How long the kernel's application may take to end after its peer did, on a busy machine. A silent link is noticed
/// after `smcr_testlink_time` and 6 s, without those for which the guest stood still.
const BOUND: Duration = Duration::from_secs(30);

/// Time for what may come of the lies, and for what should come of an honest message.
const SETTLED: Duration = Duration::from_millis(30);
const ANSWERED: Duration = Duration::from_millis(300);

/// The errors that end a connection of an ordinary program, and those of connect(2) beside them.
const LOST: &[Errno] = &[
    Errno::ECONNRESET,
    Errno::ECONNABORTED,
    Errno::EPIPE,
    Errno::ETIMEDOUT,
];
const NOT_CONNECTED: &[Errno] = &[Errno::EPROTO, Errno::ECONNREFUSED];

/// What a script did.
pub(super) struct Played {
    pub(super) outcome: Outcome,
    /// Whether the connection was over RDMA.
    pub(super) is_confirmed: bool,
    /// Whether the kernel has offered another link.
    pub(super) was_offered: bool,
    /// Whether its first link has failed, and it went on by a second one.
    pub(super) has_failed_over: bool,
    pub(super) refused: Option<u8>,
    pub(super) was_not_ready: bool,
}

/// Plays the script of `seed`.
pub(super) fn play(place: &Place<'_>, seed: u32) -> Result<Played> {
    let mut random = Random::new(seed.into());
    let script = Script::new(&mut random, place.second_links);
    let mut told = Vec::new();
    act(place, &script, &mut random, &mut told)
        .with_context(|| format!("seed {seed}: {script:?}, lies: {told:?}"))
}

fn act(
    place: &Place<'_>,
    script: &Script,
    random: &mut Random,
    told: &mut Vec<&'static str>,
) -> Result<Played> {
    let seeds = Seeds {
        read: random.next(),
        sent: random.next(),
    };
    let contact = Contact {
        identity: place.next_identity(),
        ring: script.ring,
        links: script.links,
        seed: seeds.read,
        immediate: script.immediate,
        replaces: script.replaces,
    };
    let prepare = |session: &mut Session<'_>| {
        (session.answers_cdc, session.offers) = (script.reads, script.offers);
        session.expected = (script.app == Kind::Writer).then(|| Stream::new(seeds.sent));
    };
    let (app, mut session) = if script.moment == Moment::Agreed {
        let (app, session) = place.meet(&contact, script.is_server, script.app, seeds)?;
        let mut session = session?;
        prepare(&mut session);
        (app, session)
    } else {
        let beginning = Beginning {
            contact,
            is_server: script.is_server,
            kind: script.app,
            seeds,
        };
        place.meet_confirmed(&beginning, prepare)?
    };
    lie(&mut session, script, random, told)?;
    let is_confirmed = session.is_confirmed;
    end(&mut session, script)?;
    let outcome = await_end(&mut session, &app, script)?;
    judge(&session, &outcome)?;
    if let Some(what) = session.pair.memory.faults.first() {
        bail!("the kernel is wrong: {what}");
    }
    Ok(Played {
        outcome,
        is_confirmed,
        was_offered: session.offered > 0,
        has_failed_over: session.has_failed_over,
        refused: session.pair.refused,
        was_not_ready: session.pair.was_not_ready,
    })
}

/// Has a link of the kernel fail, as soon as it is confirmed: by a write with a key that there is not.
pub(super) fn fail_link(place: &Place<'_>) -> Result<()> {
    let contact = Contact {
        identity: ANY,
        ring: 0,
        links: 1,
        seed: 0,
        immediate: false,
        replaces: false,
    };
    let seeds = Seeds { read: 0, sent: 0 };
    let beginning = Beginning {
        contact,
        is_server: false,
        kind: Kind::Reader,
        seeds,
    };
    let (app, mut session) = place.meet_confirmed(&beginning, |_| ())?;
    let reth = Reth {
        addr: session.theirs.addr,
        rkey: !session.theirs.rkey,
        len: 8,
    };
    session.pair.write(reth, &[0; 8])?;
    let is_refused = session.serve_until(SOON, |session| session.pair.refused.is_some())?;
    ensure!(is_refused, "the kernel has not refused the write");
    let outcome = app.end(SOON).context("the application has not ended")?;
    session.tcp.reset()?;
    let errno = outcome.errno;
    ensure!(
        errno.is_some_and(|errno| LOST.contains(&errno)),
        "the application got {errno:?}"
    );
    Ok(())
}

/// Transfers some data, and then lies.
fn lie(
    session: &mut Session<'_>,
    script: &Script,
    random: &mut Random,
    told: &mut Vec<&'static str>,
) -> Result<()> {
    let mut tell = |session: &mut Session<'_>, random: &mut Random| -> Result<()> {
        for _ in 0..script.lies {
            told.push(lies::tell_any(session, random)?);
            if random.below(3) == 0 {
                session.serve(SETTLED)?;
            }
        }
        Ok(())
    };
    if script.moment == Moment::Agreed {
        session.answers_llc = script.confirms;
        tell(session, random)?;
        if script.confirms {
            confirm_link(session, script.is_server, SOON / 5)?;
        } else if random.below(2) == 0 {
            // The kernel waits in vain for some seconds, and declines.
            session.tcp.message(SOON)?;
        }
        return session.serve(SETTLED);
    }
    let (Moment::Sent(before) | Moment::ShutDown(before) | Moment::Closed(before)) = script.moment
    else {
        return Ok(());
    };
    advance(session, before)?;
    // A client of the kernel offers none.
    if script.fails_over && script.offers == Offers::Used && !script.is_server {
        session.fail_over(SOON / 5)?;
    }
    session.state |= match script.moment {
        Moment::ShutDown(_) => cdc::DONE,
        Moment::Closed(_) => cdc::CLOSED,
        _ => 0,
    };
    if session.state != 0 {
        session.tell(0)?;
    }
    tell(session, random)?;
    session.serve(SETTLED)?;
    if script.goes_on {
        if script.lies > 0 {
            session.trusted = session.trusted.min(session.sent);
        }
        session.produce(session.sent + 1 + random.below(20_000))?;
        session.ping(ANSWERED)?;
    }
    Ok(())
}

/// Sends data up to a position, as far as the kernel's application reads them.
fn advance(session: &mut Session<'_>, to: u64) -> Result<()> {
    let start = Instant::now();
    while session.sent < to && start.elapsed() < ANSWERED {
        if session.produce(to)? == 0 {
            session.serve_one(SETTLED)?;
        }
        if session.answers_cdc {
            session.consume()?;
        }
    }
    Ok(())
}

fn end(session: &mut Session<'_>, script: &Script) -> Result<()> {
    match script.ending {
        Ending::Reset => session.tcp.reset(),
        Ending::Fin => {
            session.told_end = true;
            session.tcp.close()?;
            session.serve(ANSWERED)
        }
        Ending::Closed => session.close(ANSWERED).map(drop),
        Ending::Aborted => {
            session.state |= cdc::ABORTED;
            session.tell(0)
        }
        Ending::Deleted => session.pair.send(&llc::delete_all()),
        Ending::Mute => {
            session.vanish();
            Ok(())
        }
        Ending::Silent => {
            (session.answers_llc, session.answers_cdc) = (false, false);
            Ok(())
        }
        Ending::Vanished => {
            session.vanish();
            session.tcp.reset()
        }
    }
}

/// Waits for the application. It may depend on a reset of TCP, unless the kernel has to notice the end by RDMA.
fn await_end(session: &mut Session<'_>, app: &App, script: &Script) -> Result<Outcome> {
    let start = Instant::now();
    // Before the link is confirmed, or after a lie that is ignored as the message after it would be, TCP decides.
    let is_alone = script.ending.is_by_rdma() && session.is_confirmed && script.lies == 0;
    let mut is_reset = false;
    while start.elapsed() < BOUND {
        session.serve(SETTLED)?;
        session.tcp.refuse_others()?;
        if let Some(outcome) = app.end(Duration::ZERO) {
            session.tcp.reset()?;
            session.serve(SETTLED)?;
            return Ok(outcome);
        }
        // It is told of an abort of the kernel as well.
        let is_aborted = session.their_state & cdc::ABORTED != 0;
        if !is_alone && !is_aborted && !is_reset {
            session.tcp.reset()?;
            // A connection that the kernel has not accepted by now is none.
            app.give_up();
            // Data of a peer that closed TCP first may still come, as long as its link answers.
            if script.ending == Ending::Fin {
                session.vanish();
            }
            is_reset = true;
        }
    }
    bail!("the application has not ended after {BOUND:?}");
}

fn judge(session: &Session<'_>, outcome: &Outcome) -> Result<()> {
    let &Outcome {
        received,
        wrong_at,
        errno,
        ..
    } = outcome;
    ensure!(
        received <= session.claimed,
        "the application read {received} bytes of {}",
        session.claimed
    );
    ensure!(
        wrong_at.is_none_or(|at| at >= session.trusted),
        "the application read a wrong byte at {wrong_at:?}, where all are right before {}",
        session.trusted
    );
    ensure!(!outcome.spins, "poll returned again and again for nothing");
    match errno {
        Some(errno) if LOST.contains(&errno) => Ok(()),
        Some(errno) if !outcome.is_connected && NOT_CONNECTED.contains(&errno) => Ok(()),
        Some(errno) => bail!("the application got {errno}"),
        // Or it has not got a connection at all.
        None if session.told_end || !outcome.is_connected => Ok(()),
        None => bail!("the stream ended after {received} bytes, which nobody has told"),
    }
}
