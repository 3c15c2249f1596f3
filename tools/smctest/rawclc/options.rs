// SPDX-License-Identifier: GPL-2.0

//! Odd SMC options in SYN and SYN-ACK. Whatever they are, both ends have to take the connection for the same: the
//! kernel answers a SYN that asks for SMC by the rules of TCP, and sends no message of the handshake to a peer that has
//! not.

use std::net::SocketAddr;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::Socket;

use crate::family::Family;
use crate::netns;

use super::calls::port_of;
use super::messages::Messages;
use super::peer::answer_exchange;
use super::peer::exchange;
use super::peer::Peer;
use super::peer::ANSWER;
use super::tcp::RawTcp;
use super::Test;

/// The option after two NOPs.
const SMC: &[u8] = &[1, 1, 254, 6, 0xe2, 0xd4, 0xc3, 0xd9];

/// Maximum segment size.
const MSS: &[u8] = &[2, 4, 0x05, 0x00];

pub(super) const TESTS: &[Test] = &[
    ("the option in the middle asks for SMC", |peer, wire| {
        asks(peer, wire, &[&[SMC, MSS].concat()])
    }),
    ("the option twice asks for SMC once", |peer, wire| {
        asks(peer, wire, &[&[MSS, SMC, SMC].concat()])
    }),
    ("longer than needed it asks for SMC", |peer, wire| {
        asks(peer, wire, &[&[254, 8, 0xe2, 0xd4, 0xc3, 0xd9, 0, 0]])
    }),
    (
        "behind another experimental option it asks for SMC",
        |peer, wire| {
            asks(
                peer,
                wire,
                &[&[&[254, 8, 0x10, 0xd4, 0xc3, 0xd9, 0, 0], SMC].concat()],
            )
        },
    ),
    (
        "behind 32 bytes of other options it asks for SMC",
        |peer, wire| asks(peer, wire, &[&[&[1; 32], SMC].concat()]),
    ),
    (
        "a SYN that is sent again without it gets the same answer",
        |peer, wire| asks(peer, wire, &[&[MSS, SMC].concat(), MSS]),
    ),
    ("a SYN with data asks for SMC", |peer, wire| {
        let flow = peer.next_flow(peer.context.port);
        let mut tcp = RawTcp::connect_by(wire, flow, &[&[MSS, SMC].concat()], b"1")?;
        ensure!(tcp.peer_has_smc, "the SYN-ACK has no SMC option");
        tcp.reset()
    }),
    (
        "a SYN that is sent again with it is one without",
        |peer, wire| is_tcp(peer, wire, &[MSS, &[MSS, SMC].concat()]),
    ),
    ("a shorter option is another one", |peer, wire| {
        is_tcp(peer, wire, &[&[254, 4, 0xe2, 0xd4]])
    }),
    ("an option of odd length is another one", |peer, wire| {
        is_tcp(peer, wire, &[&[254, 7, 0xe2, 0xd4, 0xc3, 0xd9, 0, 1]])
    }),
    (
        "an option behind the end of options is none",
        |peer, wire| is_tcp(peer, wire, &[&[&[0, 1, 1, 1], SMC].concat()]),
    ),
    (
        "another magic number is another option, whatever it begins with",
        |peer, wire| {
            for first in 0..=255u8 {
                if first != SMC[4] {
                    is_tcp(peer, wire, &[&[1, 1, 254, 6, first, 0xd4, 0xc3, 0xd9]])
                        .with_context(|| format!("first byte {first:#04x}"))?;
                }
            }
            Ok(())
        },
    ),
    (
        "a TCP server with TCP_SAVE_SYN answers for TCP, and reads the SYN as it came",
        |peer, wire| {
            for first in 0..=255u8 {
                saved(peer, wire, Family::Tcp, 1, first)
                    .with_context(|| format!("first byte {first:#04x}"))?;
            }
            saved(peer, wire, Family::Tcp, 2, SMC[4])
        },
    ),
    ("so does an SMC server", |peer, wire| {
        let family = peer.context.family;
        saved(peer, wire, family, 1, SMC[4])?;
        saved(peer, wire, family, 2, SMC[4])?;
        saved(peer, wire, family, 1, 0)
    }),
    (
        "a client that has not asked for SMC has none",
        |peer, wire| connects_by_tcp(peer, Family::Tcp, |flow| RawTcp::accept(wire, flow)),
    ),
    ("a client that gets no option has TCP", |peer, wire| {
        connects_by_tcp(peer, peer.context.family, |flow| {
            RawTcp::accept_by(wire, flow, MSS)
        })
    }),
    (
        "a client that gets one of odd length has TCP",
        |peer, wire| {
            let odd = [254, 7, 0xe2, 0xd4, 0xc3, 0xd9, 0, 1];
            connects_by_tcp(peer, peer.context.family, |flow| {
                RawTcp::accept_by(wire, flow, &odd)
            })
        },
    ),
    (
        "a client that gets one behind the end of options has TCP",
        |peer, wire| {
            let behind = [&[0, 1, 1, 1], SMC].concat();
            connects_by_tcp(peer, peer.context.family, |flow| {
                RawTcp::accept_by(wire, flow, &behind)
            })
        },
    ),
    (
        "a client that gets the option twice begins the handshake",
        |peer, wire| {
            let twice = [MSS, SMC, SMC].concat();
            let connect = |address| {
                let socket = peer.context.family.open(peer.context.addr)?;
                socket.set_timeout(ANSWER)?;
                socket.connect(address)?;
                exchange(&socket)
            };
            peer.serve_by(
                |flow| RawTcp::accept_by(wire, flow, &twice),
                connect,
                |tcp| {
                    tcp.message(ANSWER)?.context("no proposal")?;
                    tcp.send(&Messages::of(peer.address, 1).decline)?;
                    answer_exchange(tcp)?;
                    tcp.reset()
                },
            )
        },
    ),
    (
        "a peer without SMC that connects at the same time has TCP",
        |peer, wire| {
            connects_by_tcp(peer, peer.context.family, |flow| {
                RawTcp::cross(wire, flow, MSS)
            })
        },
    ),
];

/// The server's SYN-ACKs, as many as attempts, offer SMC.
fn asks(peer: &Peer<'_>, wire: &Socket, attempts: &[&[u8]]) -> Result<()> {
    let flow = peer.next_flow(peer.context.port);
    let mut tcp = RawTcp::connect_by(wire, flow, attempts, &[])?;
    ensure!(tcp.peer_has_smc, "the SYN-ACK has no SMC option");
    tcp.reset()
}

/// The server takes a connection for one of TCP.
fn is_tcp(peer: &Peer<'_>, wire: &Socket, attempts: &[&[u8]]) -> Result<()> {
    let flow = peer.next_flow(peer.context.port);
    let mut tcp = RawTcp::connect_by(wire, flow, attempts, &[])?;
    ensure!(!tcp.peer_has_smc, "the SYN-ACK has the SMC option");
    peer.one_over_tcp(&mut tcp)?;
    tcp.reset()
}

/// A server that saves each SYN reads it as it came. The magic number of its option begins with `first`.
fn saved(peer: &Peer<'_>, wire: &Socket, family: Family, mode: i32, first: u8) -> Result<()> {
    const TCP_SAVE_SYN: i32 = 27;
    const TCP_SAVED_SYN: i32 = 28;
    /// Bytes of the headers before the TCP header.
    const ETHERNET: usize = 14;
    const IP: usize = 20;
    const TCP: usize = 20;

    let listener = netns::inside(peer.context.server_netns.as_deref(), || {
        let listener = family.open(peer.context.addr)?;
        listener.set_option_int(libc::SOL_TCP, TCP_SAVE_SYN, mode)?;
        listener.bind(SocketAddr::new(peer.context.addr, 0))?;
        listener.listen(8)?;
        Ok(listener)
    })?;
    listener.set_timeout(ANSWER)?;
    let got = listener.option_int(libc::SOL_TCP, TCP_SAVE_SYN)?;
    ensure!(got == mode, "TCP_SAVE_SYN is {got}, not {mode}");

    let options = [1, 1, 254, 6, first, 0xd4, 0xc3, 0xd9];
    let is_smc = family != Family::Tcp && options == SMC;
    let flow = peer.next_flow(port_of(&listener)?);
    let mut tcp = RawTcp::connect_by(wire, flow, &[&options], &[])?;
    ensure!(
        tcp.peer_has_smc == is_smc,
        "the SYN-ACK has {} SMC option",
        if is_smc { "no" } else { "the" }
    );
    if is_smc {
        tcp.send(&Messages::of(peer.address, 1).decline)?;
    }
    let server = listener.accept(0)?;
    let link = if mode == 2 { ETHERNET } else { 0 };
    let (_, syn) = server.option_of_len(libc::SOL_TCP, TCP_SAVED_SYN, 200)?;
    ensure!(
        syn.len() == link + IP + TCP + options.len(),
        "{} bytes were saved",
        syn.len()
    );
    let header = &syn[link + IP..];
    ensure!(
        header[13] == 2,
        "the flags of the SYN are {:#04x}",
        header[13]
    );
    ensure!(
        header[TCP..] == options,
        "the options of the SYN are {:02x?}",
        &header[TCP..]
    );
    tcp.reset()
}

/// A client of the kernel takes a connection for one of TCP.
fn connects_by_tcp<'w>(
    peer: &Peer<'_>,
    family: Family,
    accept: impl FnOnce(super::frame::Flow) -> Result<RawTcp<'w>>,
) -> Result<()> {
    let connect = |address| {
        let socket = family.open(peer.context.addr)?;
        socket.set_timeout(ANSWER)?;
        socket.connect(address)?;
        ensure!(!Path::of(&socket)?.is_smc(), "the path is SMC");
        exchange(&socket)
    };
    peer.serve_by(accept, connect, |tcp| {
        answer_exchange(tcp)?;
        tcp.reset()
    })
}
