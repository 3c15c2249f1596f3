// SPDX-License-Identifier: GPL-2.0

//! `smctest acceptors`: tasks wait for connections, which come all at once: in accept(2), and in epoll_wait(2)
//! with EPOLLEXCLUSIVE. The caller sees to it that what the clients send arrives in one batch.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::sys::epoll::Epoll;
use nix::sys::epoll::EpollCreateFlags;
use nix::sys::epoll::EpollEvent;
use nix::sys::epoll::EpollFlags;
use nix::sys::epoll::EpollTimeout;
use smc_user::Socket;

use crate::context::Context;
use crate::family::Family;
use crate::ktap::Ktap;
use crate::netns;
use crate::semantics::blocked;

/// Tasks that wait, and connections that come at once.
const TASKS: usize = 8;

/// How often they come.
const ROUNDS: usize = 10;

/// How long a task waits that nobody wakes. Then it finds its connection, too.
const PATIENCE: Duration = Duration::from_secs(12);

/// Time for all tasks to get a connection each.
const SOON: Duration = Duration::from_secs(6);

/// Prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    let mut ktap = Ktap::start(4);
    let waits: [(&str, Wait); 2] = [
        ("accept", |listener| Ok(listener.accept(0)?)),
        ("epoll_wait", accept_by_epoll),
    ];
    for (call, wait) in waits {
        for family in [Family::Tcp, context.family] {
            let family_name = family.name();
            ktap.result(
                format!("tasks in {call} get a connection of {family_name} each"),
                all_get_one(context, family, wait).map_err(|error| format!("{error:#}")),
            );
        }
    }
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

/// Waits for a connection, at most [`PATIENCE`].
type Wait = fn(&Socket) -> Result<Socket>;

/// As a worker of a server does that shares its listener with others.
fn accept_by_epoll(listener: &Socket) -> Result<Socket> {
    listener.set_nonblocking(true)?;
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let wanted = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE;
    epoll.add(listener, EpollEvent::new(wanted, 0))?;
    let mut events = [EpollEvent::empty()];
    epoll.wait(&mut events, EpollTimeout::try_from(PATIENCE)?)?;
    Ok(listener.accept(0)?)
}

/// As many connections as tasks wait.
fn all_get_one(context: &Context, family: Family, wait: Wait) -> Result<()> {
    let listener = context.listen(128)?;
    listener.set_timeout(PATIENCE)?;
    for round in 0..ROUNDS {
        thread::scope(|scope| {
            let tasks = (0..TASKS)
                .map(|_| blocked(scope, || wait(&listener)))
                .collect::<Result<Vec<_>>>()?;
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
