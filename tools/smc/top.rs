// SPDX-License-Identifier: GPL-2.0

//! `smc top`: the current sockets, rates, link groups, ports, and reasons of fallbacks.
//!
//! On a terminal it repeats until `q`, Esc, Ctrl-C or a signal; otherwise it measures once.

mod sample;
mod screen;
mod view;

use std::io;
use std::io::IsTerminal;
use std::thread;
use std::time::Duration;

use sample::Sample;
use screen::Screen;
use smc_tools::view::Module;
use smc_user::stop_by;
use view::View;

use crate::out;
use crate::table::json;
use crate::table::not_loaded;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Seconds between two looks
    #[arg(short, long, default_value = "2", value_parser = seconds)]
    interval: Duration,

    /// Measure once, for one interval, and print that
    #[arg(long)]
    once: bool,

    /// The same as JSON
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "expected seconds".to_string())?;
    match (0.1..=3600.0).contains(&seconds) {
        true => Ok(Duration::from_secs_f64(seconds)),
        false => Err("between 0.1 and 3600".to_string()),
    }
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> io::Result<()> {
    let mut module = Module::open().map_err(not_loaded)?;
    let before = Sample::take(&mut module)?;
    if arguments.once || arguments.json || !io::stdout().is_terminal() {
        thread::sleep(arguments.interval);
        let view = View::between(&before, &Sample::take(&mut module)?);
        return match arguments.json {
            true => json(&view),
            false => out::lines(view.lines()),
        };
    }
    watch(&mut module, before, arguments.interval)
}

fn watch(module: &mut Module, mut before: Sample, interval: Duration) -> io::Result<()> {
    // So that the terminal is as before in the end.
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
        stop_by(signal)?;
    }
    let mut screen = Screen::open()?;
    screen.draw(&["Measuring; q ends this.".to_string()])?;
    // The first interval is short.
    let mut wait = interval.min(Duration::from_millis(500));
    while !screen.is_quit_within(wait)? {
        let now = Sample::take(module)?;
        screen.draw(&View::between(&before, &now).lines())?;
        before = now;
        wait = interval;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_nothing_nor_for_ever() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for text in ["0", "-1", "NaN", "inf", "4000", "x"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
