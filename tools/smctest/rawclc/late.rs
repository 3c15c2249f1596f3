// SPDX-License-Identifier: GPL-2.0

//! A server that declines after the CONFIRM: the client must react at once, rather than wait for
//! the link first.

use std::cell::Cell;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_proto::llc::first_contact::CLIENT_WAIT;
use smc_user::Errno;
use smc_user::Socket;

use super::messages::Messages;
use super::peer::answer_exchange;
use super::peer::Connected;
use super::peer::Peer;
use super::peer::ANSWER;
use super::tcp::RawTcp;
use super::Test;

/// So long a client waits for a link, from before its CONFIRM, less 200 ms.
const SOON: Duration = Duration::from_nanos(CLIENT_WAIT.as_nanos() - 200_000_000);

/// How often a peer may be too late.
const ATTEMPTS: u32 = 5;

pub(super) const TESTS: &[Test] = &[
    ("client: a decline after its confirm", declined),
    ("client: a reset after its confirm", reset),
];

/// Runs `attempt`, which says when the two agreed. It is repeated if it failed later than `limit`
/// after that: then the peer was too late, as it can be on a busy machine.
pub(super) fn in_time(
    limit: Duration,
    attempt: impl Fn(&Cell<Instant>) -> Result<()>,
) -> Result<()> {
    let mut number = 0;
    loop {
        number += 1;
        let agreed = Cell::new(Instant::now());
        let result = attempt(&agreed);
        let took = agreed.get().elapsed();
        if result.is_ok() || took < limit || number == ATTEMPTS {
            return result
                .with_context(|| format!("attempt {number}, ended {took:.1?} after agreement"));
        }
    }
}

/// Plays the server up to the CONFIRM. Stores in `agreed` when the client can have begun to wait at the earliest.
fn agree(tcp: &mut RawTcp<'_>, accept: &[u8], agreed: &Cell<Instant>) -> Result<()> {
    tcp.message(ANSWER)?.context("no proposal")?;
    agreed.set(Instant::now());
    tcp.send(accept)?;
    tcp.message(ANSWER)?.context("no confirm")?;
    Ok(())
}

/// Fails if more than `limit` has passed since the two agreed.
pub(super) fn soon(agreed: &Cell<Instant>, limit: Duration) -> Result<()> {
    let took = agreed.get().elapsed();
    ensure!(took < limit, "it took {:.1} s", took.as_secs_f32());
    Ok(())
}

fn declined(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let messages = Messages::of(peer.address, 0x4100);
    in_time(SOON, |agreed| {
        let connected = peer.serve_exchange(wire, |tcp| {
            agree(tcp, &messages.accept, agreed)?;
            tcp.send(&messages.decline)?;
            answer_exchange(tcp)?;
            soon(agreed, SOON)
        })?;
        match connected {
            Connected::Exchanged(result) => result,
            Connected::Failed(errno) => bail!("connect failed with {errno}"),
        }
    })
}

fn reset(peer: &Peer<'_>, wire: &Socket) -> Result<()> {
    let messages = Messages::of(peer.address, 0x4101);
    in_time(SOON, |agreed| {
        let connected = peer.serve_exchange(wire, |tcp| {
            agree(tcp, &messages.accept, agreed)?;
            tcp.reset()
        })?;
        soon(agreed, SOON)?;
        match connected {
            Connected::Failed(Errno::ECONNRESET) => Ok(()),
            Connected::Failed(errno) => bail!("connect failed with {errno}"),
            Connected::Exchanged(_) => bail!("connect succeeded"),
        }
    })
}
