// SPDX-License-Identifier: GPL-2.0

//! Clients of one host that leave the ACCEPT of a first contact unanswered: each holds up the next one for a second,
//! and the last one goes over TCP.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_proto::cause::Cause;
use smc_tools::path::Path;
use smc_user::Socket;

use super::calls::listener;
use super::calls::port_of;
use super::messages::Messages;
use super::messages::TYPE_ACCEPT;
use super::messages::TYPE_DECLINE;
use super::peer::diagnosis;
use super::peer::Peer;
use super::peer::ANSWER;
use super::script::reason;
use super::Test;

/// More than have their turn while one waits for it (`TURN_WAIT`, `CONFIRM_SOON`).
const CLIENTS: usize = 10;

pub(super) const TESTS: &[Test] = &[("first contacts of one host that take too long", busy)];

fn busy(peer: &Peer<'_>, _: &Socket) -> Result<()> {
    let listener = listener(peer, |_| Ok(()), 32)?;
    listener.set_timeout(ANSWER)?;
    let port = port_of(&listener)?;
    let proposal = Messages::of(peer.address, 0x4200).proposal;
    let wires = [(); CLIENTS].map(|()| peer.wire());
    let wires = wires.into_iter().collect::<Result<Vec<_>>>()?;
    let mut clients = Vec::new();
    for wire in &wires {
        let mut client = peer.connect_to(wire, port)?;
        client.send(&proposal)?;
        clients.push(client);
    }
    // They take turns in any order.
    let mut declined = 0;
    for client in &mut clients {
        let answer = client.message(ANSWER)?.context("no answer")?;
        let kind = answer[4];
        let is_declined = kind == TYPE_DECLINE && diagnosis(&answer) == reason::INTERNAL;
        ensure!(
            kind == TYPE_ACCEPT || is_declined,
            "the answer is of type {kind}, {:#010x}",
            diagnosis(&answer)
        );
        declined += usize::from(is_declined);
    }
    ensure!(declined > 0, "all {CLIENTS} had their turns");
    let server = listener.accept(0)?;
    let path = Path::of(&server)?;
    let is_busy = matches!(&path, Path::Fallback(why) if why.cause == Cause::PeerBusy.code());
    ensure!(is_busy, "the path is {path}");
    clients
        .into_iter()
        .try_for_each(|mut client| client.reset())
}
