// SPDX-License-Identifier: GPL-2.0
//! How many guest scripts run at once. Most of their time they wait, so there may be more of them than processors; but
//! guests that are starved for as long as a peer's timeout fail for that reason alone. What they need is known from
//! when they last ran ([`crate::durations`]).

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// What a script takes that never ran, in processors, so that one more of them runs than there are processors, if these
/// are few.
pub(crate) const UNKNOWN_LOAD: f64 = 0.4;

/// The part of the processors that scripts may take on average. The rest is for when several do at the same time. As
/// many scripts as there are processors may take them all: none of them waits for another.
const PART: f64 = 0.7;

/// What a script seems to take beyond the processor that it has, as the times are of several processes.
const SLACK: f64 = 0.1;

/// The most scripts for each processor, whatever little they take: each has one or two guests of 2 GiB.
const MOST: usize = 3;

/// What the scripts of a run may take together.
#[derive(Clone, Copy)]
pub(crate) struct Budget {
    load: f64,
    scripts: usize,
    processors: usize,
}

impl Budget {
    pub(crate) fn new(processors: usize) -> Self {
        Self {
            load: PART * processors as f64,
            scripts: MOST * processors,
            processors,
        }
    }

    /// Returns how many processors scripts may take together.
    pub(crate) fn load(self) -> f64 {
        self.load
    }

    /// Returns what a script takes beside which no other one may run.
    pub(crate) fn all(self) -> f64 {
        2.0 * self.processors as f64
    }

    /// Returns the most scripts that it permits to run at once.
    pub(crate) fn most(self) -> usize {
        self.scripts
    }

    /// Returns the first of those waiting, given as what they take, that may run beside those running. If nothing runs,
    /// that is the first, whatever it takes.
    fn first_that_fits(self, running: &[f64], waiting: impl Iterator<Item = f64>) -> Option<usize> {
        let taken: f64 = running.iter().sum();
        let fits = |load: f64| {
            let sum = taken + load;
            running.is_empty()
                || (running.len() < self.scripts && sum <= self.load)
                || (running.len() < self.processors && sum <= self.processors as f64 + SLACK)
        };
        waiting
            .enumerate()
            .find(|&(_, load)| fits(load))
            .map(|(at, _)| at)
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
    /// Each with what it takes, in processors.
    waiting: Vec<(f64, T)>,
    running: Vec<f64>,
}

/// What was taken from a [`Queue`] runs until this is dropped.
pub(crate) struct Running<'a, T> {
    queue: &'a Queue<T>,
    load: f64,
}

impl<T> Queue<T> {
    pub(crate) fn new(budget: Budget, waiting: Vec<(f64, T)>) -> Self {
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
            let loads = state.waiting.iter().map(|(load, _)| *load);
            if let Some(at) = self.budget.first_that_fits(&state.running, loads) {
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
        Budget::new(2).first_that_fits(running, waiting.iter().copied())
    }

    #[test]
    fn what_waits_most_of_the_time_runs_beside_what_does_not() {
        assert_eq!(first(&[0.6, 0.6], &[0.6, 0.4, 0.1]), Some(2));
        assert_eq!(first(&[0.6, 0.6], &[0.6, 0.4]), None);
    }

    #[test]
    fn each_processor_may_have_a_script_of_its_own() {
        assert_eq!(first(&[1.0], &[1.1, 0.2]), Some(0));
        assert_eq!(first(&[1.0, 0.8], &[0.2]), None);
        assert_eq!(first(&[1.0], &[1.5, 0.2]), Some(1));
    }

    #[test]
    fn whatever_it_takes_it_runs_alone() {
        assert_eq!(first(&[], &[4.0, 0.1]), Some(0));
        assert_eq!(first(&[4.0], &[0.1]), None);
    }

    #[test]
    fn one_more_of_those_that_never_ran_than_there_are_processors() {
        let unknown = [UNKNOWN_LOAD; 3];
        assert_eq!(first(&unknown[..2], &unknown), Some(0));
        assert_eq!(first(&unknown, &unknown), None);
    }

    #[test]
    fn memory_is_a_limit_too() {
        assert_eq!(first(&[0.0; 5], &[0.0]), Some(0));
        assert_eq!(first(&[0.0; 6], &[0.0]), None);
    }

    #[test]
    fn what_fits_is_taken_until_nothing_waits() {
        let queue = Queue::new(Budget::new(2), vec![(1.0, 'a'), (1.5, 'b'), (0.2, 'c')]);
        let (first, runs) = queue.next().unwrap();
        let (second, _beside) = queue.next().unwrap();
        assert_eq!((first, second), ('a', 'c'));
        drop(runs);
        assert_eq!(queue.next().map(|(third, _)| third), Some('b'));
        assert!(queue.next().is_none());
    }

    #[test]
    fn nothing_waits_after_a_failure() {
        let queue = Queue::new(Budget::new(2), vec![(1.0, 'a')]);
        queue.clear();
        assert!(queue.next().is_none());
    }
}
