// SPDX-License-Identifier: GPL-2.0

//! `smc_pnet`: the table of physical networks.

use std::io;
use std::process::ExitCode;

use clap::ArgGroup;
use clap::Parser;
use smc_tools::pnet::Place;
use smc_tools::pnet::Table;

use super::failed;
use super::parse;
use crate::out;

#[derive(Parser)]
#[command(
    name = "smc_pnet",
    about = "Show and change the table of physical networks",
    group = ArgGroup::new("device").multiple(true).args(["interface", "ibdevice"])
)]
pub(super) struct Arguments {
    /// Enter a device under the name
    #[arg(
        short,
        long,
        group = "action",
        requires = "pnetid",
        requires = "device"
    )]
    add: bool,
    /// Remove what has the name
    #[arg(short, long, group = "action", requires = "pnetid")]
    delete: bool,
    /// Print what has the name, or everything
    #[arg(short, long, group = "action")]
    show: bool,
    /// Remove everything
    #[arg(short, long, group = "action", conflicts_with = "pnetid")]
    flush: bool,
    /// Network device to enter
    #[arg(short = 'I', long, value_name = "NAME")]
    interface: Option<String>,
    /// RDMA device to enter
    #[arg(short = 'D', long, value_name = "NAME")]
    ibdevice: Option<String>,
    /// Its port
    #[arg(short = 'P', long, value_name = "PORT", default_value_t = 1)]
    ibport: u8,
    /// Name of a physical network, before or after the options
    #[arg(requires = "action")]
    pnetid: Option<String>,
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let arguments = match parse::<Arguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed("smc_pnet", &error),
    }
}

fn act(arguments: &Arguments) -> io::Result<()> {
    let mut table = Table::open()?;
    let places = match &arguments.pnetid {
        Some(pnetid) if arguments.add => return table.add(&place(arguments, pnetid)),
        Some(pnetid) if arguments.delete => return table.remove(pnetid),
        Some(pnetid) => table.get(pnetid)?,
        None if arguments.flush => return table.flush(),
        None => table.list()?,
    };
    out::lines(places.iter().map(line))
}

/// Returns the entry to add; port 0 means the first one.
fn place(arguments: &Arguments, pnetid: &str) -> Place {
    let port = arguments.ibport.max(1);
    Place {
        pnetid: pnetid.to_string(),
        netdev: arguments.interface.clone(),
        device: arguments.ibdevice.clone(),
        port: arguments.ibdevice.as_ref().map(|_| port),
    }
}

/// Formats an entry as one line; absent names are printed as the kernel does.
fn line(place: &Place) -> String {
    const NO_PORT: u8 = 255;
    let name = |name: &Option<String>| name.clone().unwrap_or_else(|| "n/a".to_string());
    format!(
        "{} {} {} {}",
        place.pnetid,
        name(&place.netdev),
        name(&place.device),
        place.port.unwrap_or(NO_PORT)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Option<Arguments> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words).ok()
    }

    #[test]
    fn the_first_port_is_meant_where_none_is_said() {
        for (line, port) in [
            ("-a -D mlx5_0 N", Some(1)),
            ("-a -D mlx5_0 -P 0 N", Some(1)),
            ("-a -D mlx5_0 -P 2 N", Some(2)),
            ("-a -I eth0 N", None),
        ] {
            let entry = place(&parsed(line).unwrap(), "N");
            assert_eq!(entry.port, port, "{line}");
        }
    }

    #[test]
    fn the_name_is_before_or_after_the_options() {
        for line in [
            "-a NET1 -I eth0",
            "-a -I eth0 NET1",
            "NET1 -aI eth0",
            "--add --interface=eth0 NET1",
            "-I eth0 -D mlx5_0 -P 2 -a NET1",
        ] {
            let arguments = parsed(line).unwrap();
            assert!(arguments.add, "{line}");
            assert_eq!(arguments.pnetid.as_deref(), Some("NET1"), "{line}");
            assert_eq!(arguments.interface.as_deref(), Some("eth0"), "{line}");
        }
        for line in [
            "",
            "-s",
            "-s NET1",
            "NET1 -s",
            "-d NET1",
            "NET1 --delete",
            "-f",
        ] {
            assert!(parsed(line).is_some(), "{line}");
        }
        for line in [
            "NET1",
            "-a NET1",
            "-a -I eth0",
            "-d",
            "-f NET1",
            "-a -d NET1 -I eth0",
            "-s NET1 NET2",
        ] {
            assert!(parsed(line).is_none(), "{line}");
        }
    }

    #[test]
    fn an_entry_has_four_columns() {
        let mut place = Place {
            pnetid: "NET1".to_string(),
            netdev: Some("eth0".to_string()),
            device: None,
            port: None,
        };
        assert_eq!(line(&place), "NET1 eth0 n/a 255");
        place.netdev = None;
        place.device = Some("mlx5_0".to_string());
        place.port = Some(2);
        assert_eq!(line(&place), "NET1 n/a mlx5_0 2");
    }
}
