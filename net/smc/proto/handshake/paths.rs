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

/// For how long a path is not taken that has failed: twice as long with each trial that fails, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Avoidance {
    /// After the first failure.
    pub first: Duration,
    /// At most.
    pub most: Duration,
}

impl Avoidance {
    const fn always(time: Duration) -> Self {
        Self {
            first: time,
            most: time,
        }
    }
}

/// That of a client. Longer than [`SERVER_AVOIDS`], so that the server is ready to try again when the client is.
pub const CLIENT_AVOIDS: Avoidance = Avoidance::always(Duration::from_secs(40));

/// That of a server.
pub const SERVER_AVOIDS: Avoidance = Avoidance::always(Duration::from_secs(30));

/// That of a client which offers no SMC to a peer that answers only those SYNs which do not. A peer that has just begun
/// to listen looks like that. A trial takes [`SYN_WAIT`], and ends in nothing if the application does not wait for so
/// long.
pub const SYN_AVOIDS: Avoidance = Avoidance {
    first: Duration::from_secs(10),
    most: Duration::from_secs(3600),
};

/// For how long a path is not taken that is suspected, unless it is known before: applications may try again after
/// minutes.
pub const SUSPECTED: Duration = Duration::from_secs(300);

/// How long a SYN that offers SMC was not answered when the application gave the attempt up, for that to be suspect.
/// RDMA is for networks with round trips of some milliseconds at most.
pub const SUSPICIOUS_WAIT: Duration = Duration::from_millis(200);

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
    /// It has failed for certain.
    is_proven: bool,
    /// It may have failed, again if it has before.
    is_suspected: bool,
    /// A connection tries it, or has given that up.
    is_tried: bool,
    last_used: Instant,
    generation: u32,
}

/// What would be lost with an entry, in the order in which they make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Nothing,
    Suspected,
    /// It has failed for certain, and may be tried again now.
    Due,
    /// It has failed for certain, and is not to be tried yet.
    Avoided,
}

impl PathRecord {
    /// Whether the path is not taken at `now`.
    fn is_avoided(&self, now: Instant) -> bool {
        let avoids = match self.is_suspected {
            true => self.avoids.max(SUSPECTED),
            false => self.avoids,
        };
        !self.failed_at.saturating_add(avoids).is_due(now)
    }

    fn worth(&self, now: Instant) -> Worth {
        match self.is_proven {
            false => Worth::Suspected,
            true if self.is_avoided(now) => Worth::Avoided,
            true => Worth::Due,
        }
    }
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
        if entry.is_avoided(now) {
            return Verdict::Avoided(entry.failed_at);
        }
        entry.failed_at = now;
        entry.is_tried = true;
        Verdict::Trial
    }

    /// The path failed: it is avoided for a time from `now` on.
    pub fn failed(&mut self, path: &Path, generation: u32, avoids: Avoidance, now: Instant) {
        let known = self.known(path, generation);
        let avoids = match known.filter(|entry| entry.is_proven) {
            Some(entry) if entry.is_tried => entry.avoids.saturating_mul(2).min(avoids.most),
            // A connection that began before the last failure.
            Some(entry) => entry.avoids,
            None => avoids.first,
        };
        let entry = PathRecord {
            path: *path,
            failed_at: now,
            avoids,
            is_proven: true,
            is_suspected: false,
            is_tried: false,
            last_used: now,
            generation,
        };
        self.put(entry, now);
    }

    /// The path may have failed: it is avoided until [`Self::confirm`] or [`Self::acquit`] tells, or for [`SUSPECTED`].
    /// It takes no room of paths that are avoided as they have failed for certain.
    pub fn suspect(&mut self, path: &Path, generation: u32, now: Instant) {
        let entry = match self.known(path, generation) {
            Some(entry) => PathRecord {
                is_suspected: true,
                ..entry
            },
            None => PathRecord {
                path: *path,
                failed_at: now,
                avoids: Duration::ZERO,
                is_proven: false,
                is_suspected: true,
                is_tried: false,
                last_used: now,
                generation,
            },
        };
        self.put(entry, now);
    }

    /// The peer was reached otherwise: if the path was suspected, it has failed.
    pub fn confirm(&mut self, path: &Path, generation: u32, avoids: Avoidance, now: Instant) {
        let known = self.known(path, generation);
        if known.is_some_and(|entry| entry.is_suspected) {
            self.failed(path, generation, avoids, now);
        }
    }

    /// The peer was not reached otherwise, either: the path is suspected no more.
    pub fn acquit(&mut self, path: &Path) {
        let Some(place) = self.place(path) else {
            return;
        };
        *place = place
            .filter(|entry| entry.is_proven)
            .map(|entry| PathRecord {
                is_suspected: false,
                ..entry
            });
    }

    /// The path worked: nothing is known against it any more.
    pub fn worked(&mut self, path: &Path) {
        if let Some(place) = self.place(path) {
            *place = None;
        }
    }

    /// Keeps an entry in place of the one of its path, or of another at `now`.
    fn put(&mut self, entry: PathRecord, now: Instant) {
        let worth = |other: &PathEntry| {
            let other = other.filter(|other| other.generation == entry.generation);
            other.map_or(Worth::Nothing, |other| other.worth(now))
        };
        let order =
            |place: &&mut PathEntry| (worth(place), place.as_ref().map(|other| other.last_used));
        let place = match self.find(&entry.path) {
            Some(number) => self.places.get_mut(number),
            None => {
                let least = self.places.iter_mut().min_by_key(order);
                least.filter(|place| entry.is_proven || worth(place) < Worth::Avoided)
            }
        };
        if let Some(place) = place {
            *place = Some(entry);
        }
    }

    /// What is remembered of a path, unless ports have changed since.
    fn known(&self, path: &Path, generation: u32) -> Option<PathRecord> {
        let entry = (*self.places.get(self.find(path)?)?)?;
        (entry.generation == generation).then_some(entry)
    }

    fn place(&mut self, path: &Path) -> Option<&mut PathEntry> {
        self.places.get_mut(self.find(path)?)
    }

    fn find(&self, path: &Path) -> Option<usize> {
        let is_it = |place: &PathEntry| place.is_some_and(|entry| entry.path == *path);
        self.places.iter().position(is_it)
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
        assert_eq!(paths.check(&rdma, 0, at(9)), Verdict::Usable);
        assert_eq!(paths.check(&syn, 0, at(9)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&syn, 0, at(10)), Verdict::Trial);
    }

    #[test]
    fn trials_that_fail_become_rare() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        let mut now = at(0);
        for secs in [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600] {
            paths.failed(&path(1), 0, SYN_AVOIDS, now);
            // As others find that began at the same time.
            paths.failed(&path(1), 0, SYN_AVOIDS, now);
            let end = now.saturating_add(Duration::from_secs(secs - 1));
            assert_eq!(paths.check(&path(1), 0, end), Verdict::Avoided(now));
            now = now.saturating_add(Duration::from_secs(secs));
            assert_eq!(paths.check(&path(1), 0, now), Verdict::Trial);
        }
        paths.worked(&path(1));
        paths.failed(&path(1), 0, SYN_AVOIDS, now);
        let end = now.saturating_add(Duration::from_secs(10));
        assert_eq!(paths.check(&path(1), 0, end), Verdict::Trial);
        // Those of RDMA go on as they begin.
        for secs in [0, 40, 80] {
            paths.failed(&path(2), 0, CLIENT_AVOIDS, at(secs));
            assert_eq!(paths.check(&path(2), 0, at(secs + 40)), Verdict::Trial);
        }
    }

    #[test]
    fn a_suspicion_is_confirmed_or_not() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        paths.suspect(&path(1), 0, at(0));
        assert_eq!(paths.check(&path(1), 0, at(1)), Verdict::Avoided(at(0)));
        paths.acquit(&path(1));
        assert_eq!(paths.check(&path(1), 0, at(1)), Verdict::Usable);
        // Nobody was suspected.
        paths.confirm(&path(1), 0, SYN_AVOIDS, at(1));
        assert_eq!(paths.check(&path(1), 0, at(1)), Verdict::Usable);

        // Nor when nobody has asked for minutes.
        paths.suspect(&path(2), 0, at(0));
        assert_eq!(paths.check(&path(2), 0, at(299)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&path(2), 0, at(300)), Verdict::Trial);

        paths.suspect(&path(1), 0, at(10));
        paths.confirm(&path(1), 0, SYN_AVOIDS, at(40));
        assert_eq!(paths.check(&path(1), 0, at(49)), Verdict::Avoided(at(40)));
        assert_eq!(paths.check(&path(1), 0, at(50)), Verdict::Trial);
        // The application does not wait for the end of the trial, tries again late, and the peer answers.
        paths.suspect(&path(1), 0, at(51));
        assert_eq!(paths.check(&path(1), 0, at(90)), Verdict::Avoided(at(50)));
        paths.confirm(&path(1), 0, SYN_AVOIDS, at(90));
        assert_eq!(paths.check(&path(1), 0, at(109)), Verdict::Avoided(at(90)));
        assert_eq!(paths.check(&path(1), 0, at(110)), Verdict::Trial);
        // The peer is gone.
        paths.suspect(&path(1), 0, at(111));
        paths.acquit(&path(1));
        paths.confirm(&path(1), 0, SYN_AVOIDS, at(112));
        assert_eq!(paths.check(&path(1), 0, at(129)), Verdict::Avoided(at(110)));
        assert_eq!(paths.check(&path(1), 0, at(130)), Verdict::Trial);
        // Of another generation, with other ports.
        paths.suspect(&path(1), 0, at(131));
        paths.confirm(&path(1), 1, SYN_AVOIDS, at(131));
        assert_eq!(paths.check(&path(1), 1, at(131)), Verdict::Usable);
    }

    #[test]
    fn suspicions_make_no_room_of_failures() {
        let mut places = [None; MAX];
        let mut paths = PathTable::new(&mut places);
        for number in 0..MAX as u8 - 1 {
            paths.failed(&path(number), 0, SYN_AVOIDS, at(0));
        }
        for number in 100..200 {
            paths.suspect(&path(number), 0, at(1));
        }
        assert_eq!(paths.check(&path(0), 0, at(2)), Verdict::Avoided(at(0)));
        assert_eq!(paths.check(&path(198), 0, at(2)), Verdict::Usable);
        assert_eq!(paths.check(&path(199), 0, at(2)), Verdict::Avoided(at(1)));
        paths.failed(&path(70), 0, SYN_AVOIDS, at(3));
        paths.suspect(&path(71), 0, at(3));
        assert_eq!(paths.check(&path(71), 0, at(3)), Verdict::Usable);
        // But of those that are to be tried again, and of those before ports have changed.
        paths.suspect(&path(71), 0, at(10));
        assert_eq!(paths.check(&path(71), 0, at(10)), Verdict::Avoided(at(10)));
        for number in 0..MAX as u8 {
            paths.failed(&path(number), 0, CLIENT_AVOIDS, at(20));
        }
        paths.suspect(&path(71), 1, at(21));
        assert_eq!(paths.check(&path(71), 1, at(21)), Verdict::Avoided(at(21)));
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
