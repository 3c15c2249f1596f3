// SPDX-License-Identifier: GPL-2.0

//! `smctest crowded`: silent peers occupy all handshakes of a namespace's listeners. Other
//! connections of that namespace must not be affected.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_uapi::SMC_LIMIT_HS;
use smc_uapi::SOL_SMC;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::ktap::Ktap;
use crate::netns;

use super::calls::fresh;
use super::calls::listener;
use super::calls::port_of;
use super::peer::Peer;
use super::tcp::RawTcp;
use super::text;
use super::Place;

/// Maximum of concurrent handshakes of one listener (`MAX_HANDSHAKES`), and the number of listeners
/// that together reach the maximum of a namespace (`HANDSHAKES`).
const AT_ONE_LISTENER: usize = 1024;
const LISTENERS: usize = 2;

/// Time that the kernel waits for the first message, and a client for the answer to its own.
const HANDSHAKE: Duration = Duration::from_secs(6);

/// Less than a client needs that nobody answers.
const SOON: Duration = Duration::from_secs(4);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,
}

/// Runs the tests; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    let peer = Peer::new(context, &arguments.place)?;
    let mut ktap = Ktap::start(7);
    silent_crowd(&peer, &mut ktap)?;
    ensure!(ktap.finish() == 0, "some failed");
    Ok(())
}

/// Connects silent peers, until the listeners can begin no further handshake.
fn silent_crowd(peer: &Peer<'_>, ktap: &mut Ktap) -> Result<()> {
    let context = peer.context;
    let other = context.listen(64)?;
    let client = context.connect()?;
    let served = other.accept(0)?;
    let path = Path::of(&served)?;
    ensure!(path.is_smc(), "the path is {path}");
    let here = client.local_address()?.to_ip().context("no IP address")?;
    let own = context.family.open(here.ip())?;
    own.bind(SocketAddr::new(here.ip(), 0))?;
    own.listen(8)?;
    let own = SocketAddr::new(here.ip(), port_of(&own)?);
    let listeners = [(); LISTENERS].map(|()| listener(peer, |_| Ok(()), 4096));
    let wire = peer.wire()?;
    let at_once = usual_time(peer, &other)?;
    let mut silent = silent_peers(peer, &wire, listeners.iter().flatten())?;
    let waiting = waiting_client(peer, at_once)?;
    let limiting = [
        ("limits handshakes", limited_by_option(peer)?),
        (
            "was made where handshakes are limited",
            limited_by_sysctl(peer)?,
        ),
    ];
    let connects = || {
        netns::inside(context.server_netns.as_deref(), || {
            let socket = fresh(peer)?;
            socket.connect(own).context("connect")?;
            let path = Path::of(&socket)?;
            ensure!(path.is_smc(), "the path is {path}");
            Ok(())
        })
    };
    let hears_of_tcp = || {
        let (local, remote) = (served.local_address()?, served.peer_address()?);
        let (Some(local), Some(remote)) = (local.to_ip(), remote.to_ip()) else {
            bail!("no IP addresses");
        };
        netns::inside(context.server_netns.as_deref(), || {
            let args = [
                "-K",
                "-tnH",
                "src",
                &local.to_string(),
                "dst",
                &remote.to_string(),
            ];
            Ok(Command::new("ss").args(args).output()?)
        })?;
        let result = served.recv(&mut [0], 0);
        ensure!(result == Err(Errno(libc::ECONNABORTED)), "recv: {result:?}");
        Ok(())
    };
    ktap.result("a connection of its own", text(connects()));
    ktap.result("the end of a TCP connection", text(hears_of_tcp()));
    for (which, listener) in &limiting {
        ktap.result(
            format!("a listener that {which} takes a connection at once, over TCP"),
            text(limited(peer, listener)),
        );
    }
    let still = match poll_fd(&waiting, libc::POLLOUT, Duration::ZERO)? {
        0 => Ok(()),
        _ => Err("one did".into()),
    };
    ktap.result("meanwhile no handshake of a listener began", still);
    for tcp in &mut silent {
        tcp.reset()?;
    }
    for (which, listener) in &limiting {
        ktap.result(
            format!("one that {which} does over SMC once there is room"),
            text(unlimited(peer, listener)),
        );
    }
    Ok(())
}

fn limited_by_option(peer: &Peer<'_>) -> Result<Socket> {
    let limit = |listener: &Socket| Ok(listener.set_option_int(SOL_SMC, SMC_LIMIT_HS, 1)?);
    listener(peer, limit, 8)
}

fn limited_by_sysctl(peer: &Peer<'_>) -> Result<Socket> {
    let set = |value| {
        netns::inside(peer.context.server_netns.as_deref(), move || {
            Ok(fs::write("/proc/sys/net/smc/limit_smc_hs", value)?)
        })
    };
    set("1")?;
    let listener = listener(peer, |_| Ok(()), 8);
    set("0")?;
    listener
}

/// Connects to the listener; returns the path at both ends.
fn paths_to(peer: &Peer<'_>, listener: &Socket) -> Result<[Path; 2]> {
    let client = fresh(peer)?;
    client.connect(SocketAddr::new(peer.context.addr, port_of(listener)?))?;
    let server = listener.accept(0)?;
    client.send(b"x", 0)?;
    ensure!(server.recv(&mut [0; 8], 0) == Ok(1), "no data");
    Ok([Path::of(&client)?, Path::of(&server)?])
}

fn limited(peer: &Peer<'_>, listener: &Socket) -> Result<()> {
    let start = Instant::now();
    let paths = paths_to(peer, listener)?;
    let took = start.elapsed();
    let is_tcp = |path: &Path| matches!(path, Path::Fallback(_) | Path::Tcp);
    ensure!(
        paths.iter().all(is_tcp) && took < SOON,
        "the paths are {paths:?}, and it took {took:.1?}"
    );
    Ok(())
}

fn unlimited(peer: &Peer<'_>, listener: &Socket) -> Result<()> {
    let start = Instant::now();
    loop {
        let paths = paths_to(peer, listener)?;
        if paths.iter().all(Path::is_smc) {
            return Ok(());
        }
        ensure!(start.elapsed() < HANDSHAKE, "the paths are {paths:?}");
        thread::sleep(Duration::from_millis(70));
    }
}

/// Connects as many peers as there may be handshakes to each of the listeners.
fn silent_peers<'w, 'l>(
    peer: &Peer<'_>,
    wire: &'w Socket,
    listeners: impl Iterator<Item = &'l Socket>,
) -> Result<Vec<RawTcp<'w>>> {
    let mut silent = Vec::new();
    for listener in listeners {
        let port = port_of(listener)?;
        for _ in 0..AT_ONE_LISTENER {
            let tcp = peer.connect_to(wire, port)?;
            ensure!(tcp.peer_has_smc, "{} peers are enough", silent.len());
            silent.push(tcp);
        }
    }
    Ok(silent)
}

/// Returns within which time a handshake ends that need not wait for others.
fn usual_time(peer: &Peer<'_>, listener: &Socket) -> Result<Duration> {
    let start = Instant::now();
    let client = fresh(peer)?;
    client.connect(peer.context.address())?;
    listener.accept(0)?;
    let (least, most) = (Duration::from_millis(700), SOON / 2);
    Ok((10 * start.elapsed()).clamp(least, most))
}

/// Returns a client whose handshake has to wait for a free place: tries until one does not end `at_once`.
fn waiting_client(peer: &Peer<'_>, at_once: Duration) -> Result<Socket> {
    let start = Instant::now();
    while start.elapsed() < HANDSHAKE {
        let socket = fresh(peer)?;
        socket.set_nonblocking(true)?;
        let begun = socket.connect(peer.context.address());
        ensure!(begun == Err(Errno(libc::EINPROGRESS)), "connect: {begun:?}");
        if poll_fd(&socket, libc::POLLOUT, at_once)? == 0 {
            return Ok(socket);
        }
    }
    bail!("all handshakes of listeners go on")
}
