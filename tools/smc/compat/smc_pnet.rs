// SPDX-License-Identifier: GPL-2.0

//! `smc_pnet`: the table of physical networks.

use std::io;
use std::process::ExitCode;

use clap::Parser;
use smc_tools::pnet::Place;
use smc_tools::pnet::Table;

use super::failed;
use super::parse;

#[derive(Parser)]
#[command(
    name = "smc_pnet",
    about = "Show and change the table of physical networks"
)]
struct Arguments {
    /// Enter something under this name
    #[arg(short, long, value_name = "PNETID", group = "action")]
    add: Option<String>,
    /// Remove what has this name
    #[arg(short, long, value_name = "PNETID", group = "action")]
    delete: Option<String>,
    /// Print what has this name
    #[arg(short, long, value_name = "PNETID", group = "action")]
    show: Option<String>,
    /// Remove everything
    #[arg(short, long, group = "action")]
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
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let arguments = match parse::<Arguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match act(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn act(arguments: &Arguments) -> io::Result<()> {
    let mut table = Table::open()?;
    if let Some(pnetid) = &arguments.add {
        return table.add(&Place {
            pnetid: pnetid.clone(),
            netdev: arguments.interface.clone(),
            device: arguments.ibdevice.clone(),
            port: arguments.ibdevice.as_ref().map(|_| arguments.ibport),
        });
    }
    if let Some(pnetid) = &arguments.delete {
        return table.remove(pnetid);
    }
    if arguments.flush {
        return table.flush();
    }
    let places = match &arguments.show {
        Some(pnetid) => table.get(pnetid)?,
        None => table.list()?,
    };
    places.iter().for_each(|place| println!("{}", line(place)));
    Ok(())
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
