// SPDX-License-Identifier: GPL-2.0

//! `smctest crowd`: one end closes many connections, and the other end closes none of them.
//!
//! The first connection is excepted: it must stay open, and transfer data.

use std::io::Read;
use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use clap::Subcommand;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;

/// EPOLLRDHUP.
const RDHUP: i16 = 0x2000;

/// Longest wait for the other end.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections that are closed
    #[arg(long)]
    connections: usize,
    /// Both ends shut down writing before, the closing end first, which leaves data unread
    #[arg(long)]
    half: bool,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Connect, and close nothing, until killed
    Hold,
    /// Accept, and close at once
    Shun {
        /// Seconds for which the first connection has to live on
        #[arg(long)]
        seconds: u32,
    },
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    match arguments.role {
        Role::Hold => hold(context, arguments),
        Role::Shun { seconds } => shun(context, arguments, seconds),
    }
}

fn hold(context: &Context, arguments: &Arguments) -> Result<()> {
    let first = context.connect()?;
    context.check_path(&first)?;
    let mut held = Vec::new();
    for number in 0..arguments.connections {
        let socket = context.connect();
        let socket = socket.with_context(|| format!("connection {number}"))?;
        if arguments.half {
            ensure!(socket.read(&mut [0])? == 0, "the end was to come first");
            socket.send(&[0; 10], 0)?;
            socket.shutdown(libc::SHUT_WR)?;
        }
        held.push(socket);
    }
    let mut byte = [0];
    while first.read(&mut byte)? > 0 {
        (&first).write_all(&byte)?;
    }
    loop {
        thread::park();
    }
}

fn shun(context: &Context, arguments: &Arguments, seconds: u32) -> Result<()> {
    let listener = context.listen(64)?;
    let first = listener.accept(0)?;
    for _ in 0..arguments.connections {
        let socket = listener.accept(0)?;
        if arguments.half {
            end_halves(&socket)?;
        }
    }
    println!("# shunned {}", arguments.connections);
    std::io::stdout().flush()?;
    for second in 0..seconds {
        let mut byte = [0];
        (&first).write_all(&[7])?;
        (&first).read_exact(&mut byte)?;
        ensure!(byte == [7], "another byte in second {second}");
        thread::sleep(Duration::from_secs(1));
    }
    println!("# the first one lives");
    Ok(())
}

/// Both ends shut down writing; the data of the other end is not read.
fn end_halves(socket: &Socket) -> Result<()> {
    socket.shutdown(libc::SHUT_WR)?;
    let events = poll_fd(socket, RDHUP, PATIENCE)?;
    ensure!(events & RDHUP != 0, "the other end did not shut down");
    Ok(())
}
