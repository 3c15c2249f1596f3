// SPDX-License-Identifier: GPL-2.0

//! TCP-MD5, TCP-AO, TCP_REPAIR, TLS, and socket options that apply to the TCP connection.

use std::net::IpAddr;
use std::net::SocketAddr;

use anyhow::Result;
use smc_tools::path::Path;
use smc_user::Errno;
use smc_user::Socket;

use crate::family::Family;
use crate::netns;
use crate::semantics::answer::answer;
use crate::semantics::rig::local;
use crate::semantics::rig::Rig;
use crate::semantics::Row;

const TCP_MD5SIG: i32 = 14;
const TCP_REPAIR: i32 = 19;
const TCP_AO_ADD_KEY: i32 = 38;
const SOL_TLS: i32 = 282;
const TLS_TX: i32 = 1;
const TLS_RX: i32 = 2;

/// Returns a `struct tcp_md5sig` with a fixed key, for all ports of a peer.
fn key_for(peer: IpAddr) -> Vec<u8> {
    const KEY: &[u8] = b"a key of both";
    let mut bytes = vec![0; 216];
    match peer {
        IpAddr::V4(ip) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
            bytes[4..8].copy_from_slice(&ip.octets());
        }
        IpAddr::V6(ip) => {
            bytes[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
            bytes[8..24].copy_from_slice(&ip.octets());
        }
    }
    bytes[130..132].copy_from_slice(&(KEY.len() as u16).to_ne_bytes());
    bytes[136..136 + KEY.len()].copy_from_slice(KEY);
    bytes
}

fn set_key(socket: &Socket, peer: IpAddr) -> smc_user::Result<()> {
    socket.set_option(libc::SOL_TCP, TCP_MD5SIG, &key_for(peer))
}

/// Returns a `struct tcp_ao_add` with a fixed key, for all ports of a peer.
fn ao_key_for(peer: IpAddr) -> Vec<u8> {
    const ALGORITHM: &[u8] = b"hmac(sha1)";
    const KEY: &[u8] = b"a key of both";
    const ID: u8 = 100;
    const MAC_LEN: u8 = 12;
    let mut bytes = vec![0; 288];
    let prefix_len = match peer {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    };
    // The address is where TCP_MD5SIG has it.
    bytes[..128].copy_from_slice(&key_for(peer)[..128]);
    bytes[128..128 + ALGORITHM.len()].copy_from_slice(ALGORITHM);
    bytes[202..208].copy_from_slice(&[prefix_len, ID, ID, MAC_LEN, 0, KEY.len() as u8]);
    bytes[208..208 + KEY.len()].copy_from_slice(KEY);
    bytes
}

fn set_ao_key(socket: &Socket, peer: IpAddr) -> smc_user::Result<()> {
    socket.set_option(libc::SOL_TCP, TCP_AO_ADD_KEY, &ao_key_for(peer))
}

/// Connects two sockets that have keys of this kind; returns as [`by_tcp`] does.
fn signed(rig: &Rig<'_>, set: fn(&Socket, IpAddr) -> smc_user::Result<()>) -> Result<String> {
    let ip = client_ip(rig)?;
    let listener = rig.open_server()?;
    set(&listener, ip)?;
    listener.bind(SocketAddr::new(rig.context.addr, 0))?;
    listener.listen(16)?;
    let client = rig.open()?;
    set(&client, rig.context.addr)?;
    client.connect(local(&listener)?)?;
    by_tcp(&client, &listener.accept(0)?)
}

/// Returns the address of a client.
fn client_ip(rig: &Rig<'_>) -> Result<IpAddr> {
    Ok(local(&rig.pair()?.client)?.ip())
}

/// Returns whether data on a connection passes over TCP, and what arrives.
fn by_tcp(client: &Socket, server: &Socket) -> Result<String> {
    let mut buffer = [0; 8];
    client.send(b"signed", 0)?;
    let len = server.recv(&mut buffer, 0)?;
    let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
    answer![
        !Path::of(client)?.is_smc(),
        !Path::of(server)?.is_smc(),
        text
    ]
}

/// Returns whether an option that only TCP has was set over TCP, or refused over SMC.
fn is_for_tcp(socket: &Socket, result: smc_user::Result<()>) -> Result<bool> {
    Ok(match Path::of(socket)?.is_smc() {
        true => result == Err(Errno(libc::EOPNOTSUPP)),
        false => result.is_ok(),
    })
}

/// Returns a `struct tls12_crypto_info_aes_gcm_128`.
fn tls_keys() -> [u8; 40] {
    let mut bytes = [7; 40];
    // TLS 1.2, AES-GCM-128; then initialisation vector, key, salt, and first record number.
    bytes[..4].copy_from_slice(&[0x03, 0x03, 51, 0]);
    bytes[32..].fill(0);
    bytes
}

/// Opens a connection over TCP: its client does not support SMC.
fn plain_pair(rig: &Rig<'_>) -> Result<(Socket, Socket)> {
    let (listener, address) = rig.listener()?;
    let client = Family::Tcp.open(rig.context.addr)?;
    client.connect(address)?;
    Ok((client, listener.accept(0)?))
}

pub(super) const ROWS: &[Row] = &[
    Row::same("keys of both ends: by TCP", "true true signed", |rig| {
        signed(rig, set_key)
    })
    .c_is_wrong("sends the data by RDMA, where nothing signs them"),
    Row::same(
        "keys of TCP-AO of both ends: by TCP",
        "true true signed",
        |rig| signed(rig, set_ao_key),
    ),
    Row::same(
        "a key that the listener gets later: by TCP",
        "true true signed",
        |rig| {
            let ip = client_ip(rig)?;
            let (listener, address) = rig.listener()?;
            set_key(&listener, ip)?;
            let client = rig.open()?;
            set_key(&client, rig.context.addr)?;
            client.connect(address)?;
            by_tcp(&client, &listener.accept(0)?)
        },
    )
    .c_is_wrong("sends the data by RDMA, where nothing signs them"),
    Row::same("a key on a connection, refused over SMC", "true", |rig| {
        let client = rig.pair()?.client;
        answer![is_for_tcp(&client, set_key(&client, rig.context.addr))?]
    })
    .c_is_wrong("takes the key and sends the data by RDMA, where nothing signs them"),
    Row::same("repair of a connection, refused over SMC", "true", |rig| {
        let client = rig.pair()?.client;
        let on = client.set_option_int(libc::SOL_TCP, TCP_REPAIR, 1);
        let _ = client.set_option_int(libc::SOL_TCP, TCP_REPAIR, 0);
        answer![is_for_tcp(&client, on)?]
    })
    .c_is_wrong("repairs the TCP connection, over which no data go"),
    Row::same(
        "a TLS record after a fallback",
        "ok ok ok 6 record",
        |rig| {
            let (client, server) = plain_pair(rig)?;
            client.set_option(libc::SOL_TCP, libc::TCP_ULP, b"tls")?;
            client.set_option(SOL_TLS, TLS_TX, &tls_keys())?;
            let ulp = server.set_option(libc::SOL_TCP, libc::TCP_ULP, b"tls");
            let rx = server.set_option(SOL_TLS, TLS_RX, &tls_keys());
            let tx = server.set_option(SOL_TLS, TLS_TX, &tls_keys());
            client.send(b"record", 0)?;
            let mut buffer = [0; 64];
            let len = server.recv(&mut buffer, 0)?;
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            answer![ulp, rx, tx, len, text]
        },
    ),
    Row::same(
        "a protocol that is for sockets of the kernel, refused after a fallback",
        "true ok data",
        |rig| {
            let (client, server) = plain_pair(rig)?;
            let ulp = server.set_option(libc::SOL_TCP, libc::TCP_ULP, b"mptcp");
            // It would call the rest of MPTCP, which is not there.
            let space = server.set_option_int(libc::SOL_SOCKET, libc::SO_SNDBUF, 65_536);
            client.send(b"data", 0)?;
            let mut buffer = [0; 8];
            let len = server.recv(&mut buffer, 0)?;
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            answer![ulp.is_err(), space, text]
        },
    ),
    Row::same(
        "TLS after a fallback, a reset, and listen",
        "ok ok ECONNRESET EINVAL ok",
        |rig| {
            let (client, server) = plain_pair(rig)?;
            let ulp = server.set_option(libc::SOL_TCP, libc::TCP_ULP, b"tls");
            let tx = server.set_option(SOL_TLS, TLS_TX, &tls_keys());
            client.set_linger(true, 0)?;
            drop(client);
            let received = server.recv(&mut [0; 8], 0);
            let listens = server.listen(1);
            // Tells both who has TCP's events.
            let space = server.set_option_int(libc::SOL_SOCKET, libc::SO_SNDBUF, 65_536);
            answer![ulp, tx, received, listens, space]
        },
    ),
    Row::same(
        "device, mark and priority reach the connection",
        "ok ok ok signed",
        |rig| {
            let (listener, address) = rig.listener()?;
            let client = rig.open()?;
            let device = netns::inside(rig.context.client_netns.as_deref(), || {
                Ok(client.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"wire_a\0"))
            })?;
            let mark = client.set_option_int(libc::SOL_SOCKET, libc::SO_MARK, 7);
            let priority = client.set_option_int(libc::SOL_SOCKET, libc::SO_PRIORITY, 5);
            client.connect(address)?;
            let server = listener.accept(0)?;
            client.send(b"signed", 0)?;
            let mut buffer = [0; 8];
            let len = server.recv(&mut buffer, 0)?;
            let text = String::from_utf8_lossy(&buffer[..len]).into_owned();
            answer![device, mark, priority, text]
        },
    ),
];
