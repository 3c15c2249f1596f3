// SPDX-License-Identifier: GPL-2.0

//! Receive path of a link: CDC messages go to their connection, LLC messages to the group (C function
//! `smc_wr_rx_demultiplex`). Failures of the link are handled here, too.

use core::ptr;

use kernel::{
    pr_warn_once,
    sync::Arc, //
};
use kernel_ext::prelude::*;
use smc_proto::{
    lgr::LinkIdx,
    wire::{
        immediate::Immediate,
        Received, //
    }, //
};

use crate::{
    lgr::LinkGroup,
    link::{
        LinkHandler,
        TraceLgr, //
    }, //
};

/// Receives the events of one link of a group. Called from completion context: does not sleep.
pub(crate) struct LinkRx {
    group: Arc<LinkGroup>,
    idx: LinkIdx,
}

impl LinkRx {
    /// Creates the handler for link `idx` of `group`.
    pub(crate) fn new(group: &Arc<LinkGroup>, idx: LinkIdx) -> Result<Arc<Self>> {
        let group = group.clone();
        Ok(Arc::new(Self { group, idx }, GFP_KERNEL)?)
    }
}

impl LinkHandler for LinkRx {
    fn on_message(self: Arc<Self>, bytes: &[u8]) {
        match Received::parse(bytes) {
            Ok(Received::Cdc(message)) => {
                self.group.on_cdc(self.idx, message.token, &message.cdc);
            }
            Ok(Received::Llc(message)) => self.group.on_llc(self.idx, &message),
            Ok(Received::Unknown(_)) => {}
            Err(e) => pr_warn_once!("dropping malformed message: {e:?}\n"),
        }
    }

    fn on_immediate(self: Arc<Self>, immediate: Immediate, len: u32) {
        self.group.on_immediate(self.idx, immediate, len);
    }

    fn group(&self) -> TraceLgr {
        TraceLgr {
            address: ptr::from_ref(&*self.group).addr(),
            net_cookie: self.group.params.net_cookie,
        }
    }

    fn on_slot(self: Arc<Self>) {
        self.group.on_free_slot(self.idx);
    }

    fn on_failure(self: Arc<Self>) {
        self.group.on_llc_link_down(self.idx);
        self.group.delete_lost_link(self.idx);
    }
}
