// SPDX-License-Identifier: GPL-2.0

//! `smctest path`: connects once and prints whether SMC or TCP is used.

use anyhow::Result;
use smc_tools::path::Path;

use crate::context::Context;
use crate::netns;
use crate::server::Mode;
use crate::server::Server;

/// Prints the path; fails if it is not the expected one.
pub(crate) fn run(context: &Context) -> Result<()> {
    let _server = Server::start(context, Mode::Spawn)?;
    netns::enter(context.client_netns.as_deref())?;

    let socket = context.connect()?;
    println!("# path: {}", Path::of(&socket)?);
    Ok(())
}
