// SPDX-License-Identifier: GPL-2.0

//! `smctest blocked-listener`: a setsockopt(2) or getsockopt(2) on a listener blocks on a page fault that userfaultfd
//! does not serve, and a connection arrives there.
//!
//! Nobody else may wait for that: such a page fault can block forever, and any user can cause one. The value is read
//! before the socket is locked, so that not even the listener waits. A filter's instructions are read with the lock of
//! the socket held: then other listeners go on.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Result;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;

/// Time for the call to reach the page fault, and for other calls to return.
const SOON: Duration = Duration::from_secs(5);

/// Parameters of TCP-AO. Not in libc.
const TCP_AO_INFO: i32 = 40;

/// Runs the test, both ends in this process.
pub(crate) fn run(context: &Context) -> Result<()> {
    let blocked = context.listen(8)?;
    let other = Context {
        port: context.port + 1,
        ..context.clone()
    };
    let other = other.listen(8)?;
    accept_beside(context, &blocked, |page| {
        page.set_option(&blocked, libc::IPPROTO_IP, libc::IP_OPTIONS, 40)
    })?;
    // Of a value that is longer than any option not all is copied. This one reads the rest after it has the lock.
    accept_beside(context, &blocked, |page| {
        // It is no valid one.
        let _ = page.set_option(&blocked, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, 300_000);
        Ok(())
    })?;
    accept_beside(context, &blocked, |page| {
        page.get_option(&blocked, libc::IPPROTO_TCP, TCP_AO_INFO)
            .map(drop)
    })?;
    let page = Unserved::new()?;
    thread::scope(|scope| {
        let setter = scope.spawn(|| page.attach_filter(&blocked));
        let result = close_beside(context, &page, other);
        // In any case, let the call return.
        page.serve()?;
        ensure!(setter.join().is_ok(), "a thread panicked");
        result
    })
}

/// Accepts a connection while `call`, on the listener, reads a value.
fn accept_beside(
    context: &Context,
    listener: &Socket,
    call: impl FnOnce(&Unserved) -> smc_user::Result<()> + Send,
) -> Result<()> {
    let page = Unserved::new()?;
    listener.set_timeout(SOON)?;
    thread::scope(|scope| {
        let caller = scope.spawn(|| call(&page));
        let is_wanted = page.is_wanted(SOON);
        let client = netns::inside(context.client_netns.as_deref(), || {
            context.begin_connect(context.family)
        });
        let start = Instant::now();
        let accepted = listener.accept(0);
        println!(
            "# accepted after {:.1?}: {:?}",
            start.elapsed(),
            accepted.as_ref().err()
        );
        let took = start.elapsed();
        // In any case, let the call return.
        page.serve()?;
        ensure!(caller.join().is_ok(), "a thread panicked");
        ensure!(is_wanted?, "nobody waits for the page");
        drop((client?, accepted?));
        ensure!(took < SOON / 2, "accept waits for the page");
        Ok(())
    })
}

/// Closes `other` once a call on the listener waits for the page, and a connection for the listener.
fn close_beside(context: &Context, page: &Unserved, other: Socket) -> Result<()> {
    ensure!(page.is_wanted(SOON)?, "nobody waits for the page");
    let client = netns::inside(context.client_netns.as_deref(), || {
        context.begin_connect(context.family)
    })?;
    // The listener's work begins to wait.
    thread::sleep(Duration::from_millis(500));
    thread::scope(|scope| {
        let start = Instant::now();
        let closer = scope.spawn(|| drop(other));
        while !closer.is_finished() && start.elapsed() < SOON {
            thread::sleep(Duration::from_millis(10));
        }
        let is_closed = closer.is_finished();
        println!("# the close took {:.1?}", start.elapsed());
        if !is_closed {
            page.serve()?;
        }
        ensure!(is_closed, "the close of a listener waits for another one");
        Ok(())
    })?;
    drop(client);
    Ok(())
}
