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
    let outcome = match command {
        Command::Show { pnetid, json } => {
            let places = match pnetid {
                Some(pnetid) => networks.get(&kept(pnetid)),
                None => networks.list(),
            };
            places.and_then(|places| show(&places, *json))
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
        Command::Del { pnetid } => networks.remove(&kept(pnetid)),
        Command::Flush => networks.flush(),
    };
    outcome.map_err(|error| explained(error, command))
}

/// Returns a name as the kernel keeps it, which looks for it as it is given.
fn kept(pnetid: &str) -> String {
    pnetid.trim().to_ascii_uppercase()
}

/// Replaces the message of an error of the kernel.
fn explained(error: io::Error, command: &Command) -> io::Error {
    let text = match (error.raw_os_error(), command) {
        (Some(libc::ENOENT), Command::Del { pnetid }) => {
            format!("there is no network {} (smc pnet show)", kept(pnetid))
        }
        (Some(libc::EEXIST), Command::Add { device: None, .. }) => {
            "the network device is on a network already (smc pnet show)".to_string()
        }
        (Some(libc::EEXIST), Command::Add { .. }) => {
            "the RDMA port is on a network already (smc pnet show), or this network namespace is not the first \
             one, in which alone RDMA devices can be named"
                .to_string()
        }
        (Some(libc::EINVAL | libc::ERANGE), Command::Add { .. }) => {
            "a network has a name of 1 to 16 letters and digits, a network device one of up to 15 characters, an \
             RDMA device one of up to 63, and its port is 1 or 2"
                .to_string()
        }
        (Some(libc::EPERM), _) => format!("{error}; this needs CAP_NET_ADMIN, outside of user namespaces"),
        _ => return error,
    };
    io::Error::new(error.kind(), text)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_as_it_is_kept() {
        assert_eq!(kept(" net1\n"), "NET1");
    }

    #[test]
    fn errors_of_the_kernel_are_explained() {
        let add = |device: Option<&str>| Command::Add {
            pnetid: "net1".to_string(),
            interface: Some("eth0".to_string()),
            device: device.map(str::to_string),
            port: None,
        };
        let del = Command::Del {
            pnetid: "net1".to_string(),
        };
        let of = |code, command: &Command| {
            explained(io::Error::from_raw_os_error(code), command).to_string()
        };
        assert_eq!(
            of(libc::ENOENT, &del),
            "there is no network NET1 (smc pnet show)"
        );
        let on_one = of(libc::EEXIST, &add(None));
        assert!(on_one.contains("network device") && !on_one.contains("first"));
        assert!(of(libc::EEXIST, &add(Some("mlx5_0"))).contains("not the first one"));
        assert!(of(libc::EINVAL, &add(None)).contains("16 letters and digits"));
        assert!(of(libc::EPERM, &del).contains("CAP_NET_ADMIN"));
        let other = io::Error::from_raw_os_error(libc::ENOMEM).to_string();
        assert_eq!(of(libc::ENOMEM, &add(None)), other);
    }
}
