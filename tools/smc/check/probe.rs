// SPDX-License-Identifier: GPL-2.0

//! The test connection between two hosts: `smc check HOST` and `smc check --listen`.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::Ipv6Addr;
use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use smc_tools::netdevs::netdevs;
use smc_tools::path::Path;
use smc_tools::socket;
use smc_tools::socket::Refused;
use smc_user::Socket;

use super::exchange;
use super::exchange::End;
use super::exchange::Failure;
use super::exchange::Times;
use super::line::Line;
use crate::why::attempt;
use crate::why::facts::Facts;
use crate::why::finding::Finding;

/// How long an end waits for the other one.
const WAIT: Duration = Duration::from_secs(30);

/// What came of a connection.
pub(super) struct Outcome {
    /// How this end sees it.
    pub(super) own: End,
    /// How long it took to connect.
    pub(super) connect: Duration,
    /// What was measured, and how the other end sees it.
    pub(super) rest: Result<(Times, End), Failure>,
    /// Whether TCP and SMC connect at all.
    pub(super) is_connected: bool,
}

/// Connects, and exchanges that many bytes in each direction.
pub(super) fn connect(address: SocketAddr, bytes: u64) -> io::Result<Outcome> {
    let begin = Instant::now();
    let attempt = attempt::to_any(&address.to_string(), vec![address])?;
    let connect = begin.elapsed();
    let finding = attempt.finding(&Facts::look());
    let Some(socket) = attempt.socket() else {
        return Ok(Outcome {
            own: End::of(finding, None),
            connect,
            rest: Err(Failure::Stranger),
            is_connected: false,
        });
    };
    socket.set_timeout(WAIT)?;
    let mut own = End::of_socket(socket);
    let led = exchange::lead(&mut &*socket, bytes, || End::of_socket(socket));
    let rest = led.map(|(times, wrong_at, peer)| {
        own.wrong_at = wrong_at;
        (times, peer)
    });
    // What broke the connection may show at the socket.
    if let Ok(path) = Path::of(socket) {
        own.adopt(Finding::of_path(&path, &Facts::look()));
    }
    Ok(Outcome {
        own,
        connect,
        rest,
        is_connected: true,
    })
}

/// A socket that listens for clients.
pub(super) struct Listener {
    socket: Socket,
    pub(super) address: SocketAddr,
    /// Why it listens by TCP alone.
    pub(super) refused: Option<Refused>,
}

impl Listener {
    /// Listens with SMC, or by TCP alone where this host has no SMC, so that the other end learns why.
    pub(super) fn open(address: Option<IpAddr>, port: u16) -> io::Result<Self> {
        let any = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
        let addresses = address.map_or(any.to_vec(), |address| vec![address]);
        let mut last = io::Error::from(io::ErrorKind::InvalidInput);
        for ip in addresses {
            match Self::at(SocketAddr::new(ip, port)) {
                Ok(listener) => return Ok(listener),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn at(address: SocketAddr) -> io::Result<Self> {
        let family = match address {
            SocketAddr::V4(_) => libc::AF_INET,
            SocketAddr::V6(_) => libc::AF_INET6,
        };
        let (socket, refused) = match socket::open(address.is_ipv6()) {
            Ok(socket) => (socket, None),
            Err(refused) => (Socket::open(family, libc::SOCK_STREAM, 0)?, Some(refused)),
        };
        socket.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        socket.bind(address)?;
        socket.listen(16)?;
        Ok(Self {
            socket,
            address,
            refused,
        })
    }

    /// Waits for a client, and serves it.
    pub(super) fn serve(&self) -> io::Result<(Option<SocketAddr>, Outcome)> {
        let socket = self.socket.accept(0)?;
        let begin = Instant::now();
        socket.set_timeout(WAIT)?;
        let peer = socket.peer_address().ok().and_then(|peer| peer.to_ip());
        let look = || match &self.refused {
            None => End::of_socket(&socket),
            Some(refused) => End::of(Finding::no_family(&refused.to_string()), mtu_at(&socket)),
        };
        let mut own = look();
        let followed = exchange::follow(&mut &socket, look);
        let rest = followed.map(|(wrong_at, peer)| {
            own.wrong_at = wrong_at;
            let times = Times {
                bytes: 0,
                there_us: 0,
                back_us: 0,
                round_trip_us: 0,
            };
            (times, peer)
        });
        let connect = begin.elapsed();
        let outcome = Outcome {
            own,
            connect,
            rest,
            is_connected: true,
        };
        Ok((
            peer.map(|peer| SocketAddr::new(peer.ip().to_canonical(), peer.port())),
            outcome,
        ))
    }
}

/// Returns the MTU of the network device that a connection uses.
fn mtu_at(socket: &Socket) -> Option<u32> {
    let local = socket.local_address().ok()?.to_ip()?.ip().to_canonical();
    let mut netdevs = netdevs().ok()?.into_iter();
    let netdev = netdevs.find(|netdev| netdev.addresses.contains(&local))?;
    Some(netdev.mtu)
}

impl End {
    fn of(finding: Finding, mtu: Option<u32>) -> Self {
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let mut this = Self {
            host: host.trim().to_string(),
            mtu,
            ..Self::default()
        };
        this.adopt(finding);
        this
    }

    fn of_socket(socket: &Socket) -> Self {
        let path = Path::of(socket).unwrap_or(Path::Tcp);
        Self::of(Finding::of_path(&path, &Facts::look()), mtu_at(socket))
    }

    fn adopt(&mut self, finding: Finding) {
        self.smc = finding.smc;
        self.id = finding.id;
        self.sentence = finding.sentence;
        self.remedy = finding.remedy;
    }

    /// Whether it knows no more than that the other end did not want SMC.
    fn is_vague(&self) -> bool {
        self.id == "PEERNOSMC" || self.id.starts_with("PEERDECL")
    }
}

impl Outcome {
    /// Whether it is TCP for a reason of this end's.
    pub(super) fn is_own_fault(&self) -> bool {
        self.is_connected && self.own.smc == Some(false) && !self.own.is_vague()
    }
}

/// Judges what came of a connection to `name`.
pub(super) fn judge(name: &str, outcome: &Outcome) -> Vec<Line> {
    let own = &outcome.own;
    if !outcome.is_connected {
        let (id, hint) = match own.id.as_str() {
            "NO_TCP" => (
                "path/unreachable",
                format!("At {name}: smc check --listen; let the TCP port of it through firewalls."),
            ),
            "NO_HANDSHAKE" => ("path/no-handshake", own.remedy.clone().unwrap_or_default()),
            _ => ("path/no-family", own.remedy.clone().unwrap_or_default()),
        };
        return vec![Line {
            why: Some(own.id.clone()),
            ..Line::fail(id, format!("{name}: {}", own.sentence), hint)
        }];
    }
    match &outcome.rest {
        Ok((times, peer)) => of_exchange(name, outcome, times, peer),
        Err(Failure::Silent) => vec![Line {
            why: Some(own.id.clone()),
            ..Line::fail(
                "path/silent",
                format!(
                    "{name}: {} It is connected, but nothing came within {} s.",
                    own.sentence,
                    WAIT.as_secs()
                ),
                format!("At {name}: smc check --listen, if another program listens there; else see dmesg of both ends."),
            )
        }],
        Err(Failure::Stranger) if own.smc == Some(true) => vec![Line {
            why: Some(own.id.clone()),
            ..Line::warn(
                "path/no-report",
                format!("{name}: {} No data were exchanged, as who listens there is not smc check.", own.sentence),
                format!("At {name}: smc check --listen."),
            )
        }],
        Err(Failure::Stranger) => vec![tcp(name, own, None)],
        Err(Failure::Broken(error)) => vec![Line {
            why: Some(own.id.clone()),
            ..Line::fail(
                "path/broken",
                format!(
                    "{name}: the exchange of data did not come to its end ({}). Before: {}",
                    exchange::in_words(error),
                    own.sentence
                ),
                "Small packets got through, and large ones may not: compare the MTUs of both ends and of the switches between \
                 (ip link show; ping -M do -s 4300 for packets that carry 4096 bytes); see dmesg.",
            )
        }],
    }
}

fn of_exchange(name: &str, outcome: &Outcome, times: &Times, peer: &End) -> Vec<Line> {
    let own = &outcome.own;
    let both = |line: Line| Line {
        why: Some(own.id.clone()),
        peer_why: Some(peer.id.clone()),
        ..line
    };
    if let Some(at) = own.wrong_at.or(peer.wrong_at) {
        return vec![both(Line::fail(
            "path/data",
            format!("{name}: byte {at} of the data was not the one that was sent."),
            "Report it, with the output of smc check of both ends and dmesg; until then take SMC out of use (smc policy add deny).",
        ))];
    }
    let is_smc = own.smc == Some(true) && peer.smc == Some(true);
    let mut lines = vec![match is_smc {
        true => both(Line::ok(
            "path",
            format!("{name}: {}{}", own.sentence, in_words(outcome, times)),
        )),
        false => tcp(name, own, Some(peer)),
    }];
    if let (Some(here), Some(there)) = (own.mtu, peer.mtu) {
        if here != there {
            lines.push(both(Line::warn(
                "path/mtu-differs",
                format!("The MTU is {here} here, and {there} at {name}: packets are as small as the smaller one wants."),
                "Set the same at both ends, and at the switches between (ip link set DEVICE mtu N).",
            )));
        }
    }
    lines
}

/// A connection that is TCP.
fn tcp(name: &str, own: &End, peer: Option<&End>) -> Line {
    let peer_knows =
        peer.filter(|peer| own.is_vague() && !peer.is_vague() && peer.smc == Some(false));
    let at_peer = peer.map_or(
        " The other end did not say how it sees it: it is not smc check.".to_string(),
        |peer| format!(" The other end ({}): {}", peer.host, peer.sentence),
    );
    let hint = match peer_knows {
        Some(peer) => peer
            .remedy
            .as_ref()
            .map(|remedy| format!("At {name}: {remedy}")),
        None => own.remedy.clone(),
    };
    Line {
        why: Some(own.id.clone()),
        peer_why: peer.map(|peer| peer.id.clone()),
        hint,
        ..Line::fail(
            "path/tcp",
            format!("{name}: TCP. {}{at_peer}", own.sentence),
            "",
        )
    }
}

fn in_words(outcome: &Outcome, times: &Times) -> String {
    let millis = |us: u64| format!("{}.{} ms", us / 1000, us % 1000 / 100);
    // The listener measures nothing.
    if times.bytes == 0 {
        return " The data were right in both directions.".to_string();
    }
    format!(
        " {} bytes in each direction were right. Connected in {}; there in {}, back in {}; a byte there and back in {} us.",
        times.bytes,
        millis(u64::try_from(outcome.connect.as_micros()).unwrap_or(u64::MAX)),
        millis(times.there_us),
        millis(times.back_us),
        times.round_trip_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(id: &str, smc: bool) -> End {
        End {
            smc: Some(smc),
            id: id.to_string(),
            sentence: format!("What {id} means."),
            remedy: (!smc).then(|| format!("Mend {id}.")),
            host: "other".to_string(),
            mtu: Some(9000),
            wrong_at: None,
        }
    }

    fn judged(own: End, rest: Result<End, Failure>) -> Vec<Line> {
        let times = Times {
            bytes: 1 << 20,
            there_us: 1500,
            back_us: 2000,
            round_trip_us: 140,
        };
        judge(
            "host",
            &Outcome {
                own,
                connect: Duration::from_micros(12_345),
                rest: rest.map(|peer| (times, peer)),
                is_connected: true,
            },
        )
    }

    #[test]
    fn a_connection_over_smc_is_well_and_tells_its_times() {
        let lines = judged(end("SMC", true), Ok(end("SMC", true)));
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        assert_eq!(line.id, "path");
        assert!(
            line.sentence
                .contains("Connected in 12.3 ms; there in 1.5 ms, back in 2.0 ms"),
            "{line:?}"
        );
    }

    #[test]
    fn who_knows_the_reason_gives_the_hint() {
        let hint = |own: &str, peer: &str| {
            let line = judged(end(own, false), Ok(end(peer, false))).remove(0);
            assert_eq!(
                (
                    line.id.as_str(),
                    line.why.as_deref(),
                    line.peer_why.as_deref()
                ),
                ("path/tcp", Some(own), Some(peer))
            );
            line.hint.unwrap()
        };
        assert_eq!(hint("PEERNOSMC", "NO_MODULE"), "At host: Mend NO_MODULE.");
        assert_eq!(
            hint("PEERDECL/NOSMCRDEV", "NOSMCRDEV/port-down"),
            "At host: Mend NOSMCRDEV/port-down."
        );
        assert_eq!(
            hint("NOSMCDEV/port-down", "PEERNOSMC"),
            "Mend NOSMCDEV/port-down."
        );
        assert_eq!(hint("PEERDECL/CNFERR", "PEERDECL"), "Mend PEERDECL/CNFERR.");
    }

    #[test]
    fn each_way_to_fail_has_its_id() {
        let id = |own, rest| judged(own, rest).remove(0).id;
        let broken = || Err(Failure::Broken(io::ErrorKind::TimedOut.into()));
        assert_eq!(id(end("SMC", true), broken()), "path/broken");
        assert_eq!(
            id(end("SMC", true), Err(Failure::Stranger)),
            "path/no-report"
        );
        assert_eq!(
            id(end("PEERNOSMC", false), Err(Failure::Stranger)),
            "path/tcp"
        );
        let wrong = End {
            wrong_at: Some(7),
            ..end("SMC", true)
        };
        assert_eq!(id(end("SMC", true), Ok(wrong)), "path/data");
        let small = End {
            mtu: Some(1500),
            ..end("SMC", true)
        };
        let lines = judged(end("SMC", true), Ok(small));
        assert_eq!(
            [lines[0].id.as_str(), lines[1].id.as_str()],
            ["path", "path/mtu-differs"]
        );
    }
}
