// SPDX-License-Identifier: GPL-2.0

//! The peer's element that a connection writes to is its own as long as it does (RFC 7609 section 4.4.2).

use kernel::prelude::*;
use smc_proto::{
    id::RmbeIndex,
    lgr::RowId,
    reason::Reason, //
};

use super::{
    Conn,
    Inner,
    PeerRmbe, //
};
use crate::lgr::LinkRef;

/// An element of the peer that no other connection gets.
pub(super) type Claim = (RowId, RmbeIndex);

impl Inner {
    /// Takes the claim out if nothing is written to the element any more.
    pub(super) fn claim_done(&mut self) -> Option<Claim> {
        self.claim.take_if(|_| self.stream.has_stopped_writing())
    }
}

impl Conn {
    /// Learns where the peer receives: an element that was claimed for the connection, and that the peer named
    /// as on the link `named`. Data may come from now on; see [`Conn::establish`] for ours.
    ///
    /// # Errors
    ///
    /// If the connection has lost that link, and the peer did not say where the element is on the one that it
    /// has now.
    pub(crate) fn learn(&self, named: &LinkRef, remote: PeerRmbe) -> Result<(), Reason> {
        let mut inner = self.inner.lock();
        inner.claim = Some((remote.row, remote.index));
        let is_there = |slot| self.group.rtoken(remote.row, slot).is_some();
        let is_on = core::ptr::eq(&*inner.at.link, &*named.link);
        if !is_on && !is_there(inner.at.slot) {
            return Err(Reason::NoActiveLink);
        }
        inner.remote = Some(remote);
        Ok(())
    }

    /// Uses the link that the client named, which may be another one of the group than we did. Nothing was sent
    /// yet. Does not sleep.
    pub(crate) fn use_link(&self, named: &LinkRef) -> Result<(), Reason> {
        let mut inner = self.inner.lock();
        if core::ptr::eq(&*inner.at.link, &*named.link) {
            return Ok(());
        }
        inner.at = named.clone();
        drop(inner);
        self.group.count_on(self.token, named.slot);
        // Who moved connections away from the link before that did not find this one.
        match named.link.is_up() {
            true => Ok(()),
            false => Err(Reason::NoActiveLink),
        }
    }

    /// The handshake failed: another connection may have the peer's element. Does not sleep.
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
