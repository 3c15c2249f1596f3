// SPDX-License-Identifier: GPL-2.0
//! A host receives: messages in the order of their links, those that wait for others, validations.

use smc_proto::conn::{
    Cdc,
    Fault,
    RxVerdict, //
};

use super::Pair;
use crate::common::{
    rdma::{
        Arrived,
        LINKS, //
    },
    Side, //
};

impl Pair {
    pub(super) fn message(&mut self, side: Side, link: usize) {
        let Some(arrived) = self.fabric.poll_message(side, link) else {
            return;
        };
        // The peer's messages say what it has of ours.
        if self.rng.one_in(2) {
            self.tell(side, link);
        }
        let cdc = match arrived {
            Arrived::Message(cdc) => cdc,
            Arrived::Immediate { seq, len, cdc } => match self.expand(side, seq, len, &cdc) {
                Some(cdc) => cdc,
                None => return,
            },
        };
        let closes = cdc.is_validation() && self.retire_named_links(side, &cdc);
        let host = self.host(side);
        match host.cdc_hold.filter(&cdc, &mut host.stream, closes) {
            RxVerdict::Deliver => self.deliver(side, &cdc),
            RxVerdict::Hold => {}
            RxVerdict::HoldAndFlush => host.drain = true,
            RxVerdict::Abort(fault) => panic!("{fault:?}"),
        }
    }

    /// Completes immediate data, which stand for message `sent`.
    fn expand(&mut self, side: Side, seq: u16, len: u32, sent: &Cdc) -> Option<Cdc> {
        let host = self.host(side);
        match host.cdc_hold.expand(seq, len, &host.stream) {
            Ok(cdc) => {
                if let Some(cdc) = cdc {
                    let prod = |cdc: &Cdc| (cdc.seq, cdc.prod, cdc.flags, cdc.rmbes.prod);
                    assert_eq!(prod(&cdc), prod(sent));
                    // The same position has other cursors in RMBEs of other sizes.
                    if cdc.rmbes.cons == sent.rmbes.cons {
                        assert_eq!(cdc.cons, sent.cons);
                    }
                    assert!(cdc.state.contains(sent.state));
                }
                cdc
            }
            Err(fault) => {
                self.on_fault(side, fault);
                None
            }
        }
    }

    /// Takes the links down that a validation names, as far as they are still there.
    fn retire_named_links(&mut self, side: Side, cdc: &Cdc) -> bool {
        let mut is_any = false;
        for link in LINKS {
            let is_named = cdc.retired_links().contains(&self.fabric.number(link));
            if is_named && !self.fabric.is_stopped(side, link) {
                is_any = true;
                if self.fabric.is_up(link) {
                    self.fabric.fail(link, &mut self.rng, &mut self.memory);
                }
            }
        }
        is_any
    }

    /// Takes all that arrived by any link, as the module does when a message of the peer is missing.
    pub(super) fn drain(&mut self, side: Side) {
        let host = self.host(side);
        host.drain = false;
        host.cdc_hold.begin_flush();
        for link in LINKS {
            if !self.fabric.is_up(link) {
                self.stop(side, link);
            }
            while self.fabric.has_message(side, link) {
                self.message(side, link);
            }
        }
        for cdc in self.host(side).cdc_hold.release().into_iter().flatten() {
            self.deliver(side, &cdc);
        }
    }

    pub fn deliver(&mut self, side: Side, cdc: &Cdc) {
        match self.host(side).stream.on_cdc(cdc) {
            Ok(fx) => {
                self.apply(side, fx);
                if let Some(offer) = fx.offer {
                    self.adopt_rmbe(side, &offer);
                }
            }
            Err(fault) => self.on_fault(side, fault),
        }
    }

    fn on_fault(&mut self, side: Side, fault: Fault) {
        let host = self.host(side);
        host.fault = Some(fault);
        host.transmit |= host.stream.abort().transmit;
        host.reader_awake = true;
        host.writer_awake = true;
    }
}
