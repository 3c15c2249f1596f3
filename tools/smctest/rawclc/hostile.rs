// SPDX-License-Identifier: GPL-2.0

//! `smctest hostile`: a peer over RDMA that lies.
//!
//! It is in user space down to the packets of RoCE. First and last it is honest: then every byte, cursor and state has
//! to be right. In between it plays scripts, each made from a seed, after which an honest connection and one of two
//! other ends have to work. What the kernel logs is checked by the runner.

mod app;
mod cdc;
mod contact;
mod honest;
mod immediate;
mod joins;
mod lies;
mod llc;
mod llc_lies;
mod memory;
mod pair;
mod play;
mod script;
mod session;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::sync::atomic::AtomicU16;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::context::Context;
use crate::context::Expected;
use crate::data::Random;
use crate::ktap::Ktap;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

use super::calls::listener;
use super::calls::port_of;
use super::peer::Peer;
use super::tcp::RawTcp;

use app::App;
use app::Kind;
use app::Opening;
use app::Seeds;
use contact::confirm_link;
use contact::Contact;
use contact::Wires;
use contact::SOON;
use play::Played;
use session::Session;
use wire::PAUSE;

/// Peers that play at once, each with an address of its own: the next ones after the first.
const AT_ONCE: u32 = 3;

/// How often an honest peer begins again that was not run in time.
const ATTEMPTS: u32 = 4;

/// Connections of an honest peer in each test.
const HONEST: usize = 6;

/// Links that fail in a row: too many for the log.
const FAILURES: usize = 120;

/// Failed scripts that are shown.
const SHOWN: usize = 10;

/// Seeds that are always played: of a client that connects again, of TCP that is closed and then reset, of deletions of
/// links, of a queue pair that is no more, of silence before the link is confirmed, of producer and consumer cursors,
/// and any.
const KNOWN: &[u32] = &[
    587_011_466,
    744_336_017,
    1_554_107_423,
    3_806_073_645,
    760_074_447,
    1_421_347_112,
    3_887_631_266,
    1_899_137_446,
    1,
    2,
    3,
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: super::Place,

    /// Scripts with new seeds
    #[arg(long, default_value_t = 100)]
    count: usize,

    /// Only the script of this seed
    #[arg(long)]
    seed: Option<u32>,

    /// Scripts with new seeds that may have the first link fail, and go on by a second one; with `--seed`, 1 for that
    /// script
    #[arg(long, default_value_t = 0)]
    second_links: usize,

    /// The kernel has the C module: only honest peers
    #[arg(long)]
    of_c: bool,
}

/// What one peer has: an address, and identities.
struct Place<'a> {
    peer: Peer<'a>,
    wires: Wires,
    identities: &'a AtomicU16,
    is_of_c: bool,
    second_links: bool,
}

impl<'a> Place<'a> {
    fn new(
        context: &'a Context,
        arguments: &Arguments,
        number: u32,
        second_links: bool,
        identities: &'a AtomicU16,
    ) -> Result<Self> {
        let place = &arguments.place;
        let place = super::Place {
            raw_addr: Ipv4Addr::from(u32::from(place.raw_addr) + number),
            device: place.device.clone(),
            ..*place
        };
        let peer = Peer::new(context, &place)?;
        let wires = Wires::open(&peer)?;
        Ok(Self {
            peer,
            wires,
            identities,
            is_of_c: arguments.of_c,
            second_links,
        })
    }

    fn next_identity(&self) -> u16 {
        // ORDERING: a counter. It wraps after more groups than there can be at once.
        self.identities.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts an application of the kernel and agrees with it on a first contact.
    fn meet(
        &self,
        contact: &Contact,
        is_server: bool,
        kind: Kind,
        seeds: Seeds,
    ) -> Result<(App, Result<Session<'_>>)> {
        let (peer, wires) = (&self.peer, &self.wires);
        if is_server {
            // A busy guest may answer a SYN too late, which is none of the script.
            let (app, tcp) = in_time("this process is too slow to answer a SYN", || {
                let flow = peer.next_flow(0);
                let opening = Opening::Connect(SocketAddr::from(flow.local));
                let app = App::start(peer.context, kind, opening, seeds);
                Ok(RawTcp::accept_in_time(&wires.tcp, flow)?.map(|tcp| (app, tcp)))
            })?;
            return Ok((app, contact.agree_with_client(peer, wires, tcp)));
        }
        let listener = listener(peer, |_| Ok(()), 4)?;
        let port = port_of(&listener)?;
        let app = App::start(peer.context, kind, Opening::Accept(listener), seeds);
        Ok((app, contact.agree_with_server(peer, wires, port)))
    }
}

/// Returns what `once` does when it is not too late, as a busy guest may be; if it is so each time, that is an error.
fn in_time<T>(error: &'static str, mut once: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..ATTEMPTS {
        if let Some(found) = once()? {
            return Ok(found);
        }
    }
    bail!(error)
}

/// What no peer may see, however slow it is.
#[derive(Debug)]
struct Wrong(String);

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Wrong {}

/// What the first connection of a group begins with.
#[derive(Clone, Copy)]
struct Beginning {
    /// With another identity each time.
    contact: Contact,
    is_server: bool,
    kind: Kind,
    seeds: Seeds,
}

impl Place<'_> {
    /// Starts an application of the kernel, agrees with it on a first contact, prepares the session, and confirms the
    /// link.
    fn meet_confirmed(
        &self,
        beginning: &Beginning,
        prepare: impl Fn(&mut Session<'_>),
    ) -> Result<(App, Session<'_>)> {
        let Beginning {
            contact,
            is_server,
            kind,
            seeds,
        } = *beginning;
        self.promptly(|| {
            let contact = Contact {
                identity: self.next_identity(),
                ..contact
            };
            let (app, session) = self.meet(&contact, is_server, kind, seeds)?;
            let mut session = session?;
            prepare(&mut session);
            ensure!(
                confirm_link(&mut session, is_server, SOON)?,
                "the link was not confirmed"
            );
            Ok((app, session))
        })
    }

    /// Has an honest peer act, again if it fails while this process was not run, as only a prompt one is honest.
    fn promptly<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        let mut left = ATTEMPTS;
        loop {
            self.wires.rdma.count_pauses();
            let result = act();
            let pause = self.wires.rdma.longest_pause();
            left -= 1;
            match result {
                Err(error) if pause >= PAUSE && left > 0 && !error.is::<Wrong>() => {
                    println!("# once more, as this process was not run for {pause:.1?}: {error:#}");
                    super::forget_paths()?;
                    joins::await_none(self)?;
                }
                result => return result,
            }
        }
    }
}

/// What scripts did, by what the application saw.
#[derive(Default)]
struct Tally {
    ends: BTreeMap<String, usize>,
    failures: Vec<String>,
}

impl Tally {
    fn add(&mut self, played: &Played) {
        let mut count = |what: String| *self.ends.entry(what).or_default() += 1;
        let outcome = &played.outcome;
        count(match (outcome.errno, outcome.is_connected) {
            (Some(errno), true) => format!("{errno}"),
            (Some(errno), false) => format!("connect: {errno}"),
            (None, true) => "end of the stream".to_string(),
            (None, false) => "no connection".to_string(),
        });
        if !played.is_confirmed {
            count("(link not confirmed)".to_string());
        }
        if played.was_offered {
            count("(another link offered)".to_string());
        }
        if played.has_failed_over {
            count("(gone on by another link)".to_string());
        }
        if let Some(syndrome) = played.refused {
            count(format!("(refused with {syndrome:#x})"));
        }
        if played.was_not_ready {
            count("(no receive was ready)".to_string());
        }
    }
}

/// Runs the test; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    let identities = AtomicU16::new(1);
    let place = Place::new(context, arguments, 0, false, &identities)?;
    let mut random = Random::new(Random::fresh_seed());
    let (known, new, linked) = match (arguments.seed, arguments.second_links) {
        (Some(seed), 0) => (vec![seed], Vec::new(), Vec::new()),
        (Some(seed), _) => (Vec::new(), Vec::new(), vec![seed]),
        (None, linked) => (
            KNOWN.to_vec(),
            fresh_seeds(arguments.count),
            fresh_seeds(linked),
        ),
    };
    let scripts = [
        ("known seeds", &known, false),
        ("new seeds", &new, false),
        ("new seeds with second links", &linked, true),
    ];
    let scripts = if arguments.of_c { &[][..] } else { &scripts };
    let joins = if arguments.of_c { &[] } else { joins::TESTS };
    let failures = usize::from(!arguments.of_c);
    let mut ktap = Ktap::start(2 * HONEST_TESTS + joins.len() + scripts.len() + 2 * failures);
    all_honest(&mut ktap, "before", &place, &mut random);
    if !arguments.of_c {
        let result = (0..HONEST).try_for_each(|_| honest::play_failing_over(&place, &mut random));
        ktap.result("an honest client whose link fails", super::text(result));
    }
    for (name, test) in joins {
        ktap.result(*name, super::text(place.promptly(|| test(&place))));
    }
    for (name, seeds, second_links) in scripts {
        let result = play_all(context, arguments, &identities, seeds, *second_links);
        ktap.result(format!("scripts of {name}"), super::text(result));
    }
    for _ in 0..failures {
        let result = (0..FAILURES).try_for_each(|_| play::fail_link(&place));
        ktap.result("many links fail in a row", super::text(result));
    }
    all_honest(&mut ktap, "afterwards", &place, &mut random);
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

/// Returns seeds that differ from run to run.
fn fresh_seeds(count: usize) -> Vec<u32> {
    let mut random = Random::new(Random::fresh_seed());
    // CAST: a random number.
    (0..count).map(|_| random.next() as u32).collect()
}

/// Tests of [`all_honest`].
const HONEST_TESTS: usize = 3;

/// What has to work before and after the scripts.
fn all_honest(ktap: &mut Ktap, when: &str, place: &Place<'_>, random: &mut Random) {
    for (role, is_server) in [("client", false), ("server", true)] {
        let result = (0..HONEST).try_for_each(|_| honest::play(place, is_server, random));
        ktap.result(format!("an honest {role} {when}"), super::text(result));
    }
    let result = others(place.peer.context);
    ktap.result(format!("others {when}"), super::text(result));
}

/// Two other ends connect over SMC, and transfer data.
fn others(context: &Context) -> Result<()> {
    let context = Context {
        expect: Expected::Smc,
        ..context.clone()
    };
    super::ordinary(&context).context("two others")
}

/// Plays the scripts of these seeds, several at once.
fn play_all(
    context: &Context,
    arguments: &Arguments,
    identities: &AtomicU16,
    seeds: &[u32],
    second_links: bool,
) -> Result<()> {
    let start = Instant::now();
    let (next, tally) = (AtomicUsize::new(0), Mutex::new(Tally::default()));
    let work = |number| -> Result<()> {
        netns::enter(context.client_netns.as_deref())?;
        let place = Place::new(context, arguments, number, second_links, identities)?;
        // ORDERING: a counter.
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = play::play(&place, *seed).and_then(|played| {
                after(&place, *seed).with_context(|| format!("after seed {seed}"))?;
                Ok(played)
            });
            let mut tally = tally.lock().expect("no thread panicked");
            match result {
                Ok(played) => tally.add(&played),
                Err(error) => tally.failures.push(format!("{error:#}")),
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (1..=AT_ONCE)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().expect("no thread panicked"))
    })?;
    let tally = tally.into_inner().expect("no thread panicked");
    report(&tally, seeds.len(), start);
    let failed = tally.failures.len();
    ensure!(failed == 0, "{failed} of {} scripts failed", seeds.len());
    Ok(())
}

/// What has to work after a script.
fn after(place: &Place<'_>, seed: u32) -> Result<()> {
    // The path to a peer that was silent is avoided for a while, which is no fault.
    super::forget_paths()?;
    let mut random = Random::new(seed.into());
    honest::play(place, random.below(2) == 0, &mut random)?;
    others(place.peer.context)
}

fn report(tally: &Tally, count: usize, start: Instant) {
    println!(
        "# {count} scripts in {:.1} s",
        start.elapsed().as_secs_f32()
    );
    for (what, count) in &tally.ends {
        println!("#   {count} {what}");
    }
    for failure in tally.failures.iter().take(SHOWN) {
        println!("# {failure}");
    }
}
