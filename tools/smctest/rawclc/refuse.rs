// SPDX-License-Identifier: GPL-2.0

//! `smctest refuse`: a server that accepts the SMC option but then refuses the handshake, while a
//! command connects to it.

use std::process::Command;

use anyhow::ensure;
use anyhow::Result;

use crate::context::Context;
use crate::netns;

use super::messages::Messages;
use super::peer::Peer;
use super::peer::ANSWER;
use super::tcp::RawTcp;
use super::Place;

/// Offset of the reason in a DECLINE.
const DIAGNOSIS: usize = 16;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Place,

    /// Decline for this reason; otherwise answer as a mail server would, and take a second connection
    #[arg(long, value_name = "CODE", value_parser = code)]
    decline: Option<u32>,

    /// Reset the connection in place of that
    #[arg(long, conflicts_with = "decline")]
    reset: bool,

    /// A shell command, run in the server's namespace, that connects to the address in $PEER
    #[arg(long, value_name = "COMMAND")]
    run: String,
}

fn code(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u32::from_str_radix(digits, 16).map_err(|error| error.to_string())
}

/// Runs the server; fails if the command does.
pub(crate) fn run(context: &Context, arguments: &Arguments) -> Result<()> {
    netns::enter(context.client_netns.as_deref())?;
    let place = &arguments.place;
    let peer = Peer::new(context, place)?;
    let wire = peer.wire()?;
    let mut decline = Messages::of(place.raw_addr, 1).decline;
    if let (Some(code), Some(to)) = (arguments.decline, decline.get_mut(DIAGNOSIS..DIAGNOSIS + 4)) {
        to.copy_from_slice(&code.to_be_bytes());
    }
    peer.serve(
        &wire,
        |address| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &arguments.run]);
            let status = shell.env("PEER", address.to_string()).status()?;
            ensure!(status.success(), "{}: {status}", arguments.run);
            Ok(())
        },
        |tcp| match arguments.decline {
            Some(_) => answer(tcp, &decline),
            None if arguments.reset => {
                ensure!(tcp.message(ANSWER)?.is_some(), "no proposal came");
                tcp.reset()?;
                tcp.again()?.listen(ANSWER).map(drop)
            }
            None => {
                answer(tcp, b"220 mail.example.net ESMTP\r\n")?;
                tcp.again()?.listen(ANSWER).map(drop)
            }
        },
    )
}

/// Answers the first message, and waits for the end of the connection.
fn answer(tcp: &mut RawTcp<'_>, bytes: &[u8]) -> Result<()> {
    ensure!(tcp.message(ANSWER)?.is_some(), "no proposal came");
    tcp.send(bytes)?;
    tcp.listen(ANSWER)?;
    tcp.reset()
}
