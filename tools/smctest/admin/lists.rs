// SPDX-License-Identifier: GPL-2.0

//! Connections over SMC and TCP, and the netlink lists that contain them.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::Duration;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::diag;
use smc_tools::diag::Mode;
use smc_tools::diag::State;
use smc_tools::genl::Family as Netlink;
use smc_tools::genl::SMC_FAMILY;
use smc_tools::path::Path;
use smc_tools::view::Module;
use smc_user::Address;
use smc_user::Socket;

use super::show;
use super::show::Hidden;
use super::show::Names;
use super::sockets;
use crate::context::Context;
use crate::family::Family;
use crate::netns;

/// The lists: netlink command, title, and attributes whose values differ from run to run.
const LISTS: [(u8, &str, Hidden); 7] = [
    (2, "link groups", GROUP),
    (3, "links", LINK),
    (4, "link groups over internal shared memory", NONE),
    (5, "devices for internal shared memory", NONE),
    (6, "devices", NONE),
    (7, "statistics", STATS),
    (8, "fallbacks", NONE),
];

const NONE: Hidden = Hidden {
    values: &[],
    ids: &[],
};

/// Group id and network namespace cookie; bytes of buffers, which each module pools differently.
const GROUP: Hidden = Hidden {
    values: &["2.12", "2.13"],
    ids: &[("2.1", "group"), ("2.9", "namespace")],
};

/// The same for the group before the link; the link ids of both sides.
const LINK: Hidden = Hidden {
    values: GROUP.values,
    ids: &[
        ("2.1", "group"),
        ("2.9", "namespace"),
        ("3.8", "link"),
        ("3.9", "link"),
    ],
};

/// Counts of buffers allocated and reused, which each module pools differently: ours shares RMBs,
/// and assigns a larger send buffer only while there is data to send.
const STATS: Hidden = Hidden {
    values: &[
        "7.2.5.5", "7.2.5.6", "7.2.6.5", "7.2.6.6", "7.2.1.4", "7.2.1.5", "7.2.21",
    ],
    ids: &[],
};

/// Local port of the first client, fixed so that ports can be compared.
const CLIENT_PORT: u16 = 7900;

/// Both ends of a connection.
pub(super) struct Pair {
    client: Socket,
    server: Socket,
}

pub(super) fn run(context: &Context, links: usize) -> Result<()> {
    let names = &mut Names::default();
    let mut lists = |when| lists(when, context, names);
    lists("before")?;
    let smc = pair(context, 0, context.family)?;
    await_links(links)?;
    lists("one connection")?;
    if context.family != Family::Smc {
        smc.expect_listed(context)?;
    }
    let second = pair(context, 1, context.family)?;
    let tcp = pair(context, 2, Family::Tcp)?;
    smc.exchange()?;
    lists("two connections, one over TCP, after data")?;
    smc.client.shutdown(libc::SHUT_WR)?;
    thread::sleep(Duration::from_millis(300));
    lists("half closed")?;
    netns::inside(context.client_netns.as_deref(), || {
        sockets::ask_oddly();
        Ok(())
    })?;
    drop((smc, second, tcp));
    thread::sleep(Duration::from_secs(1));
    lists("after all closed")
}

/// Waits until the two link groups, one of each end, have `links` active links each.
fn await_links(links: usize) -> Result<()> {
    for _ in 0..100 {
        let all = Module::open()?.links()?;
        let active = all.iter().filter(|(_, link)| link.state == "active");
        if active.count() == 2 * links {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(200));
    }
    bail!("no {links} links in each group")
}

/// Connects, with a client of that family, to the port `number` above the configured one.
pub(super) fn pair(context: &Context, number: u16, family: Family) -> Result<Pair> {
    let port = context.port + number;
    let address = SocketAddr::new(context.addr, port);
    let listener = netns::inside(context.server_netns.as_deref(), || {
        let listener = context.server_family().open(context.addr)?;
        listener.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        listener.bind(address)?;
        listener.listen(8)?;
        Ok(listener)
    })?;
    let client = netns::inside(context.client_netns.as_deref(), || {
        let client = family.open(context.addr)?;
        client.set_option_int(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        let any = match context.addr.is_ipv6() {
            true => "::".parse(),
            false => "0.0.0.0".parse(),
        };
        client.bind(SocketAddr::new(any?, CLIENT_PORT + number))?;
        client.set_timeout(Duration::from_secs(20))?;
        client.connect(address).context("connect")?;
        Ok(client)
    })?;
    let server = listener.accept(0).context("accept")?;
    server.set_timeout(Duration::from_secs(20))?;
    Ok(Pair { client, server })
}

impl Pair {
    /// Transfers some data of different sizes in both directions. What is read before the last data are sent is more
    /// than a quarter of an RMBE: with immediate data, less than that is acknowledged later than by the C module.
    fn exchange(&self) -> Result<()> {
        for len in [1, 4000, 20_000, 20_000] {
            carry(&self.client, &self.server, len)?;
            carry(&self.server, &self.client, len)?;
        }
        Ok(())
    }
}

impl Pair {
    /// Checks that our module lists both ends, each in its namespace and with its addresses.
    fn expect_listed(&self, context: &Context) -> Result<()> {
        // Only our module tells the group of a socket.
        if !matches!(Path::of(&self.client)?, Path::SmcR(Some(_))) {
            return Ok(());
        }
        for (netns, socket) in [
            (&context.client_netns, &self.client),
            (&context.server_netns, &self.server),
        ] {
            let inode = File::from(OwnedFd::from(socket.duplicate()?))
                .metadata()?
                .ino();
            let listed = netns::inside(netns.as_deref(), || Ok(diag::sockets()?))?;
            let entry = listed.iter().find(|entry| entry.inode == inode);
            let entry = entry.context("an end is not listed")?;
            let ip = |address: Address| address.to_ip().context("no IP address");
            let ends = (ip(socket.local_address()?)?, ip(socket.peer_address()?)?);
            ensure!(
                (entry.local, entry.peer) == ends,
                "{} to {} is listed where the end is {ends:?}",
                entry.local,
                entry.peer
            );
            ensure!(
                entry.mode == Mode::SmcR && entry.state == State::ACTIVE,
                "{entry:?}"
            );
        }
        Ok(())
    }
}

fn carry(from: &Socket, to: &Socket, len: usize) -> Result<()> {
    let data = vec![7; len];
    ensure!(from.send(&data, 0)? == len, "a short send");
    let mut buffer = vec![0; len];
    let got = to.recv(&mut buffer, libc::MSG_WAITALL)?;
    ensure!(got == len, "a short read: {got} of {len}");
    Ok(())
}

/// Prints the lists of both ends.
fn lists(when: &str, context: &Context, names: &mut Names) -> Result<()> {
    for netns in [&context.client_netns, &context.server_netns] {
        let end = netns.as_deref().unwrap_or("here");
        netns::inside(netns.as_deref(), || {
            let mut family = Netlink::open(SMC_FAMILY).context("no SMC module")?;
            for (command, name, hidden) in LISTS {
                show::list(
                    &format!("{when}, {end}, {name}"),
                    hidden,
                    names,
                    family.dump(command),
                );
            }
            // The C module has connections of IPPROTO_SMC without addresses, and accepts sockets of AF_SMC: see
            // `Pair::expect_listed`.
            match context.family {
                Family::Smc => sockets::list(&format!("{when}, {end}, sockets")),
                _ => Ok(()),
            }
        })?;
    }
    Ok(())
}
