// SPDX-License-Identifier: GPL-2.0

//! `smctest hold`: idle connections, and whether and how they end.

use std::collections::BTreeSet;
use std::io::Read;
use std::io::Write;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Socket;

use crate::context::Context;
use crate::netns;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 1)]
    connections: u32,

    /// A shell command to run once they are there
    #[arg(long, value_name = "COMMAND")]
    then: Option<String>,

    /// Transfer a byte in each direction before the command
    #[arg(long)]
    used: bool,

    /// Leave a byte from each client unread until after the command
    #[arg(long)]
    unread: bool,

    /// Set TCP_USER_TIMEOUT at both ends, milliseconds
    #[arg(long)]
    user_timeout: Option<i32>,

    /// Write a byte at both ends after the command, which nobody reads
    #[arg(long)]
    speak: bool,

    /// Set an option of TCP Fast Open on the clients, which rules out SMC
    #[arg(long)]
    fast_open: bool,

    /// Give both ends a key with which TCP signs segments, which rules out SMC
    #[arg(long)]
    keys: bool,

    /// Seconds to leave them alone afterwards; if they are to end, the most that it may take
    #[arg(long, default_value_t = 5)]
    seconds: u64,

    /// How often to leave them alone and use them then
    #[arg(long, default_value_t = 1, value_name = "NUMBER")]
    uses: u32,

    /// Expect the connections to end, with this result of a read at the client and, if it differs, at
    /// the server: the name of an errno or `eof`. Otherwise they must stay open and transfer data
    #[arg(long, value_name = "HOW", value_delimiter = ',', num_args = 1..=2)]
    ends: Vec<String>,

    /// How many link groups they have to be in
    #[arg(long, value_name = "NUMBER")]
    groups: Option<usize>,
}

/// Both ends of a connection.
struct Pair {
    client: Socket,
    server: Socket,
}

/// Opens the connections, both ends in this process, and keeps them.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let listener = context.listen(64)?;
    if arguments.keys {
        set_key(&listener)?;
    }
    if let Some(limit) = arguments.user_timeout {
        // The servers inherit it.
        listener.set_option_int(libc::SOL_TCP, libc::TCP_USER_TIMEOUT, limit)?;
    }
    netns::enter(context.client_netns.as_deref())?;
    let pairs = (0..arguments.connections)
        .map(|number| {
            open(context, arguments, &listener).with_context(|| format!("connection {number}"))
        })
        .collect::<Result<Vec<_>>>()?;
    check_groups(&pairs, arguments.groups)?;
    if arguments.used {
        pairs.iter().try_for_each(Pair::expect_life)?;
    }
    if arguments.unread {
        for pair in &pairs {
            (&pair.client).write_all(b"u").context("write")?;
        }
    }
    if let Some(command) = &arguments.then {
        let status = Command::new("sh").args(["-c", command]).status()?;
        ensure!(status.success(), "{command}: {status}");
    }
    if arguments.unread {
        for pair in &pairs {
            let mut byte = [0];
            (&pair.server).read_exact(&mut byte).context("read")?;
            ensure!(byte == *b"u", "another byte: {byte:?}");
        }
    }
    if arguments.speak {
        for mut end in pairs.iter().flat_map(|pair| [&pair.client, &pair.server]) {
            end.write_all(b"s").context("write")?;
        }
    }
    let time = Duration::from_secs(arguments.seconds);
    match (arguments.ends.first(), arguments.ends.last()) {
        (Some(client), Some(server)) => {
            let deadline = Instant::now() + time;
            pairs.iter().try_for_each(|pair| {
                expect_end("client", &pair.client, client, deadline)?;
                expect_end("server", &pair.server, server, deadline)
            })
        }
        _ => (0..arguments.uses).try_for_each(|_| {
            thread::sleep(time);
            pairs.iter().try_for_each(Pair::expect_life)
        }),
    }
}

fn open(context: &Context, arguments: &Arguments, listener: &Socket) -> Result<Pair> {
    let client = match arguments.fast_open {
        true => {
            const TCP_FASTOPEN_NO_COOKIE: i32 = 34;
            let client = context.family.open(context.addr)?;
            client.set_option_int(libc::IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, 1)?;
            client.connect(context.address())?;
            client
        }
        false if arguments.keys => {
            let client = context.family.open(context.addr)?;
            set_key(&client)?;
            client.connect(context.address())?;
            client
        }
        false => context.connect()?,
    };
    let server = listener.accept(0).context("accept")?;
    server.set_timeout(Duration::from_secs(10))?;
    if let Some(limit) = arguments.user_timeout {
        client.set_option_int(libc::SOL_TCP, libc::TCP_USER_TIMEOUT, limit)?;
    }
    Ok(Pair { client, server })
}

/// Sets one key for all IPv4 addresses (`struct tcp_md5sig`).
fn set_key(socket: &Socket) -> Result<()> {
    const TCP_MD5SIG_EXT: i32 = 32;
    const PREFIX: u8 = 1;
    const KEY: &[u8] = b"a key of both";
    let mut value = [0; 216];
    value[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    value[128] = PREFIX;
    value[130..132].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    value[136..136 + KEY.len()].copy_from_slice(KEY);
    socket.set_option(libc::SOL_TCP, TCP_MD5SIG_EXT, &value)?;
    Ok(())
}

fn check_groups(pairs: &[Pair], wanted: Option<usize>) -> Result<()> {
    let mut groups = BTreeSet::new();
    for pair in pairs {
        if let Path::SmcR(Some(group)) = Path::of(&pair.client)? {
            groups.insert(group);
        }
    }
    println!(
        "# hold: {} connections, link groups {groups:08x?}",
        pairs.len()
    );
    match wanted {
        Some(wanted) if wanted != groups.len() => bail!("{wanted} link groups expected"),
        _ => Ok(()),
    }
}

impl Pair {
    /// Transfers a byte in each direction.
    fn expect_life(&self) -> Result<()> {
        for (mut from, mut to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            let mut byte = [0];
            from.write_all(b"x").context("write")?;
            to.read_exact(&mut byte).context("read")?;
        }
        Ok(())
    }
}

/// Checks that a read returns `how`: `eof` or the name of an errno.
fn expect_end(end: &str, socket: &Socket, how: &str, deadline: Instant) -> Result<()> {
    let left = deadline.saturating_duration_since(Instant::now());
    let events = poll_fd(socket, libc::POLLIN, left)?;
    ensure!(events != 0, "the {end}'s connection did not end in time");
    let said = match socket.read(&mut [0]) {
        Ok(0) => "eof".to_string(),
        Ok(_) => bail!("data at the {end}"),
        Err(error) => error.to_string(),
    };
    println!("# {end}: {said}");
    ensure!(said == how, "the {end}'s connection ended with {said}");
    Ok(())
}
