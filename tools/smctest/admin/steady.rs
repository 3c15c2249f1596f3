// SPDX-License-Identifier: GPL-2.0

//! A list that is read in parts while what it lists changes: whatever was there all the time has to be
//! in it, and nothing twice.

use std::collections::BTreeSet;
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

use super::pnet;

/// Bytes of a part, so that there are several.
const PART_LEN: usize = 4096;

#[derive(Clone, Copy, Debug, ValueEnum)]
enum List {
    /// Link groups
    Groups,
    /// Links, with the groups they are in
    Links,
    /// Physical networks, of which there are many then
    Pnet,
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

/// Entries in a table that does not fit into one part.
const MANY: u32 = 2000;

/// What names a record.
type Key = Vec<u8>;

impl List {
    const fn family(self) -> &'static str {
        match self {
            Self::Groups | Self::Links => SMC_FAMILY,
            Self::Pnet => PNET_FAMILY,
        }
    }

    const fn command(self) -> u8 {
        match self {
            Self::Groups => 2,
            Self::Links => 3,
            Self::Pnet => 1,
        }
    }

    /// The names of the records of a part; `above` is the group that the last part ended in.
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
        });
        keys.collect()
    }

    /// The names of the records as they are now.
    fn all(self) -> Result<BTreeSet<Key>> {
        let mut family = Family::open(self.family()).context("no SMC module")?;
        let messages = family.dump(self.command())?;
        Ok(self.keys(&messages, &mut Key::new()).into_iter().collect())
    }
}

/// The first attribute in the nest that a message is.
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
    let mut family = Family::open_for_parts(list.family(), PART_LEN)?;
    let mut above = Key::new();
    family.begin_dump(list.command())?;
    let first = family.next_part()?.context("an empty list")?;
    let mut seen = list.keys(&first, &mut above);
    ensure!(
        seen.len() < before.len(),
        "{} records in one part",
        seen.len()
    );

    let status = Command::new("sh").args(["-c", &options.between]).status()?;
    ensure!(status.success(), "{}: {status}", options.between);

    let mut parts = 1;
    while let Some(part) = family.next_part()? {
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
