// SPDX-License-Identifier: GPL-2.0

//! The tools as clap defines them, for manual pages and completions. `smcss` and `smc_pnet` are
//! parsed by theirs; the others have a syntax of their own, which these describe.

use clap::builder::PossibleValuesParser;
use clap::Arg;
use clap::ArgAction;
use clap::Command;
use clap::CommandFactory;
use clap::ValueHint;

use super::smc_pnet;
use super::smcss;
use super::with_version;

/// Returns the definitions of all tools.
pub(crate) fn commands() -> Vec<Command> {
    vec![
        with_version(smcss::Arguments::command()),
        with_version(smc_pnet::Arguments::command()),
        without_options_of_objects(smcr()),
        without_options_of_objects(smcd()),
        smc_run(),
    ]
}

/// All options come before the object; behind it there is no `--help` either, but the word `help`.
fn without_options_of_objects(tool: Command) -> Command {
    tool.mut_subcommands(|object| object.disable_help_flag(true))
}

fn smcr() -> Command {
    let which =
        "all, the ID of a group or of a link in hexadecimal digits, ibdev NAME, or netdev NAME";
    let devices = "all, ibdev NAME, or netdev NAME";
    object("smcr", "Show and change what there is of SMC-R")
        .arg(flag("ddetails", "GIDs, too; also -dd"))
        .subcommands([
            Command::new("linkgroup")
                .about("Show link groups, or their links")
                .args([command(&["show", "link-show"]), words(which)]),
            Command::new("device")
                .about("Show RDMA devices")
                .args([command(&["show"]), words(devices)]),
        ])
        .subcommands(both())
}

fn smcd() -> Command {
    let seid = "Show, enable or disable the system enterprise ID";
    object("smcd", "Show and change what there is of SMC-D")
        .subcommands([
            Command::new("linkgroup").about("Show link groups").args([
                command(&["show"]),
                words("all, or the ID of a group in hexadecimal digits"),
            ]),
            Command::new("device")
                .about("Show devices")
                .args([command(&["show"]), words("all")]),
            Command::new("seid")
                .about(seid)
                .arg(command(&["show", "enable", "disable"])),
        ])
        .subcommands(both())
}

/// Returns the objects that are the same for both.
fn both() -> [Command; 3] {
    [
        Command::new("info")
            .about("Show what this machine can do")
            .arg(command(&["show"])),
        Command::new("stats")
            .about("Show the counters of this network namespace; reset counts from now on")
            .arg(command(&["show", "reset", "json"])),
        Command::new("ueid")
            .about("Show or change the user-defined enterprise IDs")
            .args([
                command(&["show", "add", "del", "flush"]),
                Arg::new("EID").help("The one to add or to remove"),
            ]),
    ]
}

fn object(name: &'static str, about: &'static str) -> Command {
    with_version(Command::new(name).about(about))
        .disable_help_subcommand(true)
        .after_help("Options come before the object. All words may be abbreviated.")
        .args([
            flag("details", "More columns and lines").short('d'),
            flag(
                "absolute",
                "Counters since the module was loaded, not since the reset",
            )
            .short('a'),
        ])
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    let flag = Arg::new(name).long(name).help(help);
    flag.action(ArgAction::SetTrue)
}

/// Returns the argument for the command of an object, which is the first one by default.
fn command(names: &'static [&'static str]) -> Arg {
    let names = PossibleValuesParser::new(names);
    Arg::new("COMMAND")
        .value_parser(names)
        .help("The first one if there is none")
}

fn words(help: &'static str) -> Arg {
    Arg::new("WHICH").num_args(0..).help(help)
}

fn smc_run() -> Command {
    let size = |name: &'static str, short, help| {
        let size = Arg::new(name).short(short).value_name("SIZE");
        size.help(help)
    };
    let debug = Arg::new("debug").short('d').action(ArgAction::SetTrue);
    with_version(Command::new("smc_run").about("Run a TCP program with SMC sockets")).args([
        debug.help("Say on standard error what happens to each socket"),
        size("rcvbuf", 'r', "Receive buffer in bytes, or with k or m"),
        size("sndbuf", 't', "Send buffer in bytes, or with k or m"),
        Arg::new("COMMAND")
            .required(true)
            .trailing_var_arg(true)
            .num_args(1..)
            .value_hint(ValueHint::CommandWithArguments)
            .help("The program and its arguments"),
    ])
}

/// Returns what a tool can be called with according to its definition: each of its options alone, with a value if it
/// takes one.
#[cfg(test)]
pub(super) fn options_of(name: &str) -> Vec<Vec<String>> {
    let mut tools = commands().into_iter();
    let mut tool = tools.find(|tool| tool.get_name() == name).unwrap();
    tool.build();
    let mut calls = Vec::new();
    for option in tool.get_arguments() {
        let short = option.get_short().map(|letter| format!("-{letter}"));
        let long = option.get_long().map(|word| format!("--{word}"));
        for word in short.into_iter().chain(long) {
            let value = option.get_action().takes_values();
            let value = value.then(|| "64k".to_string());
            calls.push(std::iter::once(word).chain(value).collect());
        }
    }
    assert!(calls.len() > 4, "{calls:?}");
    calls
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_no_options() {
        for mut tool in commands() {
            tool.build();
            let words = tool.get_subcommands().flat_map(Command::get_arguments);
            let options: Vec<_> = words.filter(|word| !word.is_positional()).collect();
            assert!(options.is_empty(), "{}: {options:?}", tool.get_name());
        }
    }

    #[test]
    fn the_definitions_hold_together() {
        commands().into_iter().for_each(Command::debug_assert);
    }
}
