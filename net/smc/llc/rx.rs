// SPDX-License-Identifier: GPL-2.0

//! Receive path of a link: CDC messages go to their connection, LLC messages to the group (C function
//! `smc_wr_rx_demultiplex`). Failures of the link are handled here, too.

use core::ptr;

use kernel::{
    pr_warn_once,
    prelude::*,
    sync::Arc, //
};
use smc_proto::wire::Received;

use crate::{
    lgr::LinkGroup,
    link::{
        Handler,
        TraceLgr, //
    }, //
};

/// Receives the events of the link in one slot of a group. Called from completion context: does not sleep.
pub(crate) struct LinkRx {
    group: Arc<LinkGroup>,
    slot: usize,
}

impl LinkRx {
    /// Creates the handler for the link in `slot` of `group`.
    pub(crate) fn new(group: &Arc<LinkGroup>, slot: usize) -> Result<Arc<Self>> {
        let group = group.clone();
        Ok(Arc::new(Self { group, slot }, GFP_KERNEL)?)
    }
}

impl Handler for LinkRx {
    fn on_message(self: Arc<Self>, bytes: &[u8]) {
        match Received::parse(bytes) {
            Ok(Received::Cdc(message)) => {
                self.group.on_cdc(self.slot, message.token, &message.cdc);
            }
            Ok(Received::Llc(message)) => self.group.on_llc(self.slot, &message),
            Ok(Received::Unknown(_)) => {}
            Err(e) => pr_warn_once!("dropping malformed message: {e:?}\n"),
        }
    }

    fn group(&self) -> TraceLgr {
        TraceLgr {
            address: ptr::from_ref(&*self.group).addr(),
            net_cookie: self.group.params.net_cookie,
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.group.on_free_slot(self.slot);
    }

    fn on_failure(self: Arc<Self>) {
        self.group.on_llc_link_down(self.slot);
        self.group.delete_lost_link(self.slot);
    }
}
