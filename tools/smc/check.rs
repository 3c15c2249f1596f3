// SPDX-License-Identifier: GPL-2.0

//! `smc check`: looks over this machine before SMC is used on it, and tries a connection between two.

mod exchange;
mod facts;
mod firewall;
mod judge;
mod line;
mod probe;

use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::process::ExitCode;

use crate::out;
use crate::table::json;
use facts::Facts;
use line::is_good;
use line::Line;

/// Where `--listen` listens unless told otherwise: the port of smc_chk of smc-tools.
const PORT: u16 = 37373;

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: 0 nothing failed (there may be warnings); 1 something failed, or it could not be found out; 2 wrong usage."
)]
pub(crate) struct Arguments {
    /// Also try a connection to `smc check --listen` there; with --listen, the address to listen on
    host: Option<String>,

    /// Also be the other end of such connections, until Ctrl-C
    #[arg(short, long)]
    listen: bool,

    /// With --listen, end after one connection, with its exit code
    #[arg(long, requires = "listen")]
    once: bool,

    /// The TCP port of the test connection
    #[arg(short, long, default_value_t = PORT)]
    port: u16,

    /// Data of the test connection in each direction, KiB
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=exchange::MOST >> 10))]
    kib: u64,

    /// Print JSON: one array; with --listen but not --once, one on each line, of this machine and then of each client
    #[arg(long)]
    json: bool,
}

/// Prints the lines; the exit code says whether something failed.
pub(crate) fn run(arguments: &Arguments) -> io::Result<ExitCode> {
    let address = arguments
        .host
        .as_deref()
        .map(|host| resolve(host, arguments.port))
        .transpose()?;
    let target = address.filter(|_| !arguments.listen);
    let facts = Facts::collect(target);
    let mut lines = judge::judge(&facts);
    // A connection may take some seconds; JSON is one array.
    let shown = match arguments.json {
        true => 0,
        false => show(&lines, arguments).map(|()| lines.len())?,
    };
    if let (Some(target), Some(host)) = (target, &arguments.host) {
        // Without the module there is nothing to be learnt from a connection.
        if facts.refusal.is_none() {
            let outcome = probe::connect(target, arguments.kib << 10)?;
            let path = probe::judge(host, &outcome);
            // What follows from a fault that was named above is none of its own.
            let follows = !is_good(&lines) && outcome.is_own_fault();
            lines.extend(path.into_iter().map(|line| match follows {
                true => line.at_most_warn(),
                false => line,
            }));
        }
    }
    let mut is_well = is_good(&lines);
    let mut unseen = lines.split_off(shown);
    if !(arguments.json && arguments.once) {
        show(&unseen, arguments)?;
        unseen.clear();
    }
    if arguments.listen {
        is_well &= listen(arguments, address.map(|address| address.ip()), unseen)?;
    }
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// Serves clients; returns whether all was well with the last one. The lines that were not shown yet are, with those of
/// the first client.
fn listen(arguments: &Arguments, ip: Option<IpAddr>, mut unseen: Vec<Line>) -> io::Result<bool> {
    let listener = probe::Listener::open(ip, arguments.port)?;
    if !arguments.json {
        let how = match listener.refused {
            None => "",
            Some(_) => ", by TCP alone, as this machine has no SMC",
        };
        out::line(format_args!(
            "Listening on {}{how}. At the other machine: smc check ADDRESS",
            listener.address
        ))?;
    }
    loop {
        let (peer, outcome) = match listener.serve() {
            // The client has gone before its turn came.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            served => served?,
        };
        let name = peer.map_or("a client".to_string(), |peer| peer.to_string());
        let lines = probe::judge(&name, &outcome);
        let is_well = is_good(&lines);
        unseen.extend(lines);
        show(&unseen, arguments)?;
        unseen.clear();
        if arguments.once {
            return Ok(is_well);
        }
    }
}

fn resolve(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses = (host, port).to_socket_addrs().map_err(|error| {
        io::Error::new(
            error.kind(),
            format!("{host}: {error} (a name or an address is wanted; --port says which port)"),
        )
    })?;
    let none = || io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    addresses.next().ok_or_else(none)
}

fn show(lines: &[Line], arguments: &Arguments) -> io::Result<()> {
    match (arguments.json, arguments.listen && !arguments.once) {
        (false, _) => line::print(lines),
        (true, false) => json(&lines),
        (true, true) => out::line(format_args!("{}", serde_json::to_string(lines)?)),
    }
}
