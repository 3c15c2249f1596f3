// SPDX-License-Identifier: GPL-2.0

//! Why a link is broken.

use kernel::{
    fmt,
    prelude::*, //
};
use kernel_ext::ib;

/// Why a link is broken.
#[derive(Clone, Copy)]
pub(crate) enum LinkError {
    /// A work request could not be posted.
    Post,
    /// A message, or the data before it, did not arrive.
    Send(ib::Status),
    /// A receive ended without a message.
    Receive(ib::Status),
    /// The registration of memory did not end in time.
    Register,
    /// The peer did not answer when the link was tested.
    TestLinkTimeout,
    /// Its port does not work any more, or is gone.
    Port,
    /// The peer's message says nothing about credits.
    MissingTrailer,
    /// The peer does not use it any more.
    Retired,
    /// The peer's queue pair has the number of another link's: the device at the other end is not that of before.
    Replaced,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post => f.write_str("cannot post to its queues"),
            Self::Send(status) => f.write_fmt(fmt!("a send ended with: {status}")),
            Self::Receive(status) => f.write_fmt(fmt!("a receive ended with: {status}")),
            Self::Register => f.write_str("memory was not registered in time"),
            Self::TestLinkTimeout => f.write_str("the peer does not answer"),
            Self::Port => f.write_str("its port is gone"),
            Self::MissingTrailer => f.write_str("the peer does not account for its receives"),
            Self::Retired => f.write_str("the peer gave it up"),
            Self::Replaced => f.write_str("the peer's queue pair is that of another link now"),
        }
    }
}
