// SPDX-License-Identifier: GPL-2.0
//! Jobs that wait for a worker, added while others run.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A queue of jobs by rank. One thread adds them, others take them.
pub(crate) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    waiting: Vec<(Duration, T)>,
    is_open: bool,
}

impl<T> Queue<T> {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                waiting: Vec::new(),
                is_open: true,
            }),
            changed: Condvar::new(),
        }
    }

    /// Adds a job; those of the highest rank are taken first. It is dropped if the queue was ended.
    pub(crate) fn add(&self, rank: Duration, job: T) {
        let mut state = self.state();
        if state.is_open {
            state.waiting.push((rank, job));
            self.changed.notify_one();
        }
    }

    /// Says that no more jobs come: workers end when none is left.
    pub(crate) fn close(&self) {
        self.state().is_open = false;
        self.changed.notify_all();
    }

    /// Closes the queue and drops the jobs that wait.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.is_open = false;
        state.waiting.clear();
        self.changed.notify_all();
    }

    /// Takes a job; sleeps while there is none. Returns `None` if no more come.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            let ranks = state.waiting.iter().map(|(rank, _)| *rank).enumerate();
            if let Some((index, _)) = ranks.max_by_key(|(_, rank)| *rank) {
                return Some(state.waiting.swap_remove(index).1);
            }
            if !state.is_open {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        // The list is consistent after each statement that changes it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn jobs_are_taken_by_rank() {
        let queue = Queue::new();
        for (rank, job) in [(2, 'a'), (1, 'b'), (3, 'c')] {
            queue.add(rank * SECOND, job);
        }
        queue.close();
        let taken: String = std::iter::from_fn(|| queue.take()).collect();
        assert_eq!(taken, "cab");
    }

    #[test]
    fn workers_wait_until_the_queue_is_closed() {
        let queue = Queue::new();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| std::iter::from_fn(|| queue.take()).collect::<Vec<_>>());
            queue.add(SECOND, 1);
            queue.add(SECOND, 2);
            queue.close();
            let mut taken = worker.join().unwrap_or_default();
            taken.sort_unstable();
            assert_eq!(taken, [1, 2]);
        });
    }

    #[test]
    fn nothing_runs_after_the_end() {
        let queue = Queue::new();
        queue.add(SECOND, 1);
        queue.end();
        queue.add(SECOND, 2);
        assert_eq!(queue.take(), None);
    }
}
