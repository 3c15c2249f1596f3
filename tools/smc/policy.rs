// SPDX-License-Identifier: GPL-2.0

//! `smc policy`: rules about which connections of this network namespace may use SMC.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;
use clap::Subcommand;
use clap::ValueEnum;
use serde::Serialize;
use smc_proto::lgr::Role;
use smc_proto::policy::EndPattern;
use smc_proto::policy::PortRange;
use smc_proto::policy::Prefix;
use smc_proto::policy::Rule;
use smc_proto::policy::RuleAction;
use smc_proto::policy::MAX_RULES;
use smc_tools::rules::Table;

use crate::out;
use crate::table::json;
use crate::table::table;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Print the rules in their order
    Show {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add a rule
    #[command(
        after_help = "The first rule that matches a connection decides; one that no rule matches may use SMC."
    )]
    Add {
        #[command(flatten)]
        rule: RuleArguments,
        /// Add it as rule N, before the one that has this number, instead of as the last one
        #[arg(long, value_name = "N")]
        at: Option<usize>,
    },
    /// Remove rule N
    Del {
        /// Its number, as shown
        #[arg(value_name = "N")]
        number: usize,
    },
    /// Remove all rules
    Flush,
    /// Print the rules as `load` reads them
    Save,
    /// Replace all rules at once
    Load {
        /// A file with the arguments of `add`, one rule a line, and comments after #; - is standard input
        file: PathBuf,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Verdict {
    /// SMC, if both ends can
    Allow,
    /// TCP
    Deny,
}

/// A rule.
#[derive(clap::Args)]
pub(crate) struct RuleArguments {
    /// What connections that it matches may use
    #[arg(value_enum)]
    action: Verdict,

    /// Only connections that this host opens
    #[arg(long, conflicts_with = "server")]
    client: bool,

    /// Only connections that this host accepts
    #[arg(long)]
    server: bool,

    /// The peer's address, IPv4 or IPv6
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    peer: Option<PrefixArgument>,

    /// The peer's port
    #[arg(long, value_name = "PORT[-PORT]")]
    peer_port: Option<PortsArgument>,

    /// This host's address
    #[arg(long, value_name = "ADDRESS[/LENGTH]")]
    local: Option<PrefixArgument>,

    /// This host's port
    #[arg(long, value_name = "PORT[-PORT]")]
    local_port: Option<PortsArgument>,
}

/// A line of a file.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Line {
    #[command(flatten)]
    rule: RuleArguments,
}

#[derive(Clone, Copy)]
struct PrefixArgument(Prefix);

impl FromStr for PrefixArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, len) = match text.split_once('/') {
            Some((address, len)) => (address, Some(len)),
            None => (text, None),
        };
        let ip: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is no address"))?;
        let width = if ip.is_ipv4() { 32 } else { 128 };
        let len = match len {
            Some(len) => len
                .parse()
                .ok()
                .filter(|len| *len <= width)
                .ok_or_else(|| format!("`{len}` is no number from 0 to {width}"))?,
            None => width,
        };
        let prefix = Prefix::new(ip, len);
        prefix
            .map(Self)
            .ok_or_else(|| format!("`{address}` has bits beyond the first {len}"))
    }
}

#[derive(Clone, Copy)]
struct PortsArgument(PortRange);

impl FromStr for PortsArgument {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let port = |text: &str| {
            let port = text.parse().ok().filter(|port: &u16| *port != 0);
            port.ok_or_else(|| format!("`{text}` is no port from 1 to 65535"))
        };
        PortRange::new(port(first)?, port(last)?)
            .map(Self)
            .ok_or_else(|| "the first port is above the last one".to_string())
    }
}

impl RuleArguments {
    fn rule(&self) -> Rule {
        let end = |prefix: Option<PrefixArgument>, ports: Option<PortsArgument>| EndPattern {
            prefix: prefix.map(|prefix| prefix.0),
            ports: ports.map_or(PortRange::ALL, |ports| ports.0),
        };
        Rule {
            action: match self.action {
                Verdict::Allow => RuleAction::Allow,
                Verdict::Deny => RuleAction::Deny,
            },
            role: match (self.client, self.server) {
                (true, _) => Some(Role::Client),
                (_, true) => Some(Role::Server),
                _ => None,
            },
            local: end(self.local, self.local_port),
            peer: end(self.peer, self.peer_port),
        }
    }
}

/// A rule as the arguments of `smc policy add`.
pub(crate) struct AsArguments<'a>(pub(crate) &'a Rule);

impl fmt::Display for AsArguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.0;
        f.write_str(action(rule))?;
        if let Some(role) = role(rule) {
            write!(f, " --{role}")?;
        }
        for (name, end) in [("peer", &rule.peer), ("local", &rule.local)] {
            if let Some(prefix) = prefix(end) {
                write!(f, " --{name} {prefix}")?;
            }
            if let Some(ports) = ports(end) {
                write!(f, " --{name}-port {ports}")?;
            }
        }
        Ok(())
    }
}

fn action(rule: &Rule) -> &'static str {
    match rule.action {
        RuleAction::Allow => "allow",
        RuleAction::Deny => "deny",
    }
}

fn role(rule: &Rule) -> Option<&'static str> {
    rule.role.map(|role| match role {
        Role::Client => "client",
        Role::Server => "server",
    })
}

fn prefix(end: &EndPattern) -> Option<String> {
    end.prefix.map(|prefix| match prefix.is_host() {
        true => prefix.ip().to_string(),
        false => format!("{}/{}", prefix.ip(), prefix.len_bits()),
    })
}

fn ports(end: &EndPattern) -> Option<String> {
    match (end.ports, end.ports.bounds()) {
        (PortRange::ALL, _) => None,
        (_, (first, last)) if first == last => Some(first.to_string()),
        (_, (first, last)) => Some(format!("{first}-{last}")),
    }
}

/// Runs the subcommand.
pub(crate) fn run(command: &Command) -> io::Result<()> {
    let mut rules = Table::open().map_err(no_family)?;
    let outcome = match command {
        Command::Show { json } => show(&rules.list()?.rules, *json),
        Command::Add { rule, at } => rules.change(|rules| {
            let place = at.map_or(rules.len(), |number| number.wrapping_sub(1));
            if place > rules.len() {
                return Err(no_rule(at.unwrap_or_default()));
            }
            rules.insert(place, rule.rule());
            Ok(())
        }),
        Command::Del { number } => rules.change(|rules| {
            let place = number.wrapping_sub(1);
            if place >= rules.len() {
                return Err(no_rule(*number));
            }
            rules.remove(place);
            Ok(())
        }),
        Command::Flush => rules.replace(&[], None),
        Command::Save => out::lines(rules.list()?.rules.iter().map(AsArguments)),
        Command::Load { file } => rules.replace(&load(file)?, None),
    };
    outcome.map_err(explained)
}

fn no_rule(number: usize) -> io::Error {
    io::Error::other(format!("there is no rule {number} (smc policy show)"))
}

fn no_family(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            "the SMC module is not loaded, or has no such rules, as the C module",
        ),
        _ => error,
    }
}

fn explained(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::E2BIG) => io::Error::other(format!("there can be {MAX_RULES} rules at most")),
        Some(libc::EPERM) => io::Error::new(
            error.kind(),
            format!("{error}; rules need CAP_NET_ADMIN in the network namespace"),
        ),
        _ => error,
    }
}

fn load(file: &PathBuf) -> io::Result<Vec<Rule>> {
    let text = match file.as_os_str() == "-" {
        true => io::read_to_string(io::stdin())?,
        false => fs::read_to_string(file).map_err(|error| {
            io::Error::new(error.kind(), format!("{}: {error}", file.display()))
        })?,
    };
    parse(&text).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
}

/// Parses the lines of a file; an error names the line.
fn parse(text: &str) -> Result<Vec<Rule>, String> {
    let mut rules = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let mut words = line
            .split('#')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .peekable();
        if words.peek().is_none() {
            continue;
        }
        let line = Line::try_parse_from(words).map_err(|error| {
            let error = error.to_string();
            let what = error.lines().next().unwrap_or_default();
            format!("line {number}: {}", what.trim_start_matches("error: "))
        })?;
        rules.push(line.rule.rule());
    }
    Ok(rules)
}

/// A rule in JSON; what it says nothing about is null.
#[derive(Serialize)]
struct Shown {
    number: usize,
    action: &'static str,
    role: Option<&'static str>,
    peer: Option<String>,
    peer_port: Option<String>,
    local: Option<String>,
    local_port: Option<String>,
}

fn show(rules: &[Rule], as_json: bool) -> io::Result<()> {
    let shown = (1..).zip(rules).map(|(number, rule)| Shown {
        number,
        action: action(rule),
        role: role(rule),
        peer: prefix(&rule.peer),
        peer_port: ports(&rule.peer),
        local: prefix(&rule.local),
        local_port: ports(&rule.local),
    });
    if as_json {
        return json(&shown.collect::<Vec<_>>());
    }
    let any = |text: Option<String>| text.unwrap_or_else(|| "any".to_string());
    let rows: Vec<_> = shown
        .map(|rule| {
            vec![
                rule.number.to_string(),
                rule.action.to_string(),
                rule.role.unwrap_or("any").to_string(),
                any(rule.peer),
                any(rule.peer_port),
                any(rule.local),
                any(rule.local_port),
            ]
        })
        .collect();
    table(
        &["Rule", "Action", "Role", "Peer", "Port", "Local", "Port"],
        &rows,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(text: &str) -> Result<String, String> {
        let rules = parse(text)?;
        let lines: Vec<_> = rules
            .iter()
            .map(|rule| AsArguments(rule).to_string())
            .collect();
        Ok(lines.join("\n"))
    }

    #[test]
    fn what_is_saved_can_be_loaded() {
        let text = "deny\n\
            allow --client --peer 10.0.0.0/8 --peer-port 80-90\n\
            deny --server --peer fd00::/16 --local 10.9.0.2 --local-port 443";
        assert_eq!(printed(text).as_deref(), Ok(text));
        assert_eq!(printed("\n# none\n  allow  # all").as_deref(), Ok("allow"));
        let mapped = "deny --peer ::ffff:10.9.0.1 --local ::ffff:10.9.0.0/112";
        let plain = "deny --peer 10.9.0.1 --local 10.9.0.0/16";
        assert_eq!(printed(mapped).as_deref(), Ok(plain));
    }

    #[test]
    fn the_example_of_a_file_has_rules_that_are_none_yet() {
        let text = include_str!("../../packaging/policy.conf");
        assert_eq!(printed(text).as_deref(), Ok(""));
        let rules: Vec<_> = text
            .lines()
            .filter_map(|line| line.strip_prefix('#'))
            .filter(|line| line.starts_with(char::is_alphabetic))
            .collect();
        assert_eq!(rules.len(), 3);
        let rules = rules.join("\n");
        assert_eq!(printed(&rules).as_deref(), Ok(rules.as_str()));
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (line, what) in [
            ("refuse", "'refuse'"),
            ("deny --client --server", "'--server'"),
            ("deny --peer 10.0.0.1/8", "bits beyond the first 8"),
            ("deny --peer 10.0.0.0/33", "no number from 0 to 32"),
            ("deny --peer host", "`host` is no address"),
            ("deny --peer-port 0", "`0` is no port"),
            ("deny --peer-port 9-8", "above the last one"),
            ("deny all", "'all'"),
        ] {
            let error = printed(&format!("allow\n{line}")).unwrap_err();
            assert!(
                error.starts_with("line 2: ") && error.contains(what),
                "{error}"
            );
        }
    }
}
