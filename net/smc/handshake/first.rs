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
    clc::{
        Exchange,
        News, //
    },
    conn::Conn,
    lgr::At, //
};

/// Whether the link is not awaited any more for what came over TCP instead. A server says and closes nothing
/// there before it has its answer, but to decline or because it dies; a client may have had all it wanted, and
/// close, when its answer is still on the way.
fn is_over(news: News, role: Role) -> bool {
    match news {
        News::Nothing => false,
        News::Words => true,
        News::End => role == Role::Client,
    }
}

/// Waits until the link works both ways; the client brings it up when the server asked.
pub(super) fn finish(exchange: &mut Exchange<'_>, conn: &Arc<Conn>) -> Result<(), Failure> {
    let group = &conn.group;
    let role = group.terms.role;
    let prepare = || {
        if role == Role::Client {
            let At { slot, link } = conn.at();
            link.ready_to_send().map_err(|_| Reason::LinkNotReady)?;
            let rmbe = conn.rmbe().ok_or(Reason::NoActiveLink)?;
            let registered = rmbe.rmb().register(slot, &link);
            registered.map_err(|_| Reason::RegistrationFailed)?;
        }
        Ok(())
    };
    let is_vain = || is_over(exchange.news(), role);
    let result = exchange.wakeful(|| group.await_first_contact(prepare, is_vain));
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
