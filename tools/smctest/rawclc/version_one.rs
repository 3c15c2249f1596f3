// SPDX-License-Identifier: GPL-2.0

//! A client that offers version 1 alone, while no device here has the RoCE v1 address that this takes: TCP, with that
//! cause.

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_proto::cause::Cause;
use smc_tools::path::Path;
use smc_user::Socket;

use super::calls::listener;
use super::calls::port_of;
use super::messages::Messages;
use super::messages::TYPE_DECLINE;
use super::peer::Peer;
use super::peer::ANSWER;
use super::Test;

pub(super) const TESTS: &[Test] = &[("a client of version 1 alone", no_address)];

fn no_address(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let listener = listener(peer, |_| Ok(()), 4)?;
    listener.set_timeout(ANSWER)?;
    let mut client = peer.connect_to(wire, port_of(&listener)?)?;
    client.send(&Messages::of(peer.address, 0x4300).version_one)?;
    let answer = client.message(ANSWER)?.context("no answer")?;
    let kind = answer[4];
    ensure!(kind == TYPE_DECLINE, "the answer is of type {kind}");
    let server = listener.accept(0)?;
    let path = Path::of(&server)?;
    let is_named = matches!(&path, Path::Fallback(why) if why.cause == Cause::NoRoceV1.code());
    ensure!(is_named, "the path is {path}");
    client.reset()
}
