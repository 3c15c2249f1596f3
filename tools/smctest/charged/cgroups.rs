// SPDX-License-Identifier: GPL-2.0

//! Which cgroup is charged for the memory of a connection.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use super::drain;
use super::fill;
use super::wait_until;
use super::LEAST;
use crate::context::Context;
use crate::netns;

/// Connections.
const PAIRS: u64 = 16;

/// Connections whose unread data are more than the limit.
const MANY: usize = 150;

/// Moves this process to a cgroup.
fn enter(cgroup: &Path) -> Result<()> {
    fs::write(cgroup.join("cgroup.procs"), "0").with_context(|| format!("entering {cgroup:?}"))
}

/// Bytes that sockets have charged to a cgroup.
fn of_sockets(cgroup: &Path) -> Result<u64> {
    let stat = fs::read_to_string(cgroup.join("memory.stat"))?;
    let line = stat.lines().find_map(|line| line.strip_prefix("sock "));
    Ok(line.context("no count of sockets")?.parse()?)
}

fn number(cgroup: &Path, file: &str) -> Result<u64> {
    let text = fs::read_to_string(cgroup.join(file))?;
    text.trim()
        .parse()
        .with_context(|| format!("{file}: {text}"))
}

fn connect(context: &Context, count: usize) -> Result<Vec<Socket>> {
    netns::inside(context.client_netns.as_deref(), || {
        (0..count).map(|_| context.connect()).collect()
    })
}

/// A listener of one cgroup, whose connections another one accepts: that is charged for all that they have, as for
/// those of TCP.
pub(super) fn accept_elsewhere(context: &Context, root: &Path) -> Result<()> {
    let (maker, acceptor) = (root.join("maker"), root.join("acceptor"));
    enter(&maker)?;
    // CAST: a small number.
    let listener = context.listen(PAIRS as i32)?;
    enter(root)?;
    let clients = connect(context, PAIRS as usize)?;
    println!(
        "# before accept: the listener's cgroup {} bytes",
        of_sockets(&maker)?
    );
    enter(&acceptor)?;
    let servers = (0..PAIRS)
        .map(|_| Ok(listener.accept(0)?))
        .collect::<Result<Vec<_>>>()?;
    for server in &servers {
        fill(server)?;
    }
    enter(root)?;
    let mut charged = (0, 0);
    let result = wait_until("another cgroup is charged", || {
        charged = (of_sockets(&maker)?, of_sockets(&acceptor)?);
        Ok(charged.0 == 0 && charged.1 >= PAIRS * u64::from(LEAST))
    });
    println!(
        "# the listener's cgroup {} bytes, that which accepts {}",
        charged.0, charged.1
    );
    result?;
    drop((clients, servers));
    wait_until("the cgroups stay charged", || {
        Ok(of_sockets(&maker)? == 0 && of_sockets(&acceptor)? == 0)
    })?;
    keep_sums(context, &listener, &acceptor, &MOVES)?;
    // The root cgroup is not charged.
    keep_sums(context, &listener, root, &WITH_ROOT)?;
    drop(listener);
    enter(root)?;
    let listener = context.listen(1)?;
    keep_sums(context, &listener, &acceptor, &WITH_ROOT)
}

/// What moves from one cgroup to another stays in the sum of its protocol.
fn keep_sums(context: &Context, listener: &Socket, acceptor: &Path, moves: &Moves) -> Result<()> {
    let before = sums()?;
    enter(acceptor)?;
    for _ in 0..moves.connections {
        let clients = connect(context, 1)?;
        // So that TCP has something, too, after a fallback.
        for client in &clients {
            client.send(b"x", 0)?;
        }
        drop((clients, listener.accept(0)?));
    }
    wait_until("the sums of protocols change", || {
        let now = sums()?;
        println!("# pages: {before:?}, then {now:?}");
        Ok(before
            .iter()
            .zip(now)
            .all(|(before, now)| (now - before).abs() < moves.pages))
    })
}

/// Connections for [`keep_sums`], and the pages by which a sum may change meanwhile.
struct Moves {
    connections: u32,
    pages: i64,
}

/// More connections than the pages that the kernel keeps for each processor.
const MOVES: Moves = Moves {
    connections: 2000,
    pages: 1000,
};

/// To and from the root cgroup. A connection over RDMA has 1 MiB to receive into there, and unused memory may go.
const WITH_ROOT: Moves = Moves {
    connections: 200,
    pages: 20_000,
};

/// Pages of SMC's and of TCP's sockets.
fn sums() -> Result<[i64; 2]> {
    let text = fs::read_to_string("/proc/net/protocols")?;
    let of = |name: &str| {
        let mut lines = text.lines().map(str::split_whitespace);
        let mut line = lines
            .find(|words| words.clone().next() == Some(name))
            .with_context(|| format!("no protocol {name}"))?;
        Ok::<i64, anyhow::Error>(line.nth(3).context("no sum")?.parse()?)
    };
    Ok([of("SMC")?, of("TCP")?])
}

/// Senders close with their rings full, more together than the receiver's cgroup may have: it stays within its limit,
/// and all data are there.
pub(super) fn leave_beyond(context: &Context, root: &Path) -> Result<()> {
    let acceptor = root.join("acceptor");
    enter(&acceptor)?;
    // CAST: a small number.
    let listener = context.listen(MANY as i32)?;
    enter(root)?;
    let clients = connect(context, MANY)?;
    enter(&acceptor)?;
    let servers = (0..MANY)
        .map(|_| Ok(listener.accept(0)?))
        .collect::<Result<Vec<_>>>()?;
    enter(root)?;
    let sent = clients.iter().map(fill).collect::<Result<Vec<_>>>()?;
    drop(clients);
    // Longer than the module takes to look at rings again.
    thread::sleep(Duration::from_secs(3));
    let (most, now) = (
        number(&acceptor, "memory.max")?,
        number(&acceptor, "memory.current")?,
    );
    let all: usize = sent.iter().sum();
    println!("# {all} bytes left; the receiver's cgroup has {now} of {most}");
    ensure!(
        all as u64 > most,
        "there are too few data to reach the limit"
    );
    // The kernel grants TCP's own packets beyond the limit.
    ensure!(
        now <= most + most / 8,
        "the receiver's cgroup is beyond its limit"
    );
    ensure!(
        of_sockets(&acceptor)? > 0,
        "the receiver's cgroup is not charged at all"
    );
    for (server, sent) in servers.iter().zip(sent) {
        drain(server, sent)?;
        ensure!(server.recv(&mut [0], 0) == Ok(0), "data without end");
    }
    drop((servers, listener));
    wait_until("the cgroup stays charged", || {
        Ok(of_sockets(&acceptor)? == 0)
    })
}
