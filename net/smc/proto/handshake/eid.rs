// SPDX-License-Identifier: GPL-2.0

//! The user enterprise ids (UEIDs) of this host.
//!
//! Version 2 is offered with all of them, in the order of configuration, and is accepted with the
//! first one of the peer's that is among ours (C file `smc_clc.c`, `smc_clc_ueid_*`).

use super::{DEFAULT_UEID, MAX_LOCAL_UEIDS};
use crate::id::Eid;

/// Up to [`MAX_LOCAL_UEIDS`] user EIDs, none twice.
///
/// # Invariants
///
/// The first `len` entries are valid and differ, `len` is at most [`MAX_LOCAL_UEIDS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ueids {
    list: [Eid; MAX_LOCAL_UEIDS],
    len: usize,
}

/// Why the table of user EIDs was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UeidError {
    /// Not a user EID (`EINVAL`).
    Invalid,
    /// It is there already (`EEXIST`).
    Exists,
    /// There are [`MAX_LOCAL_UEIDS`] already (`ERANGE`).
    Full,
    /// It is not there (`ENOENT`).
    Unknown,
}

impl Ueids {
    /// No user EID: version 2 is neither offered nor accepted.
    pub const EMPTY: Self = Self {
        list: [Eid::NONE; MAX_LOCAL_UEIDS],
        len: 0,
    };

    /// Only [`DEFAULT_UEID`], the state after the module was loaded.
    pub const DEFAULT: Self = {
        let mut list = [Eid::NONE; MAX_LOCAL_UEIDS];
        let [first, ..] = &mut list;
        *first = DEFAULT_UEID;
        // INVARIANT: one entry, and it is valid, as a test shows.
        Self { list, len: 1 }
    };

    /// Appends a user EID.
    ///
    /// # Errors
    ///
    /// [`UeidError::Invalid`], [`UeidError::Full`] or [`UeidError::Exists`], checked in this order.
    pub fn add(&mut self, eid: Eid) -> Result<(), UeidError> {
        if !eid.is_valid_ueid() {
            return Err(UeidError::Invalid);
        }
        let place = self.list.get_mut(self.len).ok_or(UeidError::Full)?;
        *place = eid;
        // INVARIANT: the new entry is valid; it is counted only if no other equals it.
        if self.as_slice().contains(&eid) {
            return Err(UeidError::Exists);
        }
        self.len = self.len.saturating_add(1);
        Ok(())
    }

    /// Removes a user EID; the others keep their order.
    ///
    /// # Errors
    ///
    /// [`UeidError::Unknown`].
    pub fn remove(&mut self, eid: Eid) -> Result<(), UeidError> {
        let found = self.as_slice().iter().position(|have| *have == eid);
        let at = found.ok_or(UeidError::Unknown)?;
        if let Some(tail) = self.list.get_mut(at..self.len) {
            tail.rotate_left(1);
        }
        self.len = self.len.saturating_sub(1);
        Ok(())
    }

    /// Removes all.
    pub fn flush(&mut self) {
        *self = Self::EMPTY;
    }

    /// The user EIDs in the order in which they were added.
    pub fn as_slice(&self) -> &[Eid] {
        self.list.get(..self.len).unwrap_or_default()
    }

    /// Returns the first of the peer's EIDs that is one of ours.
    pub fn choose(&self, offered: impl IntoIterator<Item = Eid>) -> Option<Eid> {
        offered
            .into_iter()
            .find(|eid| self.as_slice().contains(eid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eid(name: &str) -> Eid {
        Eid::from_name(name.as_bytes()).unwrap()
    }

    #[test]
    fn the_default_is_a_valid_user_eid() {
        assert!(DEFAULT_UEID.is_valid_ueid());
        let mut built = Ueids::EMPTY;
        built.add(eid("SMCV2-DEFAULT-UEID")).unwrap();
        assert_eq!(built, Ueids::DEFAULT);
    }

    #[test]
    fn a_table_takes_four_different_valid_entries() {
        let mut table = Ueids::EMPTY;
        assert_eq!(table.add(Eid::NONE), Err(UeidError::Invalid));
        for name in ["A", "B", "C"] {
            table.add(eid(name)).unwrap();
            assert_eq!(table.add(eid("A")), Err(UeidError::Exists));
        }
        table.add(eid("D")).unwrap();
        assert_eq!(table.add(eid("A")), Err(UeidError::Full));
        assert_eq!(table.as_slice().len(), 4);
    }

    #[test]
    fn removal_keeps_the_order() {
        let mut table = Ueids::EMPTY;
        for name in ["A", "B", "C"] {
            table.add(eid(name)).unwrap();
        }
        table.remove(eid("B")).unwrap();
        assert_eq!(table.remove(eid("B")), Err(UeidError::Unknown));
        table.add(eid("D")).unwrap();
        assert_eq!(table.as_slice(), [eid("A"), eid("C"), eid("D")]);
        table.flush();
        assert!(table.as_slice().is_empty());
    }

    #[test]
    fn the_peers_order_decides() {
        let mut table = Ueids::EMPTY;
        for name in ["A", "B"] {
            table.add(eid(name)).unwrap();
        }
        assert_eq!(table.choose([eid("X"), eid("B"), eid("A")]), Some(eid("B")));
        assert_eq!(table.choose([eid("X")]), None);
        assert_eq!(Ueids::EMPTY.choose([eid("A")]), None);
    }
}
