// SPDX-License-Identifier: GPL-2.0
//! A CDC message (connection data control, RFC 7609 section 4.3), without its wire form.

use crate::buffer::SizeClass;
use crate::cursor::Cursor;
use crate::flags::flags;
use crate::id::{
    LinkNum,
    Rkey,
    RmbeIndex, //
};
use crate::lgr::MAX_LINKS;

/// One CDC message, sent or received. The wire form adds the alert token of the receiver's connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cdc {
    /// Sequence number; in a failover validation the number of the last message that got through.
    pub seq: u16,
    /// Where the sender of the message writes next in the receiver's RMBE.
    pub prod: Cursor,
    /// Where the sender of the message reads next in its own RMBE.
    pub cons: Cursor,
    /// Flags about the data.
    pub flags: ProducerFlags,
    /// Flags about the connection; once set they stay set.
    pub state: StateFlags,
    /// The RMBEs that the cursors are positions in.
    pub rmbes: RmbeRefs,
}

impl Cdc {
    /// Whether the message is a failover validation.
    #[inline]
    pub const fn is_validation(&self) -> bool {
        self.flags.contains(ProducerFlags::FAILOVER)
    }

    /// Adds to a validation the numbers of the links over iWARP that its sender retired: data posted on them may still
    /// arrive. They replace the cursor offsets, which have no meaning there.
    #[must_use]
    pub fn with_retired_links(mut self, links: [LinkNum; MAX_LINKS]) -> Self {
        let [a, b, c, d, e, f, g, h] = links.map(|link| link.0);
        self.prod.offset = u32::from_be_bytes([a, b, c, d]);
        self.cons.offset = u32::from_be_bytes([e, f, g, h]);
        self
    }

    /// The links that a validation names; [`LinkNum::NONE`] where there are fewer.
    pub fn retired_links(&self) -> [LinkNum; MAX_LINKS] {
        let [a, b, c, d] = self.prod.offset.to_be_bytes();
        let [e, f, g, h] = self.cons.offset.to_be_bytes();
        [a, b, c, d, e, f, g, h].map(LinkNum)
    }
}

/// The number of one of the RMBEs that a connection uses at one end one after the other; 0 for that of the handshake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmbeNum(pub u8);

impl RmbeNum {
    /// The number of the one that replaces it.
    pub(super) const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

/// What a CDC message says of RMBEs. All zero in messages of and to a peer that does not replace them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RmbeRefs {
    /// The receiver's RMBE that the producer cursor is a position in.
    pub prod: RmbeNum,
    /// The sender's RMBE that the consumer cursor is a position in.
    pub cons: RmbeNum,
    /// The stream position, modulo 2^32, from which on the sender's data are in `prod`.
    pub since: u32,
    /// The sender's RMBE that is to replace `cons`.
    pub offer: Option<RmbeOffer>,
}

/// An RMBE that is to replace the one in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RmbeOffer {
    /// Its size.
    pub size: SizeClass,
    /// Its index in the RMB.
    pub index: RmbeIndex,
    /// The key of the RMB on the link by which the message is sent; zero in a plan.
    pub rkey: Rkey,
}

flags! {
    /// Producer flags: byte 24 of the message. Reserved bits are dropped.
    ProducerFlags(u8) & 0xf8;
    /// B: the data to be sent fill or exceed the window.
    WRITE_BLOCKED = 0x80;
    /// P: urgent data wait at the sender.
    URGENT_PENDING = 0x40;
    /// U: the byte before the producer cursor is urgent.
    URGENT_PRESENT = 0x20;
    /// R: answer with the consumer cursor at once.
    UPDATE_REQUESTED = 0x10;
    /// F: the connection moved to another link; only the sequence number counts.
    FAILOVER = 0x08;
}

flags! {
    /// Connection state flags: byte 25 of the message. Reserved bits are dropped.
    StateFlags(u8) & 0xe0;
    /// D: the sender of the message will write no more data.
    DONE_WRITING = 0x80;
    /// C: the sender of the message closed.
    CLOSED = 0x40;
    /// A: the sender of the message aborts; the counterpart of a TCP reset.
    ABORTED = 0x20;
}

impl StateFlags {
    /// Whether the sender of the flags closed or aborted.
    #[inline]
    pub const fn any_close(self) -> bool {
        self.intersects(Self(Self::CLOSED.0 | Self::ABORTED.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_stands_behind_the_number_of_the_last_message() {
        let mut validation = Cdc::default();
        validation.prod.wrap = 7;
        let links = [1, 2, 3, 4, 5, 6, 7, 255].map(LinkNum);
        let named = validation.with_retired_links(links);
        assert_eq!((named.prod.wrap, named.prod.offset), (7, 0x0102_0304));
        assert_eq!((named.cons.wrap, named.cons.offset), (0, 0x0506_07ff));
        assert_eq!(named.retired_links(), links);
    }
}
