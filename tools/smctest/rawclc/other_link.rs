// SPDX-License-Identifier: GPL-2.0

//! A client whose CONFIRM names another of the group's two links than the server's ACCEPT: the
//! connection uses the link that the client named, and its key is one of that link.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::view::Module;
use smc_user::Socket;

use crate::netns;

use super::calls::listener;
use super::calls::port_of;
use super::group_of;
use super::impostor::number;
use super::messages::with_byte;
use super::messages::with_bytes;
use super::messages::without;
use super::messages::Messages;
use super::peer::Peer;
use super::peer::ANSWER;
use super::roce::Adapter;
use super::roce::End;
use super::roce::Sent;
use super::strangers;
use super::tcp::End as Stream;
use super::tcp::RawTcp;
use super::Test;

/// Offsets in ACCEPT and CONFIRM, as in `net/smc/proto/wire/clc/accept/raw.rs`.
const FLAGS: usize = 7;
const QP: usize = 38;
const RKEY: usize = 41;
const ELEMENT: usize = 45;
const TOKEN: usize = 46;
const ADDR: usize = 52;
const FIRST_CONTACT: usize = 104;
const FIRST_CONTACT_END: usize = 176;

/// Flags of version 2 without first contact, and the flag of a first contact.
const REUSE: u8 = 0x20;
const FIRST: u8 = 0x08;

/// Alert token and key of the first connection, in the recorded CONFIRM. Its element is the first.
const FIRST_TOKEN: u32 = 9;
const FIRST_RKEY: u32 = 0x2222;
const FIRST_ADDR: u64 = 0x5678_0000;

/// Element and alert token of the second connection.
const SECOND_ELEMENT: u8 = 2;
const SECOND_TOKEN: u32 = 10;

/// Length of an element, in the recorded CONFIRM.
const ELEMENT_LEN: u64 = 0x1_0000;

/// Sent by the kernel.
const DATA: &[u8] = b"by the link that the client named";

/// Within this time the kernel resets TCP for a CONFIRM that it cannot use.
const SOON: Duration = Duration::from_secs(3);

/// Interval between two looks at what has arrived.
const LOOK: Duration = Duration::from_millis(5);

pub(super) const TESTS: &[Test] = &[
    ("a confirm that names another link than the accept", named),
    (
        "a confirm that names another link, with a key of the accept's",
        with_other_key,
    ),
    (
        "a peer without an answer about keys: who joins is told in time",
        without_answers,
    ),
    (
        "a peer that takes no messages: its link is given up",
        without_receives,
    ),
];

/// Time for a connection that was closed to be aborted (`tcp_fin_timeout`, a second), and for its link to be given up.
const GIVEN_UP: Duration = Duration::from_secs(60);

/// So many join at a time where there is no answer about keys, which the kernel awaits two seconds.
const CROWD: usize = 30;

/// A client waits six seconds for the ACCEPT.
const TOLD: Duration = Duration::from_secs(8);

/// A client with two links.
struct Client<'a> {
    peer: &'a Peer<'a>,
    wire: &'a Socket,
    adapter: Adapter,
    ends: [End; 2],
    messages: Messages,
    listener: Socket,
}

/// A TCP connection whose ACCEPT, which reuses the group, has arrived.
struct Joining<'a> {
    tcp: RawTcp<'a>,
    /// The link that the ACCEPT names, and the other one.
    named: End,
    other: End,
}

fn named(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    Client::new(peer, wire, 0x4200)?.play(|client, first| {
        let mut joining = client.join()?;
        let other = joining.other;
        let served = client.confirm(&mut joining, other)?;
        let group = group_of(first)?;
        ensure!(group_of(&served)? == group, "it is not of group {group:#x}");
        client.receives(&served, other, SECOND_ELEMENT, SECOND_TOKEN)?;
        joining.tcp.reset()
    })
}

fn with_other_key(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    Client::new(peer, wire, 0x4201)?.play(|client, first| {
        let mut joining = client.join()?;
        let End { rkey, addr, .. } = joining.named;
        let mixed = End {
            rkey,
            addr,
            ..joining.other
        };
        joining.tcp.send(&client.confirm_of(mixed))?;
        let end = joining.tcp.listen(SOON)?;
        ensure!(end == Stream::Reset, "the TCP connection is {end:?}");

        // The others of the group live, and it takes another one.
        client.receives(first, client.ends[0], 1, FIRST_TOKEN)?;
        let mut joining = client.join()?;
        let other = joining.other;
        let served = client.confirm(&mut joining, other)?;
        client.receives(&served, other, SECOND_ELEMENT, SECOND_TOKEN)?;
        joining.tcp.reset()
    })
}

fn without_answers(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    Client::new(peer, wire, 0x4202)?.play(|client, _| {
        client.adapter.ignore_keys();
        let times = thread::scope(|scope| {
            let joining: Vec<_> = (0..CROWD)
                .map(|_| scope.spawn(|| client.await_answer()))
                .collect();
            let times = joining.into_iter().map(|joining| match joining.join() {
                Ok(time) => time,
                Err(_) => bail!("a thread panicked"),
            });
            times.collect::<Result<Vec<_>>>()
        })?;
        let longest = times.into_iter().max().unwrap_or_default();
        println!("# links: the last of {CROWD} was told after {longest:.1?}");
        // Some had to wait, or nobody was asked.
        ensure!(longest >= Duration::from_secs(2), "no key was to be taken");
        Ok(())
    })
}

fn without_receives(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    Client::new(peer, wire, 0x4203)?.play(|client, first| {
        let group = group_of(first)?;
        let mut joining = client.join()?;
        let other = joining.other;
        let served = client.confirm(&mut joining, other)?;
        client.adapter.post_no_receives();
        served.send(DATA, 0)?;
        drop(served);
        let start = Instant::now();
        while active_links(group)? == 2 {
            ensure!(start.elapsed() < GIVEN_UP, "the link lives");
            thread::sleep(LOOK * 20);
        }
        println!("# links: given up after {:.1?}", start.elapsed());
        joining.tcp.reset()
    })
}

impl<'a> Client<'a> {
    /// Creates one with an identity of its own.
    fn new(peer: &'a Peer<'a>, wire: &'a Socket, identity: u16) -> Result<Self> {
        let pair = u32::from(identity) << 4;
        let ends = [
            End {
                pair,
                rkey: FIRST_RKEY,
                addr: FIRST_ADDR,
            },
            End {
                pair: pair + 1,
                rkey: 0x3333,
                addr: 0x9abc_0000,
            },
        ];
        Ok(Self {
            peer,
            wire,
            adapter: Adapter::with_links(peer.flow_of(0), ends),
            ends,
            messages: Messages::of(peer.address, identity),
            listener: listener(peer, |_| Ok(()), 64)?,
        })
    }

    /// Runs `test` with a connection of a group with both links, as the kernel accepted it.
    fn play(&self, test: impl FnOnce(&Self, &Socket) -> Result<()>) -> Result<()> {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let serving = scope.spawn(|| strangers::serve(self.peer, &self.adapter, &is_over));
            let result = self.begin().and_then(|(mut tcp, first)| {
                let result = test(self, &first);
                result.and(tcp.reset())
            });
            is_over.store(true, Ordering::Relaxed);
            match serving.join() {
                Ok(served) => result.and(served),
                Err(_) => bail!("the serving thread panicked"),
            }
        })
    }

    /// Makes the first contact, and waits for the second link.
    fn begin(&self) -> Result<(RawTcp<'a>, Socket)> {
        let (mut tcp, accept) = self.propose()?;
        ensure!(accept[FLAGS] & FIRST != 0, "there is a group already");
        let [first, _] = self.ends;
        strangers::confirm(&mut tcp, &self.adapter, first.pair, &accept, &self.messages)?;
        let served = self.listener.accept(0).context("accept")?;
        let group = group_of(&served)?;
        let start = Instant::now();
        while active_links(group)? < 2 {
            ensure!(start.elapsed() < ANSWER, "there is no second link");
            thread::sleep(LOOK);
        }
        Ok((tcp, served))
    }

    /// Connects; returns the server's ACCEPT, too.
    fn propose(&self) -> Result<(RawTcp<'a>, Vec<u8>)> {
        let mut tcp = self.peer.connect_to(self.wire, port_of(&self.listener)?)?;
        tcp.send(&self.messages.proposal)?;
        let accept = tcp.message(ANSWER)?.context("no accept")?;
        Ok((tcp, accept))
    }

    /// Connects, and returns how long it takes until the server says yes or no.
    fn await_answer(&self) -> Result<Duration> {
        netns::enter(self.peer.context.client_netns.as_deref())?;
        let wire = self.peer.wire()?;
        let mut tcp = self.peer.connect_to(&wire, port_of(&self.listener)?)?;
        tcp.send(&self.messages.proposal)?;
        let start = Instant::now();
        tcp.message(TOLD)?.context("no answer")?;
        let took = start.elapsed();
        tcp.reset()?;
        Ok(took)
    }

    /// Connects, up to the ACCEPT that reuses the group.
    fn join(&self) -> Result<Joining<'a>> {
        let (tcp, accept) = self.propose()?;
        ensure!(accept[FLAGS] == REUSE, "it does not reuse the group");
        let queue_pair = Some(number(&accept, QP, 3));
        let [a, b] = self.ends;
        let (named, other) = match queue_pair {
            pair if pair == self.adapter.peer_of(a.pair) => (a, b),
            pair if pair == self.adapter.peer_of(b.pair) => (b, a),
            pair => bail!("it names queue pair {pair:?}"),
        };
        println!(
            "# links: told of {:#x}, names {:#x}",
            named.pair, other.pair
        );
        Ok(Joining { tcp, named, other })
    }

    /// Returns the CONFIRM that reuses the group by the link of `end`.
    fn confirm_of(&self, end: End) -> Vec<u8> {
        let confirm = without(&self.messages.confirm, FIRST_CONTACT, FIRST_CONTACT_END);
        let confirm = with_byte(&confirm, FLAGS, REUSE);
        let confirm = with_bytes(&confirm, QP, &end.pair.to_be_bytes()[1..]);
        let confirm = with_bytes(&confirm, RKEY, &end.rkey.to_be_bytes());
        let confirm = with_bytes(&confirm, ADDR, &end.addr.to_be_bytes());
        let confirm = with_byte(&confirm, ELEMENT, SECOND_ELEMENT);
        with_bytes(&confirm, TOKEN, &SECOND_TOKEN.to_be_bytes())
    }

    /// Confirms by the link of `end`; returns the connection that the kernel accepted.
    fn confirm(&self, joining: &mut Joining<'_>, end: End) -> Result<Socket> {
        joining.tcp.send(&self.confirm_of(end))?;
        self.listener.accept(0).or_else(|error| {
            let stream = joining.tcp.listen(LOOK)?;
            bail!("accept: {error}, the TCP connection being {stream:?}")
        })
    }

    /// Data of the kernel's connection arrive on the link of `end`, in this element of its RMB, and
    /// so does the CDC message about them.
    fn receives(&self, served: &Socket, end: End, element: u8, token: u32) -> Result<()> {
        self.adapter.take_sent();
        served.send(DATA, 0)?;
        let End { pair, rkey, addr } = end;
        let write = Sent::Write {
            pair,
            rkey,
            addr: addr + u64::from(element - 1) * ELEMENT_LEN,
            data: DATA.to_vec(),
        };
        let wanted = [write, Sent::Cdc { pair, token }];
        let start = Instant::now();
        let mut sent = Vec::new();
        while sent.len() < wanted.len() && start.elapsed() < ANSWER {
            thread::sleep(LOOK);
            sent.extend(self.adapter.take_sent());
        }
        ensure!(sent == wanted, "{sent:x?} came where {wanted:x?} is due");
        Ok(())
    }
}

/// Returns the number of active links of a group.
fn active_links(group: u32) -> Result<usize> {
    let mut links = Module::open()?.links()?;
    links.retain(|(_, link)| link.group == group && link.state == "active");
    Ok(links.len())
}
