// SPDX-License-Identifier: GPL-2.0

//! `smctest killed`: one side is killed during a transfer.
//!
//! The other side must detect that soon: a reader by the end of the stream, as over TCP if the one that was killed had
//! read all it was sent, behind the right data; a writer by an error, which depends on timing.

use std::env;
use std::io::Read;
use std::io::Write;
use std::process::Child;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use clap::ValueEnum;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Check;
use crate::data::Stream;
use crate::job::Job;
use crate::ktap::Ktap;
use crate::netns;
use crate::server;

/// Longest time until the other side must detect it.
const NOTICE: Duration = Duration::from_secs(20);

/// The seed of what a client sends.
const SEED: u64 = 9;

/// Bytes transferred before the kill.
const BEFORE: usize = 300_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Be the process that is killed
    #[arg(long, hide = true)]
    victim: Option<Role>,
}

/// What the victim does when it is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    Server,
    Sender,
    Receiver,
    Idle,
    /// Connects again and again, several times at once.
    Connector,
}

/// Connections that a `Connector` opens at once.
const CONNECTORS: usize = 8;

/// Kills a client that sends, receives, is idle or connects, and a server; prints KTAP.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    if let Some(role) = arguments.victim {
        return be_victim(context, role);
    }
    let mut ktap = Ktap::start(5);
    for role in [Role::Sender, Role::Receiver, Role::Idle] {
        let name = format!("the server survives a client killed as {role:?}");
        ktap.result(
            name,
            kill_client(context, role).map_err(|e| format!("{e:#}")),
        );
    }
    let result = kill_connector(context).map_err(|error| format!("{error:#}"));
    ktap.result(
        "the server survives a client killed while it connects",
        result,
    );
    let result = kill_server(context).map_err(|error| format!("{error:#}"));
    ktap.result("the client survives a server killed while it sends", result);

    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

fn be_victim(context: &Context, role: Role) -> Result<()> {
    if role == Role::Server {
        return server::serve(context);
    }
    netns::enter(context.client_netns.as_deref())?;
    if role == Role::Connector {
        return connect_for_ever(context);
    }
    let socket = context.connect()?;
    let mut stream = &socket;
    let mut buffer = vec![0; 1 << 16];
    let mut data = Stream::new(SEED);
    loop {
        match role {
            Role::Sender => {
                data.fill(&mut buffer);
                stream.write_all(&buffer)?;
            }
            Role::Receiver => stream.read_exact(&mut buffer)?,
            _ => thread::sleep(NOTICE),
        }
    }
}

fn connect_for_ever(context: &Context) -> Result<()> {
    thread::scope(|scope| {
        for _ in 0..CONNECTORS {
            scope.spawn(|| while context.connect().is_ok() {});
        }
    });
    bail!("nobody listens any more")
}

/// A child process that is killed when this value is dropped.
struct Victim(Child);

impl Victim {
    fn start(context: &Context, role: Role) -> Result<Self> {
        let role = role
            .to_possible_value()
            .map(|value| value.get_name().to_string());
        let child = Command::new(env::current_exe()?)
            .args(context.to_options())
            .args(
                context
                    .server_netns
                    .iter()
                    .map(|name| format!("--server-netns={name}")),
            )
            .args(["killed", "--victim"])
            .args(role)
            .spawn()?;
        Ok(Self(child))
    }

    /// Sends SIGKILL, and waits for the process.
    fn kill(&mut self) -> Result<()> {
        self.0.kill()?;
        self.0.wait()?;
        Ok(())
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

fn listen(context: &Context) -> Result<Socket> {
    let listener = context.listen(8)?;
    listener.set_timeout(NOTICE)?;
    Ok(listener)
}

/// Kills a client at several stages of its handshakes. Leaked resources are detected when the
/// module is unloaded.
fn kill_connector(context: &Context) -> Result<()> {
    let listener = listen(context)?;
    for round in 0..5 {
        let mut victim = Victim::start(context, Role::Connector)?;
        for _ in 0..CONNECTORS {
            listener.accept(0).context("accept")?;
        }
        thread::sleep(Duration::from_millis(7 * round));
        victim.kill()?;
    }
    // A new connection is accepted after those of the killed client in the backlog.
    thread::scope(|scope| {
        let living = scope.spawn(|| -> Result<Socket> {
            netns::enter(context.client_netns.as_deref())?;
            let client = context.connect()?;
            client.send(b"alive", 0)?;
            Ok(client)
        });
        finds_living(&listener)?;
        match living.join() {
            Ok(client) => client.map(drop),
            Err(_) => bail!("a thread panicked"),
        }
    })
}

/// Accepts connections until one has data.
fn finds_living(listener: &Socket) -> Result<()> {
    let started = Instant::now();
    let mut word = [0; 5];
    while started.elapsed() < NOTICE {
        let accepted = listener.accept(0).context("accept after the kill")?;
        if accepted.read(&mut word).is_ok_and(|len| len > 0) {
            return Ok(());
        }
    }
    bail!("no living connection {} s after the kill", NOTICE.as_secs())
}

fn kill_client(context: &Context, role: Role) -> Result<()> {
    let listener = listen(context)?;
    let mut victim = Victim::start(context, role)?;
    let socket = listener.accept(0).context("accept")?;
    socket.set_timeout(NOTICE)?;

    let mut stream = &socket;
    let mut check = Check::new(SEED);
    let mut take = |data: &[u8]| check.take(data);
    match role {
        Role::Sender => {
            reads_some(&socket, &mut take)?;
            victim.kill()?;
            reads_until_end(&socket, &mut take)
        }
        Role::Receiver => {
            stream.write_all(&vec![0; BEFORE])?;
            victim.kill()?;
            writes_until_error(&socket)
        }
        _ => {
            victim.kill()?;
            reads_until_end(&socket, &mut take)
        }
    }
}

fn kill_server(context: &Context) -> Result<()> {
    let mut victim = Victim::start(context, Role::Server)?;
    Context::await_another_server();
    netns::enter(context.client_netns.as_deref())?;
    let socket = context.connect()?;
    socket.set_timeout(NOTICE)?;

    Job::Source.send(&socket)?;
    let mut take = server::check_source;
    reads_some(&socket, &mut take)?;
    victim.kill()?;
    reads_until_end(&socket, &mut take)?;
    writes_until_error(&socket)
}

/// Reads [`BEFORE`] bytes, which `take` checks.
fn reads_some(mut socket: &Socket, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let mut first = vec![0; BEFORE];
    socket.read_exact(&mut first)?;
    take(&first)
}

/// Reads the remaining data, which `take` checks, up to the end of the stream.
fn reads_until_end(socket: &Socket, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let started = Instant::now();
    let mut buffer = vec![0; 1 << 16];
    while started.elapsed() < NOTICE {
        match socket.recv(&mut buffer, 0) {
            Ok(0) => return Ok(()),
            Ok(len) => take(&buffer[..len])?,
            Err(error) => bail!("receive after the kill: {error}"),
        }
    }
    bail!("still receiving {} s after the kill", NOTICE.as_secs())
}

/// Writes until EPIPE or a reset.
fn writes_until_error(socket: &Socket) -> Result<()> {
    let started = Instant::now();
    let buffer = vec![0; 1 << 16];
    while started.elapsed() < NOTICE {
        match socket.send(&buffer, 0) {
            Ok(_) => {}
            Err(Errno::EPIPE | Errno::ECONNRESET) => return Ok(()),
            Err(error) => bail!("send after the kill: {error}"),
        }
    }
    bail!("still sending {} s after the kill", NOTICE.as_secs())
}
