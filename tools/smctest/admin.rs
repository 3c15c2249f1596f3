// SPDX-License-Identifier: GPL-2.0

//! `smctest admin`: prints the answers of generic netlink and `sock_diag` as text, to compare our
//! module with the C module. Of values that always differ (random numbers, sizes of private buffer
//! pools), only the length is printed.

mod lists;
mod pnet;
mod requests;
mod rules;
mod show;
mod sockets;
mod steady;

use anyhow::Result;
use clap::Subcommand;

use crate::context::Context;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Send each command in every way, good and bad
    Requests,
    /// Make connections over SMC and TCP, and list what there is of them
    Lists {
        /// Wait until each link group has as many links
        #[arg(long, default_value_t = 1)]
        links: usize,
    },
    /// Name physical networks, and ask for them
    Pnet,
    /// Replace the rules about who may use SMC, in good ways and in wrong ones
    Rules,
    /// Remove half of the physical networks that `steady` made
    Thin,
    /// Read a list in parts while it changes
    Steady(steady::Options),
}

pub(crate) fn run(context: &Context, command: &Command) -> Result<()> {
    match command {
        Command::Requests => requests::run(),
        Command::Lists { links } => lists::run(context, *links),
        Command::Pnet => pnet::run(),
        Command::Rules => rules::run(),
        Command::Thin => pnet::thin(),
        Command::Steady(options) => steady::run(options),
    }
}
