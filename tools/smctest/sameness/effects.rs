// SPDX-License-Identifier: GPL-2.0

//! What options do that a program can observe.

mod blocking;
mod naming;
mod streams;

use std::time::Duration;
use std::time::Instant;

use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::family::Family;
use crate::semantics::Rig;

/// What an option does.
pub(super) struct Effect {
    pub(super) option: &'static str,
    pub(super) name: &'static str,
    run: fn(&Rig<'_>) -> Result<String>,
}

impl Effect {
    const fn of(
        option: &'static str,
        name: &'static str,
        run: fn(&Rig<'_>) -> Result<String>,
    ) -> Self {
        Self { option, name, run }
    }

    /// Makes sockets of this family show it; returns what was seen.
    pub(super) fn see(&self, context: &Context, family: Family) -> Result<String> {
        let context = Context {
            family,
            server_family: None,
            ..context.clone()
        };
        (self.run)(&Rig::new(&context, Duration::ZERO)?)
    }
}

/// All effects.
pub(super) fn all() -> impl Iterator<Item = &'static Effect> {
    [blocking::EFFECTS, naming::EFFECTS, streams::EFFECTS]
        .into_iter()
        .flatten()
}

/// The result of a call as text.
fn text<T: ToString>(result: smc_user::Result<T>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(error) => error.to_string(),
    }
}

/// The result of a call that returns nothing.
fn done(result: smc_user::Result<()>) -> String {
    text(result.map(|()| "ok"))
}

/// Bytes that were not sent yet.
const SIOCOUTQNSD: u64 = 0x894b;

/// Calls, and adds whether that took about as long as it should. The kernel's timers count from its last tick, which
/// may be late on a loaded machine.
fn timed(time: Duration, call: impl FnOnce() -> String) -> String {
    let start = Instant::now();
    let said = call();
    let took = start.elapsed();
    let when = match took {
        _ if took < time / 2 => "too soon",
        _ if took > time + Duration::from_secs(5) => "late",
        _ => "in time",
    };
    format!("{said} {when}")
}

fn set(socket: &Socket, level: i32, name: i32, value: i32) -> smc_user::Result<()> {
    socket.set_option_int(level, name, value)
}
