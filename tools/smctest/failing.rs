// SPDX-License-Identifier: GPL-2.0

//! `smctest failing`: the behaviour of the module when memory allocations fail.
//!
//! Faults are injected (`Documentation/fault-injection`) only during the calls under test, so that
//! the rest of the guest keeps working. Any call may fail then, but none may hang, and nothing may
//! appear in the kernel log, which the runner checks.

use std::ffi::CString;
use std::fs;
use std::fs::File;
use std::io::Read;
use std::io::Write as _;
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
use crate::job::Job;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Longest time for one call while allocations fail.
const CALL_TIMEOUT: Duration = Duration::from_secs(20);

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

    /// Instead of by chance, let the first small allocation fail that the kernel's workers make for a
    /// connection without a link group, for the next connection the second one, and so on to the last
    #[arg(long, conflicts_with_all = ["percent", "rounds", "everywhere", "load"])]
    in_turn: bool,

    /// Instead of connecting, send on a connection for which there is no memory
    #[arg(long, conflicts_with_all = ["rounds", "everywhere", "in_turn", "load"])]
    sends: bool,

    /// Instead of connecting, load and unload this module
    #[arg(long, value_name = "FILE")]
    load: Option<PathBuf>,
}

/// Runs all attempts and prints how many failed; an error if none did, since then nothing was
/// tested.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let injector = Injector::open(arguments)?;
    if arguments.in_turn {
        return connect_in_turn(context, &injector);
    }
    if arguments.sends {
        return send_without_memory(context, &injector);
    }
    let failed = match &arguments.load {
        Some(module) => load_rounds(&injector, module, arguments.rounds)?,
        None => connect_rounds(context, &injector, arguments.rounds)?,
    };
    println!(
        "# failing: {failed} of {} attempts failed",
        arguments.rounds
    );
    ensure!(failed > 0, "no attempt failed: nothing was injected");
    Ok(())
}

fn connect_rounds(context: &Context, injector: &Injector, rounds: u32) -> Result<u32> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    converse(context).context("before anything fails")?;

    let mut failed = 0;
    for _ in 0..rounds {
        let result = injector.during(|| converse(context))?;
        failed += u32::from(result.is_err());
    }
    // Without faults, the next connection must succeed.
    converse(context).context("after it")?;
    Ok(failed)
}

fn converse(context: &Context) -> Result<()> {
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
    /// More send buffers than a link group keeps for reuse.
    const BUSY: usize = 6;
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

/// Lets each small allocation that workqueues make during a handshake, for the connection or its
/// link group, fail once.
fn connect_in_turn(context: &Context, injector: &Injector) -> Result<()> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;
    ask(&context.connect()?).context("before anything fails")?;
    let workers = Workers::choose()?;
    let (attempts, failed) = fail_each(context, injector)?;
    drop(workers);
    println!("# failing: {failed} of {attempts} attempts failed");
    ensure!(attempts > 0, "nothing was injected");
    await_no_link()?;
    ask(&context.connect()?).context("after it")
}

/// Runs the attempts; returns their number, and how many failed.
fn fail_each(context: &Context, injector: &Injector) -> Result<(u32, u32)> {
    let (mut attempts, mut failed) = (0, 0);
    for cache in Cache::small()? {
        for number in 1.. {
            await_no_link()?;
            let (result, is_reached) = injector.once(&cache, number, || converse(context))?;
            if !is_reached {
                result.context("after the last one")?;
                println!("# failing: {} of {} objects", cache.name(), number - 1);
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

/// Fault injection into slab allocations (failslab).
struct Injector {
    percent: u32,
}

const FAILSLAB: &str = "/sys/kernel/debug/failslab";
const MAKE_IT_FAIL: &str = "/proc/thread-self/make-it-fail";

impl Injector {
    fn open(arguments: &Arguments) -> Result<Self> {
        let has_caches = u8::from(arguments.everywhere || arguments.in_turn);
        for (name, value) in [
            ("probability", "0"),
            ("interval", "1"),
            ("times", "-1"),
            ("space", "0"),
            ("verbose", "0"),
            ("ignore-gfp-wait", "0"),
            ("task-filter", if arguments.everywhere { "0" } else { "1" }),
            ("cache-filter", &has_caches.to_string()),
        ] {
            let file = format!("{FAILSLAB}/{name}");
            fs::write(&file, value).with_context(|| format!("writing {file}"))?;
        }
        if arguments.everywhere {
            choose_caches()?;
        }
        Ok(Self {
            percent: arguments.percent,
        })
    }

    /// Runs `work` with fault injection.
    fn during<T>(&self, work: impl FnOnce() -> T) -> Result<T> {
        // Opened and formatted before, since allocations of this task fail later.
        let open = |file: &str| File::options().write(true).open(file);
        let mut task = open(MAKE_IT_FAIL).context("make-it-fail")?;
        let mut probability = open(&format!("{FAILSLAB}/probability"))?;
        let percent = self.percent.to_string();
        task.write_all(b"1").context("make-it-fail")?;
        probability.write_all(percent.as_bytes())?;
        let value = work();
        while probability.write_all(b"0").is_err() {}
        while task.write_all(b"0").is_err() {}
        Ok(value)
    }

    /// Runs `work`; the `number`-th allocation (from 1) that a worker makes from this cache fails.
    /// Also returns whether there were that many.
    fn once<T>(&self, cache: &Cache, number: u64, work: impl FnOnce() -> T) -> Result<(T, bool)> {
        let set = |name: &str, value: &str| {
            let file = format!("{FAILSLAB}/{name}");
            fs::write(&file, value).with_context(|| format!("writing {file}"))
        };
        // The allocation fails when the remaining space is not larger than an object.
        set("space", &(number * cache.object_len).to_string())?;
        set("times", "1")?;
        cache.choose(true)?;
        set("probability", "100")?;
        let value = work();
        set("probability", "0")?;
        cache.choose(false)?;
        let left = fs::read_to_string(format!("{FAILSLAB}/times"))?;
        Ok((value, left.trim() == "0"))
    }
}

/// While this value exists, allocations of the kernel's workers may fail, also of workers created
/// later.
struct Workers;

impl Workers {
    fn choose() -> Result<Self> {
        Self::mark("1")?;
        Ok(Self)
    }

    fn mark(value: &str) -> Result<()> {
        for entry in fs::read_dir("/proc")?.flatten() {
            let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            // All workers are created by kthreadd, and inherit the flag.
            if comm.starts_with("kworker/") || comm.trim() == "kthreadd" {
                // The thread may have exited meanwhile.
                let _ = fs::write(entry.path().join("make-it-fail"), value);
            }
        }
        Ok(())
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let _ = Self::mark("0");
    }
}

/// A slab cache.
struct Cache {
    path: PathBuf,
    object_len: u64,
}

impl Cache {
    /// Returns the general-purpose caches of small objects.
    fn small() -> Result<Vec<Self>> {
        /// Maximum size of a small object, bytes.
        const SMALL: u64 = 256;
        let mut caches = Vec::new();
        for entry in fs::read_dir("/sys/kernel/slab")?.flatten() {
            let name = entry.file_name();
            let size = name.to_str().and_then(|name| name.strip_prefix("kmalloc-"));
            if size.is_some_and(|size| size.parse::<u64>().is_ok()) {
                let path = entry.path();
                let object_len = fs::read_to_string(path.join("object_size"))?;
                let object_len = object_len.trim().parse()?;
                caches.push(Self { path, object_len });
            }
        }
        caches.retain(|cache| cache.object_len <= SMALL);
        caches.sort_by_key(|cache| cache.object_len);
        Ok(caches)
    }

    fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// Enables or disables faults for this cache.
    fn choose(&self, may_fail: bool) -> Result<()> {
        let file = self.path.join("failslab");
        let value = if may_fail { "1" } else { "0" };
        fs::write(&file, value).with_context(|| format!("writing {}", file.display()))
    }
}

/// Enables faults for the caches that `--everywhere` covers.
fn choose_caches() -> Result<()> {
    let is_chosen = |name: &str| {
        let small = name
            .strip_prefix("kmalloc-")
            .is_some_and(|rest| !rest.contains("rcl"));
        small || matches!(name, "SMC" | "SMC6" | "TCP" | "TCPv6" | "sock_inode_cache")
    };
    for entry in fs::read_dir("/sys/kernel/slab")?.flatten() {
        if entry.file_name().to_str().is_some_and(is_chosen) {
            // Merged caches share one file; writing to the aliases fails.
            let _ = fs::write(entry.path().join("failslab"), "1");
        }
    }
    Ok(())
}
