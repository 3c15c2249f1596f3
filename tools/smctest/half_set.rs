// SPDX-License-Identifier: GPL-2.0

//! `smctest half-set`: a setsockopt(SO_OOBINLINE) has changed the application's socket, and waits for the TCP socket
//! below it, while a thread peeks at an urgent byte.
//!
//! Whichever of the two values counts meanwhile, a receive call ends: it does not go on for ever because it is told of
//! data by one value and sees none by the other.

use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::poll_fd;
use smc_user::Socket;
use smc_user::Unserved;

use crate::context::Context;
use crate::netns;

/// Time for calls to reach the point at which they wait.
const SOON: Duration = Duration::from_secs(5);

/// SO_RCVTIMEO of the peek.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Runs the test for both values, both ends in this process.
pub(crate) fn run(context: &Context) -> Result<()> {
    for value in [0, 1] {
        let listener = context.listen(1)?;
        let client = netns::inside(context.client_netns.as_deref(), || context.connect())?;
        let server = listener.accept(0).context("accept")?;
        set_inline(&server, 1 - value)?;
        client.send(b"u", libc::MSG_OOB)?;
        let is_there = poll_fd(&server, libc::POLLPRI, SOON)? & libc::POLLPRI != 0;
        ensure!(is_there, "the urgent byte does not arrive");
        while_set(&server, value)?;
    }
    Ok(())
}

fn set_inline(socket: &Socket, value: i32) -> Result<()> {
    Ok(socket.set_option_int(libc::SOL_SOCKET, libc::SO_OOBINLINE, value)?)
}

/// Peeks while the option is being set to `value`.
fn while_set(server: &Socket, value: i32) -> Result<()> {
    server.set_timeout(TIMEOUT)?;
    let page = Unserved::new()?;
    thread::scope(|scope| {
        // Holds the lock of the TCP socket.
        let holder = scope.spawn(|| page.attach_filter(server));
        let is_held = page.is_wanted(SOON);
        let setter = scope.spawn(|| set_inline(server, value));
        thread::sleep(Duration::from_millis(300));
        let start = Instant::now();
        let peek = scope.spawn(|| server.recv(&mut [0; 8], libc::MSG_PEEK));
        while !peek.is_finished() && start.elapsed() < SOON {
            thread::sleep(Duration::from_millis(10));
        }
        let (is_over, is_set) = (peek.is_finished(), setter.is_finished());
        // In any case, let the calls return.
        page.serve()?;
        println!(
            "# to {value}: the peek took {:.1?}: {:?}",
            start.elapsed(),
            peek.join()
        );
        let _ = holder.join();
        ensure!(is_held?, "nobody waits for the page");
        ensure!(!is_set, "the option is set at once");
        ensure!(is_over, "the peek does not end");
        Ok(())
    })
}
