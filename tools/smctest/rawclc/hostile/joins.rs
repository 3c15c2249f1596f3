// SPDX-License-Identifier: GPL-2.0

//! Handshakes that join the link group of a connection and fail: what they held is free for the next one.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::view::Module;
use smc_user::Errno;

use crate::rawclc::messages::with_byte;
use crate::rawclc::messages::Messages;
use crate::rawclc::messages::TYPE_CONFIRM;
use crate::rawclc::messages::TYPE_DECLINE;
use crate::rawclc::peer::diagnosis;
use crate::rawclc::tcp::RawTcp;

use super::app::App;
use super::app::Kind;
use super::app::Opening;
use super::app::Seeds;
use super::contact::confirm_link;
use super::contact::Contact;
use super::contact::ELEMENT;
use super::contact::FIRST_CONTACT;
use super::contact::FLAGS;
use super::contact::RKEY;
use super::contact::SOON;
use super::in_time;
use super::session::Session;
use super::Place;

/// Interval between two looks at TCP, while RDMA is served.
const LOOK: Duration = Duration::from_millis(20);

/// Longer than a message on a link vouches for it: the kernel tests it before it is used again.
const QUIET: Duration = Duration::from_millis(200);

/// A test of a link which takes so long tells nothing: the kernel was not run for a second or more of it.
const STALLED: Duration = Duration::from_millis(2900);

const SEEDS: Seeds = Seeds { read: 0, sent: 0 };

type Test = (&'static str, fn(&Place<'_>) -> Result<()>);

pub(super) const TESTS: &[Test] = &[
    (
        "a declined join leaves the RMB element that the kernel had chosen for it",
        declined,
    ),
    (
        "a join that the client gives up leaves the server's RMB element",
        given_up,
    ),
    (
        "a join that a silent link ends does not count on the link",
        silent,
    ),
];

fn contact(place: &Place<'_>) -> Contact {
    Contact {
        identity: place.next_identity(),
        ring: 0,
        links: 1,
        seed: 0,
        immediate: false,
        replaces: false,
    }
}

/// Opens the first connection of a group.
fn first<'a>(
    place: &'a Place<'_>,
    contact: &Contact,
    is_server: bool,
) -> Result<(App, Session<'a>)> {
    let (app, session) = place.meet(contact, is_server, Kind::Reader, SEEDS)?;
    let mut session = session?;
    ensure!(
        confirm_link(&mut session, is_server, SOON)?,
        "the link was not confirmed"
    );
    Ok((app, session))
}

/// Returns the kernel's next message by TCP, while the link is served.
fn message(session: &mut Session<'_>, tcp: &mut RawTcp<'_>) -> Result<Vec<u8>> {
    let start = Instant::now();
    while start.elapsed() < SOON {
        if let Some(message) = tcp.message(LOOK)? {
            return Ok(message);
        }
        session.serve(LOOK)?;
    }
    bail!("the kernel sent no message")
}

/// Ends the first connection.
fn end(app: &App, session: &mut Session<'_>) -> Result<()> {
    session.close(SOON)?;
    app.end(SOON).context("the application has not ended")?;
    session.tcp.reset()
}

/// The peer declines the ACCEPT of a join: it has not written to the element, and never will.
fn declined(place: &Place<'_>) -> Result<()> {
    let contact = contact(place);
    let messages = Messages::of(place.peer.address, contact.identity);
    let (app, mut session) = first(place, &contact, false)?;
    let mut elements = Vec::new();
    for _ in 0..3 {
        let mut tcp = place.peer.connect(&place.wires.tcp)?;
        tcp.send(&messages.proposal)?;
        let accept = message(&mut session, &mut tcp)?;
        ensure!(accept[4] != TYPE_DECLINE, "{:#x}", diagnosis(&accept));
        ensure!(
            accept[FLAGS] & FIRST_CONTACT == 0,
            "it was no join of the group"
        );
        elements.push(accept[RKEY..=ELEMENT].to_vec());
        tcp.send(&messages.decline)?;
        place.peer.one_over_tcp(&mut tcp)?;
        tcp.reset()?;
    }
    ensure!(
        elements.iter().all(|element| *element == elements[0]),
        "the elements of joins, one after the other, were {elements:x?}"
    );
    end(&app, &mut session)
}

/// Starts an application that connects to the server, up to the kernel's PROPOSAL.
fn propose<'a>(place: &Place<'_>, session: &mut Session<'a>) -> Result<(App, RawTcp<'a>)> {
    let (app, mut tcp) = in_time("this process is too slow to answer a SYN", || {
        let opening = Opening::Connect(SocketAddr::from(session.tcp.local()));
        let app = App::start(place.peer.context, Kind::Reader, opening, SEEDS);
        Ok(session.tcp.again_in_time()?.map(|tcp| (app, tcp)))
    })?;
    message(session, &mut tcp)?;
    Ok((app, tcp))
}

/// The server closes TCP right behind its ACCEPT, so that the client sends no CONFIRM. The next server's ACCEPT names
/// the same element.
fn given_up(place: &Place<'_>) -> Result<()> {
    let contact = contact(place);
    let messages = Messages::of(place.peer.address, contact.identity);
    let (app, mut session) = first(place, &contact, true)?;
    let accept = with_byte(&contact.adapt(&messages.reuse), ELEMENT, 2);
    let (joined, mut tcp) = propose(place, &mut session)?;
    tcp.send_last(&accept)?;
    session.serve(QUIET)?;
    let outcome = joined.end(SOON).context("connect(2) has not ended")?;
    ensure!(
        outcome.errno == Some(Errno::ECONNRESET),
        "without a server the application has seen {outcome:?}"
    );
    let (joined, mut tcp) = propose(place, &mut session)?;
    tcp.send(&accept)?;
    let confirm = message(&mut session, &mut tcp)?;
    if confirm[4] == TYPE_DECLINE {
        bail!("the element was refused for {:#x}", diagnosis(&confirm));
    }
    ensure!(confirm[4] == TYPE_CONFIRM, "it was no CONFIRM");
    tcp.reset()?;
    joined.end(SOON).context("the joined connection stays")?;
    end(&app, &mut session)
}

/// The client's end of the link does not answer in time when another connection is to use it. The first one, and the
/// link, go on.
fn silent(place: &Place<'_>) -> Result<()> {
    in_time("the silent link was used each time", || silence(place))
}

/// `None` if the kernel was too busy to see it.
fn silence(place: &Place<'_>) -> Result<Option<()>> {
    let contact = contact(place);
    let messages = Messages::of(place.peer.address, contact.identity);
    let (app, mut session) = first(place, &contact, false)?;
    session.serve(QUIET)?;
    thread::sleep(QUIET);
    let mut tcp = place.peer.connect(&place.wires.tcp)?;
    tcp.send(&messages.proposal)?;
    let asked = Instant::now();
    let answer = tcp.message(SOON)?.context("the kernel sent no message")?;
    if answer[4] != TYPE_DECLINE {
        ensure!(asked.elapsed() >= STALLED, "the silent link was used");
        tcp.send(&messages.decline)?;
        tcp.reset()?;
        end(&app, &mut session)?;
        println!("# once more, as the kernel was too busy to see the silence");
        return Ok(None);
    }
    // What was to be silence is none of this process not being run.
    place.wires.rdma.count_pauses();
    ensure!(session.ping(SOON)?, "the link is no more");
    place.peer.one_over_tcp(&mut tcp)?;
    tcp.reset()?;
    let counted = connections(place)?;
    ensure!(counted == 1, "the link has {counted} connections, not one");
    end(&app, &mut session).map(Some)
}

/// Waits until no connection of this peer is left.
pub(super) fn await_none(place: &Place<'_>) -> Result<()> {
    let start = Instant::now();
    while connections(place)? > 0 {
        ensure!(start.elapsed() < SOON, "a connection that was reset stays");
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Returns the connections of this peer's links, without those of groups that have none.
fn connections(place: &Place<'_>) -> Result<u64> {
    let [a, b, c, d] = place.peer.address.octets();
    let gid = format!("ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    let links = Module::open()?.links()?;
    Ok(links
        .iter()
        .filter(|(_, link)| link.peer_gid.ends_with(&gid))
        .map(|(_, link)| link.connections)
        .sum())
}
