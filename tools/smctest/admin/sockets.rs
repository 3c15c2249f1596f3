// SPDX-License-Identifier: GPL-2.0

//! The sockets that `sock_diag` lists for a namespace, and its answers to malformed requests.

use std::io;

use anyhow::Result;
use libc::NETLINK_SOCK_DIAG;
use smc_tools::diag::MESSAGE_LEN;
use smc_tools::diag::REQUEST_LEN;
use smc_tools::diag::SOCK_DIAG_BY_FAMILY;
use smc_tools::netlink::attributes;
use smc_tools::netlink::get;
use smc_tools::netlink::Netlink;
use smc_tools::netlink::Reply;
use smc_tools::netlink::NLM_F_ACK;
use smc_tools::netlink::NLM_F_DUMP;
use smc_uapi::AF_SMC;
use smc_uapi::SMC_DIAG_CONNINFO as CONNINFO;
use smc_uapi::SMC_DIAG_DMBINFO;
use smc_uapi::SMC_DIAG_LGRINFO;

use super::show;

/// Minimum receive buffer for one part of a dump, bytes.
const LEAST_PART_LEN: usize = 1 << 15;

/// The extensions of a request: connection, link group, shared memory.
const EXTENSIONS: u8 =
    1 << (CONNINFO - 1) | 1 << (SMC_DIAG_LGRINFO - 1) | 1 << (SMC_DIAG_DMBINFO - 1);

/// Prints the sockets of the calling thread's namespace.
pub(super) fn list(title: &str) -> Result<()> {
    let replies = ask(NLM_F_DUMP, &request(EXTENSIONS, REQUEST_LEN))?;
    println!("{title}: {} sockets", replies.len());
    let mut lines: Vec<_> = replies.iter().map(line).collect();
    lines.sort_unstable();
    lines.iter().for_each(|line| println!("  {line}"));
    Ok(())
}

/// Sends unusual requests; prints how many sockets were returned, with which attributes.
pub(super) fn ask_oddly() {
    const ONE_BIT: [u16; 2] = [0x100, 0x200];
    // The C module reads beyond the end of a request that contains only the family.
    let cases = [
        ("one bit of the flag", ONE_BIT[0], request(0, REQUEST_LEN)),
        ("the other bit", ONE_BIT[1], request(0, REQUEST_LEN)),
        ("no list", NLM_F_ACK, request(0, REQUEST_LEN)),
        ("all extensions", NLM_F_DUMP, request(0xff, REQUEST_LEN)),
        ("no extension", NLM_F_DUMP, request(0, REQUEST_LEN)),
        ("half of the family", NLM_F_DUMP, request(0, 1)),
        ("nothing", NLM_F_DUMP, Vec::new()),
        ("more than there is", NLM_F_DUMP, request(0, 400)),
    ];
    for (name, flags, payload) in cases {
        match ask(flags, &payload) {
            Ok(replies) => {
                let kinds = replies.iter().map(|reply| {
                    let rest = reply.payload.get(MESSAGE_LEN..).unwrap_or_default();
                    attributes(rest).map(|(kind, _)| kind).collect::<Vec<_>>()
                });
                let mut kinds: Vec<_> = kinds.collect();
                kinds.sort_unstable();
                println!("sock_diag, {name}: {kinds:?}");
            }
            Err(error) => println!("sock_diag, {name}: {}", show::name(&error)),
        }
    }
}

fn ask(flags: u16, payload: &[u8]) -> io::Result<Vec<Reply>> {
    Netlink::open(NETLINK_SOCK_DIAG)?.ask(SOCK_DIAG_BY_FAMILY, flags, payload)
}

/// Opens a `sock_diag` socket that receives dumps in parts of `part_len` bytes, at least
/// [`LEAST_PART_LEN`].
pub(super) fn open(part_len: usize) -> io::Result<Netlink> {
    let mut netlink = Netlink::open(NETLINK_SOCK_DIAG)?;
    netlink.set_buffer_len(part_len.max(LEAST_PART_LEN));
    Ok(netlink)
}

/// Begins a dump of all sockets with all extensions.
pub(super) fn begin(netlink: &mut Netlink) -> io::Result<()> {
    let request = request(EXTENSIONS, REQUEST_LEN);
    netlink.begin_dump(SOCK_DIAG_BY_FAMILY, &request)
}

/// Returns the cookie, which identifies a socket.
pub(super) fn cookie(message: &[u8]) -> Option<Vec<u8>> {
    message.get(44..52).map(<[u8]>::to_vec)
}

fn request(extensions: u8, len: usize) -> Vec<u8> {
    let mut request = vec![0; len.max(4)];
    // CAST: The number is small.
    request[0] = AF_SMC as u8;
    request[3] = extensions;
    request.truncate(len);
    request
}

/// Formats a socket as one line. Omits what differs in each run (cookie, inode, token) and the size
/// of the send buffer, which our module assigns only while data is in flight.
fn line(reply: &Reply) -> String {
    let bytes = &reply.payload;
    let byte = |at: usize| bytes.get(at).copied().unwrap_or(0);
    let port = |at| get::<u16>(bytes, at).map_or(0, u16::from_be);
    let part = |at: usize, len: usize| show::hex(bytes.get(at..at + len).unwrap_or_default());
    let mut line = format!(
        "type {} family {} state {} mode {} shutdown {} ports {} {} from {} to {} if {} uid {} file {}",
        reply.kind,
        byte(0),
        byte(1),
        byte(2),
        byte(3),
        port(4),
        port(6),
        part(8, 16),
        part(24, 16),
        get::<u32>(bytes, 40).unwrap_or(0),
        get::<u32>(bytes, 52).unwrap_or(0),
        get::<u64>(bytes, 56).is_some_and(|inode| inode != 0),
    );
    for (kind, value) in attributes(bytes.get(MESSAGE_LEN..).unwrap_or_default()) {
        let text = match kind {
            CONNINFO => conn(value),
            _ => show::hex(value),
        };
        line.push_str(&format!(" {kind}={text}"));
    }
    line
}

/// Formats the RMBE sizes, the four cursors and the flags.
fn conn(value: &[u8]) -> String {
    let part = |at: usize, len: usize| show::hex(value.get(at..at + len).unwrap_or_default());
    format!(
        "{} bytes, elements {} cursors {} flags {}",
        value.len(),
        part(8, 8),
        part(16, 32),
        part(48, 4),
    )
}
