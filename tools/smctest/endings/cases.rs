// SPDX-License-Identifier: GPL-2.0

//! The ways in which a connection ends, or fails to be established.

use std::os::fd::OwnedFd;
use std::process::Command;
use std::process::Stdio;

use anyhow::bail;
use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use smc_tools::path::Path;
use smc_user::Address;
use smc_user::Socket;

use crate::netns;
use crate::semantics::await_true;
use crate::semantics::events;
use crate::semantics::Pair;
use crate::semantics::Rig;
use crate::semantics::FIONREAD;

/// Which end of the connection the socket under test is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    Client,
    Server,
}

/// The sockets after the end of the connection.
pub(super) struct Scene {
    pub(super) subject: Socket,
    /// Sockets that have to stay open.
    _kept: Vec<Socket>,
}

impl Scene {
    fn alone(subject: Socket) -> Self {
        let _kept = Vec::new();
        Self { subject, _kept }
    }
}

/// Called with the socket under test just before the connection ends.
type Prepare<'a> = &'a mut dyn FnMut(&Socket) -> Result<()>;

pub(super) struct Case {
    pub(super) name: &'static str,
    pub(super) subject: Subject,
    pub(super) go: fn(&Rig<'_>, Prepare<'_>) -> Result<Scene>,
    pub(super) takes: Takes,
}

/// What a way takes away from all connections, so that it has to run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// An RDMA device: only for connections over RDMA.
    Device,
    /// The wire, for a while.
    Wire,
}

impl Case {
    /// Returns whether the end is visible at the socket under test.
    pub(super) fn shows(&self) -> bool {
        let hidden = [": the peer shuts down reading", ": shutdown of writing"];
        !hidden.iter().any(|name| self.name.ends_with(name))
    }
}

/// Returns a way in which connect(2) of a client fails.
const fn attempt(name: &'static str, go: fn(&Rig<'_>, Prepare<'_>) -> Result<Scene>) -> Case {
    Case {
        name,
        subject: Subject::Client,
        go,
        takes: Takes::Nothing,
    }
}

/// Both ends of a connection: the one under test, and its peer.
struct ConnPair<'a> {
    rig: &'a Rig<'a>,
    subject: Socket,
    peer: Option<Socket>,
    role: Subject,
}

impl<'a> ConnPair<'a> {
    fn new(rig: &'a Rig<'a>, prepare: Prepare<'_>, role: Subject) -> Result<Self> {
        let Pair { client, server, .. } = rig.pair()?;
        for socket in [&client, &server] {
            socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_NODELAY, 1)?;
        }
        let (subject, peer) = match role {
            Subject::Client => (client, server),
            Subject::Server => (server, client),
        };
        prepare(&subject)?;
        Ok(Self {
            rig,
            subject,
            peer: Some(peer),
            role,
        })
    }

    fn peer(&self) -> Result<&Socket> {
        self.peer
            .as_ref()
            .ok_or_else(|| anyhow::anyhow!("the peer has gone"))
    }

    /// Sends data that the peer does not read.
    fn leave_unread(&self) -> Result<()> {
        self.subject.send(b"hello", 0)?;
        await_true("data at the peer", || {
            self.peer
                .as_ref()
                .is_some_and(|peer| peer.ioctl_int(FIONREAD) == Ok(5))
        })
    }

    /// Waits until the peer has learned that the subject sends no more.
    fn await_end_at_peer(&self) -> Result<()> {
        let peer = self.peer()?;
        await_true("the end at the peer", || {
            events(peer) & libc::POLLRDHUP != 0
        })
    }

    /// Has the peer send data that the subject does not read.
    fn have_unread(&self) -> Result<()> {
        self.peer()?.send(b"hello", 0)?;
        await_true("data", || self.subject.ioctl_int(FIONREAD) == Ok(5))
    }

    /// Returns the network namespace of the subject, or of its peer.
    fn netns(&self, is_peer: bool) -> Option<&str> {
        self.rig.netns((self.role == Subject::Client) != is_peer)
    }

    /// Destroys the TCP connection of the subject or of its peer administratively (`SOCK_DESTROY`).
    fn destroy(&self, is_peer: bool) -> Result<()> {
        let socket = if is_peer { self.peer()? } else { &self.subject };
        let (local, remote) = (socket.local_address()?, socket.peer_address()?);
        let (Some(local), Some(remote)) = (local.to_ip(), remote.to_ip()) else {
            bail!("no IP addresses");
        };
        let (local, remote) = (local.to_string(), remote.to_string());
        let args = ["-K", "-tnH", "src", &local, "dst", &remote];
        let said = run(self.netns(is_peer), "ss", &args)?;
        ensure!(
            said.contains(&local),
            "ss -K found no connection from {local} to {remote}"
        );
        Ok(())
    }

    /// Removes the RDMA device of the subject or of its peer, and adds a new one. A connection over
    /// TCP is ended with `SOCK_DESTROY` instead.
    fn lose_device(&self, is_peer: bool) -> Result<()> {
        if !Path::of(&self.subject)?.is_smc() {
            return self.destroy(is_peer);
        }
        let netns = self.netns(is_peer);
        let links = run(netns, "rdma", &["link", "show"])?;
        // Only for a device whose network device is in this namespace, the latter is shown.
        let own = links.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let device = words.nth(1)?.split('/').next()?;
            words.find(|word| *word == "netdev")?;
            Some((device, words.next()?))
        });
        let (device, netdev) = own.with_context(|| format!("no RDMA device: {links}"))?;
        run(netns, "rdma", &["link", "delete", device])?;
        let add = ["link", "add", device, "type", "rxe", "netdev", netdev];
        run(netns, "rdma", &add)?;
        await_true("RDMA again", || {
            self.rig.path().is_ok_and(|path| path.is_smc())
        })
    }

    /// Has the subject find out within a few seconds that its peer is gone.
    fn keep_alive(&self) -> Result<()> {
        let tcp = libc::IPPROTO_TCP;
        for (level, name, value) in [
            (libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1),
            (tcp, libc::TCP_KEEPIDLE, 1),
            (tcp, libc::TCP_KEEPINTVL, 1),
            (tcp, libc::TCP_KEEPCNT, 1),
        ] {
            self.subject.set_option_int(level, name, value)?;
        }
        Ok(())
    }

    /// Drops all packets between the two ends until the subject has an error.
    fn cut(&self) -> Result<()> {
        let ends = [(&self.subject, false), (self.peer()?, true)].map(|(socket, is_peer)| {
            Ok((self.netns(is_peer), device(self.netns(is_peer), socket)?))
        });
        let ends = ends.into_iter().collect::<Result<Vec<_>>>()?;
        for (netns, device) in &ends {
            let netem = ["netem", "loss", "100%"];
            run(
                *netns,
                "tc",
                &[&["qdisc", "add", "dev", device, "root"], netem.as_slice()].concat(),
            )?;
        }
        let end = self.await_error();
        for (netns, device) in &ends {
            run(*netns, "tc", &["qdisc", "delete", "dev", device, "root"])?;
        }
        end
    }

    /// Drops the TCP packets of the connection, and nothing else, until the subject has an error.
    fn cut_tcp(&self) -> Result<()> {
        let ports = [self.subject.local_address()?, self.subject.peer_address()?]
            .map(|address| address.to_ip().map(|ip| ip.port()));
        let [Some(here), Some(there)] = ports else {
            bail!("no IP addresses");
        };
        for (is_peer, from, to) in [(false, there, here), (true, here, there)] {
            let nft = |order: &str| run(self.netns(is_peer), "nft", &[order]);
            nft("add table inet cut")?;
            nft("add chain inet cut in { type filter hook input priority 0 ; }")?;
            nft(&format!(
                "add rule inet cut in tcp sport {from} tcp dport {to} drop"
            ))?;
        }
        let end = self.await_error();
        for is_peer in [false, true] {
            run(
                self.netns(is_peer),
                "nft",
                &["delete", "table", "inet", "cut"],
            )?;
        }
        end
    }

    fn await_error(&self) -> Result<()> {
        await_true("an error", || events(&self.subject) & libc::POLLERR != 0)
    }

    fn await_end(&self) -> Result<()> {
        await_true("the end of the stream", || {
            events(&self.subject) & libc::POLLRDHUP != 0
        })
    }

    fn scene(self) -> Scene {
        Scene {
            subject: self.subject,
            _kept: self.peer.into_iter().collect(),
        }
    }
}

/// Runs a program in a network namespace; returns its output. Fails if the program fails.
fn run(netns: Option<&str>, program: &str, args: &[&str]) -> Result<String> {
    let output = netns::inside(netns, || {
        let output = Command::new(program).args(args).output();
        output.with_context(|| format!("running {program}"))
    })?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the network device by which packets of this connection leave the namespace.
fn device(netns: Option<&str>, socket: &Socket) -> Result<String> {
    let peer = socket.peer_address()?.to_ip().context("no IP address")?;
    let peer = peer.ip().to_canonical().to_string();
    let route = run(netns, "ip", &["-o", "route", "get", &peer])?;
    let device = route
        .split(" dev ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next());
    Ok(device
        .with_context(|| format!("no device: {route}"))?
        .to_owned())
}

/// Ends one end of the connection; becomes two ways, one for each subject.
type End = fn(&mut ConnPair<'_>) -> Result<()>;

macro_rules! ends {
    ($takes:expr, $($name:literal: $end:expr),+ $(,)?) => {
        &[$(
            Case {
                name: concat!("client: ", $name),
                subject: Subject::Client,
                go: |rig, prepare| {
                    let mut pair = ConnPair::new(rig, prepare, Subject::Client)?;
                    let end: End = $end;
                    end(&mut pair)?;
                    Ok(pair.scene())
                },
                takes: $takes,
            },
            Case {
                name: concat!("server: ", $name),
                subject: Subject::Server,
                go: |rig, prepare| {
                    let mut pair = ConnPair::new(rig, prepare, Subject::Server)?;
                    let end: End = $end;
                    end(&mut pair)?;
                    Ok(pair.scene())
                },
                takes: $takes,
            },
        )+]
    };
}

/// Opens a non-blocking client.
fn open(rig: &Rig<'_>, prepare: Prepare<'_>) -> Result<Socket> {
    let socket = rig.open()?;
    socket.set_nonblocking(true)?;
    prepare(&socket)?;
    Ok(socket)
}

fn undo(socket: &Socket) -> smc_user::Result<()> {
    socket.connect(Address::unspecified())
}

/// Passes the only descriptor to a child process, and kills that.
fn kill(socket: Socket) -> Result<()> {
    let mut child = Command::new("sleep")
        .arg("1000")
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .spawn()?;
    child.kill()?;
    child.wait()?;
    Ok(())
}

const ATTEMPTS: &[Case] = &[
    attempt("a fresh socket", |rig, prepare| {
        Ok(Scene::alone(open(rig, prepare)?))
    }),
    attempt("refused", |rig, prepare| {
        let address = rig.refusing()?;
        let socket = open(rig, prepare)?;
        let _ = socket.connect(address);
        Ok(Scene::alone(socket))
    }),
    attempt("refused, told by a blocking call", |rig, prepare| {
        let address = rig.refusing()?;
        let socket = open(rig, prepare)?;
        socket.set_nonblocking(false)?;
        let _ = socket.connect(address);
        Ok(Scene::alone(socket))
    }),
    attempt("no route", |rig, prepare| {
        let socket = open(rig, prepare)?;
        let _ = socket.connect(rig.unrouted());
        Ok(Scene::alone(socket))
    }),
    attempt("unreachable", |rig, prepare| {
        let socket = open(rig, prepare)?;
        let _ = socket.connect(rig.missing());
        await_true("an error", || events(&socket) != 0)?;
        Ok(Scene::alone(socket))
    }),
    attempt("timed out", |rig, prepare| {
        let socket = open(rig, prepare)?;
        socket.set_option_int(libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 300)?;
        let _ = socket.connect(rig.silent());
        await_true("an error", || events(&socket) != 0)?;
        Ok(Scene::alone(socket))
    }),
    attempt("undone while pending", |rig, prepare| {
        let socket = open(rig, prepare)?;
        let _ = socket.connect(rig.silent());
        undo(&socket)?;
        Ok(Scene::alone(socket))
    }),
    attempt("shut down while pending", |rig, prepare| {
        let socket = open(rig, prepare)?;
        let _ = socket.connect(rig.silent());
        socket.shutdown(libc::SHUT_RDWR)?;
        Ok(Scene::alone(socket))
    }),
    attempt("a listener, undone", |rig, prepare| {
        let socket = open(rig, prepare)?;
        socket.listen(1)?;
        undo(&socket)?;
        Ok(Scene::alone(socket))
    }),
];

const CONNECTIONS: &[Case] = ends![
    Takes::Nothing,
    "the peer closes": |pair| {
        pair.peer = None;
        Ok(())
    },
    "the peer sends and closes": |pair| {
        pair.peer()?.send(b"hello", 0)?;
        pair.peer = None;
        Ok(())
    },
    "the peer closes, and data leave that were held back": |pair| {
        pair.subject.set_option_int(libc::IPPROTO_TCP, libc::TCP_CORK, 1)?;
        pair.subject.send(b"hello", 0)?;
        pair.peer = None;
        pair.await_end()?;
        pair.subject.set_option_int(libc::IPPROTO_TCP, libc::TCP_CORK, 0)?;
        pair.await_error()
    },
    "the peer closes with unread data": |pair| {
        pair.leave_unread()?;
        pair.peer = None;
        Ok(())
    },
    "the peer resets": |pair| {
        pair.peer()?.set_linger(true, 0)?;
        pair.peer = None;
        Ok(())
    },
    "the peer lingers": |pair| {
        pair.peer()?.set_linger(true, 1)?;
        pair.peer()?.send(b"hello", 0)?;
        pair.peer = None;
        Ok(())
    },
    "the peer is undone": |pair| {
        Ok(undo(pair.peer()?)?)
    },
    "the peer is killed": |pair| {
        match pair.peer.take() {
            Some(peer) => kill(peer),
            None => Ok(()),
        }
    },
    "the peer is killed with unread data": |pair| {
        pair.leave_unread()?;
        match pair.peer.take() {
            Some(peer) => kill(peer),
            None => Ok(()),
        }
    },
    "the peer shuts down writing": |pair| {
        Ok(pair.peer()?.shutdown(libc::SHUT_WR)?)
    },
    "the peer shuts down reading": |pair| {
        Ok(pair.peer()?.shutdown(libc::SHUT_RD)?)
    },
    "the peer shuts down both": |pair| {
        Ok(pair.peer()?.shutdown(libc::SHUT_RDWR)?)
    },
    "the peer shuts down both, with unread data": |pair| {
        pair.leave_unread()?;
        Ok(pair.peer()?.shutdown(libc::SHUT_RDWR)?)
    },
    "the peer shuts down writing, and resets": |pair| {
        pair.peer()?.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        pair.peer()?.set_linger(true, 0)?;
        pair.peer = None;
        Ok(())
    },
    "shutdown of writing": |pair| {
        Ok(pair.subject.shutdown(libc::SHUT_WR)?)
    },
    "shutdown of reading": |pair| {
        Ok(pair.subject.shutdown(libc::SHUT_RD)?)
    },
    "shutdown of both": |pair| {
        Ok(pair.subject.shutdown(libc::SHUT_RDWR)?)
    },
    "shutdown of both, and the peer sends": |pair| {
        pair.subject.shutdown(libc::SHUT_RDWR)?;
        pair.await_end_at_peer()?;
        pair.peer()?.send(b"hello", 0)?;
        Ok(())
    },
    "shutdown of both, with unread data": |pair| {
        pair.have_unread()?;
        Ok(pair.subject.shutdown(libc::SHUT_RDWR)?)
    },
    "shutdown of both, with unread data, and the peer sends": |pair| {
        pair.have_unread()?;
        pair.subject.shutdown(libc::SHUT_RDWR)?;
        pair.await_end_at_peer()?;
        pair.peer()?.send(b"hello", 0)?;
        Ok(())
    },
    "shutdown of both, with unread data, and the peer closes": |pair| {
        pair.have_unread()?;
        pair.subject.shutdown(libc::SHUT_RDWR)?;
        pair.await_end_at_peer()?;
        pair.peer = None;
        await_true("the end of the connection", || pair.subject.peer_address().is_err())
    },
    "shutdown of writing, and the peer resets": |pair| {
        pair.subject.shutdown(libc::SHUT_WR)?;
        pair.await_end_at_peer()?;
        pair.peer()?.set_linger(true, 0)?;
        pair.peer = None;
        Ok(())
    },
    "shutdown of writing at both ends": |pair| {
        pair.peer()?.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        Ok(pair.subject.shutdown(libc::SHUT_WR)?)
    },
    "undone": |pair| {
        Ok(undo(&pair.subject)?)
    },
    "undone after the peer has finished": |pair| {
        pair.peer()?.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        Ok(undo(&pair.subject)?)
    },
    "the administrator destroys it": |pair| pair.destroy(false),
    "the administrator destroys it, with data to read": |pair| {
        pair.have_unread()?;
        pair.destroy(false)
    },
    "the administrator destroys it, after the peer has finished": |pair| {
        pair.peer()?.shutdown(libc::SHUT_WR)?;
        pair.await_end()?;
        pair.destroy(false)
    },
    "the administrator destroys the peer": |pair| pair.destroy(true),
];

const DEVICES: &[Case] = ends![
    Takes::Device,
    "the device goes": |pair| pair.lose_device(false),
    "the device goes, with data to read": |pair| {
        pair.have_unread()?;
        pair.lose_device(false)
    },
    "the device of the peer goes": |pair| pair.lose_device(true),
];

const WIRES: &[Case] = ends![
    Takes::Wire,
    "the wire is cut, and it keeps alive, with data to read": |pair| {
        pair.keep_alive()?;
        pair.have_unread()?;
        pair.cut()
    },
    "TCP is cut, and it keeps alive, with data to read": |pair| {
        pair.keep_alive()?;
        pair.have_unread()?;
        pair.cut_tcp()
    },
];

pub(super) static CASES: Cases = Cases([ATTEMPTS, CONNECTIONS, DEVICES, WIRES]);

/// All cases, in four tables.
pub(super) struct Cases([&'static [Case]; 4]);

impl Cases {
    pub(super) fn iter(&self) -> impl Iterator<Item = &'static Case> {
        self.0.into_iter().flatten()
    }
}
