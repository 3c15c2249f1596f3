// SPDX-License-Identifier: GPL-2.0

//! The TCP connection between the two queue pairs of a link (`Documentation/iwarp.md`). The client of the group listens
//! for it, and the server is the initiator, as the initiator must send first (RFC 5044 section 7.1.3). If the server
//! cannot connect in a first contact, the client does, and sends a credit update at once.
//!
//! Soft iWARP hands its TCP connection to the queue pair only after it has sent the MPA reply (`siw_accept`). Of data
//! that arrives before, it learns with the data that follows. So who connected requests an acknowledgement soon after
//! its first message, by a credit update if nothing was heard until then.

use core::net::{
    IpAddr,
    SocketAddr, //
};

use kernel::sync::Arc;
use kernel_ext::{
    ib::{
        IwConn,
        IwListener, //
    },
    net::{
        NetNs,
        NetNsId,
        NetNsRef, //
    },
    prelude::*,
    random, //
};
use smc_proto::{
    id::Gid,
    lgr::Role,
    time::{
        Duration,
        Instant, //
    },
    wire::{
        iwarp::{
            self,
            IwEndpoint,
            IwListenAddr,
            Nonce, //
        },
        llc::NewLink, //
    }, //
};

use super::{
    super::{
        Setup,
        SetupError,
        TransportOps,
        TransportSetup, //
    },
    Iwarp, //
};
use crate::{
    clock::now,
    link::{
        IbResources,
        Link,
        LinkError,
        PeerQp, //
    }, //
};

/// From the CONFIRM on: time for the server to connect, in which TCP may lose a packet,
const SERVER_CONNECT_TIMEOUT: Duration = Duration::from_millis(1_500);
/// until the client stops waiting for that, and connects itself,
const CLIENT_ACCEPT_TIMEOUT: Duration = Duration::from_millis(1_900);
/// until it gives up,
const CLIENT_CONNECT_TIMEOUT: Duration = Duration::from_millis(2_700);
/// and until the server stops waiting for that.
const SERVER_ACCEPT_TIMEOUT: Duration = Duration::from_millis(3_000);

/// Time to connect an added link.
const ADD_LINK_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval of checks for a cancelled setup.
const TICK: Duration = Duration::from_millis(100);

/// State of the connection.
#[derive(Default)]
pub(super) struct IwState {
    listener: Option<Arc<IwListener<Link>>>,
    conn: Option<IwConn<Link>>,
    /// The link is releasing its device.
    is_closed: bool,
}

/// Parameters of a connection between the queue pairs of a link.
struct ConnParams {
    ours: IpAddr,
    theirs: IpAddr,
    nonce: Nonce,
    client: IwEndpoint,
    server: IwEndpoint,
}

impl ConnParams {
    /// Creates the parameters for our end and that of the peer, set by [`Link::ready_to_receive`]; `role` is ours.
    fn new(link: &Link, role: Role, nonce: Nonce) -> Result<Self> {
        let peer = link.peer().ok_or(ENOTCONN)?;
        let ours = IwEndpoint {
            qp: link.qp_num(),
            psn: link.psn(),
        };
        let theirs = IwEndpoint {
            qp: peer.qp,
            psn: peer.psn,
        };
        let (client, server) = match role {
            Role::Client => (ours, theirs),
            Role::Server => (theirs, ours),
        };
        Ok(Self {
            ours: link.port().gid.iwarp().ok_or(EINVAL)?,
            theirs: peer.gid.iwarp().ok_or(EINVAL)?,
            nonce,
            client,
            server,
        })
    }

    fn token(&self, initiator: Role) -> [u8; iwarp::TOKEN_LEN] {
        iwarp::token(initiator, self.nonce, self.client, self.server)
    }
}

/// Returns the group's network namespace, `net`, which also contains the port of the link.
fn netns(link: &Link, net: NetNsId) -> Result<NetNsRef> {
    let device = link.device().ok_or(ENOLINK)?;
    device.port_netns(link.port().port, net).ok_or(ENOLINK)
}

/// A setup of a first contact, and its start time.
struct IwFirstContact<'a> {
    link: &'a Arc<Link>,
    setup: &'a Setup<'a>,
    params: ConnParams,
    start: Instant,
}

impl<'a> IwFirstContact<'a> {
    fn new(link: &'a Arc<Link>, setup: &'a Setup<'a>, role: Role) -> Result<Self> {
        let nonce = setup.nonce.ok_or(EINVAL)?;
        Ok(Self {
            link,
            setup,
            params: ConnParams::new(link, role, nonce)?,
            start: now(),
        })
    }

    fn until(&self, timeout: Duration) -> Instant {
        self.start.saturating_add(timeout)
    }
}

impl Iwarp {
    /// Listens for a connection from the peer's address; returns the TCP port. Requests are rejected until
    /// [`Iwarp::accept_request`].
    /// Context: may sleep.
    fn listen_for(&self, link: &Link, net: &NetNs, theirs: IpAddr) -> Result<u16> {
        let resources = link.resources().ok_or(ENOLINK)?;
        let ours = link.port().gid.iwarp().ok_or(EINVAL)?;
        let tos = link.traffic_class();
        let listener = IwListener::new(&resources.qp, net, ours, theirs, tos)?;
        let listener = Arc::new(listener, GFP_KERNEL)?;
        let port = listener.port();
        self.store(|conn| conn.listener = Some(listener))?;
        Ok(port)
    }

    /// Listens for the server as the client; returns the TCP port.
    /// Context: may sleep, but does not wait for the peer.
    fn listen_as_client(&self, link: &Link, net: &NetNs, nonce: Nonce) -> Result<u16> {
        let params = ConnParams::new(link, Role::Client, nonce)?;
        let port = self.listen_for(link, net, params.theirs)?;
        self.accept_request(&params, Role::Server)?;
        Ok(port)
    }

    /// Accepts the connection of `initiator` from now on.
    /// Context: may sleep, but does not wait for the peer.
    fn accept_request(&self, params: &ConnParams, initiator: Role) -> Result {
        let listener = self.listener().ok_or(ENOTCONN)?;
        listener.accept_request(&params.token(initiator))
    }

    /// Waits until the connection listened for is accepted, until `end`, or until the setup is cancelled. Returns
    /// whether it was accepted.
    /// Context: may sleep.
    fn wait_accepted(&self, setup: &Setup<'_>, end: Instant) -> Result<bool> {
        let listener = self.listener().ok_or(ENOTCONN)?;
        loop {
            let tick = now().saturating_add(TICK).min(end);
            let is_accepted = listener.wait(tick.as_nanos());
            if is_accepted || end.is_due(now()) || (setup.is_cancelled)() {
                return Ok(is_accepted);
            }
        }
    }

    /// Connects as `initiator` to a port of the peer, after [`Link::ready_to_receive`].
    /// Context: may sleep, until `end`.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` or `ECONNREFUSED` if the peer does not accept; other errors are possible.
    fn connect(
        &self,
        link: &Link,
        net: &NetNs,
        params: &ConnParams,
        (initiator, port): (Role, u16),
        end: Instant,
    ) -> Result {
        let resources = link.resources().ok_or(ENOLINK)?;
        let ends = (params.ours, SocketAddr::new(params.theirs, port));
        let token = params.token(initiator);
        let tos = link.traffic_class();
        let conn = IwConn::connect(&resources.qp, net, ends, tos, &token, end.as_nanos());
        // If the queue pair is unusable now, its receives have completed, and the link is down after this.
        let conn = conn.inspect_err(|_| link.flush_cqs())?;
        self.store(|state| state.conn = Some(conn))
    }

    fn connect_first(
        &self,
        first: &IwFirstContact<'_>,
        initiator: Role,
        timeout: Duration,
    ) -> Result {
        let IwFirstContact {
            link,
            setup,
            params,
            ..
        } = first;
        let end = first.until(timeout);
        self.connect(link, setup.net, params, (initiator, setup.peer_port), end)
    }

    /// Stops listening. `Ok` if there is a connection.
    /// Context: may sleep.
    fn finish_connect(&self) -> Result {
        let (listener, is_connected) = {
            let mut state = self.conn.lock();
            (state.listener.take(), state.conn.is_some())
        };
        // An unneeded listener is released without the lock.
        if is_connected {
            return Ok(());
        }
        let conn = listener.ok_or(ENOTCONN)?.take_conn()?;
        self.store(|state| state.conn = Some(conn))
    }

    /// The server's part of a first contact: connects, or otherwise waits for the client's connection and first
    /// message.
    fn serve(&self, first: &IwFirstContact<'_>) -> Result {
        let link = first.link;
        let Err(error) = self.connect_first(first, Role::Server, SERVER_CONNECT_TIMEOUT) else {
            return self.finish_connect();
        };
        if !link.is_up() {
            return Err(error);
        }
        self.accept_request(&first.params, Role::Client)?;
        let end = first.until(SERVER_ACCEPT_TIMEOUT);
        if !self.wait_accepted(first.setup, end)? {
            return Err(error);
        }
        self.finish_connect()?;
        // The accepting side must not send first.
        match link.wait_first_msg(end) {
            true => Ok(()),
            false => Err(ETIMEDOUT),
        }
    }

    /// The client's part: connects if the server does not connect, and listens itself.
    fn join(&self, first: &IwFirstContact<'_>) -> Result {
        let end = first.until(CLIENT_ACCEPT_TIMEOUT);
        let is_accepted = self.wait_accepted(first.setup, end)?;
        if is_accepted || (first.setup.is_cancelled)() || self.finish_connect().is_ok() {
            return Ok(());
        }
        if first.setup.peer_port == 0 {
            return Err(ETIMEDOUT);
        }
        self.connect_first(first, Role::Client, CLIENT_CONNECT_TIMEOUT)?;
        self.credits.lock().force_credit_update();
        if self.send_credit_update(first.link).is_err() {
            first.link.fail(LinkError::Post);
        }
        Ok(())
    }

    fn listener(&self) -> Option<Arc<IwListener<Link>>> {
        self.conn.lock().listener.clone()
    }

    /// Stores a part of the connection, unless the link has released its device.
    fn store(&self, put: impl FnOnce(&mut IwState)) -> Result {
        let mut state = self.conn.lock();
        if state.is_closed {
            drop(state);
            return Err(ENOLINK);
        }
        put(&mut state);
        Ok(())
    }
}

impl TransportSetup for Iwarp {
    fn to_rtr(&self, _: &Link, _: &IbResources, _: &PeerQp) -> Result {
        // Done by the driver with the connection, which is set up when the receives are posted.
        Ok(())
    }

    fn to_rts(&self, _: &Link, _: &IbResources) -> Result {
        self.finish_connect()
    }

    fn listen(&self, link: &Link, net: &NetNs, peer: Gid) -> u16 {
        let theirs = peer.iwarp().ok_or(EINVAL);
        let port = theirs.and_then(|theirs| self.listen_for(link, net, theirs));
        port.unwrap_or(0)
    }

    fn listen_for_server(
        &self,
        link: &Link,
        net: &NetNs,
        nonce: Option<Nonce>,
    ) -> Result<Option<u16>> {
        let nonce = nonce.ok_or(EINVAL)?;
        self.listen_as_client(link, net, nonce).map(Some)
    }

    fn connect_as_client(&self, link: &Arc<Link>, setup: &Setup<'_>) -> Result<(), SetupError> {
        let first = IwFirstContact::new(link, setup, Role::Client)?;
        self.join(&first).map_err(|_| SetupError::PeerUnreachable)
    }

    fn connect_as_server(&self, link: &Arc<Link>, setup: &Setup<'_>) -> Result<(), SetupError> {
        let first = IwFirstContact::new(link, setup, Role::Server)?;
        self.serve(&first).map_err(|_| SetupError::PeerUnreachable)
    }

    fn listen_added(&self, link: &Link, net: NetNsId) -> Result<Option<IwListenAddr>> {
        let nonce = Nonce(random::bytes());
        let port = self.listen_as_client(link, &*netns(link, net)?, nonce)?;
        Ok(Some(IwListenAddr { port, nonce }))
    }

    fn connect_added(&self, link: &Link, net: NetNsId, client: &NewLink) -> Result {
        let IwListenAddr { port, nonce } = client.listen_addr.ok_or(EINVAL)?;
        let params = ConnParams::new(link, Role::Server, nonce)?;
        let end = now().saturating_add(ADD_LINK_CONNECT_TIMEOUT);
        self.connect(
            link,
            &*netns(link, net)?,
            &params,
            (Role::Server, port),
            end,
        )
    }

    fn close(&self) {
        let state = {
            let mut state = self.conn.lock();
            state.is_closed = true;
            (state.listener.take(), state.conn.take())
        };
        drop(state);
    }
}
