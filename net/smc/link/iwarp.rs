// SPDX-License-Identifier: GPL-2.0

//! Links over iWARP: the TCP stream between the two queue pairs. The client of the group listens for it,
//! the server opens it, as whoever opens it has to send first.

use core::net::{
    IpAddr,
    SocketAddr, //
};

use kernel::prelude::*;
use kernel_ext::{
    ib::{
        Listener,
        Request,
        Stream, //
    },
    net::NetNs, //
};
use smc_proto::{
    id::Gid,
    wire::{
        clc::SmcR,
        iwarp::{
            self,
            Nonce,
            StreamEnd, //
        },
        llc::NewLink, //
    }, //
};

use super::Link;

/// Time to open a stream, ns: a client that waits for its server's first message waits twice as long.
const OPEN_NS: u64 = 2_000_000_000;

/// What there is of a link's stream.
#[derive(Default)]
pub(super) struct Streaming {
    listener: Option<Listener<Link>>,
    stream: Option<Stream<Link>>,
}

/// A stream that a handshake asks for, or an ADD_LINK.
pub(crate) struct Wanted {
    ours: IpAddr,
    theirs: IpAddr,
    token: [u8; iwarp::TOKEN_LEN],
}

impl Wanted {
    /// The stream of a client to the server's end.
    pub(crate) fn by_client(nonce: Nonce, client: &Link, server: &SmcR) -> Result<Self> {
        let token = iwarp::token(nonce, client.stream_end(), end_of(server));
        Self::between(client, server.gid, token)
    }

    /// The stream of a server to the client's end.
    pub(crate) fn by_server(nonce: Nonce, client: &SmcR, server: &Link) -> Result<Self> {
        let token = iwarp::token(nonce, end_of(client), server.stream_end());
        Self::between(server, client.gid, token)
    }

    /// The stream of a client to the server's end of a link that is added.
    pub(crate) fn by_invited(nonce: Nonce, client: &Link, server: &NewLink) -> Result<Self> {
        let token = iwarp::token(nonce, client.stream_end(), end_of_new(server));
        Self::between(client, server.gid, token)
    }

    /// The stream of a server to the client's end of a link that is added.
    pub(crate) fn by_inviting(nonce: Nonce, client: &NewLink, server: &Link) -> Result<Self> {
        let token = iwarp::token(nonce, end_of_new(client), server.stream_end());
        Self::between(server, client.gid, token)
    }

    fn between(ours: &Link, theirs: Gid, token: [u8; iwarp::TOKEN_LEN]) -> Result<Self> {
        Ok(Self {
            ours: ours.port().gid.iwarp().ok_or(EINVAL)?,
            theirs: theirs.iwarp().ok_or(EINVAL)?,
            token,
        })
    }
}

fn end_of(end: &SmcR) -> StreamEnd {
    StreamEnd {
        qp: end.qp_num,
        psn: end.psn,
    }
}

fn end_of_new(end: &NewLink) -> StreamEnd {
    StreamEnd {
        qp: end.qp_num,
        psn: end.psn,
    }
}

impl Link {
    fn stream_end(&self) -> StreamEnd {
        StreamEnd {
            qp: self.qp_num(),
            psn: self.psn(),
        }
    }

    /// Awaits the stream, after [`Link::ready_to_receive`], and tells the TCP port. Nobody is waited for.
    /// May sleep.
    pub(crate) fn listen(&self, net: &NetNs, wanted: &Wanted) -> Result<u16> {
        let hardware = self.hardware().ok_or(ENOLINK)?;
        let request = Request {
            from: wanted.theirs,
            data: &wanted.token,
        };
        let listener = Listener::new(&hardware.qp, net, wanted.ours, request)?;
        let port = listener.port();
        self.keep(|streaming| streaming.listener = Some(listener))?;
        Ok(port)
    }

    /// Opens the stream, after [`Link::ready_to_receive`]. May sleep, for two seconds.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` or `ECONNREFUSED` if the client does not take it, and what else may go wrong.
    pub(crate) fn connect(&self, net: &NetNs, wanted: &Wanted, port: u16) -> Result {
        let hardware = self.hardware().ok_or(ENOLINK)?;
        let ends = (wanted.ours, SocketAddr::new(wanted.theirs, port));
        let stream = Stream::connect(&hardware.qp, net, ends, &wanted.token, OPEN_NS)?;
        self.keep(|streaming| streaming.stream = Some(stream))
    }

    /// Whether there is a stream; one that was awaited is not awaited any more. May sleep.
    pub(super) fn settle_stream(&self) -> Result {
        let listener = {
            let streaming = &mut self.inner.lock().streaming;
            if streaming.stream.is_some() {
                return Ok(());
            }
            streaming.listener.take()
        };
        let stream = listener.ok_or(ENOTCONN)?.into_stream()?;
        self.keep(|streaming| streaming.stream = Some(stream))
    }

    /// Keeps something of the stream while the link has its device; if that is gone, so is this.
    fn keep(&self, put: impl FnOnce(&mut Streaming)) -> Result {
        let mut inner = self.inner.lock();
        match inner.hardware {
            Some(_) => {
                put(&mut inner.streaming);
                Ok(())
            }
            None => {
                drop(inner);
                Err(ENOLINK)
            }
        }
    }
}
