// SPDX-License-Identifier: GPL-2.0
//! What a server makes of a client that offers shared memory within one kernel (SMC-D).

use smc_proto::cause::Cause;
use smc_proto::handshake::client::{
    ClientCaps,
    V2Port, //
};
use smc_proto::handshake::eid::Ueids;
use smc_proto::handshake::server::ServerCaps;
use smc_proto::id::{
    Gid,
    Ipv4,
    Mac,
    PeerId, //
};
use smc_proto::reason::Reason;
use smc_proto::smcd::{
    self,
    DeviceGid,
    SmcdChoice, //
};
use smc_proto::wire::clc::{
    ClcMessage,
    Limits,
    Proposal, //
};
use smc_proto::wire::List;

const OURS: DeviceGid = DeviceGid { gid: 1, gid_ext: 2 };
const OTHER: DeviceGid = DeviceGid { gid: 1, gid_ext: 3 };
const LIMITS: Limits = Limits {
    max_conns: 255,
    max_links: 2,
};

/// Proposes this device, and RDMA too if `has_rdma`, to a server that reads it off the wire.
fn propose<R>(device: DeviceGid, has_rdma: bool, then: impl FnOnce(&Proposal<'_>) -> R) -> R {
    let (eids, entries) = (Ueids::DEFAULT, device.entries());
    let caps = ClientCaps {
        smcd: Some(&entries),
        peer_id: PeerId([0, 7, 2, 0, 0, 0, 0, 9]),
        v1: None,
        v2: has_rdma.then_some(V2Port {
            gid: Gid::from_ipv4(Ipv4([10, 9, 0, 1])),
            mac: Mac([2, 0, 0, 0, 0, 9]),
        }),
        iwarp: None,
        prefix: None,
        eids: List::new(eids.as_slice()).unwrap(),
        limits: LIMITS,
    };
    let (_, proposal) = caps.propose().unwrap();
    let mut buf = [0; 1000];
    let bytes = ClcMessage::Proposal(proposal).emit(&mut buf).unwrap();
    let Ok(ClcMessage::Proposal(read)) = ClcMessage::parse(bytes) else {
        panic!("the proposal cannot be read");
    };
    then(&read)
}

/// The reason for which a server without shared memory declines, and what it says was missing.
fn declined(proposal: &Proposal<'_>) -> (Option<Reason>, Option<Cause>) {
    let caps = ServerCaps {
        eids: &Ueids::DEFAULT,
        limits: LIMITS,
        has_ipsec: false,
        has_interface: true,
        iwarp: None,
    };
    let reason = caps.evaluate(proposal, |_| false).err();
    let cause = reason.and_then(|reason| smcd::cause(proposal, OURS, reason));
    (reason, cause)
}

#[test]
fn a_client_on_this_kernel_is_recognised() {
    let is_ours = |device| {
        propose(device, false, |proposal| {
            SmcdChoice::of(proposal, OURS, &Ueids::DEFAULT).is_some()
        })
    };
    assert!(is_ours(OURS) && !is_ours(OTHER));
}

#[test]
fn a_server_that_declines_shared_memory_says_what_was_missing() {
    let reason = Some(Reason::NoIsmV2Support);
    assert_eq!(
        propose(OURS, false, declined),
        (reason, Some(Cause::SmcdOff))
    );
    assert_eq!(
        propose(OTHER, false, declined),
        (reason, Some(Cause::OtherKernel))
    );
}

#[test]
fn what_is_missing_for_rdma_is_another_matter() {
    assert_eq!(propose(OURS, true, declined), (None, None));
    let other = |proposal: &Proposal<'_>| smcd::cause(proposal, OURS, Reason::NoSmcrDevice);
    assert_eq!(propose(OURS, true, other), None);
}
