// SPDX-License-Identifier: GPL-2.0

//! Links over iWARP: the TCP stream between the two queue pairs. The client of the group listens for it,
//! the server opens it, as whoever opens it has to send first. Where the server cannot, the client does, and
//! sends a message that says nothing.

use core::net::{
    IpAddr,
    SocketAddr, //
};

use kernel::{
    prelude::*,
    sync::{
        atomic::Relaxed,
        Arc, //
    }, //
};
use kernel_ext::{
    ib::{
        IwConn,
        Listener, //
    },
    net::NetNs,
    time, //
};
use smc_proto::{
    id::Gid,
    lgr::Role,
    wire::{
        clc::SmcR,
        iwarp::{
            self,
            IwEndpoint,
            Nonce, //
        },
        llc::NewLink, //
    }, //
};

use super::{
    Link,
    LinkError, //
};

/// What there is of a link's stream.
#[derive(Default)]
pub(super) struct IwState {
    listener: Option<Arc<Listener<Link>>>,
    conn: Option<IwConn<Link>>,
}

/// A stream that a handshake asks for, or an ADD_LINK.
pub(crate) struct Wanted {
    ours: IpAddr,
    theirs: IpAddr,
    nonce: Nonce,
    client: IwEndpoint,
    server: IwEndpoint,
}

/// The peer's end of a stream, as it named it.
pub(crate) struct IwPeer {
    gid: Gid,
    end: IwEndpoint,
}

impl From<&SmcR> for IwPeer {
    fn from(peer: &SmcR) -> Self {
        let (qp, psn) = (peer.qp_num, peer.psn);
        Self {
            gid: peer.gid,
            end: IwEndpoint { qp, psn },
        }
    }
}

impl From<&NewLink> for IwPeer {
    fn from(peer: &NewLink) -> Self {
        let (qp, psn) = (peer.qp_num, peer.psn);
        Self {
            gid: peer.gid,
            end: IwEndpoint { qp, psn },
        }
    }
}

impl Wanted {
    /// The stream between our end and the peer's, where we are `role`.
    pub(crate) fn new(nonce: Nonce, role: Role, ours: &Link, peer: IwPeer) -> Result<Self> {
        let (client, server) = match role {
            Role::Client => (ours.iw_endpoint(), peer.end),
            Role::Server => (peer.end, ours.iw_endpoint()),
        };
        Ok(Self {
            ours: ours.port().gid.iwarp().ok_or(EINVAL)?,
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

impl Link {
    fn iw_endpoint(&self) -> IwEndpoint {
        IwEndpoint {
            qp: self.qp_num(),
            psn: self.psn(),
        }
    }

    /// Listens for a stream from the peer's end, and tells the TCP port. Requests are rejected until
    /// [`Link::accept_request`]. May sleep.
    pub(crate) fn listen(&self, net: &NetNs, peer: Gid) -> Result<u16> {
        self.listen_for(net, peer.iwarp().ok_or(EINVAL)?)
    }

    fn listen_for(&self, net: &NetNs, theirs: IpAddr) -> Result<u16> {
        let resources = self.resources().ok_or(ENOLINK)?;
        let ours = self.port().gid.iwarp().ok_or(EINVAL)?;
        let listener = Listener::new(&resources.qp, net, ours, theirs)?;
        let listener = Arc::new(listener, GFP_KERNEL)?;
        let port = listener.port();
        self.store(|iw| iw.listener = Some(listener))?;
        Ok(port)
    }

    /// Awaits the stream that the server opens, after [`Link::ready_to_receive`], and tells the TCP port. Nobody
    /// is waited for. May sleep.
    pub(crate) fn await_server(&self, net: &NetNs, wanted: &Wanted) -> Result<u16> {
        let port = self.listen_for(net, wanted.theirs)?;
        self.accept_request(wanted, Role::Server)?;
        Ok(port)
    }

    /// Takes the stream that `initiator` opens, after [`Link::ready_to_receive`]. Nobody is waited for. May sleep.
    pub(crate) fn accept_request(&self, wanted: &Wanted, initiator: Role) -> Result {
        let listener = self.listener().ok_or(ENOTCONN)?;
        listener.accept_request(&wanted.token(initiator))
    }

    /// Waits until the stream is there that is expected, or the clock says `end` ns. Says whether it is. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if none is expected.
    pub(crate) fn wait_iw_conn(&self, end: u64) -> Result<bool> {
        let listener = self.listener().ok_or(ENOTCONN)?;
        Ok(listener.wait(end))
    }

    /// Opens the stream, as `initiator`, after [`Link::ready_to_receive`]. May sleep, until the clock says `end`
    /// ns.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` or `ECONNREFUSED` if the peer does not take it, and what else may go wrong.
    pub(crate) fn connect(
        &self,
        net: &NetNs,
        wanted: &Wanted,
        (initiator, port): (Role, u16),
        end: u64,
    ) -> Result {
        let resources = self.resources().ok_or(ENOLINK)?;
        let ends = (wanted.ours, SocketAddr::new(wanted.theirs, port));
        let token = wanted.token(initiator);
        let stream = IwConn::connect(&resources.qp, net, ends, &token, end);
        // If the queue pair is of no use any more, its receives have ended, and the link is down after this.
        let stream = stream.inspect_err(|_| self.flush_cqs())?;
        self.store(|iw| iw.conn = Some(stream))
    }

    /// Whether there is a stream. None is awaited any more. May sleep.
    pub(crate) fn take_iw_conn(&self) -> Result {
        let listener = {
            let iw = &mut self.inner.lock().iw;
            let listener = iw.listener.take();
            if iw.conn.is_some() {
                // It is let go of without the lock.
                Err(listener)
            } else {
                Ok(listener)
            }
        };
        let listener = match listener {
            Ok(listener) => listener.ok_or(ENOTCONN)?,
            Err(_unneeded) => return Ok(()),
        };
        let stream = listener.take_conn()?;
        self.store(|iw| iw.conn = Some(stream))
    }

    /// Sends a message that says nothing. Does not sleep.
    pub(crate) fn send_empty(self: &Arc<Self>) {
        self.with_credits(|credits| credits.force_credit_update());
        if self.send_credit_update().is_err() {
            self.fail(LinkError::Post);
        }
    }

    /// Waits until the peer has sent something, or the clock says `end` ns. Says whether it has. May sleep.
    pub(crate) fn wait_first_msg(&self, end: u64) -> bool {
        let mut inner = self.inner.lock();
        loop {
            let now = time::now_ns();
            let has_received = self.last_rx.load(Relaxed) != 0;
            if has_received || now >= end || !inner.state.is_usable() {
                return has_received;
            }
            let left = time::jiffies(end.saturating_sub(now));
            // The wait is short, and a signal no reason to end it.
            let _ = self.state_wait.wait_interruptible_timeout(&mut inner, left);
        }
    }

    fn listener(&self) -> Option<Arc<Listener<Self>>> {
        self.inner.lock().iw.listener.clone()
    }

    /// Keeps something of the stream while the link has its device; if that is gone, so is this.
    fn store(&self, put: impl FnOnce(&mut IwState)) -> Result {
        let mut inner = self.inner.lock();
        match inner.resources {
            Some(_) => {
                put(&mut inner.iw);
                Ok(())
            }
            None => {
                drop(inner);
                Err(ENOLINK)
            }
        }
    }
}
