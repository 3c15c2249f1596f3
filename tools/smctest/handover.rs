// SPDX-License-Identifier: GPL-2.0

//! `smctest handover`: ownership of the RMBE when a handshake that joins a link group fails. The
//! peer is a kernel that writes by RDMA; a firewall drops or modifies its CONFIRM.

use std::net::SocketAddr;
use std::process::Command;
use std::thread;
use std::time::Duration;
use std::time::Instant;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::poll_fd;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::ktap::Ktap;
use crate::netns;
use crate::semantics::await_queued;

/// Longer than the server waits for a CONFIRM.
const GIVEN_UP: Duration = Duration::from_secs(9);

/// Time until TCP has retransmitted a segment that was dropped during [`GIVEN_UP`].
const REPEATED: Duration = Duration::from_secs(40);

/// Time for events that occur immediately.
const SOON: Duration = Duration::from_secs(5);

/// Fills most of an RMBE, bytes.
const LEN: usize = 60_000;

/// Fields of a CONFIRM in the syntax of nftables; offsets and lengths in bits.
const RKEY: &str = "@ih,328,32";
const INDEX: &str = "@ih,360,8";

/// Matches a CONFIRM by its first five bytes.
const CONFIRM: &str = "@ih,0,40 0xe2d4c3d903";

type Test = (&'static str, fn(&Rig<'_>) -> Result<()>);

const TESTS: &[Test] = &[
    // While the first RMB has a free RMBE.
    ("a confirm with an element that is in use", in_use),
    (
        "a client whose confirm is late writes to nobody's element",
        late,
    ),
    ("a confirm with a key that was never announced", unknown),
];

/// Listeners, and a connection whose link group the others join.
struct Rig<'a> {
    context: &'a Context,
    /// Subject to the firewall rules.
    listener: Socket,
    /// Not subject to them.
    other: Socket,
    other_address: SocketAddr,
    client: Socket,
    server: Socket,
}

/// Runs the tests; prints KTAP.
pub(crate) fn run(context: &Context) -> Result<()> {
    let listener = context.listen(16)?;
    let other_address = SocketAddr::new(context.addr, context.port + 1);
    let other = netns::inside(context.server_netns.as_deref(), || {
        let other = context.server_family().open(context.addr)?;
        other.bind(other_address)?;
        other.listen(16)?;
        Ok(other)
    })?;
    netns::enter(context.client_netns.as_deref())?;
    let client = context.connect()?;
    let server = listener.accept(0)?;
    let rig = Rig {
        context,
        listener,
        other,
        other_address,
        client,
        server,
    };
    let mut ktap = Ktap::start(TESTS.len());
    for (name, test) in TESTS {
        let result = test(&rig).and_then(|()| rig.still_works());
        ktap.result(name, result.map_err(|error| format!("{error:#}")));
    }
    match ktap.finish() {
        0 => Ok(()),
        failed => bail!("{failed} failed"),
    }
}

impl Rig<'_> {
    /// Connects; the firewall applies `what` to the CONFIRM. The client's connection is over SMC, or
    /// none if the server's reset arrived before connect(2) had returned.
    fn connect(&self, what: &str) -> Result<(Firewall, Option<Socket>)> {
        let firewall = Firewall::begin(self.context.port, what)?;
        let socket = self.context.family.open(self.context.addr)?;
        socket.set_timeout(SOON)?;
        match socket.connect(self.context.address()) {
            Err(Errno::ECONNRESET) => return Ok((firewall, None)),
            result => result.context("connect(2)")?,
        }
        ensure!(Path::of(&socket)?.is_smc(), "it went over TCP");
        Ok((firewall, Some(socket)))
    }

    /// Returns the accepted socket of that connection, if it reached accept(2) within [`SOON`].
    fn accepted(&self) -> Result<Option<Socket>> {
        let events = poll_fd(&self.listener, libc::POLLIN, SOON)?;
        Ok(match events {
            0 => None,
            _ => Some(self.listener.accept(0)?),
        })
    }

    /// Checks that the first connection still works in both directions.
    fn still_works(&self) -> Result<()> {
        for (from, to) in [(&self.client, &self.server), (&self.server, &self.client)] {
            from.send(b"as before", 0).context("the first connection")?;
            let mut bytes = [0; 9];
            to.recv(&mut bytes, libc::MSG_WAITALL)
                .context("the first connection")?;
            ensure!(&bytes == b"as before", "its bytes are {bytes:x?}");
        }
        Ok(())
    }
}

/// Checks that a client whose connection the server does not know gets an error, if connect(2) did
/// not return one.
fn expect_end(client: Option<&Socket>, wait: Duration) -> Result<()> {
    let Some(client) = client else {
        println!("# handover: the client has ECONNRESET of connect(2)");
        return Ok(());
    };
    let start = Instant::now();
    let events = poll_fd(client, libc::POLLIN, wait)?;
    ensure!(events != 0, "the client waits for ever");
    let result = client.recv(&mut [0], libc::MSG_DONTWAIT);
    println!(
        "# handover: the client has {result:?} after {:.1?}",
        start.elapsed()
    );
    ensure!(
        matches!(
            result,
            Err(Errno::ECONNRESET | Errno::ECONNABORTED | Errno::EPIPE)
        ),
        "the client has {result:?}"
    );
    Ok(())
}

/// The CONFIRM names the RMBE of the first connection once more: data sent on the second one must
/// not be written there.
fn in_use(rig: &Rig<'_>) -> Result<()> {
    rig.server.send(&[b'1'; 5_000], 0)?;
    await_queued(&rig.client, 5_000)?;
    let (_firewall, client) = rig.connect(&format!("{INDEX} set 1"))?;
    if let Some(server) = rig.accepted()? {
        println!("# handover: the server took the element for free");
        server.send(&[b'2'; 5_000], 0)?;
        thread::sleep(Duration::from_secs(1));
    }
    let mut bytes = vec![0; 5_000];
    rig.client.recv(&mut bytes, libc::MSG_WAITALL)?;
    let changed = bytes.iter().filter(|byte| **byte != b'1').count();
    println!("# handover: {changed} of 5000 bytes of the first connection changed");
    ensure!(changed == 0, "{changed} bytes changed");
    expect_end(client.as_ref(), SOON)
}

fn unknown(rig: &Rig<'_>) -> Result<()> {
    let (_firewall, client) = rig.connect(&format!("{RKEY} set 0x12345678"))?;
    if let Some(server) = rig.accepted()? {
        println!("# handover: the server took the key for good");
        server.send(b"into the blue", 0)?;
        thread::sleep(Duration::from_secs(1));
    }
    expect_end(client.as_ref(), SOON)
}

/// The client sends data after the server has given the connection up: they must not reach another
/// connection.
fn late(rig: &Rig<'_>) -> Result<()> {
    let (firewall, client) = rig.connect("drop")?;
    let client = client.context("reset without a CONFIRM")?;
    thread::sleep(GIVEN_UP);
    // As many connections as there may be free RMBEs.
    let mut others = Vec::new();
    for number in 0..4u8 {
        let other = rig.context.family.open(rig.context.addr)?;
        other.set_timeout(SOON)?;
        other.connect(rig.other_address)?;
        ensure!(Path::of(&other)?.is_smc(), "it went over TCP");
        let server = rig.other.accept(0)?;
        server.set_timeout(SOON)?;
        other.send(&[b'a' + number; LEN], 0)?;
        await_queued(&server, LEN)?;
        others.push((number, other, server));
    }
    client.send(&[b'!'; LEN], 0).context("the late client")?;
    thread::sleep(Duration::from_secs(1));
    let mut changed = 0;
    for (number, _, server) in &others {
        let mut bytes = vec![0; LEN];
        let mut len = 0;
        while len < LEN {
            len += server.recv(&mut bytes[len..], 0)?;
        }
        changed += bytes.iter().filter(|byte| **byte != b'a' + number).count();
    }
    println!("# handover: a late client wrote {LEN} bytes, {changed} of others changed");
    ensure!(changed == 0, "{changed} bytes of others changed");
    drop(firewall);
    expect_end(Some(&client), REPEATED)
}

/// The firewall rule for a CONFIRM in the client's namespace; removed on drop.
struct Firewall;

impl Firewall {
    fn begin(port: u16, what: &str) -> Result<Self> {
        let firewall = Self;
        nft("add table inet handover")?;
        nft("add chain inet handover out { type filter hook output priority 0 ; }")?;
        nft(&format!(
            "add rule inet handover out tcp dport {port} {CONFIRM} {what}"
        ))?;
        Ok(firewall)
    }
}

impl Drop for Firewall {
    fn drop(&mut self) {
        let _ = nft("delete table inet handover");
    }
}

fn nft(command: &str) -> Result<()> {
    let status = Command::new("nft").arg(command).status()?;
    ensure!(status.success(), "nft {command}: {status}");
    Ok(())
}
