// SPDX-License-Identifier: GPL-2.0

//! `smctest bursts`: messages, then nothing until all have arrived.
//!
//! A burst is a message by each connection at once. With fewer send slots than connections some messages wait for a
//! slot, and in the silence afterwards nothing comes to the help of one that missed the slot which became free. Or one
//! message at a time is held back (MSG_MORE), which is sent when the timer of all connections says so; the next comes
//! while that runs. Or connections are idle between their messages for about as long as they keep a ring of shared
//! memory.

use std::io::Read;
use std::io::Write;
use std::thread;
use std::time::Duration;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use crate::context::Context;
use crate::data::Random;
use crate::netns;

/// Longest wait for a message: less than until a link is tested, after which slots are given out again.
const SOON: Duration = Duration::from_secs(15);

/// The same for a message that is held back for 200 ms.
const SOON_AFTER: Duration = Duration::from_secs(4);

/// Most bytes of a message.
const MOST: u64 = 256;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Connections
    #[arg(long, default_value_t = 4)]
    connections: usize,

    /// Bursts, in either direction by turns
    #[arg(long, default_value_t = 1000)]
    rounds: u32,

    /// One message at a time, with MSG_MORE
    #[arg(long)]
    held_back: bool,

    /// One or two seconds between bursts, all in one direction
    #[arg(long)]
    idle: bool,
}

/// Runs the test; both ends are in this process.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    let seed = Random::fresh_seed();
    println!("# bursts: seed {seed}");
    let mut random = Random::new(seed);
    let listener = context.listen(1)?;
    let mut pairs = (0..arguments.connections)
        .map(|_| {
            let client = netns::inside(context.client_netns.as_deref(), || context.connect())?;
            let server = listener.accept(0)?;
            for socket in [&client, &server] {
                socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
                socket.set_timeout(match arguments.held_back {
                    true => SOON_AFTER,
                    false => SOON,
                })?;
            }
            Ok((client, server))
        })
        .collect::<Result<Vec<_>>>()?;
    for round in 0..arguments.rounds {
        if arguments.idle {
            thread::sleep(Duration::from_millis(1000 + random.below(1000)));
        }
        match arguments.held_back {
            true => hold_back(&pairs, &mut random),
            false => burst(&pairs, &mut random, arguments.idle),
        }
        .with_context(|| format!("round {round}"))?;
        if !arguments.idle {
            pairs = pairs.into_iter().map(|(a, b)| (b, a)).collect();
        }
    }
    Ok(())
}

fn burst(pairs: &[(Socket, Socket)], random: &mut Random, is_read_late: bool) -> Result<()> {
    let messages: Vec<Vec<u8>> = pairs
        .iter()
        .map(|_| {
            // CAST: a byte, and few hundred.
            let byte = random.below(256) as u8;
            vec![byte; 1 + random.below(MOST) as usize]
        })
        .collect();
    for ((sender, _), message) in pairs.iter().zip(&messages) {
        (&mut &*sender).write_all(message)?;
    }
    if is_read_late {
        thread::sleep(Duration::from_millis(50));
    }
    for ((_, receiver), message) in pairs.iter().zip(&messages) {
        let mut received = vec![0; message.len()];
        (&mut &*receiver).read_exact(&mut received)?;
        ensure!(received == *message, "wrong data");
    }
    Ok(())
}

fn hold_back(pairs: &[(Socket, Socket)], random: &mut Random) -> Result<()> {
    // CAST: below the number of connections.
    let (sender, receiver) = &pairs[random.below(pairs.len() as u64) as usize];
    ensure!(sender.send(b"m", libc::MSG_MORE)? == 1, "nothing was sent");
    let mut received = [0];
    (&mut &*receiver).read_exact(&mut received)?;
    ensure!(received == *b"m", "wrong data");
    Ok(())
}
