// SPDX-License-Identifier: GPL-2.0

//! The index of a link in its group, and tables with an entry for each link.

use core::ops::{
    Index,
    IndexMut, //
};
use core::slice;

use super::MAX_LINKS;

/// The index of a link in its group (C: `link_idx`). Not on the wire: the peer may have the link at another index.
///
/// # Invariants
///
/// Less than [`MAX_LINKS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkIdx(u8);

impl LinkIdx {
    /// The index of the first link of a group.
    pub const FIRST: Self = Self(0);

    /// Every index, in order.
    // INVARIANT: as many as there are.
    pub const ALL: [Self; MAX_LINKS] = [
        Self(0),
        Self(1),
        Self(2),
        Self(3),
        Self(4),
        Self(5),
        Self(6),
        Self(7),
    ];

    /// Returns the index as a number.
    #[inline]
    pub fn get(self) -> usize {
        // The remainder shows the compiler the invariant.
        usize::from(self.0) % MAX_LINKS
    }
}

/// A `T` for each link of a group, in use or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkMap<T>(pub [T; MAX_LINKS]);

impl<T> LinkMap<T> {
    /// Returns all entries, in order.
    pub fn iter(&self) -> slice::Iter<'_, T> {
        self.0.iter()
    }

    /// Returns the index of the first entry for which `is_it` holds.
    pub fn position(&self, is_it: impl Fn(&T) -> bool) -> Option<LinkIdx> {
        LinkIdx::ALL.into_iter().find(|idx| is_it(&self[*idx]))
    }

    /// Applies `f` to each entry.
    pub fn map<U>(self, f: impl FnMut(T) -> U) -> LinkMap<U> {
        LinkMap(self.0.map(f))
    }
}

impl<T> LinkMap<Option<T>> {
    /// Returns the entries that are not `None` with their indexes, in order.
    pub fn present(&self) -> impl DoubleEndedIterator<Item = (LinkIdx, &T)> {
        let all = LinkIdx::ALL.into_iter().zip(&self.0);
        all.filter_map(|(idx, entry)| Some((idx, entry.as_ref()?)))
    }
}

#[expect(clippy::indexing_slicing, reason = "every index is below the length")]
impl<T> Index<LinkIdx> for LinkMap<T> {
    type Output = T;

    #[inline]
    fn index(&self, idx: LinkIdx) -> &T {
        &self.0[idx.get()]
    }
}

#[expect(clippy::indexing_slicing, reason = "every index is below the length")]
impl<T> IndexMut<LinkIdx> for LinkMap<T> {
    #[inline]
    fn index_mut(&mut self, idx: LinkIdx) -> &mut T {
        &mut self.0[idx.get()]
    }
}
