// SPDX-License-Identifier: GPL-2.0

//! What a lying peer does, and when: made from one number.

use crate::data::Random;

use super::app::Kind;
use super::session::Offers;

/// Most bytes that are transferred before the lies.
const BEFORE: usize = 60_000;

/// When the lies begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The handshake over TCP is done, the link is not confirmed.
    Agreed,
    /// The connection is there, and this number of bytes was sent to the kernel.
    Sent(u64),
    /// After that the peer has shut down, or closed.
    ShutDown(u64),
    Closed(u64),
}

/// How the connection ends after the lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// TCP is reset.
    Reset,
    /// TCP is closed, and reset later.
    Fin,
    /// The peer closes in order, or aborts, by CDC.
    Closed,
    Aborted,
    /// It deletes the link group.
    Deleted,
    /// Its queue pair is no more. TCP goes on.
    Mute,
    /// It acknowledges all packets, and answers nothing. TCP goes on.
    Silent,
    /// The queue pair is no more, and TCP is reset.
    Vanished,
}

impl Ending {
    /// Whether the kernel has to notice this end by RDMA.
    pub(super) fn is_by_rdma(self) -> bool {
        matches!(
            self,
            Self::Aborted | Self::Deleted | Self::Mute | Self::Silent
        )
    }
}

/// One script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Script {
    /// Whether the peer is the server of the connection.
    pub(super) is_server: bool,
    pub(super) app: Kind,
    /// Code of the size of the peer's ring.
    pub(super) ring: u8,
    /// Links that it wants to have.
    pub(super) links: u8,
    pub(super) moment: Moment,
    pub(super) lies: u64,
    /// Whether it goes on with data after the lies.
    pub(super) goes_on: bool,
    /// Whether it reads what the kernel writes.
    pub(super) reads: bool,
    /// Whether it confirms the link.
    pub(super) confirms: bool,
    pub(super) offers: Offers,
    /// Whether the first link fails when there is a second one, and the lies are told there.
    pub(super) fails_over: bool,
    /// Whether immediate data may take the place of CDC messages.
    pub(super) immediate: bool,
    /// Whether RMBEs can be replaced, which goes with that.
    pub(super) replaces: bool,
    pub(super) ending: Ending,
}

impl Script {
    /// With `second_links` it may accept a second link and go on there.
    pub(super) fn new(random: &mut Random, second_links: bool) -> Self {
        let is_server = random.below(2) == 0;
        let app = random.pick(&[Kind::Reader, Kind::Writer, Kind::Echo, Kind::Poller]);
        // CAST: `usize` has 64 bits.
        let before = random.size(BEFORE) as u64;
        let moment = match random.below(10) {
            0 => Moment::Agreed,
            1 => Moment::ShutDown(before),
            2 => Moment::Closed(before),
            3 | 4 => Moment::Sent(0),
            _ => Moment::Sent(before),
        };
        let ending = random.pick(&[
            Ending::Reset,
            Ending::Reset,
            Ending::Fin,
            Ending::Closed,
            Ending::Aborted,
            Ending::Deleted,
            Ending::Mute,
            Ending::Silent,
            Ending::Vanished,
        ]);
        Self {
            is_server,
            app,
            // CAST: below 3.
            ring: random.below(3) as u8,
            // Who is silent about a second link has a client wait for seconds.
            links: if random.below(8) == 0 { 2 } else { 1 },
            moment,
            // Silence is one, too.
            lies: random.below(5),
            goes_on: random.below(2) == 0,
            reads: random.below(8) > 0,
            confirms: random.below(6) > 0 || moment != Moment::Agreed,
            // Of a copy: known seeds keep their lies.
            offers: match second_links && random.clone().next() & 0x200 != 0 {
                true => Offers::Used,
                false => {
                    let others = [Offers::Rejected, Offers::Ignored, Offers::Accepted];
                    random.clone().pick(&others)
                }
            },
            fails_over: random.clone().next() & 0xc00 != 0,
            immediate: random.clone().next() & 0x100 != 0,
            replaces: random.clone().next() & 0x1000 != 0,
            ending,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_script_and_all_kinds_occur() {
        let script = |seed| format!("{:?}", Script::new(&mut Random::new(seed), true));
        assert_eq!(script(5), script(5));
        let all: String = (0..500).map(script).collect();
        for kind in [
            "Reader", "Writer", "Echo", "Poller", "Agreed", "Sent", "ShutDown", "Closed", "Reset",
            "Fin", "Aborted", "Deleted", "Mute", "Silent", "Vanished", "Rejected", "Ignored",
            "Accepted", "Used",
        ] {
            assert!(all.contains(kind), "{kind}");
        }
        assert!(all.contains("confirms: false") && all.contains("links: 2"));
        assert!(all.contains("immediate: false") && all.contains("immediate: true"));
        assert!(all.contains("fails_over: false") && all.contains("fails_over: true"));
    }
}
