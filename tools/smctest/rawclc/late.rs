// SPDX-License-Identifier: GPL-2.0

//! A server that declines after the CONFIRM: the client must react at once, rather than wait for
//! the link first.

use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;
use smc_user::Socket;

use super::messages::Messages;
use super::peer::answer_exchange;
use super::peer::Connected;
use super::peer::Peer;
use super::peer::ANSWER;
use super::tcp::RawTcp;
use super::Test;

/// Less than the 4 s that a client waits for a link.
const SOON: Duration = Duration::from_secs(2);

pub(super) const TESTS: &[Test] = &[
    ("client: a decline after its confirm", declined),
    ("client: a reset after its confirm", reset),
];

/// Plays the server up to the CONFIRM; returns when that arrived.
fn agree(tcp: &mut RawTcp<'_>, accept: &[u8]) -> Result<Instant> {
    tcp.message(ANSWER)?.context("no proposal")?;
    tcp.send(accept)?;
    tcp.message(ANSWER)?.context("no confirm")?;
    Ok(Instant::now())
}

/// Fails if more than [`SOON`] has passed.
pub(super) fn soon(since: Instant) -> Result<()> {
    let took = since.elapsed();
    ensure!(took < SOON, "it took {:.1} s", took.as_secs_f32());
    Ok(())
}

fn declined(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let messages = Messages::of(peer.address, 0x4100);
    let connected = peer.serve_exchange(wire, |tcp| {
        let start = agree(tcp, &messages.accept)?;
        tcp.send(&messages.decline)?;
        answer_exchange(tcp)?;
        soon(start)
    })?;
    match connected {
        Connected::Exchanged(result) => result,
        Connected::Failed(errno) => bail!("connect failed with {errno}"),
    }
}

fn reset(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let messages = Messages::of(peer.address, 0x4101);
    let mut start = Instant::now();
    let connected = peer.serve_exchange(wire, |tcp| {
        start = agree(tcp, &messages.accept)?;
        tcp.reset()
    })?;
    soon(start)?;
    match connected {
        Connected::Failed(Errno::ECONNRESET) => Ok(()),
        Connected::Failed(errno) => bail!("connect failed with {errno}"),
        Connected::Exchanged(_) => bail!("connect succeeded"),
    }
}
