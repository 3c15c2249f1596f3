// SPDX-License-Identifier: GPL-2.0

//! The table of the peer's buffers: one row for each remote memory buffer (RMB), with its key and address on every
//! link.
//!
//! The handshake and CONFIRM_RKEY add rows, ADD_LINK fills the column of a new link, DELETE_RKEY clears rows (RFC 7609
//! section 3.3, figure of the rtoken; C functions `smc_rtoken_*`). Connections that write to elements of the same
//! buffer share its row.
//!
//! The caller owns the rows, and allocates them: up to [`MAX_ROWS`] of [`RtokenEntry::EMPTY`].

use super::{LinkIdx, LinkMap, MAX_LINKS};
use crate::id::{RemoteAddr, Rkey, RmbeIndex};

/// Maximum rows of a table: buffers of one peer in one link group.
pub const MAX_ROWS: usize = 255;

/// Key and address for RDMA writes to a peer's buffer on one link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtoken {
    /// The key of the buffer's memory region.
    pub rkey: Rkey,
    /// The address of the buffer's first byte.
    pub addr: RemoteAddr,
}

impl Rtoken {
    /// Not known on this link.
    const NONE: Self = Self {
        rkey: Rkey(0),
        addr: RemoteAddr(0),
    };

    /// Returns true if the token can be written to. Key zero cannot: the C module sends it for a link on which a buffer
    /// is not registered.
    pub const fn is_usable(self) -> bool {
        self.rkey.0 != 0
    }
}

/// One buffer of the peer.
#[derive(Clone, Copy, Debug)]
pub struct RtokenEntry {
    tokens: LinkMap<Rtoken>,
    /// Elements in use by connections, one bit for each index.
    claimed: [u64; 4],
    /// Incremented when the row is cleared, so that an old [`RtokenIdx`] does not match a new buffer.
    generation: u32,
}

impl RtokenEntry {
    /// A row without a buffer.
    pub const EMPTY: Self = Self {
        tokens: LinkMap([Rtoken::NONE; MAX_LINKS]),
        claimed: [0; 4],
        generation: 0,
    };

    fn is_empty(&self) -> bool {
        self.tokens.iter().all(|token| !token.is_usable())
    }

    fn clear(&mut self) {
        self.tokens = LinkMap([Rtoken::NONE; MAX_LINKS]);
        self.claimed = [0; 4];
        self.generation = self.generation.wrapping_add(1);
    }

    fn get(&self, idx: LinkIdx) -> Option<Rtoken> {
        Some(self.tokens[idx]).filter(|token| token.is_usable())
    }

    fn set(&mut self, idx: LinkIdx, token: Rtoken) -> Result<(), Refused> {
        if !token.is_usable() {
            return Err(Refused::NoKey);
        }
        self.tokens[idx] = token;
        Ok(())
    }

    /// Returns the word of `claimed` and the bit in it for an element.
    fn claim_of(&mut self, index: RmbeIndex) -> Option<(&mut u64, u64)> {
        let index = u32::from(index.get());
        let word = self.claimed.get_mut(usize::try_from(index / 64).ok()?)?;
        Some((word, 1 << (index % 64)))
    }
}

/// Identifies a row until its buffer is deleted; afterwards it matches nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtokenIdx {
    index: usize,
    generation: u32,
}

/// Why the table rejects a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Every row is in use.
    Full,
    /// The key is zero.
    NoKey,
    /// The row is gone, or more links are named than a message holds.
    NoLink,
    /// The peer has not announced a buffer of that key and address on the link.
    Unknown,
    /// Another connection writes to the element.
    InUse,
}

/// The table over rows that the caller owns and has locked.
#[derive(Debug)]
pub struct Rtokens<'a> {
    rows: &'a mut [RtokenEntry],
}

impl<'a> Rtokens<'a> {
    /// Uses the first [`MAX_ROWS`] of `rows` as the table.
    pub fn new(rows: &'a mut [RtokenEntry]) -> Self {
        let len = rows.len().min(MAX_ROWS);
        Self {
            rows: rows.get_mut(..len).unwrap_or_default(),
        }
    }

    /// Returns the row of the buffer that the peer announced on link `idx`: an existing row, or a free one that is
    /// filled.
    ///
    /// # Errors
    ///
    /// [`Refused::Full`] means [`crate::reason::Reason::NoRtoken`] in a handshake.
    pub fn add(&mut self, idx: LinkIdx, token: Rtoken) -> Result<RtokenIdx, Refused> {
        self.add_with(idx, token, &LinkMap::default())
    }

    /// As [`Rtokens::add`], for a buffer that may be known by one of its tokens on other links only. Does not record
    /// those.
    ///
    /// # Errors
    ///
    /// As [`Rtokens::add`].
    pub fn add_with(
        &mut self,
        idx: LinkIdx,
        token: Rtoken,
        others: &LinkMap<Option<Rtoken>>,
    ) -> Result<RtokenIdx, Refused> {
        if !token.is_usable() {
            return Err(Refused::NoKey);
        }
        let known = self.position(|row| row.get(idx) == Some(token));
        let has_other = |row: &RtokenEntry| {
            let mut others = others.present();
            others.any(|(idx, token)| row.get(idx) == Some(*token))
        };
        let index = known
            .or_else(|| self.position(|row| row.get(idx).is_none() && has_other(row)))
            .or_else(|| self.position(RtokenEntry::is_empty))
            .ok_or(Refused::Full)?;
        let row = self.rows.get_mut(index).ok_or(Refused::Full)?;
        row.set(idx, token)?;
        Ok(RtokenIdx {
            index,
            generation: row.generation,
        })
    }

    /// Claims an element of a buffer that the peer has announced before, identified by its token on link `idx`: a
    /// handshake's token does not add a buffer to a link group. Claimed until [`Rtokens::release`] (RFC 7609 section
    /// 4.4.2).
    ///
    /// # Errors
    ///
    /// [`Refused::Unknown`], [`Refused::InUse`].
    pub fn claim(
        &mut self,
        idx: LinkIdx,
        token: Rtoken,
        element: RmbeIndex,
    ) -> Result<RtokenIdx, Refused> {
        self.claim_in(|row| row.get(idx) == Some(token), element)
    }

    /// As [`Rtokens::claim`], for a buffer identified by its key on link `idx` alone.
    ///
    /// # Errors
    ///
    /// As [`Rtokens::claim`].
    pub fn claim_by_key(
        &mut self,
        idx: LinkIdx,
        rkey: Rkey,
        element: RmbeIndex,
    ) -> Result<RtokenIdx, Refused> {
        let has_key = |row: &RtokenEntry| row.get(idx).is_some_and(|token| token.rkey == rkey);
        self.claim_in(has_key, element)
    }

    fn claim_in(
        &mut self,
        is_meant: impl Fn(&RtokenEntry) -> bool,
        element: RmbeIndex,
    ) -> Result<RtokenIdx, Refused> {
        let index = self.position(is_meant).ok_or(Refused::Unknown)?;
        let row = self.rows.get_mut(index).ok_or(Refused::Unknown)?;
        let generation = row.generation;
        let (word, bit) = row.claim_of(element).ok_or(Refused::Unknown)?;
        if *word & bit != 0 {
            return Err(Refused::InUse);
        }
        *word |= bit;
        Ok(RtokenIdx { index, generation })
    }

    /// Releases a claimed element, which is not written to any more. Does nothing if the peer has deleted the buffer.
    pub fn release(&mut self, id: RtokenIdx, element: RmbeIndex) {
        if let Some((word, bit)) = self.row_mut(id).and_then(|row| row.claim_of(element)) {
            *word &= !bit;
        }
    }

    /// Records the token of a known buffer on another link.
    ///
    /// # Errors
    ///
    /// Fails for key zero, and if the row is gone.
    pub fn set(&mut self, id: RtokenIdx, idx: LinkIdx, token: Rtoken) -> Result<(), Refused> {
        self.row_mut(id).ok_or(Refused::NoLink)?.set(idx, token)
    }

    /// Returns the row of the buffer with `rkey` on link `idx`.
    pub fn find(&self, idx: LinkIdx, rkey: Rkey) -> Option<RtokenIdx> {
        let has_key = |row: &RtokenEntry| row.get(idx).is_some_and(|token| token.rkey == rkey);
        let index = self.position(has_key)?;
        let generation = self.rows.get(index)?.generation;
        Some(RtokenIdx { index, generation })
    }

    /// Returns a buffer's token on link `idx`; `None` if the peer deleted the buffer or sent no token for this link:
    /// then it must not be written to.
    pub fn get(&self, id: RtokenIdx, idx: LinkIdx) -> Option<Rtoken> {
        self.row(id)?.get(idx)
    }

    /// Removes every buffer with `rkey` on link `idx`, on all links; returns whether there was one.
    pub fn delete(&mut self, idx: LinkIdx, rkey: Rkey) -> bool {
        let mut found = false;
        for row in self.rows.iter_mut() {
            if row.get(idx).is_some_and(|token| token.rkey == rkey) {
                row.clear();
                found = true;
            }
        }
        found
    }

    /// Removes the tokens of link `idx`, which is gone.
    pub fn delete_link(&mut self, idx: LinkIdx) {
        for row in self.rows.iter_mut().filter(|row| row.get(idx).is_some()) {
            row.tokens[idx] = Rtoken::NONE;
            if row.is_empty() {
                row.clear();
            }
        }
    }

    /// Returns true if none of the caller's rows is free.
    pub fn is_full(&self) -> bool {
        self.position(RtokenEntry::is_empty).is_none()
    }

    fn row(&self, id: RtokenIdx) -> Option<&RtokenEntry> {
        let row = self.rows.get(id.index);
        row.filter(|row| row.generation == id.generation)
    }

    fn row_mut(&mut self, id: RtokenIdx) -> Option<&mut RtokenEntry> {
        let row = self.rows.get_mut(id.index);
        row.filter(|row| row.generation == id.generation)
    }

    fn position(&self, test: impl Fn(&RtokenEntry) -> bool) -> Option<usize> {
        self.rows.iter().position(test)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: LinkIdx = LinkIdx::FIRST;
    const SECOND: LinkIdx = LinkIdx::ALL[1];

    fn token(rkey: u32, addr: u64) -> Rtoken {
        Rtoken {
            rkey: Rkey(rkey),
            addr: RemoteAddr(addr),
        }
    }

    #[test]
    fn a_buffer_announced_twice_has_one_row() {
        let mut rows = [RtokenEntry::EMPTY; 2];
        let mut table = Rtokens::new(&mut rows);
        let first = table.add(FIRST, token(1, 100)).unwrap();
        assert_eq!(table.add(FIRST, token(1, 100)), Ok(first));
        assert_ne!(table.add(FIRST, token(1, 200)), Ok(first));
        assert!(table.is_full());
        assert_eq!(table.add(FIRST, token(2, 100)), Err(Refused::Full));
    }

    #[test]
    fn key_zero_is_refused() {
        let mut rows = [RtokenEntry::EMPTY; 1];
        let mut table = Rtokens::new(&mut rows);
        assert_eq!(table.add(FIRST, token(0, 100)), Err(Refused::NoKey));
        let row = table.add(FIRST, token(1, 0)).unwrap();
        assert_eq!(table.set(row, SECOND, token(0, 5)), Err(Refused::NoKey));
        assert_eq!(table.get(row, SECOND), None);
    }

    #[test]
    fn a_deleted_row_is_not_found_by_its_old_name() {
        let mut rows = [RtokenEntry::EMPTY; 1];
        let mut table = Rtokens::new(&mut rows);
        let old = table.add(FIRST, token(1, 100)).unwrap();
        table.set(old, SECOND, token(9, 900)).unwrap();
        assert!(table.delete(SECOND, Rkey(9)));
        assert!(!table.delete(SECOND, Rkey(9)));
        let new = table.add(FIRST, token(2, 200)).unwrap();
        assert_eq!(table.get(old, FIRST), None);
        assert_eq!(table.set(old, SECOND, token(3, 1)), Err(Refused::NoLink));
        assert_eq!(table.get(new, FIRST), Some(token(2, 200)));
        assert_eq!(table.get(new, SECOND), None);
    }

    fn element(index: u8) -> RmbeIndex {
        RmbeIndex::new(index).unwrap()
    }

    #[test]
    fn a_connection_gets_an_element_of_a_known_buffer_only() {
        let mut rows = [RtokenEntry::EMPTY; 3];
        let mut table = Rtokens::new(&mut rows);
        let known = table.add(FIRST, token(1, 100)).unwrap();
        table.set(known, SECOND, token(9, 900)).unwrap();
        for wrong in [token(1, 101), token(2, 100), token(0, 0), token(0, 100)] {
            assert_eq!(table.claim(FIRST, wrong, element(1)), Err(Refused::Unknown));
        }
        // The key is valid on another link only.
        for idx in [SECOND, LinkIdx::ALL[2]] {
            let claimed = table.claim(idx, token(1, 100), element(1));
            assert_eq!(claimed, Err(Refused::Unknown));
        }
        assert_eq!(table.claim(SECOND, token(9, 900), element(1)), Ok(known));
        // Nothing was added.
        assert_eq!(table.add(FIRST, token(2, 0)).map(|row| row.index), Ok(1));
    }

    #[test]
    fn an_element_belongs_to_one_connection() {
        let mut rows = [RtokenEntry::EMPTY; 2];
        let mut table = Rtokens::new(&mut rows);
        let row = table.add(FIRST, token(1, 100)).unwrap();
        table.set(row, SECOND, token(9, 900)).unwrap();
        for index in 1..=255 {
            assert_eq!(table.claim(FIRST, token(1, 100), element(index)), Ok(row));
        }
        for index in 1..=255 {
            let again = table.claim(SECOND, token(9, 900), element(index));
            assert_eq!(again, Err(Refused::InUse));
        }
        table.release(row, element(64));
        assert_eq!(
            table.claim(FIRST, token(1, 100), element(65)),
            Err(Refused::InUse)
        );
        assert_eq!(table.claim(FIRST, token(1, 100), element(64)), Ok(row));
        // Announced once more, it is the same buffer.
        assert_eq!(table.add(FIRST, token(1, 100)), Ok(row));
        assert_eq!(
            table.claim(FIRST, token(1, 100), element(1)),
            Err(Refused::InUse)
        );
    }

    #[test]
    fn a_deleted_buffer_takes_the_claims_with_it() {
        let mut rows = [RtokenEntry::EMPTY; 1];
        let mut table = Rtokens::new(&mut rows);
        table.add(FIRST, token(1, 100)).unwrap();
        let old = table.claim(FIRST, token(1, 100), element(1)).unwrap();
        assert!(table.delete(FIRST, Rkey(1)));
        assert_eq!(
            table.claim(FIRST, token(1, 100), element(1)),
            Err(Refused::Unknown)
        );
        table.add(FIRST, token(1, 100)).unwrap();
        let new = table.claim(FIRST, token(1, 100), element(1)).unwrap();
        assert_ne!(new, old);
        // Belonged to the old connection, not to this one.
        table.release(old, element(1));
        assert_eq!(
            table.claim(FIRST, token(1, 100), element(1)),
            Err(Refused::InUse)
        );
        table.release(new, element(1));
        assert_eq!(table.claim(FIRST, token(1, 100), element(1)), Ok(new));
    }

    #[test]
    fn a_lost_link_takes_its_column_and_lone_rows_with_it() {
        let mut rows = [RtokenEntry::EMPTY; 2];
        let mut table = Rtokens::new(&mut rows);
        let lone = table.add(FIRST, token(1, 100)).unwrap();
        let both = table.add(FIRST, token(2, 200)).unwrap();
        table.set(both, SECOND, token(3, 300)).unwrap();
        table.delete_link(FIRST);
        assert_eq!(table.get(lone, FIRST), None);
        assert_eq!(table.get(both, FIRST), None);
        assert_eq!(table.get(both, SECOND), Some(token(3, 300)));
        assert_eq!(table.find(SECOND, Rkey(3)), Some(both));
        assert!(!table.is_full());
    }

    #[test]
    fn the_table_ends_at_255_rows() {
        let mut rows = [RtokenEntry::EMPTY; 300];
        let mut table = Rtokens::new(&mut rows);
        for key in 1..=255 {
            table.add(FIRST, token(key, 0)).unwrap();
        }
        assert_eq!(table.add(FIRST, token(256, 0)), Err(Refused::Full));
    }
}
