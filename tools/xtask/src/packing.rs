// SPDX-License-Identifier: GPL-2.0
//! How many guest scripts run at once. Most of their time they wait, so there may be more of them than processors; but
//! guests that are starved for as long as a peer's timeout fail for that reason alone. What they need is known from
//! when they last ran ([`crate::durations`]).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a job takes of the processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// So many of them, on average.
    Part(f64),
    /// No guest may run beside it.
    Alone,
    /// What guests leave: it waits for no peer, and has a lower priority.
    Rest,
}

/// What a script takes that never ran, so that one more of them runs than there are processors, if these are few.
pub(crate) const UNKNOWN_LOAD: Load = Load::Part(0.4);

/// The same of two guests.
pub(crate) const UNKNOWN_PAIR_LOAD: Load = Load::Part(0.8);

/// What keeps a processor busy most of the time.
const HEAVY: f64 = 0.7;

/// What scripts that are not may take together of each processor: where there are no others, and beside those. The rest
/// is for when several need it at the same time.
const LIGHT_ALONE: f64 = 0.7;
const LIGHT_BESIDE: f64 = 0.42;

/// What scripts may take together of each processor, as soon as one of them is not heavy.
const TOGETHER: f64 = 0.92;

/// What a script seems to take beyond the processor that it has, as the times are of several processes.
const SLACK: f64 = 0.1;

/// The most scripts for each processor, whatever little they take: each has one or two guests of 2 GiB.
const MOST: usize = 3;

/// What the jobs of a run may take together.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    processors: usize,
}

impl Budget {
    pub(crate) fn new(processors: usize) -> Self {
        Self { processors }
    }

    /// Returns how many processors scripts take together, more or less.
    pub(crate) fn load(self) -> f64 {
        LIGHT_ALONE * self.processors as f64
    }

    /// Returns the most scripts that it permits to run at once.
    pub(crate) fn most(self) -> usize {
        MOST * self.processors
    }

    /// Returns the first of those waiting that may run beside those running.
    ///
    /// Heavy ones run one at a time for each two processors, until there are no others, so that none is left for the
    /// end, when it would run alone; light ones run beside them.
    fn first_that_fits(self, running: &[Load], waiting: &[Load]) -> Option<usize> {
        let parts = || running.iter().filter_map(|load| load.part());
        let sum = |of: &dyn Fn(f64) -> bool| parts().filter(|part| of(*part)).sum::<f64>();
        let processors = self.processors as f64;
        let (heavy, light) = (sum(&is_heavy), sum(&|part| !is_heavy(part)));
        let heavies = parts().filter(|part| is_heavy(*part)).count();
        let has_heavy = heavies > 0 || waiting.iter().any(|load| load.part().is_some_and(is_heavy));
        let fits_part = |part: f64| match parts().count() {
            0 => true,
            count if count >= self.most() => false,
            _ if is_heavy(part) => {
                let is_all = light == 0.0 && heavy + part <= processors + SLACK;
                heavies < self.processors.div_ceil(2) || is_all
            }
            _ if has_heavy => {
                let room = (TOGETHER * processors - heavy).min(LIGHT_BESIDE * processors);
                light + part <= room
            }
            _ => light + part <= LIGHT_ALONE * processors,
        };
        let fits = |load: &Load| match load {
            Load::Rest => !running.contains(&Load::Rest),
            Load::Alone => running.iter().all(|load| *load == Load::Rest),
            Load::Part(part) => !running.contains(&Load::Alone) && fits_part(*part),
        };
        waiting.iter().position(fits)
    }
}

fn is_heavy(part: f64) -> bool {
    part > HEAVY
}

impl Load {
    fn part(self) -> Option<f64> {
        match self {
            Self::Part(part) => Some(part),
            Self::Alone | Self::Rest => None,
        }
    }

    /// Whether it keeps a processor busy most of the time.
    pub(crate) fn is_heavy(self) -> bool {
        self.part().is_none_or(is_heavy)
    }
}

/// What waits to be run, in this order as far as it fits.
pub(crate) struct Queue<T> {
    budget: Budget,
    state: Mutex<State<T>>,
    /// Something has ended.
    ended: Condvar,
}

struct State<T> {
    /// Each with what it takes.
    waiting: Vec<(Load, T)>,
    running: Vec<Load>,
}

/// What was taken from a [`Queue`] runs until this is dropped.
pub(crate) struct Running<'a, T> {
    queue: &'a Queue<T>,
    load: Load,
}

impl<T> Queue<T> {
    pub(crate) fn new(budget: Budget, waiting: Vec<(Load, T)>) -> Self {
        Self {
            budget,
            state: Mutex::new(State {
                waiting,
                running: Vec::new(),
            }),
            ended: Condvar::new(),
        }
    }

    /// Waits until something fits beside what runs; `None` when nothing waits any more.
    pub(crate) fn next(&self) -> Option<(T, Running<'_, T>)> {
        let mut state = self.state();
        loop {
            if state.waiting.is_empty() {
                return None;
            }
            let loads: Vec<Load> = state.waiting.iter().map(|(load, _)| *load).collect();
            if let Some(at) = self.budget.first_that_fits(&state.running, &loads) {
                let (load, taken) = state.waiting.remove(at);
                state.running.push(load);
                return Some((taken, Running { queue: self, load }));
            }
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Forgets all that waits.
    pub(crate) fn clear(&self) {
        self.state().waiting.clear();
        self.ended.notify_all();
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // The lists are consistent after each statement that changes them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Drop for Running<'_, T> {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        if let Some(at) = state.running.iter().position(|load| *load == self.load) {
            state.running.swap_remove(at);
        }
        self.queue.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first(running: &[f64], waiting: &[f64]) -> Option<usize> {
        let parts = |parts: &[f64]| {
            parts
                .iter()
                .map(|part| Load::Part(*part))
                .collect::<Vec<_>>()
        };
        Budget::new(2).first_that_fits(&parts(running), &parts(waiting))
    }

    fn first_of(running: &[Load], waiting: &[Load]) -> Option<usize> {
        Budget::new(2).first_that_fits(running, waiting)
    }

    #[test]
    fn what_waits_most_of_the_time_runs_beside_what_does_not() {
        assert_eq!(first(&[1.0, 0.6], &[1.0, 0.4, 0.1]), Some(2));
        assert_eq!(first(&[1.0, 0.6], &[1.0, 0.4]), None);
    }

    #[test]
    fn heavy_ones_are_not_left_for_the_end() {
        // As long as one waits there is room for it.
        assert_eq!(first(&[0.6], &[1.0, 0.6]), Some(0));
        assert_eq!(first(&[0.3, 0.3], &[0.3]), Some(0));
        assert_eq!(first(&[0.4, 0.4], &[0.3, 0.8]), Some(1));
    }

    #[test]
    fn each_processor_may_have_a_heavy_one_of_its_own() {
        assert_eq!(first(&[1.0], &[1.1, 0.2]), Some(0));
        assert_eq!(first(&[1.0, 0.2], &[1.0]), None);
        assert_eq!(first(&[1.0], &[1.5, 0.2]), Some(1));
    }

    #[test]
    fn one_runs_alone_but_for_what_is_no_guest() {
        let (part, alone, rest) = (Load::Part(0.1), Load::Alone, Load::Rest);
        assert_eq!(first_of(&[], &[rest, alone, part]), Some(0));
        assert_eq!(first_of(&[rest], &[rest, alone, part]), Some(1));
        assert_eq!(first_of(&[rest, alone], &[rest, alone, part]), None);
        assert_eq!(first_of(&[alone], &[part, rest]), Some(1));
        assert_eq!(first_of(&[part], &[alone]), None);
        // Whatever it takes.
        assert_eq!(first(&[], &[4.0]), Some(0));
    }

    #[test]
    fn one_more_of_those_that_never_ran_than_there_are_processors() {
        let unknown = [UNKNOWN_LOAD; 3];
        assert_eq!(first_of(&unknown[..2], &unknown), Some(0));
        assert_eq!(first_of(&unknown, &unknown), None);
    }

    #[test]
    fn memory_is_a_limit_too() {
        assert_eq!(first(&[0.0; 5], &[0.0]), Some(0));
        assert_eq!(first(&[0.0; 6], &[0.0]), None);
    }

    #[test]
    fn what_fits_is_taken_until_nothing_waits() {
        let jobs = vec![
            (Load::Part(1.0), 'a'),
            (Load::Part(1.5), 'b'),
            (Load::Part(0.2), 'c'),
        ];
        let queue = Queue::new(Budget::new(2), jobs);
        let (first, runs) = queue.next().unwrap();
        let (second, beside) = queue.next().unwrap();
        assert_eq!((first, second), ('a', 'c'));
        drop((runs, beside));
        assert_eq!(queue.next().map(|(third, _)| third), Some('b'));
        assert!(queue.next().is_none());
    }

    #[test]
    fn nothing_waits_after_a_failure() {
        let queue = Queue::new(Budget::new(2), vec![(Load::Part(1.0), 'a')]);
        queue.clear();
        assert!(queue.next().is_none());
    }
}
