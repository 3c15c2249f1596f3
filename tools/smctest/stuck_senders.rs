// SPDX-License-Identifier: GPL-2.0

//! `smctest stuck-senders`: while a nonblocking connection is made, a thread tries to send from memory that userfaultfd
//! does not serve. As soon as it may, the call has TCP locked, for as long as the memory is not served.
//!
//! Any user can do that. It must not keep a worker of the kernel, which all connections need, and the connections that
//! are met so are as good as others afterwards.

use std::fs;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;

/// Time for a call to reach the page fault, and for other calls to return.
const SOON: Duration = Duration::from_secs(20);

/// After that a worker that still sleeps waits for a call.
const BRIEF: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// How many connections are met so, all at a time
    #[arg(long, default_value_t = 100)]
    connections: usize,
}

/// A connection of which a call waits for its page.
struct Stuck {
    page: Unserved,
    client: Socket,
}

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(8)?;
    listener.set_timeout(SOON)?;
    let is_over = AtomicBool::new(false);
    let open = || {
        netns::inside(context.client_netns.as_deref(), || {
            let client = context.family.open(context.addr)?;
            client.set_nonblocking(true)?;
            let page = Unserved::new()?;
            Ok(Stuck { page, client })
        })
    };
    let all = (0..arguments.connections)
        .map(|_| open())
        .collect::<Result<Vec<_>>>()?;
    let servers = thread::scope(|scope| {
        let (mut servers, mut senders) = (Vec::new(), Vec::new());
        let result = all.iter().try_for_each(|one| {
            senders.push(scope.spawn(|| one.send(&is_over)));
            match one.client.connect(context.address()) {
                Ok(()) | Err(Errno::EINPROGRESS) => {}
                Err(error) => bail!("connect: {error}"),
            }
            servers.push(listener.accept(0)?);
            ensure!(one.page.is_wanted(SOON)?, "no call waits for the page");
            Ok(())
        });
        let result = result.and_then(|()| look(context, &listener));
        // In any case, let the calls return.
        // ORDERING: only the flag itself is shared.
        is_over.store(true, Ordering::Relaxed);
        for one in &all {
            one.page.serve()?;
        }
        for sender in senders {
            ensure!(sender.join().is_ok(), "a thread panicked");
        }
        result.map(|()| servers)
    })?;
    all.iter()
        .zip(&servers)
        .try_for_each(|(one, server)| one.exchange(server))
}

/// No worker waits for the calls, and others connect.
fn look(context: &Context, listener: &Socket) -> Result<()> {
    thread::sleep(BRIEF);
    let waiting = waiting_workers()?;
    ensure!(waiting.is_empty(), "workers wait for a call: {waiting:?}");
    let client = netns::inside(context.client_netns.as_deref(), || context.connect())?;
    drop((client, listener.accept(0)?));
    Ok(())
}

/// The names of this module's workers that wait for the lock of a socket.
pub(crate) fn waiting_workers() -> Result<Vec<String>> {
    fs::read("/proc/self/stack").context("this kernel shows no stacks")?;
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")?.flatten() {
        let read = |name| fs::read_to_string(entry.path().join(name)).unwrap_or_default();
        let name = read("comm");
        let is_ours = name.starts_with("kworker/") && name.contains("smc");
        if is_ours && read("stack").contains("lock_sock") {
            found.push(name.trim_end().to_owned());
        }
    }
    Ok(found)
}

impl Stuck {
    /// Sends from the page as soon as the socket takes it.
    fn send(&self, is_over: &AtomicBool) {
        // ORDERING: only the flag itself is shared.
        while !is_over.load(Ordering::Relaxed) {
            // An error before there is a connection.
            if self.page.send(&self.client, libc::MSG_DONTWAIT).is_ok() {
                return;
            }
        }
    }

    /// The connection is as any other: what was in the page has arrived, and a byte there and back wakes who waits.
    fn exchange(&self, server: &Socket) -> Result<()> {
        server.set_timeout(SOON)?;
        let mut buffer = [0; 4096];
        let mut received = 0;
        while received < buffer.len() {
            let len = server.recv(&mut buffer, 0).context("server")?;
            ensure!(len > 0, "the stream ends after {received} bytes");
            received += len;
        }
        ensure!(received == buffer.len(), "{received} bytes came");
        server.send(b"x", 0)?;
        let ready = poll_fd(&self.client, libc::POLLIN, SOON)?;
        ensure!(ready & libc::POLLIN != 0, "nothing wakes the client");
        ensure!(self.client.recv(&mut buffer, 0)? == 1, "another byte came");
        Ok(())
    }
}
