// SPDX-License-Identifier: GPL-2.0

//! `smctest failing`: the behaviour of the module when memory allocations fail.
//!
//! Faults are injected (`Documentation/fault-injection`) only during the calls under test, so that
//! the rest of the guest keeps working. Any call may fail then, but none may hang, and nothing may
//! appear in the kernel log, which the runner checks.

mod inject;

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use nix::kmod::delete_module;
use nix::kmod::finit_module;
use nix::kmod::DeleteModuleFlags;
use nix::kmod::ModuleInitFlags;
use smc_tools::view::Module;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::failing::inject::Injector;
use crate::failing::inject::Source;
use crate::failing::inject::Workers;
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Longest time for one call while allocations fail.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

/// Connections that are served at once.
const SERVERS: u32 = 8;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Percentage of allocations that fail
    #[arg(long, default_value_t = 5)]
    percent: u32,

    /// Attempts
    #[arg(long, default_value_t = 100)]
    rounds: u32,

    /// Let allocations of all tasks fail that come from the caches of sockets and small objects,
    /// not just those of the calls made here
    #[arg(long)]
    everywhere: bool,

    /// Let allocations of pages fail, rather than those of objects
    #[arg(long, conflicts_with_all = ["everywhere", "sends"])]
    pages: bool,

    /// Let allocations of the kernel's workers fail as well
    #[arg(long, conflicts_with_all = ["everywhere", "in_turn", "load"])]
    workers: bool,

    /// Instead of by chance, let the first small allocation, or page, fail that the kernel's workers make for
    /// a connection without a link group, for the next connection the second one, and so on to the last
    #[arg(long, conflicts_with_all = ["percent", "rounds", "everywhere", "load"])]
    in_turn: bool,

    /// Instead of connecting, send on a connection for which there is no memory
    #[arg(long, conflicts_with_all = ["rounds", "everywhere", "in_turn", "load"])]
    sends: bool,

    /// Instead of connecting, load and unload this module
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
}

/// Runs all attempts and prints how many failed; an error if no allocation did, since then nothing
/// was tested.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let injector = Injector::open(arguments)?;
    if arguments.in_turn {
        let sources = match arguments.pages {
            true => vec![Source::PAGES],
            false => Source::small()?,
        };
        return connect_in_turn(context, &injector, &sources);
    }
    if arguments.sends {
        return send_without_memory(context, &injector);
    }
    let failed = match &arguments.load {
        Some(module) => load_rounds(&injector, module, arguments.rounds)?,
        None => connect_rounds(context, &injector, arguments.rounds)?,
    };
    let injected = injector.count()?;
    println!(
        "# failing: {failed} of {} attempts failed, as {injected} allocations did",
        arguments.rounds
    );
    ensure!(injected > 0, "nothing was injected");
    Ok(())
}

fn connect_rounds(context: &Context, injector: &Injector, rounds: u32) -> Result<u32> {
    // A thread that starts without memory ends the program, so all of them start before.
    let _server = Server::start(context, Mode::Pool(SERVERS))?;
    netns::enter(context.client_netns.as_deref())?;
    run_requests(context).context("before anything fails")?;

    let mut failed = 0;
    for _ in 0..rounds {
        let result = injector.during(|| run_requests(context))?;
        failed += u32::from(result.is_err());
    }
    // Without faults, the next connection must succeed.
    run_requests(context).context("after it")?;
    Ok(failed)
}

fn run_requests(context: &Context) -> Result<()> {
    let socket = context.family.open(context.addr)?;
    socket.set_timeout(CALL_TIMEOUT)?;
    socket.connect(context.address())?;
    ask(&socket)
}

fn ask(mut socket: &Socket) -> Result<()> {
    Job::One.send(socket)?;
    Ok(socket.read_exact(&mut [0])?)
}

/// Connections whose peers do not read occupy all send buffers of their link group. Another
/// connection must wait for memory, rather than fail.
fn send_without_memory(context: &Context, injector: &Injector) -> Result<()> {
    /// More send buffers than a link group keeps for reuse, of one size.
    const BUSY: usize = 6;
    // The group of an earlier test may keep some of smaller sizes, too.
    await_no_link()?;
    let listener = context.listen(16)?;
    netns::enter(context.client_netns.as_deref())?;
    let connect = || -> Result<(Socket, Socket)> {
        let client = context.connect()?;
        client.set_nonblocking(true)?;
        Ok((client, listener.accept(0)?))
    };
    let busy: Vec<_> = (0..BUSY).map(|_| connect()).collect::<Result<_>>()?;
    for (client, _) in &busy {
        while client.send(&[0; 1 << 14], 0).is_ok() {}
    }
    let (client, server) = connect()?;
    let (sent, events) = injector.during(|| {
        let sent = client.send(b"x", 0);
        (sent, poll_fd(&client, libc::POLLOUT, Duration::ZERO))
    })?;
    println!("# failing: without memory send says {sent:?}, poll {events:?}");
    ensure!(sent == Err(Errno::EAGAIN), "it is an error");
    ensure!(events == Ok(0), "poll says something else");
    let events = poll_fd(&client, libc::POLLOUT, CALL_TIMEOUT)?;
    ensure!(
        events == libc::POLLOUT,
        "memory comes back, poll says {events:#x}"
    );
    ensure!(client.send(b"x", 0) == Ok(1), "no send with memory");
    ensure!(server.recv(&mut [0], 0) == Ok(1), "nothing arrived");
    Ok(())
}

/// Lets each allocation from these sources that workqueues make during a handshake, for the connection or its
/// link group, fail once.
fn connect_in_turn(context: &Context, injector: &Injector, sources: &[Source]) -> Result<()> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    ask(&context.connect()?).context("before anything fails")?;
    let workers = Workers::choose()?;
    let (attempts, failed) = fail_each(context, injector, sources)?;
    drop(workers);
    println!("# failing: {failed} of {attempts} attempts failed");
    ensure!(attempts > 0, "nothing was injected");
    await_no_link()?;
    ask(&context.connect()?).context("after it")
}

/// Runs the attempts; returns their number, and how many failed.
fn fail_each(context: &Context, injector: &Injector, sources: &[Source]) -> Result<(u32, u32)> {
    let (mut attempts, mut failed) = (0, 0);
    for source in sources {
        for number in 1.. {
            await_no_link()?;
            let (result, is_reached) = injector.once(source, number, || run_requests(context))?;
            if !is_reached {
                result.context("after the last one")?;
                println!("# failing: {} of {}", number - 1, source.name());
                break;
            }
            attempts += 1;
            failed += u32::from(result.is_err());
        }
    }
    Ok((attempts, failed))
}

/// Waits until no link is left, so that the next connection creates one.
fn await_no_link() -> Result<()> {
    let start = Instant::now();
    while !Module::open()?.links()?.is_empty() {
        ensure!(start.elapsed() < CALL_TIMEOUT, "a link stays");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

fn load_rounds(injector: &Injector, module: &Path, rounds: u32) -> Result<u32> {
    let file = File::open(module)?;
    let name = module.file_stem().and_then(|stem| stem.to_str());
    let name = CString::new(name.context("no name")?)?;
    let none = CString::default();

    let mut failed = 0;
    for _ in 0..rounds {
        let load = || finit_module(&file, &none, ModuleInitFlags::empty());
        match injector.during(load)? {
            Ok(()) => delete_module(&name, DeleteModuleFlags::O_NONBLOCK).context("unloading")?,
            Err(_) => failed += 1,
        }
    }
    Ok(failed)
}
