// SPDX-License-Identifier: GPL-2.0

//! `smcss`: the SMC sockets of this network namespace.

use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use smc_tools::diag;
use smc_tools::diag::Conn;
use smc_tools::diag::Entry;
use smc_tools::diag::Mode;
use smc_tools::diag::State;

use super::failed;
use super::parse;
use crate::out;

#[derive(Parser)]
#[command(name = "smcss", about = "Show the SMC sockets")]
pub(super) struct Arguments {
    /// Listening and unconnected sockets, too
    #[arg(short, long)]
    all: bool,
    /// Listening sockets only
    #[arg(short, long, conflicts_with_all = ["all", "debug", "smcd", "smcr"])]
    listening: bool,
    /// The rings of each connection, too
    #[arg(short, long)]
    debug: bool,
    /// Long addresses, not cut
    #[arg(short = 'W', long)]
    wide: bool,
    /// Connections over internal shared memory, with details
    #[arg(short = 'D', long, conflicts_with = "smcr")]
    smcd: bool,
    /// Connections over RDMA, with details
    #[arg(short = 'R', long)]
    smcr: bool,
}

pub(super) fn run(arguments: &[String]) -> ExitCode {
    let arguments = match parse::<Arguments>(arguments) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match diag::sockets().and_then(|sockets| print(&arguments, &sockets)) {
        Ok(()) => ExitCode::SUCCESS,
        // No module has registered for this family.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            failed("Error", &io::ErrorKind::NotFound.into())
        }
        Err(error) => failed("Error", &error),
    }
}

fn print(arguments: &Arguments, sockets: &[Entry]) -> io::Result<()> {
    let shown = sockets.iter().filter(|entry| is_shown(arguments, entry));
    out::line(head(arguments))?;
    out::lines(shown.map(|entry| line(arguments, entry)))
}

fn head(arguments: &Arguments) -> String {
    let mut head = format!(
        "{:<14} {:<5} {:<7} {:<23} {:<23} Intf Mode ",
        "State", "UID", "Inode", "Local Address", "Peer Address"
    );
    if arguments.debug {
        head.push_str("Shutd Token    Sndbuf   Rcvbuf   Peerbuf  ");
        head.push_str("rxprod-Cursor rxcons-Cursor rxFlags txprod-Cursor txcons-Cursor txFlags ");
        head.push_str("txprep-Cursor txsent-Cursor txfin-Cursor  ");
    }
    if arguments.smcr {
        head.push_str(&format!(
            "Role {:<15} Port Linkid {:<40} {:<40}",
            "IB-device", "GID", "Peer-GID"
        ));
    }
    if arguments.smcd {
        head.push_str("GID              Token            Peer-GID         Peer-Token       Linkid");
    }
    head.trim_end().to_string()
}

fn is_shown(arguments: &Arguments, entry: &Entry) -> bool {
    let is_idle = matches!(entry.state, State::LISTEN | State::INIT);
    if arguments.listening {
        return entry.state == State::LISTEN;
    }
    (arguments.all || !is_idle)
        && (!arguments.smcr || entry.mode == Mode::SmcR)
        && (!arguments.smcd || entry.mode == Mode::SmcD)
}

fn line(arguments: &Arguments, entry: &Entry) -> String {
    /// CLOSED.
    const CLOSED: State = State(7);
    let state = match entry.state.0 {
        24 => "APPFINCLOSEWAIT1".to_string(),
        _ => entry.state.to_string(),
    };
    let mut line = format!("{state:<14} {:05} {:07} ", entry.uid, entry.inode);
    if entry.state == State::INIT {
        return line.trim_end().to_string();
    }
    let wide = arguments.wide;
    line.push_str(&format!("{:<23} ", address(&entry.local, wide)));
    if entry.state == State::LISTEN {
        return line.trim_end().to_string();
    }
    let peer = address(&entry.peer, wide);
    line.push_str(&format!("{peer:<23} {:04x} ", entry.interface));
    if entry.state == CLOSED {
        return line.trim_end().to_string();
    }
    match entry.mode {
        Mode::SmcR => line.push_str("SMCR "),
        Mode::SmcD => line.push_str("SMCD "),
        Mode::Tcp => {
            line.push_str(&format!("TCP 0x{:08x}", entry.reason));
            if entry.peer_diagnosis != 0 {
                line.push_str(&format!("/0x{:08x}", entry.peer_diagnosis));
            }
            line.push(' ');
        }
    }
    if let Some(conn) = entry.conn.as_ref().filter(|_| arguments.debug) {
        line.push_str(&rings(entry.shutdown, conn));
    }
    if let Some(link) = entry.link.as_ref().filter(|_| arguments.smcr) {
        line.push_str(&format!(
            "{} {:<15} {:02x}   {:02x}     {:<40} {:<40}",
            ["CLNT", "SERV"][usize::from(link.is_server)],
            link.device,
            link.port,
            link.id,
            link.gid,
            link.peer_gid
        ));
    }
    if let Some(dmb) = entry.dmb.as_ref().filter(|_| arguments.smcd) {
        let ([gid, _], [peer_gid, _]) = (dmb.gid, dmb.peer_gid);
        line.push_str(&format!(
            "{gid:016x} {:016x} {peer_gid:016x} {:016x} {:08x}",
            dmb.token, dmb.peer_token, dmb.group
        ));
    }
    line.trim_end().to_string()
}

fn rings(shutdown: u8, conn: &Conn) -> String {
    let shut = match shutdown & 3 {
        0 => "<->",
        1 => "R->",
        2 => "<-W",
        _ => "R-W",
    };
    let cursor = |at: usize| {
        let (wrap, count) = conn.cursors.get(at).copied().unwrap_or_default();
        format!("{wrap:04x}:{count:08x}")
    };
    let [rx_prod, rx_state, tx_prod, tx_state] = conn.flags;
    format!(
        " {shut}  {:08x} {:08x} {:08x} {:08x} {} {} {rx_prod:02x}:{rx_state:02x}   {} {} \
         {tx_prod:02x}:{tx_state:02x}   {} {} {} ",
        conn.token,
        conn.send_bytes,
        conn.receive_bytes,
        conn.peer_bytes,
        cursor(0),
        cursor(1),
        cursor(2),
        cursor(3),
        cursor(4),
        cursor(5),
        cursor(6),
    )
}

/// Formats an address with its port, in 23 characters unless `wide`: the end of a longer address is
/// replaced by two dots. As with smc-tools, an address of which only the first word is not zero is one of IPv4, also
/// that of an IPv6 socket that is bound to none.
fn address(address: &SocketAddr, wide: bool) -> String {
    const WIDTH: usize = 23;
    let ip = match address.ip() {
        IpAddr::V6(ip) => match ip.octets() {
            [a, b, c, d, rest @ ..] if rest == [0; 12] => IpAddr::from([a, b, c, d]),
            _ => ip.into(),
        },
        ip => ip,
    };
    let (ip, port) = (ip.to_string(), address.port().to_string());
    let room = WIDTH.saturating_sub(port.len() + 1);
    match wide || ip.len() <= room {
        true => format!("{ip}:{port}"),
        false => {
            let kept = ip.get(..room.saturating_sub(2)).unwrap_or_default();
            format!("{kept}..:{port}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use smc_tools::diag::Dmb;

    #[test]
    fn a_long_address_gives_way_to_its_port() {
        let short = "10.9.0.1:7000".parse().unwrap();
        assert_eq!(address(&short, false), "10.9.0.1:7000");
        assert_eq!(
            address(&"[::]:7000".parse().unwrap(), false),
            "0.0.0.0:7000"
        );
        let long = "[fd00:1234:5678:9abc:def0:1234:5678:9abc]:50000"
            .parse()
            .unwrap();
        let cut = address(&long, false);
        assert_eq!((cut.len(), cut.as_str()), (23, "fd00:1234:5678:..:50000"));
        assert!(address(&long, true).starts_with("fd00:1234:5678:9abc:def0:"));
    }

    fn entry(state: u8, mode: Mode) -> Entry {
        Entry {
            state: State(state),
            mode,
            local: "10.9.0.1:7000".parse().unwrap(),
            peer: "10.9.0.2:40000".parse().unwrap(),
            uid: 0,
            inode: 1234,
            interface: 0,
            shutdown: 0,
            reason: 0x0301_0000,
            peer_diagnosis: 0,
            cause: 0,
            end: 0,
            conn: None,
            link: None,
            dmb: None,
        }
    }

    #[test]
    fn a_line_ends_where_the_state_says() {
        let plain = Arguments::try_parse_from(["smcss"]).unwrap();
        let line = |state, mode| line(&plain, &entry(state, mode));
        assert_eq!(
            line(1, Mode::Tcp),
            "ACTIVE         00000 0001234 10.9.0.1:7000           10.9.0.2:40000          0000 TCP 0x03010000"
        );
        assert_eq!(line(2, Mode::SmcR), "INIT           00000 0001234");
        assert_eq!(
            line(10, Mode::SmcR),
            "LISTEN         00000 0001234 10.9.0.1:7000"
        );
        assert!(line(7, Mode::SmcR).ends_with("10.9.0.2:40000          0000"));
    }

    #[test]
    fn the_numbers_of_shared_memory_are_below_their_heads() {
        let details = Arguments::try_parse_from(["smcss", "-D"]).unwrap();
        let entry = Entry {
            dmb: Some(Dmb {
                group: 0x100,
                gid: [0xa1, 0xffff],
                token: 0xa2,
                peer_gid: [0xa3, 0xffff],
                peer_token: 0xa4,
            }),
            ..entry(1, Mode::SmcD)
        };
        let (head, line) = (head(&details), line(&details, &entry));
        for (name, value) in [
            ("GID ", "00000000000000a1"),
            ("Token ", "00000000000000a2"),
            ("Peer-GID ", "00000000000000a3"),
            ("Peer-Token ", "00000000000000a4"),
            ("Linkid", "00000100"),
        ] {
            assert_eq!(head.find(name), line.find(value), "{name}\n{head}\n{line}");
        }
        let plain = Arguments::try_parse_from(["smcss"]).unwrap();
        assert!(super::line(&plain, &entry).ends_with(" SMCD"));
    }

    #[test]
    fn options_that_exclude_each_other_are_refused() {
        for options in [["-l", "-a"], ["-l", "-R"], ["-D", "-R"], ["-d", "-l"]] {
            let all = std::iter::once("smcss").chain(options);
            assert!(Arguments::try_parse_from(all).is_err(), "{options:?}");
        }
    }
}
