// SPDX-License-Identifier: GPL-2.0

//! Reads a dump in parts while its content changes: every record that existed throughout must be in
//! it, and none twice.

use std::collections::BTreeSet;
use std::io;
use std::process::Command;

use anyhow::ensure;
use anyhow::Context as _;
use anyhow::Result;
use clap::Args;
use clap::ValueEnum;
use smc_tools::genl::Family;
use smc_tools::genl::Message;
use smc_tools::genl::PNET_FAMILY;
use smc_tools::genl::SMC_FAMILY;
use smc_tools::netlink::attribute;
use smc_tools::netlink::Netlink;
use smc_tools::netlink::Reply;

use super::pnet;
use super::sockets;

/// Bytes of one part, small enough for several parts.
const PART_LEN: usize = 4096;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum List {
    /// Link groups
    Groups,
    /// Links, with the groups they are in
    Links,
    /// Physical networks, of which there are many then
    Pnet,
    /// Sockets of this network namespace
    Sockets,
}

#[derive(Args)]
pub(crate) struct Options {
    /// What to list
    #[arg(value_enum)]
    list: List,

    /// A shell command that changes something, run after the first part
    #[arg(long, value_name = "COMMAND")]
    between: String,
}

/// Entries of a table that does not fit into one part.
const MANY: u32 = 2000;

/// Identifies a record.
type Key = Vec<u8>;

/// The netlink family that returns a list.
enum Source {
    Family(Family, u8),
    Sockets(Netlink),
}

impl Source {
    fn open(list: List) -> Result<Self> {
        let (name, command) = match list {
            List::Groups => (SMC_FAMILY, 2),
            List::Links => (SMC_FAMILY, 3),
            List::Pnet => (PNET_FAMILY, 1),
            List::Sockets => return Ok(Self::Sockets(sockets::open(PART_LEN)?)),
        };
        let family = Family::open_for_parts(name, PART_LEN).context("no SMC module")?;
        Ok(Self::Family(family, command))
    }

    fn begin(&mut self) -> io::Result<()> {
        match self {
            Self::Family(family, command) => family.begin_dump(*command),
            Self::Sockets(netlink) => sockets::begin(netlink),
        }
    }

    /// Returns the next part; `None` at the end.
    fn next(&mut self) -> io::Result<Option<Vec<Message>>> {
        match self {
            Self::Family(family, _) => family.next_part(),
            Self::Sockets(netlink) => {
                let message = |reply: Reply| Message {
                    command: 0,
                    attributes: reply.payload,
                };
                let part = netlink.next_part()?;
                Ok(part.map(|part| part.into_iter().map(message).collect()))
            }
        }
    }
}

impl List {
    /// Returns the keys of the records of a part. `above` is the link group that the last part
    /// ended in.
    fn keys(self, messages: &[Message], above: &mut Key) -> Vec<Key> {
        let keys = messages.iter().filter_map(|message| match self {
            Self::Groups | Self::Links => {
                let id = first_of_nest(message)?;
                match message.command {
                    2 => above.clone_from(&id),
                    _ => return Some([&above[..], &id].concat()),
                }
                Some(id)
            }
            Self::Pnet => Some(message.attributes.clone()),
            Self::Sockets => sockets::cookie(&message.attributes),
        });
        keys.collect()
    }

    /// Returns the keys of all current records.
    fn all(self) -> Result<BTreeSet<Key>> {
        let (mut all, mut above) = (BTreeSet::new(), Key::new());
        let mut source = Source::open(self)?;
        source.begin()?;
        while let Some(part) = source.next()? {
            all.extend(self.keys(&part, &mut above));
        }
        Ok(all)
    }
}

/// Returns the first attribute in the nest of a message.
fn first_of_nest(message: &Message) -> Option<Key> {
    let nest = attribute(&message.attributes, message.command.into())?;
    attribute(nest, 1).map(<[u8]>::to_vec)
}

pub(super) fn run(options: &Options) -> Result<()> {
    let list = options.list;
    if matches!(list, List::Pnet) {
        pnet::fill(MANY)?;
    }
    let before = list.all()?;
    let mut source = Source::open(list)?;
    let mut above = Key::new();
    source.begin()?;
    let first = source.next()?.context("an empty list")?;
    let mut seen = list.keys(&first, &mut above);
    ensure!(
        seen.len() < before.len(),
        "{} records in one part",
        seen.len()
    );

    let status = Command::new("sh").args(["-c", &options.between]).status()?;
    ensure!(status.success(), "{}: {status}", options.between);

    let mut parts = 1;
    while let Some(part) = source.next()? {
        seen.extend(list.keys(&part, &mut above));
        parts += 1;
    }
    let after = list.all()?;
    println!(
        "# {} records before, {} in {parts} parts, {} after",
        before.len(),
        seen.len(),
        after.len()
    );

    ensure!(before != after, "nothing changed");
    let once: BTreeSet<_> = seen.iter().cloned().collect();
    ensure!(once.len() == seen.len(), "a record came twice");
    ensure!(
        before.intersection(&after).all(|key| once.contains(key)),
        "a record was left out"
    );
    Ok(())
}
