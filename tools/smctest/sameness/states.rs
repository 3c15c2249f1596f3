// SPDX-License-Identifier: GPL-2.0

//! The states in which options are set and read.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use anyhow::Result;
use smc_user::Errno;
use smc_user::Socket;

use crate::context::Context;
use crate::family::Family;
use crate::semantics::await_true;
use crate::semantics::events;
use crate::semantics::tcp_state;
use crate::semantics::Pair;
use crate::semantics::Rig;

/// Which end of the connection has the socket under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Client,
    Server,
}

/// Sets options on a socket before it gets into the state.
pub(super) type Prepare<'a> = &'a dyn Fn(&Socket);

/// The socket under test, and what has to stay open.
pub(super) struct Scene {
    pub(super) subject: Socket,
    _kept: Vec<Socket>,
}

impl Scene {
    fn alone(subject: Socket) -> Self {
        let _kept = Vec::new();
        Self { subject, _kept }
    }
}

/// A state of a socket.
pub(super) struct State {
    pub(super) name: &'static str,
    make: fn(&Rig<'_>, Prepare<'_>) -> Result<Scene>,
    subject: Subject,
    /// The other end has TCP.
    falls_back: bool,
    /// Options are set before, and read in this state.
    pub(super) is_prepared: bool,
    /// Each option has a socket of its own.
    pub(super) is_for_each: bool,
}

impl State {
    const fn of(
        name: &'static str,
        subject: Subject,
        make: fn(&Rig<'_>, Prepare<'_>) -> Result<Scene>,
    ) -> Self {
        Self {
            name,
            make,
            subject,
            falls_back: false,
            is_prepared: false,
            is_for_each: false,
        }
    }

    const fn falls_back(self) -> Self {
        Self {
            falls_back: true,
            ..self
        }
    }

    const fn prepared(self) -> Self {
        Self {
            is_prepared: true,
            ..self
        }
    }

    const fn for_each(self) -> Self {
        Self {
            is_for_each: true,
            ..self
        }
    }

    /// Makes a socket of this family be in this state.
    pub(super) fn make(
        &self,
        context: &Context,
        family: Family,
        prepare: Prepare<'_>,
    ) -> Result<Scene> {
        let (client, server) = match (self.falls_back, self.subject) {
            (false, _) => (family, family),
            (true, Subject::Client) => (family, Family::Tcp),
            (true, Subject::Server) => (Family::Tcp, family),
        };
        let context = Context {
            family: client,
            server_family: Some(server),
            ..context.clone()
        };
        let rig = Rig::new(&context, Duration::ZERO)?;
        (self.make)(&rig, prepare)
    }
}

fn client(pair: Pair) -> Scene {
    Scene {
        subject: pair.client,
        _kept: vec![pair.server, pair.listener],
    }
}

fn server(pair: Pair) -> Scene {
    Scene {
        subject: pair.server,
        _kept: vec![pair.client, pair.listener],
    }
}

/// Waits until the end of the stream, or of the connection, is seen.
fn await_end(socket: &Socket) -> Result<()> {
    await_true("the end", || events(socket) & libc::POLLRDHUP != 0)
}

/// Whether TCP has no connection any more, whatever TCP_INFO tells: a connection refuses any change of its keys
/// (TCP_AO_DEL_KEY).
fn is_closed(socket: &Socket) -> bool {
    let result = socket.set_option(libc::IPPROTO_TCP, 39, &[0; 144]);
    matches!(tcp_state(socket), Ok(7)) && result != Err(Errno::EISCONN)
}

/// Waits until TCP has the peer's answer to the end of the stream: it is not in TCP_FIN_WAIT1 any more.
fn await_answered(socket: &Socket) -> Result<()> {
    await_true("an acknowledgement", || !matches!(tcp_state(socket), Ok(4)))
}

/// Binds to a port that the kernel chooses.
fn bound(rig: &Rig<'_>) -> Result<Socket> {
    let socket = rig.open()?;
    socket.bind(rig.any())?;
    Ok(socket)
}

pub(super) const STATES: &[State] = &[
    State::of("fresh", Subject::Client, |rig, _| {
        Ok(Scene::alone(rig.open()?))
    }),
    State::of("bound", Subject::Client, |rig, _| {
        Ok(Scene::alone(bound(rig)?))
    }),
    State::of("listening", Subject::Server, |rig, _| {
        Ok(Scene::alone(rig.listener()?.0))
    }),
    State::of("connecting", Subject::Client, |rig, _| {
        let socket = rig.open()?;
        socket.set_nonblocking(true)?;
        let _ = socket.connect(rig.silent());
        Ok(Scene::alone(socket))
    }),
    State::of("refused", Subject::Client, |rig, _| {
        let address = rig.refusing()?;
        let socket = rig.open()?;
        let _ = socket.connect(address);
        Ok(Scene::alone(socket))
    }),
    State::of("client", Subject::Client, |rig, _| Ok(client(rig.pair()?))),
    State::of("accepted", Subject::Server, |rig, _| {
        Ok(server(rig.pair()?))
    }),
    State::of("shut down for writing", Subject::Client, |rig, _| {
        let pair = rig.pair()?;
        pair.client.shutdown(libc::SHUT_WR)?;
        await_end(&pair.server)?;
        await_answered(&pair.client)?;
        Ok(client(pair))
    }),
    State::of(
        "the peer is shut down for writing",
        Subject::Client,
        |rig, _| {
            let pair = rig.pair()?;
            pair.server.shutdown(libc::SHUT_WR)?;
            await_end(&pair.client)?;
            Ok(client(pair))
        },
    ),
    State::of("shut down at both ends", Subject::Client, |rig, _| {
        let pair = rig.pair()?;
        pair.server.shutdown(libc::SHUT_WR)?;
        await_end(&pair.client)?;
        pair.client.shutdown(libc::SHUT_WR)?;
        await_end(&pair.server)?;
        Ok(client(pair))
    }),
    State::of("the peer has closed", Subject::Server, |rig, _| {
        let Pair { client, server, .. } = rig.pair()?;
        drop(client);
        await_end(&server)?;
        Ok(Scene::alone(server))
    }),
    State::of("reset", Subject::Client, |rig, _| {
        let Pair { client, server, .. } = rig.pair()?;
        server.set_linger(true, 0)?;
        drop(server);
        await_end(&client)?;
        // The reset of the TCP connection beside the one over RDMA follows.
        await_true("the reset of TCP", || is_closed(&client))?;
        Ok(Scene::alone(client))
    }),
    State::of("fallen back, client", Subject::Client, |rig, _| {
        Ok(client(rig.pair()?))
    })
    .falls_back(),
    State::of("fallen back, accepted", Subject::Server, |rig, _| {
        Ok(server(rig.pair()?))
    })
    .falls_back(),
    State::of(
        "fallen back, the peer has closed",
        Subject::Client,
        |rig, _| {
            let Pair { client, server, .. } = rig.pair()?;
            drop(server);
            await_end(&client)?;
            Ok(Scene::alone(client))
        },
    )
    .falls_back(),
    State::of("client, set before", Subject::Client, |rig, prepare| {
        let (listener, address) = rig.listener()?;
        let socket = rig.open()?;
        prepare(&socket);
        connected(socket, address, listener, Subject::Client)
    })
    .prepared(),
    State::of(
        "accepted, set at the listener",
        Subject::Server,
        |rig, prepare| {
            let (listener, address) = rig.listener()?;
            prepare(&listener);
            connected(rig.open()?, address, listener, Subject::Server)
        },
    )
    .prepared(),
    State::of(
        "fallen back, set before",
        Subject::Client,
        |rig, prepare| {
            let (listener, address) = rig.listener()?;
            let socket = rig.open()?;
            prepare(&socket);
            connected(socket, address, listener, Subject::Client)
        },
    )
    .falls_back()
    .prepared(),
    State::of(
        "fallen back, set at the listener",
        Subject::Server,
        |rig, prepare| {
            let (listener, address) = rig.listener()?;
            prepare(&listener);
            connected(rig.open()?, address, listener, Subject::Server)
        },
    )
    .falls_back()
    .prepared(),
    // With TCP_ULP: on a TCP socket, which is converted then, or cannot be.
    State::of(
        "fresh, set before TCP_ULP",
        Subject::Client,
        |rig, prepare| {
            let socket = match rig.context.family {
                Family::Ulp => Family::Tcp.open(rig.context.addr)?,
                family => family.open(rig.context.addr)?,
            };
            prepare(&socket);
            if rig.context.family == Family::Ulp {
                socket.set_option(libc::IPPROTO_TCP, libc::TCP_ULP, b"smc")?;
            }
            Ok(Scene::alone(socket))
        },
    )
    .prepared()
    .for_each(),
];

/// Makes the connection with these sockets.
fn connected(
    socket: Socket,
    address: SocketAddr,
    listener: Socket,
    subject: Subject,
) -> Result<Scene> {
    socket.connect(address).context("connect")?;
    let accepted = listener.accept(0).context("accept")?;
    let pair = Pair {
        client: socket,
        server: accepted,
        listener,
        address,
    };
    Ok(match subject {
        Subject::Client => client(pair),
        Subject::Server => server(pair),
    })
}
