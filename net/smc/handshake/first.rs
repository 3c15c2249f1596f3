// SPDX-License-Identifier: GPL-2.0

//! The end of a first contact: the new link is tried from both sides (RFC 7609 section 3.5.1.7).

use kernel::{
    prelude::*,
    sync::Arc, //
};
use smc_proto::{
    handshake::{
        after_silence,
        Failure,
        Fatal,
        DECLINE_WAIT, //
    },
    lgr::Role,
    llc::first::Error,
    reason::Reason, //
};

use crate::{
    clc::Exchange,
    conn::Conn,
    lgr::At, //
};

/// Waits until the link works both ways; the client brings it up when the server asked.
pub(super) fn finish(exchange: &mut Exchange<'_>, conn: &Arc<Conn>) -> Result<(), Failure> {
    let group = &conn.group;
    let result = group.await_first_contact(|| {
        if group.terms.role == Role::Client {
            let At { slot, link } = conn.at();
            link.ready_to_send().map_err(|_| Reason::LinkNotReady)?;
            let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
            let registered = rmbe.rmb().register(slot, &link);
            registered.map_err(|_| Reason::RegistrationFailed)?;
        }
        Ok(())
    });
    match result {
        Ok(()) => {
            // The handshake itself told the peer of the first region.
            if let Some(rmbe) = conn.rmbe() {
                rmbe.rmb().set_known();
            }
            Ok(())
        }
        Err(Error::Failed(reason)) => Err(reason.into()),
        Err(Error::Silent) => Err(match exchange.receive(DECLINE_WAIT) {
            Ok(message) => after_silence(Some(&message)),
            Err(Failure::Fatal(Fatal::TimedOut)) => after_silence(None),
            Err(failure) => failure,
        }),
    }
}
