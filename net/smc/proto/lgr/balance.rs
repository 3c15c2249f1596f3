// SPDX-License-Identifier: GPL-2.0

//! Selection of a connection's link: at its start, after the loss of its link, and after a link was added (C functions
//! `smcr_lgr_conn_assign_link`, `smc_switch_conns`).
//!
//! The C module alternates between two links, moves all connections of a lost link to the first remaining one, and
//! leaves them there. Here the link with the fewest connections always gets the next one.

use super::{LinkIdx, LinkMap};

/// Number of connections on each link, by index; `None` for a link that must not be chosen.
pub type Loads = LinkMap<Option<usize>>;

/// Returns the index of the link for one more connection: the lowest of those with the fewest connections. `None` if
/// there is no link.
///
/// For a new connection the server chooses among active links that are not asymmetric; the client uses the link that
/// the server named. After the loss of a link each side chooses for its own sends, among active links for which the
/// peer's buffer is known, excluding the failed port.
pub fn choose(loads: &Loads) -> Option<LinkIdx> {
    Some(loads.present().min_by_key(|(_, load)| **load)?.0)
}

/// Whether a connection of link `idx` should go to another one, which has less by two. If each link in turn gives away
/// what it should, all carry the same number in the end, or one more.
pub fn is_crowded(loads: &Loads, idx: LinkIdx) -> bool {
    let least = loads.iter().flatten().min();
    loads[idx]
        .zip(least)
        .is_some_and(|(load, least)| load >= least.saturating_add(2))
}

/// Whether that is so for any link.
pub fn is_any_crowded(loads: &Loads) -> bool {
    LinkIdx::ALL.iter().any(|idx| is_crowded(loads, *idx))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loads(of: &[Option<usize>]) -> Loads {
        let mut loads = Loads::default();
        for (place, load) in loads.0.iter_mut().zip(of) {
            *place = *load;
        }
        loads
    }

    #[test]
    fn a_link_that_the_peer_filled_is_crowded() {
        let crowded = |of: &[Option<usize>]| is_crowded(&loads(of), LinkIdx::ALL[0]);
        assert!(crowded(&[Some(9), Some(8), Some(7)]));
        assert!(!crowded(&[Some(8), Some(8), Some(7)]));
        assert!(!crowded(&[Some(9), None]));
        assert!(!crowded(&[None, Some(1), Some(9)]));
    }

    #[test]
    fn the_link_with_the_fewest_connections_gets_the_next() {
        assert_eq!(choose(&loads(&[])), None);
        assert_eq!(choose(&loads(&[None, Some(7)])), Some(LinkIdx::ALL[1]));
        assert_eq!(choose(&loads(&[Some(2), Some(2)])), Some(LinkIdx::FIRST));
        assert_eq!(
            choose(&loads(&[Some(2), None, Some(1)])),
            Some(LinkIdx::ALL[2])
        );
    }

    #[test]
    fn connections_that_come_one_by_one_are_spread_evenly() {
        let mut now = loads(&[Some(0), Some(0), None, Some(0)]);
        for _ in 0..64 {
            let idx = choose(&now).unwrap();
            now[idx] = now[idx].map(|load| load + 1);
        }
        assert_eq!(now.0[..4], [Some(22), Some(21), None, Some(21)]);
    }

    #[test]
    fn what_is_given_away_makes_the_links_even() {
        for (mut now, want) in [
            (loads(&[Some(64), Some(0)]), &[Some(32), Some(32)][..]),
            (loads(&[Some(5), Some(0), None]), &[Some(3), Some(2), None]),
            (
                loads(&[Some(9), Some(1), Some(2)]),
                &[Some(4), Some(4), Some(4)],
            ),
            (loads(&[Some(3), Some(2)]), &[Some(3), Some(2)]),
            (loads(&[Some(3)]), &[Some(3)]),
            (
                loads(&[Some(3), Some(3), Some(3), Some(1)]),
                &[Some(2), Some(3), Some(3), Some(2)],
            ),
        ] {
            for idx in LinkIdx::ALL {
                while is_crowded(&now, idx) {
                    now[idx] = now[idx].map(|load| load - 1);
                    let to = choose(&now).unwrap();
                    now[to] = now[to].map(|load| load + 1);
                }
            }
            assert_eq!(&now.0[..want.len()], want);
            assert!(!is_any_crowded(&now));
        }
    }
}
