// SPDX-License-Identifier: GPL-2.0

//! `smctest acceptors`: tasks that wait in accept(2) when connections come all at once. The caller sees to it that what
//! the clients send arrives in one batch.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::netns;

/// Tasks in accept, and connections that come at once.
const TASKS: usize = 8;

/// How often they come.
const ROUNDS: usize = 10;

/// Time for all tasks to get a connection each.
const SOON: Duration = Duration::from_secs(2);

/// How long a task waits that nobody wakes. Then it finds its connection, too.
const PATIENCE: Duration = Duration::from_secs(4);

/// Prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    let mut ktap = Ktap::start(2);
    for family in [Family::Tcp, context.family] {
        ktap.result(
            format!("tasks in accept get a connection of {} each", family.name()),
            all_get_one(context, family).map_err(|error| format!("{error:#}")),
        );
    }
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

/// As many connections as tasks wait.
fn all_get_one(context: &Context, family: Family) -> Result<()> {
    let listener = context.listen(128)?;
    listener.set_timeout(PATIENCE)?;
    for round in 0..ROUNDS {
        let waiting = AtomicUsize::new(0);
        thread::scope(|scope| {
            let tasks = [(); TASKS].map(|()| {
                scope.spawn(|| {
                    waiting.fetch_add(1, Ordering::AcqRel);
                    listener.accept(0)
                })
            });
            while waiting.load(Ordering::Acquire) < TASKS {
                thread::yield_now();
            }
            // Until they sleep.
            thread::sleep(Duration::from_millis(20));
            let clients = (0..TASKS)
                .map(|_| {
                    netns::inside(context.client_netns.as_deref(), || {
                        context.begin_connect(family)
                    })
                })
                .collect::<Result<Vec<_>>>()?;
            let start = Instant::now();
            for task in tasks {
                let accepted = task.join().map_err(|_| anyhow::anyhow!("a panic"))?;
                accepted.with_context(|| format!("round {round}: accept"))?;
            }
            let took = start.elapsed();
            ensure!(took < SOON, "round {round}: the last one after {took:.1?}");
            drop(clients);
            anyhow::Ok(())
        })?;
    }
    Ok(())
}
