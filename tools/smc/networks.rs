// SPDX-License-Identifier: GPL-2.0

//! `smc pnet`: the table of physical networks (PNETIDs) of this network namespace.

use std::io;

use clap::Subcommand;
use smc_tools::pnet::Place;
use smc_tools::pnet::Table;

use crate::table::json;
use crate::table::not_loaded;
use crate::table::or_dash;
use crate::table::table;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print what is on the networks, or on one of them
    Show {
        pnetid: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Enter a network device, a port of an RDMA device, or both
    Add {
        /// Up to 16 letters and digits
        pnetid: String,
        /// The network device
        #[arg(short = 'I', long, required_unless_present = "device")]
        interface: Option<String>,
        /// The RDMA device, or its PCI address; only where RDMA devices are shared, in the first namespace
        #[arg(short = 'D', long)]
        device: Option<String>,
        /// Its port
        #[arg(short = 'P', long, requires = "device")]
        port: Option<u8>,
    },
    /// Remove a network
    Del { pnetid: String },
    /// Remove all networks
    Flush,
}

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    let mut networks = Table::open().map_err(not_loaded)?;
    match command {
        Command::Show { pnetid, json } => {
            let places = match pnetid {
                Some(pnetid) => networks.get(pnetid)?,
                None => networks.list()?,
            };
            show(&places, *json)
        }
        Command::Add {
            pnetid,
            interface,
            device,
            port,
        } => networks.add(&Place {
            pnetid: pnetid.clone(),
            netdev: interface.clone(),
            device: device.clone(),
            port: *port,
        }),
        Command::Del { pnetid } => networks.remove(pnetid),
        Command::Flush => networks.flush(),
    }
}

fn show(places: &[Place], as_json: bool) -> io::Result<()> {
    if as_json {
        return json(&places);
    }
    let row = |place: &Place| {
        vec![
            place.pnetid.clone(),
            or_dash(place.netdev.as_deref().unwrap_or_default()),
            or_dash(place.device.as_deref().unwrap_or_default()),
            place.port.map_or("-".to_string(), |port| port.to_string()),
        ]
    };
    table(
        &["PNETID", "Netdev", "Device", "Port"],
        &places.iter().map(row).collect::<Vec<_>>(),
    )
}
