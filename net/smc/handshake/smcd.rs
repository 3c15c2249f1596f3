// SPDX-License-Identifier: GPL-2.0

//! Handshakes between two sockets of this kernel, which lead to SMC-D (C functions `smc_connect_ism`,
//! `smc_listen_ism_init`).

use kernel_ext::{
    net::Sk,
    prelude::*, //
};
use smc_proto::{
    cause::Cause,
    error::PeerMisbehaved,
    handshake::{
        client::AcceptedSmcD,
        eid::Ueids,
        Failure,
        Fatal,
        CLC_WAIT, //
    },
    reason::Reason,
    smcd::{
        self as proto,
        DeviceGid, //
    },
    wire::clc::{
        ClcMessage,
        Proposal, //
    }, //
};

use super::{
    internal,
    Session, //
};
use crate::{
    namespace,
    smcd::{
        self,
        SmcdConn, //
    }, //
};

/// Returns the device of this kernel, if the namespace of the socket allows its use.
fn device(sk: &Sk) -> Option<DeviceGid> {
    match namespace::has_smcd(&namespace::of(sk).config) {
        true => smcd::own_gid(),
        false => None,
    }
}

/// Returns the device that a client offers: not to peers that cannot be on this kernel.
pub(super) fn offered(session: &Session<'_>) -> Option<DeviceGid> {
    device(session.sk).filter(|_| session.tcp.has_virtual_route())
}

/// Returns the server's answer to a client on this kernel.
pub(super) fn chosen(sk: &Sk, ueids: &Ueids, proposal: &Proposal<'_>) -> Option<proto::SmcdChoice> {
    proto::SmcdChoice::of(proposal, device(sk)?, ueids)
}

/// Returns what exactly is missing when the server declines a PROPOSAL for `reason` that offers SMC-D alone.
pub(super) fn cause(proposal: &Proposal<'_>, reason: Reason) -> Option<Cause> {
    proto::cause(proposal, smcd::own_gid()?, reason)
}

/// The server's part after the PROPOSAL.
/// Context: may sleep.
pub(super) fn accept(
    session: &mut Session<'_>,
    chosen: proto::SmcdChoice,
) -> Result<SmcdConn, Failure> {
    let offer = smcd::SmcdOffer::new(session.sk, session.tcp).map_err(internal)?;
    let message = chosen.accept(offer.endpoint(), session.local.hostname);
    session.clc.send(&ClcMessage::Accept(message))?;
    let answer = session.clc.receive(CLC_WAIT)?;
    let Some(client) = proto::confirmed(&answer) else {
        return Err(Failure::not_awaited(&answer));
    };
    offer.taken_by(&client).ok_or_else(|| {
        // The client uses SMC-D already, and reads no DECLINE.
        session.tcp.abort(ECONNABORTED);
        Fatal::Reset.into()
    })
}

/// The client's part after the ACCEPT.
/// Context: may sleep.
pub(super) fn connect(
    session: &mut Session<'_>,
    accepted: &AcceptedSmcD,
) -> Result<SmcdConn, Failure> {
    let attached = smcd::attach(accepted.server(), session.sk, session.tcp);
    let (conn, end) = attached.map_err(|e| match e {
        e if e == ENOMEM => internal(e).into(),
        _ => Failure::from(PeerMisbehaved::ModeNotOffered),
    })?;
    let confirm = accepted.confirm(end, session.local.hostname);
    match session.clc.send(&ClcMessage::Confirm(confirm)) {
        Ok(()) => Ok(conn),
        Err(failure) => {
            conn.close(session.sk, Some(0));
            Err(failure.into())
        }
    }
}
