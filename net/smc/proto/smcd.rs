// SPDX-License-Identifier: GPL-2.0

//! SMC-D between two sockets of one kernel: shared memory in place of a device.
//!
//! On the wire this is SMC-D version 2 over an emulated device, as the C module has it with its loopback device (C
//! file `drivers/dibs/dibs_loopback.c`): the client offers the GID of its kernel, and the server that finds its own
//! GID there is on the same kernel. Then both sockets share one object, and no message of SMC-D is ever sent: there
//! are no cursors on a wire, only two counters that one side writes and the other reads.
//!
//! [`ring`] has the arithmetic of these counters, [`gather`] says when a reader is woken, [`mark`] has urgent data, and
//! [`view`] what an application sees.

use crate::buffer::SizeClass;
use crate::cause::Cause;
use crate::handshake::eid::Ueids;
use crate::handshake::select;
use crate::id::{
    Eid,
    Features, //
};
use crate::reason::Reason;
use crate::wire::clc::{
    Accept,
    ClcMessage,
    Endpoint,
    FirstContactExt,
    Hostname,
    IsmEntry,
    Limits,
    Mode,
    OsType,
    Proposal,
    Release,
    SmcD,
    SmcdV2Offer, //
};

pub mod gather;
pub mod mark;
pub mod ring;
pub mod view;

/// Channel of an emulated device that needs no driver (C constant `DIBS_LOOPBACK_FABRIC`).
pub const CHID: u16 = 0xffff;

/// The GID of this kernel's emulated device, drawn when the module is loaded. An emulated device has 16 bytes, of which
/// each entry of a PROPOSAL holds eight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceGid {
    /// The first eight bytes.
    pub gid: u64,
    /// The rest.
    pub gid_ext: u64,
}

impl DeviceGid {
    /// Makes a GID of random bytes, in the form of a random UUID (RFC 9562 section 5.4), as the C module does.
    pub const fn from_random(bytes: [u8; 16]) -> Self {
        let n = u128::from_be_bytes(bytes);
        let n = n & !(0xf << 76) | 4 << 76;
        let n = n & !(0x3 << 62) | 2 << 62;
        Self {
            // CAST: the upper and the lower half.
            gid: n.wrapping_shr(64) as u64,
            gid_ext: n as u64,
        }
    }

    /// The two entries of a PROPOSAL.
    pub const fn entries(self) -> [IsmEntry; 2] {
        [
            IsmEntry::new(self.gid, CHID),
            IsmEntry::new(self.gid_ext, CHID),
        ]
    }

    /// Whether a client offers this device: then it is on the same kernel.
    ///
    /// Entries of emulated devices (channels from 0xff00 on) come in pairs, others alone.
    pub fn is_offered(self, offer: &SmcdV2Offer<'_>) -> bool {
        let mut entries = offer.devices.iter();
        while let Some(first) = entries.next() {
            if first.chid() < FIRST_EMULATED {
                continue;
            }
            let Some(second) = entries.next() else {
                return false;
            };
            if [*first, *second] == self.entries() {
                return true;
            }
        }
        false
    }

    /// This side's end of a connection, named by `token`, as ACCEPT and CONFIRM have it.
    pub const fn endpoint(self, token: u64, size: SizeClass, link_id: u32) -> SmcD {
        SmcD {
            gid: self.gid,
            token,
            index: 0,
            size,
            link_id,
            chid: CHID,
            gid_ext: self.gid_ext,
        }
    }

    /// Whether the peer's end is on this device.
    pub const fn is_of(self, peer: &SmcD) -> bool {
        peer.chid == CHID && peer.gid == self.gid && peer.gid_ext == self.gid_ext && peer.index == 0
    }
}

/// Returns what exactly is missing when a server declines for `reason` a PROPOSAL that offers SMC-D alone; `own` is the
/// device of this kernel, whether or not it may be used.
pub fn cause(proposal: &Proposal<'_>, own: DeviceGid, reason: Reason) -> Option<Cause> {
    let offer = proposal.v2()?.technologies.smcd()?;
    if reason != Reason::NoIsmV2Support {
        return None;
    }
    Some(match own.is_offered(offer) {
        true => Cause::SmcdOff,
        false => Cause::OtherKernel,
    })
}

/// What a server answers to a client on the same kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmcdChoice {
    eid: Eid,
    release: Release,
}

impl SmcdChoice {
    /// Returns what to answer if the PROPOSAL offers the device `own`. An EID in common is named, but not needed: both
    /// ends are on one kernel.
    pub fn of(proposal: &Proposal<'_>, own: DeviceGid, eids: &Ueids) -> Option<Self> {
        let offer = proposal.v2()?;
        if !own.is_offered(offer.technologies.smcd()?) {
            return None;
        }
        Some(Self {
            eid: eids.choose(offer.eids.iter().copied()).unwrap_or(Eid::NONE),
            release: select::release(offer.release),
        })
    }

    /// Makes the ACCEPT; `local` is our end.
    pub const fn accept(self, local: SmcD, hostname: Hostname) -> Accept {
        Accept {
            endpoint: Endpoint::SmcD(local),
            mode: Mode::V2 {
                eid: self.eid,
                first_contact: Some(FirstContactExt {
                    direct: false,
                    os: OsType::LINUX,
                    release: self.release,
                    hostname,
                    raw_limits: Limits {
                        max_conns: 0,
                        max_links: 0,
                    },
                    features: Features(0),
                    vendor_options: 0,
                }),
            },
        }
    }
}

/// Returns the client's end if `message` is a CONFIRM of SMC-D.
pub const fn confirmed(message: &ClcMessage<'_>) -> Option<SmcD> {
    match message {
        ClcMessage::Confirm(confirm) => match confirm.endpoint {
            Endpoint::SmcD(client) => Some(client),
            Endpoint::SmcR(_) => None,
        },
        _ => None,
    }
}

/// Lowest channel of an emulated device.
const FIRST_EMULATED: u16 = 0xff00;

#[cfg(test)]
mod tests {
    use super::*;

    use crate::wire::List;

    const OURS: DeviceGid = DeviceGid { gid: 1, gid_ext: 2 };

    fn is_offered(entries: &[(u64, u16)]) -> bool {
        let entries: Vec<_> = entries
            .iter()
            .map(|(gid, chid)| IsmEntry::new(*gid, *chid))
            .collect();
        OURS.is_offered(&SmcdV2Offer {
            seid: Eid::NONE,
            devices: List::new(&entries).unwrap(),
        })
    }

    #[test]
    fn a_gid_is_a_random_uuid() {
        for bytes in [[0; 16], [0xff; 16], [0xa5; 16]] {
            let gid = DeviceGid::from_random(bytes);
            assert_eq!(gid.gid >> 12 & 0xf, 4);
            assert_eq!(gid.gid_ext >> 62, 2);
        }
    }

    #[test]
    fn entries_of_emulated_devices_are_paired() {
        assert!(is_offered(&[(1, CHID), (2, CHID)]));
        assert!(is_offered(&[(9, 0x0700), (1, CHID), (2, CHID)]));
        assert!(is_offered(&[
            (8, 0xff00),
            (9, 0xff00),
            (1, CHID),
            (2, CHID)
        ]));
        // The second half, the order, the channel, and pairs that begin in the middle of another.
        assert!(!is_offered(&[(1, CHID), (3, CHID)]));
        assert!(!is_offered(&[(2, CHID), (1, CHID)]));
        assert!(!is_offered(&[(1, 0xff00), (2, 0xff00)]));
        assert!(!is_offered(&[(9, CHID), (1, CHID), (2, CHID)]));
        assert!(!is_offered(&[(1, CHID)]));
        assert!(!is_offered(&[]));
    }

    #[test]
    fn an_endpoint_is_recognised_by_all_of_its_gid() {
        let end = OURS.endpoint(7, SizeClass::SMALLEST, 0);
        assert!(OURS.is_of(&end));
        assert!(!OURS.is_of(&SmcD { gid_ext: 3, ..end }));
        assert!(!OURS.is_of(&SmcD { chid: 0, ..end }));
        assert!(!OURS.is_of(&SmcD { index: 1, ..end }));
    }
}
