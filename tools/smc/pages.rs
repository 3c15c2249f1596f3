// SPDX-License-Identifier: GPL-2.0

//! `smc completions` and `smc man`: generated from the definitions of the subcommands, and of the
//! tools whose names this command also has.

use std::io;
use std::path::PathBuf;

use clap::Command;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man as Page;

use crate::compat;
use crate::out;

#[derive(clap::Args)]
pub(crate) struct Completions {
    /// For which shell
    shell: Shell,

    /// Of a tool of smc-tools, whose name this command also has, such as smcss
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
}

#[derive(clap::Args)]
pub(crate) struct Man {
    /// Write the pages of all commands into this folder, instead of the first one to standard output
    #[arg(long, value_name = "FOLDER")]
    dir: Option<PathBuf>,
}

/// Prints the completion script.
pub(crate) fn completions(arguments: &Completions) -> io::Result<()> {
    let script = script(arguments.shell, arguments.tool.as_deref());
    out::text(&script?)
}

/// Returns the completion script of this command, or of a tool of smc-tools.
fn script(shell: Shell, tool: Option<&str>) -> io::Result<String> {
    let command = match tool {
        None => Some(crate::Arguments::command()),
        Some(name) => compat::commands()
            .into_iter()
            .find(|tool| tool.get_name() == name),
    };
    let mut command = command.ok_or_else(|| io::Error::other("no tool of smc-tools"))?;
    let (name, mut script) = (command.get_name().to_string(), Vec::new());
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8(script).map_err(io::Error::other)
}

/// Prints or writes manual pages.
pub(crate) fn man(arguments: &Man) -> io::Result<()> {
    let command = crate::Arguments::command();
    match &arguments.dir {
        Some(dir) => {
            std::fs::create_dir_all(dir)?;
            clap_mangen::generate_to(command, dir)?;
            compat_pages()
                .iter()
                .try_for_each(|page| page.generate_to(dir).map(drop))
        }
        None => {
            let mut page = Vec::new();
            Page::new(command).render(&mut page)?;
            out::text(&String::from_utf8_lossy(&page))
        }
    }
}

/// Returns the pages of the tools of smc-tools and of their objects, in the section where smc-tools
/// has them.
fn compat_pages() -> Vec<Page> {
    // Without the words that -v prints for a version.
    let page = |command: &Command| Page::new(command.clone().version(None)).section("8");
    let with_objects = |mut tool: Command| {
        tool.build();
        let objects = tool.get_subcommands().map(page);
        std::iter::once(page(&tool))
            .chain(objects)
            .collect::<Vec<_>>()
    };
    compat::commands()
        .into_iter()
        .flat_map(with_objects)
        .collect()
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
            let script = script(shell, None).unwrap();
            for subcommand in crate::Arguments::command().get_subcommands() {
                assert!(script.contains(subcommand.get_name()), "{shell}");
            }
        }
    }

    #[test]
    fn bash_completes_the_tools() {
        for (tool, words) in [
            ("smcss", &["--listening", "--smcd", "--wide"][..]),
            ("smc_pnet", &["--flush", "--ibdevice"]),
            ("smcr", &["linkgroup", "link-show", "json", "flush"]),
            ("smcd", &["linkgroup", "seid", "disable"]),
            ("smc_run", &["-r", "-t"]),
        ] {
            let script = script(Shell::Bash, Some(tool)).unwrap();
            for word in words {
                assert!(script.contains(word), "{tool} {word}");
            }
        }
        assert!(script(Shell::Bash, Some("smc_chk")).is_err());
    }

    /// The pages of smc-tools 1.8.5 on machines other than s390, but that of the socket family.
    #[test]
    fn the_tools_have_the_pages_of_smc_tools() {
        let mut names: Vec<_> = compat_pages().iter().map(Page::get_filename).collect();
        names.sort();
        assert_eq!(
            names.join(" "),
            "smc_pnet.8 smc_run.8 smcd-device.8 smcd-info.8 smcd-linkgroup.8 smcd-seid.8 smcd-stats.8 \
             smcd-ueid.8 smcd.8 smcr-device.8 smcr-info.8 smcr-linkgroup.8 smcr-stats.8 smcr-ueid.8 smcr.8 smcss.8"
        );
    }
}
