// SPDX-License-Identifier: GPL-2.0
//! Power loss: a guest of a pair has the other one killed, as the header of their script announces.

use std::sync::Mutex;

use nix::sys::signal::{killpg, Signal};
use nix::unistd::Pid;

/// The power switch of a guest.
#[derive(Default)]
pub(crate) struct Power(Mutex<State>);

#[derive(Clone, Copy, Default)]
enum State {
    /// The guest has not started yet, or has ended by itself.
    #[default]
    Off,
    /// It runs in this process group.
    On(Pid),
    /// It was killed by [`Power::cut`].
    Cut,
}

impl Power {
    /// The guest has started.
    pub(super) fn on(&self, group: Pid) {
        *self.state() = State::On(group);
    }

    /// The guest has ended; to be called before the number of its process group is free again. Returns whether it
    /// was killed.
    pub(super) fn off(&self) -> bool {
        let mut state = self.state();
        let is_cut = matches!(*state, State::Cut);
        *state = State::Off;
        is_cut
    }

    /// Kills the guest; returns false if it does not run.
    pub(super) fn cut(&self) -> bool {
        let mut state = self.state();
        match *state {
            State::On(group) if killpg(group, Signal::SIGKILL).is_ok() => {
                *state = State::Cut;
                true
            }
            _ => false,
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        // The state is consistent after each statement that changes it.
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// What a guest of a pair has to do with the power loss that the header of their script announces.
#[derive(Clone, Copy)]
pub(crate) enum Fate<'a> {
    /// The other guest has it killed.
    Victim(&'a Power),
    /// It has the other guest killed.
    Survivor(&'a Power),
}

impl<'a> Fate<'a> {
    /// Returns the guest's own switch, if it is to be killed.
    pub(super) fn own(self) -> Option<&'a Power> {
        match self {
            Self::Victim(power) => Some(power),
            Self::Survivor(_) => None,
        }
    }

    /// Returns the switch of the other guest, if that is to be killed.
    pub(super) fn peer(self) -> Option<&'a Power> {
        match self {
            Self::Survivor(power) => Some(power),
            Self::Victim(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::Command;

    use super::*;

    #[test]
    fn only_a_guest_that_runs_is_killed() {
        let power = Power::default();
        assert!(!power.cut());
        let mut child = Command::new("sleep")
            .arg("1000")
            .process_group(0)
            .spawn()
            .unwrap();
        power.on(Pid::from_raw(i32::try_from(child.id()).unwrap()));
        assert!(power.cut());
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert!(!power.cut());
        assert!(power.off());
        assert!(!power.off());
    }
}
