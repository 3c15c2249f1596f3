// SPDX-License-Identifier: GPL-2.0
//! The build and test tool of this repository: builds kernels and the module, boots guests, runs
//! the tests, checks the repository's own rules. `cargo xtask help` lists the commands.

#![forbid(unsafe_code)]

mod apt;
mod bench;
mod cli;
mod compile;
mod coverage;
mod dirs;
mod durations;
mod fuzz;
mod groups;
mod guests;
mod host;
mod kernel;
mod ktap;
mod lint;
mod module;
mod mutants;
mod packages;
mod packing;
mod run;
mod self_test;
#[cfg(test)]
mod setup_tests;
mod stage;
mod suite;
mod suites;
mod table;
mod toolchain;
mod turns;
mod vm;

use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::main() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::from(2)
        }
    }
}
