// SPDX-License-Identifier: GPL-2.0

//! Where a socket of SMC answers otherwise than one of TCP, and why. The run fails on any other difference, and on a
//! listed one that is none any more.

mod socket;
mod tcp;

use crate::family::Family;

/// States for which the same can be said.
pub(super) struct Group {
    pub(super) name: &'static str,
    pub(super) states: &'static [&'static str],
}

/// A difference of some options.
pub(super) struct Difference {
    options: &'static [&'static str],
    families: &'static [Family],
    pub(super) groups: &'static [&'static Group],
    /// Effects that differ.
    pub(super) effects: &'static [&'static str],
    /// All that is said there.
    pub(super) answers: &'static [&'static str],
    pub(super) why: &'static str,
}

impl Difference {
    /// Names of the states and effects.
    pub(super) fn places(&self) -> impl Iterator<Item = &'static str> + use<'_> {
        let states = self.groups.iter().flat_map(|group| group.states);
        states.chain(self.effects).copied()
    }

    /// Whether this answer is listed for this place.
    pub(super) fn covers(&self, place: &str, answer: &str) -> bool {
        self.places().any(|listed| listed == place) && self.answers.contains(&answer)
    }
}

/// The differences of an option for sockets of this family.
pub(super) fn of<'a>(
    option: &'a str,
    family: Family,
) -> impl Iterator<Item = &'static Difference> + use<'a> {
    let all = [socket::DIFFERENCES, tcp::DIFFERENCES]
        .into_iter()
        .flatten();
    all.filter(move |difference| {
        difference.options.contains(&option) && difference.families.contains(&family)
    })
}

const ALL: &[Family] = &[Family::Smc, Family::Ipproto, Family::Ulp];
const SMC: &[Family] = &[Family::Smc];
const IPPROTO: &[Family] = &[Family::Ipproto];
const ULP: &[Family] = &[Family::Ulp];
/// Those that were never a TCP socket.
const BORN: &[Family] = &[Family::Smc, Family::Ipproto];

macro_rules! groups {
    ($($id:ident, $name:literal: $($state:literal),+;)+) => {
        $(const $id: &Group = &Group { name: $name, states: &[$($state),+] };)+
    };
}

groups! {
    EVERYWHERE, "in every state":
        "fresh", "bound", "refused", "connecting", "listening", "client", "accepted", "shut down for writing",
        "the peer is shut down for writing", "the peer has closed", "shut down at both ends", "reset",
        "fallen back, client", "fallen back, accepted", "fallen back, the peer has closed", "client, set before",
        "accepted, set at the listener", "fallen back, set before", "fallen back, set at the listener",
        "fresh, set before TCP_ULP";
    SET, "in every state, where it is set":
        "fresh", "bound", "refused", "connecting", "listening", "client", "accepted", "shut down for writing",
        "the peer is shut down for writing", "the peer has closed", "shut down at both ends", "reset",
        "fallen back, client", "fallen back, accepted", "fallen back, the peer has closed";
    NOT_FALLEN, "unless fallen back":
        "fresh", "bound", "refused", "connecting", "listening", "client", "accepted", "shut down for writing",
        "the peer is shut down for writing", "the peer has closed", "shut down at both ends", "reset";
    UNCONNECTED, "without a connection": "fresh", "bound", "refused", "listening", "shut down at both ends", "reset";
    NEW, "new": "fresh", "bound", "refused";
    CONNECTING, "connecting": "connecting";
    LISTENING, "listening": "listening";
    RDMA, "connected over RDMA":
        "client", "accepted", "shut down for writing", "the peer is shut down for writing", "the peer has closed",
        "shut down at both ends", "reset";
    CLIENT, "client over RDMA": "client", "shut down for writing", "the peer is shut down for writing";
    ACCEPTED, "accepted": "accepted", "the peer has closed";
    ENDED, "shut down at both ends, or reset": "shut down at both ends", "reset";
    FALLEN, "fallen back": "fallen back, client", "fallen back, accepted", "fallen back, the peer has closed";
    FALLEN_CLIENT, "client, fallen back": "fallen back, client", "fallen back, the peer has closed";
    FALLEN_ACCEPTED, "accepted, fallen back": "fallen back, accepted";
    CLIENT_SET, "set before connect": "client, set before";
    ACCEPTED_SET, "accepted, set at the listener": "accepted, set at the listener";
    CLIENTS_SET, "set before connect": "client, set before", "fallen back, set before";
    ACCEPTEDS_SET, "accepted, set at the listener": "accepted, set at the listener", "fallen back, set at the listener";
    CONVERTED, "set before `TCP_ULP`": "fresh, set before TCP_ULP";
}
