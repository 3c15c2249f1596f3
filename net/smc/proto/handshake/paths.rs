// SPDX-License-Identifier: GPL-2.0

//! Paths over which RDMA packets did not get through though TCP did, and peers whom no SYN reached that offers SMC,
//! though others did: for a while connections there are TCP's at once. Then one connection tries again, and the others
//! wait for how that ends.

use core::net::IpAddr;

use crate::id::Gid;
use crate::time::{
    Duration,
    Instant, //
};

/// Time for which a client takes no path that has failed. Longer than [`SERVER_AVOIDS`], so that the server
/// is ready to try again when the client is.
pub const CLIENT_AVOIDS: Duration = Duration::from_secs(40);

/// The same of a server.
pub const SERVER_AVOIDS: Duration = Duration::from_secs(30);

/// Time for which a client offers no SMC to a peer that answers only those SYNs which do not. A trial takes
/// [`SYN_WAIT`].
pub const SYN_AVOIDS: Duration = Duration::from_secs(60);

/// How long a client that offers SMC waits for an answer to its SYN. TCP has repeated the SYN once by then, after a
/// second, and is about to do so again.
pub const SYN_WAIT: Duration = Duration::from_millis(1800);

/// Paths that a network namespace remembers; the least recently used ones make room for others.
pub const MAX: usize = 64;

/// What makes a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The peer's address of the TCP connection.
    pub peer: IpAddr,
    /// Our port; [`Gid::NONE`] for the SYN.
    pub ours: Gid,
    /// The peer's port; [`Gid::NONE`] at a client, which does not know it when it has to decide.
    pub theirs: Gid,
}

impl Path {
    /// The path of a SYN that offers SMC.
    #[must_use]
    pub const fn of_syn(peer: IpAddr) -> Self {
        Self {
            peer,
            ours: Gid::NONE,
            theirs: Gid::NONE,
        }
    }
}

/// Whether a connection may use a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is known against it.
    Usable,
    /// It failed some time ago, and this connection is the one that tries it.
    Trial,
    /// It failed at this time, a moment ago.
    Avoided(Instant),
}

/// What is remembered of a path.
#[derive(Clone, Copy, Debug)]
pub struct PathRecord {
    path: Path,
    failed_at: Instant,
    avoids: Duration,
    last_used: Instant,
    generation: u32,
}

/// Room for what is remembered of one path.
pub type PathEntry = Option<PathRecord>;

/// The paths that failed.
#[derive(Debug)]
pub struct PathTable<'a> {
    places: &'a mut [PathEntry],
}

impl<'a> PathTable<'a> {
    /// Those in `places`, of which the caller has as many as are to be remembered.
    pub fn new(places: &'a mut [PathEntry]) -> Self {
        Self { places }
    }

    /// Whether a connection may use the path at `now`. An entry of another `generation` does not count:
    /// ports have changed since. A trial counts as a failure at `now` until its result is known.
    pub fn check(&mut self, path: &Path, generation: u32, now: Instant) -> Verdict {
        let Some(place) = self.place(path) else {
            return Verdict::Usable;
        };
        let Some(entry) = place else {
            return Verdict::Usable;
        };
        if entry.generation != generation {
            *place = None;
            return Verdict::Usable;
        }
        entry.last_used = now;
        let until = entry.failed_at.saturating_add(entry.avoids);
        if !until.is_due(now) {
            return Verdict::Avoided(entry.failed_at);
        }
        entry.failed_at = now;
        Verdict::Trial
    }

    /// The path failed: it is avoided for a time from `now` on.
    pub fn failed(&mut self, path: &Path, generation: u32, avoids: Duration, now: Instant) {
        let entry = PathRecord {
            path: *path,
            failed_at: now,
            avoids,
            last_used: now,
            generation,
        };
        let is_known = self.place(path).is_some();
        let place = match is_known {
            true => self.place(path),
            false => {
                let last_used = |place: &&mut PathEntry| place.map(|entry| entry.last_used);
                self.places.iter_mut().min_by_key(last_used)
            }
        };
        if let Some(place) = place {
            *place = Some(entry);
        }
    }

    /// The path worked: nothing is known against it any more.
    pub fn worked(&mut self, path: &Path) {
        if let Some(place) = self.place(path) {
            *place = None;
        }
    }

    fn place(&mut self, path: &Path) -> Option<&mut PathEntry> {
        let is_it = |place: &&mut PathEntry| place.is_some_and(|entry| entry.path == *path);
        self.places.iter_mut().find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(number: u8) -> Path {
        Path {
            peer: [10, 0, 0, number].into(),
            ours: Gid::NONE,
            theirs: Gid::NONE,
        }
    }

    fn at(secs: u64) -> Instant {
        Instant::ZERO.saturating_add(Duration::from_secs(secs))
    }

    #[test]
    fn a_path_that_failed_is_avoided_and_then_tried_by_one() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        assert_eq!(paths.check(&path(1), 0, at(0)), Verdict::Usable);
        paths.failed(&path(1), 0, SERVER_AVOIDS, at(0));
        assert_eq!(paths.check(&path(1), 0, at(29)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&path(2), 0, at(29)), Verdict::Usable);
        assert_eq!(paths.check(&path(1), 0, at(30)), Verdict::Trial);
        assert_eq!(paths.check(&path(1), 0, at(30)), Verdict::Avoided(at(30)));
        // The trial's result was never noted.
        assert_eq!(paths.check(&path(1), 0, at(60)), Verdict::Trial);
        paths.worked(&path(1));
        assert_eq!(paths.check(&path(1), 0, at(60)), Verdict::Usable);
    }

    #[test]
    fn that_of_a_syn_is_none_of_rdma() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        let syn = Path::of_syn([10, 0, 0, 1].into());
        let rdma = Path {
            ours: Gid([1; 16]),
            ..syn
        };
        paths.failed(&syn, 0, SYN_AVOIDS, at(0));
        assert_eq!(paths.check(&rdma, 0, at(59)), Verdict::Usable);
        assert_eq!(paths.check(&syn, 0, at(59)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&syn, 0, at(60)), Verdict::Trial);
    }

    #[test]
    fn a_change_of_ports_clears_it() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        paths.failed(&path(1), 7, CLIENT_AVOIDS, at(0));
        assert_eq!(paths.check(&path(1), 8, at(1)), Verdict::Usable);
    }

    #[test]
    fn the_one_that_was_asked_for_longest_ago_makes_room() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        for number in 0..MAX as u8 {
            paths.failed(&path(number), 0, CLIENT_AVOIDS, at(number.into()));
        }
        assert_eq!(paths.check(&path(0), 0, at(39)), Verdict::Avoided(at(0)));
        paths.failed(&path(200), 0, CLIENT_AVOIDS, at(39));
        assert_eq!(paths.check(&path(0), 0, at(39)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&path(1), 0, at(39)), Verdict::Usable);
        assert_eq!(paths.check(&path(200), 0, at(39)), Verdict::Avoided(at(39)));
    }
}
