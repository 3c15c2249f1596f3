// SPDX-License-Identifier: GPL-2.0

//! Turns a hang into a test failure.

use std::process;
use std::thread;
use std::time::Duration;

/// Exit status of a test that hung, as with `timeout(1)`.
const HUNG: i32 = 124;

/// Ends the process with a message unless it ends by itself within `deadline`.
pub(crate) fn start(deadline: Duration) {
    thread::spawn(move || {
        thread::sleep(deadline);
        println!("not ok # hung: no end after {} s", deadline.as_secs());
        process::exit(HUNG);
    });
}
