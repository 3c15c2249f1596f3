// SPDX-License-Identifier: GPL-2.0

//! Network namespaces by name, as `ip netns` keeps them.

use std::fs;
use std::fs::File;
use std::thread;

use anyhow::Context as _;
use anyhow::Result;
use nix::sched::setns;
use nix::sched::CloneFlags;

/// Moves the calling thread into the namespace; `None` leaves it unchanged.
pub(crate) fn enter(name: Option<&str>) -> Result<()> {
    let Some(name) = name else { return Ok(()) };
    let file = File::open(format!("/run/netns/{name}"))
        .with_context(|| format!("opening network namespace {name}"))?;
    setns(file, CloneFlags::CLONE_NEWNET)
        .with_context(|| format!("entering network namespace {name}"))
}

/// Returns the index of the first interface of the calling thread's namespace that has a link-local IPv6 address.
pub(crate) fn link_local() -> Option<u32> {
    /// `IPV6_ADDR_LINKLOCAL`, as the kernel prints the scope of an address.
    const SCOPE: &str = "20";
    let table = fs::read_to_string("/proc/thread-self/net/if_inet6").ok()?;
    // Address, index, length of the prefix, scope, flags, name.
    table.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let index = u32::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(1)? == SCOPE).then_some(index)
    })
}

/// Runs `work` in a new thread inside the namespace and returns its result.
///
/// The sockets that it opens belong to the namespace, whichever thread uses them later.
pub(crate) fn inside<T: Send>(
    name: Option<&str>,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<T> {
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            enter(name)?;
            work()
        });
        thread
            .join()
            .unwrap_or_else(|_| anyhow::bail!("a thread in a network namespace panicked"))
    })
}
