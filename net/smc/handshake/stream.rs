// SPDX-License-Identifier: GPL-2.0

//! The stream of a first link over iWARP: the server opens it, or, where it cannot, the client
//! (`Documentation/iwarp.md`).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    net::NetNs,
    time, //
};
use smc_proto::lgr::Role;

use crate::{
    clc::{
        ClcChannel,
        TcpActivity, //
    },
    link::{
        Link,
        Wanted, //
    }, //
};

/// From the CONFIRM on: time for the server to open the stream, ns, in which TCP may lose a packet,
const SERVER_OPENS: u64 = 1_500_000_000;
/// until the client does not await it any more, and opens one itself,
const CLIENT_AWAITS: u64 = 1_900_000_000;
/// until it gives that up,
const CLIENT_OPENS: u64 = 2_700_000_000;
/// and until the server does not await that any more.
const SERVER_AWAITS: u64 = 3_000_000_000;

/// Time between two looks at the TCP connection, ns.
const TICK: u64 = 100_000_000;

fn after(start: u64, wait: u64) -> u64 {
    start.saturating_add(wait)
}

/// The two ends of a stream that is to be.
pub(super) struct Meeting<'a> {
    pub(super) link: &'a Arc<Link>,
    pub(super) exchange: &'a ClcChannel<'a>,
    pub(super) net: &'a NetNs,
    pub(super) wanted: &'a Wanted,
    /// The TCP port at which the peer awaits the stream; 0 for none.
    pub(super) port: u16,
}

impl Meeting<'_> {
    /// The server's part, once the CONFIRM is here: has the link ready to send. May sleep.
    pub(super) fn as_server(&self) -> Result {
        let (link, start) = (self.link, time::now_ns());
        let Err(error) = self.open(Role::Server, after(start, SERVER_OPENS)) else {
            return link.take_iw_conn();
        };
        if !link.is_up() {
            return Err(error);
        }
        link.accept_request(self.wanted, Role::Client)?;
        let end = after(start, SERVER_AWAITS);
        if !self.wait_iw_conn(end)? {
            return Err(error);
        }
        link.take_iw_conn()?;
        // Who did not open a stream must not be the first to send.
        match link.wait_first_msg(end) {
            true => Ok(()),
            false => Err(ETIMEDOUT),
        }
    }

    /// The client's part, once the CONFIRM has left: if no stream comes and the server awaits one, opens that.
    /// If the server has said something else meanwhile, that counts, and is looked at later. May sleep.
    pub(super) fn as_client(&self) -> Result {
        if self.port == 0 {
            return Ok(());
        }
        let start = time::now_ns();
        let has_come = self.wait_iw_conn(after(start, CLIENT_AWAITS))?;
        if has_come || self.has_news() || self.link.take_iw_conn().is_ok() {
            return Ok(());
        }
        self.open(Role::Client, after(start, CLIENT_OPENS))?;
        self.link.send_empty();
        Ok(())
    }

    fn open(&self, initiator: Role, end: u64) -> Result {
        self.link
            .connect(self.net, self.wanted, (initiator, self.port), end)
    }

    /// Waits for the stream that is expected, until the clock says `end` ns or the peer says something else. Says
    /// whether it has come.
    fn wait_iw_conn(&self, end: u64) -> Result<bool> {
        loop {
            let has_come = self
                .link
                .wait_iw_conn(after(time::now_ns(), TICK).min(end))?;
            if has_come || time::now_ns() >= end || self.has_news() {
                return Ok(has_come);
            }
        }
    }

    fn has_news(&self) -> bool {
        self.exchange.tcp_activity() != TcpActivity::None
    }
}
