// SPDX-License-Identifier: GPL-2.0

//! Exclusive use of the peer's RMBE by the connection that writes to it (RFC 7609 section 4.4.2).

use kernel_ext::prelude::*;
use smc_proto::{
    id::RmbeIndex,
    lgr::RtokenIdx,
    reason::Reason, //
};

use super::{
    Conn,
    ConnInner,
    PeerRmbe, //
};
use crate::lgr::LinkRef;

/// A peer's RMBE that is reserved for one connection.
pub(super) type Claim = (RtokenIdx, RmbeIndex);

impl ConnInner {
    /// Takes the claim out if nothing is written to the RMBE any more.
    pub(super) fn claim_done(&mut self) -> Option<Claim> {
        self.claim.take_if(|_| self.stream.has_stopped_writing())
    }
}

impl Conn {
    /// Sets the peer's RMBE, which was claimed for the connection and which the peer named for the link `named`. Data
    /// may arrive from now on; see [`Conn::establish`] for ours.
    ///
    /// # Errors
    ///
    /// If the connection has lost that link, and the peer sent no RToken for the link that it uses now.
    pub(crate) fn save_peer_rmbe(&self, named: &LinkRef, remote: PeerRmbe) -> Result<(), Reason> {
        let mut inner = self.inner.lock();
        inner.claim = Some((remote.row, remote.index));
        let is_there = |idx| self.group.rtoken(remote.row, idx).is_some();
        let is_on = core::ptr::eq(&*inner.at.link, &*named.link);
        if !is_on && !is_there(inner.at.idx) {
            return Err(Reason::NoActiveLink);
        }
        inner.remote = Some(remote);
        Ok(())
    }

    /// Uses the link that the client named, which may differ from the one that we named. Nothing was sent yet.
    /// Context: does not sleep.
    pub(crate) fn use_link(&self, named: &LinkRef) -> Result<(), Reason> {
        let mut inner = self.inner.lock();
        if core::ptr::eq(&*inner.at.link, &*named.link) {
            return Ok(());
        }
        inner.at = named.clone();
        drop(inner);
        self.group.account_conn(self.token, named.idx);
        // A failover of that link before this may have missed the connection.
        match named.link.is_up() {
            true => Ok(()),
            false => Err(Reason::NoActiveLink),
        }
    }

    /// Releases the claim after a failed handshake: another connection may use the RMBE.
    /// Context: does not sleep.
    pub(crate) fn give_up_claim(&self) {
        let claim = self.inner.lock().claim.take();
        self.release_claim(claim);
    }

    pub(super) fn release_claim(&self, claim: Option<Claim>) {
        if let Some((row, index)) = claim {
            self.group.with_rtokens(|all| all.release(row, index));
        }
    }
}
