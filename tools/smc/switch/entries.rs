// SPDX-License-Identifier: GPL-2.0

//! What a map of the BPF program selects, and on whose behalf. The program looks only at the keys;
//! the value is for this command, so that a file takes the place of what a file listed, and not of
//! what was added otherwise.

use std::collections::BTreeMap;
use std::io;

use libbpf_rs::MapCore;
use libbpf_rs::MapFlags;
use libbpf_rs::MapHandle;

use crate::libbpf::failed;

/// Number of entries of a map; the same in `bpf/switch.c`.
const MOST: usize = 1024;

/// Bit of a value: selected by `add`.
const BY_COMMAND: u8 = 1;
/// Bit of a value: listed by the file that was loaded last.
const BY_FILE: u8 = 2;

/// The keys of a map with their values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entries(BTreeMap<Vec<u8>, u8>);

impl Entries {
    /// Reads them from a map.
    pub(super) fn of(map: &MapHandle) -> io::Result<Self> {
        let mut entries = BTreeMap::new();
        for key in map.keys() {
            let value = map.lookup(&key, MapFlags::ANY).map_err(failed)?;
            let who = value.and_then(|value| value.first().copied());
            entries.insert(key, who.unwrap_or(BY_COMMAND));
        }
        Ok(Self(entries))
    }

    /// Returns whether nothing is selected.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether the key is selected.
    pub(super) fn contains(&self, key: &[u8]) -> bool {
        self.0.contains_key(key)
    }

    /// Selects the key by command.
    pub(super) fn add(&mut self, key: &[u8]) {
        *self.0.entry(key.to_vec()).or_default() |= BY_COMMAND;
    }

    /// Deselects the key, whoever selected it; returns whether it was selected.
    pub(super) fn remove(&mut self, key: &[u8]) -> bool {
        self.0.remove(key).is_some()
    }

    /// Selects these keys in place of those that a file listed before.
    pub(super) fn replace<'a>(&mut self, keys: impl Iterator<Item = &'a [u8]>) {
        self.0.values_mut().for_each(|who| *who &= !BY_FILE);
        for key in keys {
            *self.0.entry(key.to_vec()).or_default() |= BY_FILE;
        }
        self.0.retain(|_, who| *who != 0);
    }

    /// Keeps the keys for which `is_there` holds.
    pub(super) fn retain(&mut self, is_there: impl Fn(&[u8]) -> bool) {
        self.0.retain(|key, _| is_there(key));
    }

    /// Returns an error if a map of what are called `what` has no room for them.
    pub(super) fn check(&self, what: &str) -> io::Result<()> {
        match self.0.len() <= MOST {
            true => Ok(()),
            false => Err(io::Error::other(format!(
                "no more than {MOST} {what} can be switched"
            ))),
        }
    }

    /// Changes the map, which has the entries `before`. Keys that are in both stay in it all the time.
    pub(super) fn write(&self, before: &Self, map: &MapHandle) -> io::Result<()> {
        for key in before.0.keys().filter(|key| !self.0.contains_key(*key)) {
            map.delete(key).map_err(failed)?;
        }
        for (key, who) in &self.0 {
            if before.0.get(key) != Some(who) {
                map.update(key, &[*who], MapFlags::ANY).map_err(failed)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(of: &[(&[u8], u8)]) -> Entries {
        Entries(of.iter().map(|(key, who)| (key.to_vec(), *who)).collect())
    }

    fn replaced(before: &Entries, keys: &[&[u8]]) -> Entries {
        let mut after = before.clone();
        after.replace(keys.iter().copied());
        after
    }

    #[test]
    fn a_file_takes_the_place_of_a_file_and_of_nothing_else() {
        let mut before = entries(&[(b"old", BY_FILE), (b"both", BY_FILE)]);
        before.add(b"both");
        before.add(b"service");
        let after = replaced(&before, &[b"new"]);
        let expected: [(&[u8], u8); 3] = [
            (b"both", BY_COMMAND),
            (b"new", BY_FILE),
            (b"service", BY_COMMAND),
        ];
        assert_eq!(after, entries(&expected));
        let listed_as_well = entries(&[(b"service", BY_COMMAND | BY_FILE), (b"both", BY_COMMAND)]);
        assert_eq!(replaced(&after, &[b"service"]), listed_as_well);
    }

    #[test]
    fn an_empty_file_leaves_what_was_added() {
        let before = entries(&[(b"old", BY_FILE), (b"service", BY_COMMAND)]);
        assert_eq!(replaced(&before, &[]), entries(&[(b"service", BY_COMMAND)]));
        assert!(replaced(&entries(&[(b"old", BY_FILE)]), &[]).is_empty());
    }

    #[test]
    fn what_is_removed_is_so_whoever_added_it() {
        let mut entries = entries(&[(b"a", BY_FILE | BY_COMMAND)]);
        assert!(entries.remove(b"a") && !entries.remove(b"a"));
        assert!(entries.is_empty());
    }

    #[test]
    fn a_map_that_is_full_takes_no_more() {
        let mut many = Entries::default();
        (0..MOST).for_each(|i| many.add(&i.to_ne_bytes()));
        assert!(many.check("cgroups").is_ok());
        many.add(b"one more");
        let error = many.check("cgroups").unwrap_err().to_string();
        assert!(error.contains("1024 cgroups"), "{error}");
        many.retain(|key| key != b"one more");
        assert!(many.check("cgroups").is_ok());
    }
}
