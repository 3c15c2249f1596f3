// SPDX-License-Identifier: GPL-2.0

//! Which addresses, ports and devices a socket may have.

use std::net::IpAddr;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::bail;
use anyhow::Context as _;
use anyhow::Result;
use smc_user::Socket;

use super::done;
use super::set;
use super::Effect;
use crate::semantics::Rig;

const IP_FREEBIND: (i32, i32) = (libc::IPPROTO_IP, 15);
const IP_TRANSPARENT: (i32, i32) = (libc::IPPROTO_IP, 19);
const IP_BIND_ADDRESS_NO_PORT: (i32, i32) = (libc::IPPROTO_IP, 24);
const IP_LOCAL_PORT_RANGE: (i32, i32) = (libc::IPPROTO_IP, 51);
const IPV6_TRANSPARENT: (i32, i32) = (libc::IPPROTO_IPV6, 75);
const IPV6_FREEBIND: (i32, i32) = (libc::IPPROTO_IPV6, 78);
const REUSEADDR: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEADDR);
const ATTACH_REUSEPORT_CBPF: (i32, i32) = (libc::SOL_SOCKET, libc::SO_ATTACH_REUSEPORT_CBPF);
const DETACH_REUSEPORT_BPF: (i32, i32) = (libc::SOL_SOCKET, 68);
const REUSEPORT: (i32, i32) = (libc::SOL_SOCKET, libc::SO_REUSEPORT);

/// Ports 50000 to 50099.
const RANGE: [u8; 4] = (50_099_u32 << 16 | 50_000).to_ne_bytes();

/// Binds to an address that is not this machine's, with an option and without.
fn bind_elsewhere(rig: &Rig<'_>, (level, name): (i32, i32)) -> Result<String> {
    let address = SocketAddr::new(rig.unrouted().ip(), 0);
    let without = rig.open()?.bind(address);
    let socket = rig.open()?;
    let set = set(&socket, level, name, 1);
    Ok(format!(
        "{} {} {}",
        done(without),
        done(set),
        done(socket.bind(address))
    ))
}

fn port(socket: &Socket) -> Result<u16> {
    Ok(socket
        .local_address()?
        .to_ip()
        .context("no IP address")?
        .port())
}

/// Two sockets at one port: bound, and listening, with an option at none, at one and at both.
fn two_at_a_port(rig: &Rig<'_>, (level, name): (i32, i32)) -> Result<String> {
    let mut said = Vec::new();
    for (first, second) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (one, other) = (rig.open()?, rig.open()?);
        set(&one, level, name, first)?;
        set(&other, level, name, second)?;
        one.bind(rig.any())?;
        let address = SocketAddr::new(rig.any().ip(), port(&one)?);
        let bound = done(other.bind(address));
        said.push(format!(
            "{bound} {} {}",
            done(one.listen(1)),
            done(other.listen(1))
        ));
    }
    Ok(said.join(", "))
}

/// So many that each listener gets one, if the kernel spreads them.
const CLIENTS: usize = 24;

/// An instruction of classic BPF (`BPF_RET | BPF_K`): always the second listener.
static CHOOSE_SECOND: [u64; 1] = [0x0000_0001_0000_0006];

/// Connects to a listener at the unspecified IPv6 address by its IPv4 address.
fn mapped(rig: &Rig<'_>, v6_only: i32) -> Result<String> {
    if rig.any().is_ipv4() {
        return Ok("of IPv6".into());
    }
    let listener = rig.open_server()?;
    set(&listener, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, v6_only)?;
    listener.bind(rig.any())?;
    listener.listen(1)?;
    let address = SocketAddr::new(IpAddr::from([127, 0, 0, 1]), port(&listener)?);
    let client = crate::netns::inside(rig.netns(false), || {
        let client = rig.context.family.open(address.ip())?;
        Ok(done(client.connect(address)))
    })?;
    Ok(client)
}

pub(super) const EFFECTS: &[Effect] = &[
    Effect::of("SO_REUSEADDR", "two sockets at a port", |rig| {
        two_at_a_port(rig, REUSEADDR)
    }),
    Effect::of("SO_REUSEPORT", "two sockets at a port", |rig| {
        two_at_a_port(rig, REUSEPORT)
    }),
    Effect::of(
        "SO_REUSEPORT",
        "a listener that was shut down for writing gets its share",
        |rig| {
            let (listeners, address) = rig.sharing::<2>()?;
            let shut = done(listeners[0].shutdown(libc::SHUT_WR));
            let [first, second] = rig.shares(&listeners, address, CLIENTS)?[..] else {
                bail!("not two");
            };
            Ok(format!("{shut} {} {}", first > 0, second > 0))
        },
    ),
    Effect::of(
        "SO_ATTACH_REUSEPORT_CBPF",
        "the program chooses the listener, until it is detached",
        |rig| {
            let (listeners, address) = rig.sharing::<3>()?;
            let address_of_program = CHOOSE_SECOND.as_ptr() as usize;
            let program = [1_u64.to_ne_bytes(), address_of_program.to_ne_bytes()].concat();
            let (level, attach) = ATTACH_REUSEPORT_CBPF;
            let attached = done(listeners[0].set_option(level, attach, &program));
            let chosen = rig.shares(&listeners, address, CLIENTS)?;
            let (level, detach) = DETACH_REUSEPORT_BPF;
            let detached = done(set(&listeners[2], level, detach, 0));
            let again = done(set(&listeners[2], level, detach, 0));
            let spread = rig.shares(&listeners, address, CLIENTS)?;
            let all = spread.iter().all(|got| *got > 0);
            Ok(format!("{attached} {chosen:?} {detached} {again} {all}"))
        },
    ),
    Effect::of(
        "SO_REUSEADDR",
        "a port whose connections are still there",
        |rig| {
            let (level, name) = REUSEADDR;
            let listener = rig.open_server()?;
            set(&listener, level, name, 1)?;
            listener.bind(SocketAddr::new(rig.context.addr, 0))?;
            listener.listen(1)?;
            let address = SocketAddr::new(rig.context.addr, port(&listener)?);
            let client = rig.open()?;
            client.connect(address)?;
            let server = listener.accept(0)?;
            drop(listener);
            let without = rig.open_server()?.bind(address);
            let again = rig.open_server()?;
            set(&again, level, name, 1)?;
            let said = format!("{} {}", done(without), done(again.bind(address)));
            drop((client, server));
            Ok(said)
        },
    ),
    Effect::of(
        "SO_BINDTODEVICE",
        "no way to the peer by another device",
        |rig| {
            let (_listener, address) = rig.listener()?;
            let bind = |device: &[u8], wait: Duration| -> Result<String> {
                let socket = rig.open()?;
                socket.set_timeout(wait)?;
                let set = socket.set_option(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device);
                Ok(format!("{} {}", done(set), done(socket.connect(address))))
            };
            let (short, long) = (Duration::from_millis(500), Duration::from_secs(30));
            Ok(format!(
                "{}, {}",
                bind(b"lo", short)?,
                bind(b"wire_a", long)?
            ))
        },
    ),
    Effect::of("IP_FREEBIND", "an address of another machine", |rig| {
        bind_elsewhere(rig, IP_FREEBIND)
    }),
    Effect::of("IP_TRANSPARENT", "an address of another machine", |rig| {
        bind_elsewhere(rig, IP_TRANSPARENT)
    }),
    Effect::of("IPV6_FREEBIND", "an address of another machine", |rig| {
        bind_elsewhere(rig, IPV6_FREEBIND)
    }),
    Effect::of("IPV6_TRANSPARENT", "an address of another machine", |rig| {
        bind_elsewhere(rig, IPV6_TRANSPARENT)
    }),
    Effect::of("IP_BIND_ADDRESS_NO_PORT", "no port until connect", |rig| {
        let (_listener, address) = rig.listener()?;
        let socket = rig.open()?;
        let (level, name) = IP_BIND_ADDRESS_NO_PORT;
        set(&socket, level, name, 1)?;
        socket.bind(rig.any())?;
        let before = port(&socket)?;
        socket.connect(address)?;
        Ok(format!("{before} {}", port(&socket)? != 0))
    }),
    Effect::of("IP_LOCAL_PORT_RANGE", "the port is one of these", |rig| {
        let (_listener, address) = rig.listener()?;
        let mut said = Vec::new();
        for is_bound in [false, true] {
            let socket = rig.open()?;
            let (level, name) = IP_LOCAL_PORT_RANGE;
            socket.set_option(level, name, &RANGE)?;
            if is_bound {
                socket.bind(rig.any())?;
            }
            socket.connect(address)?;
            said.push((50_000..=50_099).contains(&port(&socket)?).to_string());
        }
        Ok(said.join(" "))
    }),
    Effect::of("IPV6_V6ONLY", "off: connections over IPv4", |rig| {
        mapped(rig, 0)
    }),
    Effect::of("IPV6_V6ONLY", "on: none over IPv4", |rig| mapped(rig, 1)),
];
