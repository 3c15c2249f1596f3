// SPDX-License-Identifier: GPL-2.0

//! `smc completions` and `smc man`: generated from the definitions of the subcommands.

use std::io;
use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

#[derive(clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    shell: Shell,
}

#[derive(clap::Args)]
pub(crate) struct Man {
    /// Write the pages of all commands into this folder, instead of the first one to standard output
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the completion script.
pub(crate) fn completions(arguments: &Completions) -> io::Result<()> {
    let mut script = Vec::new();
    let mut command = crate::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "smc", &mut script);
    io::stdout().write_all(&script)
}

/// Prints or writes manual pages.
pub(crate) fn man(arguments: &Man) -> io::Result<()> {
    let command = crate::Arguments::command();
    match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            clap_mangen::generate_to(command, dir)
        }
        None => clap_mangen::Man::new(command).render(&mut io::stdout()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together() {
        crate::Arguments::command().debug_assert();
    }

    #[test]
    fn each_shell_completes_each_command() {
        for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
            let mut script = Vec::new();
            let mut command = crate::Arguments::command();
            clap_complete::generate(shell, &mut command, "smc", &mut script);
            let script = String::from_utf8(script).unwrap();
            for subcommand in command.get_subcommands() {
                assert!(script.contains(subcommand.get_name()), "{shell}");
            }
        }
    }
}
