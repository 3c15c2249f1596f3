// SPDX-License-Identifier: GPL-2.0
//! The RMBEs that a host has one after the other.

use smc_proto::buffer::SizeClass;
use smc_proto::conn::RmbeOffer;
use smc_proto::id::RmbeIndex;

use super::{
    Pair,
    Plan, //
};
use crate::common::Side;

/// Which of its RMBEs ([`Memory::rmbes`](crate::common::rdma::Memory::rmbes)) a host uses, and of its peer's.
pub struct Rmbes {
    pub present: usize,
    replaced: Option<usize>,
    offered: Option<usize>,
    /// The peer's.
    pub remote: usize,
    /// Bytes of the largest so far.
    pub largest: u32,
}

impl Rmbes {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            present: 0,
            replaced: None,
            offered: None,
            remote: 0,
            largest: plan.rmbe.bytes(),
        }
    }
}

impl Pair {
    /// Offers an RMBE of any size.
    pub(super) fn offer_rmbe(&mut self, side: Side) {
        self.offers -= 1;
        let size = SizeClass::from_code(self.rng.between(0, 2) as u8).expect("a small one");
        let rmbes = &mut self.memory[side.index()].rmbes;
        let new = rmbes.len();
        rmbes.push(vec![0xee; size.bytes() as usize]);
        let index = u8::try_from(new + 1).ok().and_then(RmbeIndex::new);
        let host = self.host(side);
        host.stream.offer_rmbe(size, index.expect("a few only"));
        host.rmbes.offered = Some(new);
        host.rmbes.largest = host.rmbes.largest.max(size.bytes());
        host.transmit = true;
    }

    /// Adopts what the peer offers, or not yet.
    pub(super) fn adopt_rmbe(&mut self, side: Side, offer: &RmbeOffer) {
        if self.rng.one_in(3) {
            return;
        }
        self.adopted += 1;
        let host = self.host(side);
        host.stream.adopt_rmbe(offer.size);
        host.rmbes.remote = usize::from(offer.index.get()) - 1;
        host.transmit = true;
    }

    /// The peer writes to the RMBE offered to it.
    pub(super) fn replace_rmbe(&mut self, side: Side) {
        let rmbes = &mut self.host(side).rmbes;
        let new = rmbes.offered.take().expect("one was offered");
        let old = std::mem::replace(&mut rmbes.present, new);
        assert_eq!(rmbes.replaced.replace(old), None);
        self.release_replaced(side);
    }

    /// Releases the one before once it is not needed: whoever writes there from now on fails.
    pub(super) fn release_replaced(&mut self, side: Side) {
        let host = self.host(side);
        if host.stream.needs_replaced() {
            return;
        }
        if let Some(old) = host.rmbes.replaced.take() {
            self.memory[side.index()].rmbes[old] = Vec::new();
        }
    }

    /// The one in which the next byte to be read is.
    pub(super) fn rmbe_to_read(&self, side: Side) -> &[u8] {
        let host = &self.hosts[side.index()];
        let index = match host.stream.is_in_replaced(0) {
            true => host.rmbes.replaced.expect("kept while it is needed"),
            false => host.rmbes.present,
        };
        &self.memory[side.index()].rmbes[index]
    }
}
