// SPDX-License-Identifier: GPL-2.0

//! Why a link failed.

use kernel::fmt;
use kernel_ext::{
    ib,
    prelude::*, //
};

/// Why a link failed.
#[derive(Clone, Copy)]
pub(crate) enum LinkError {
    /// A work request could not be posted.
    Post,
    /// A message, or the data before it, did not arrive.
    Send(ib::Status),
    /// A receive completed with an error.
    Receive(ib::Status),
    /// The registration of memory timed out.
    Register,
    /// What was posted is not completed: the peer posts no receives.
    Stalled,
    /// The peer did not answer a TEST LINK.
    TestLinkTimeout,
    /// The port is inactive or gone.
    Port,
    /// The peer's message has no trailer with credits.
    MissingTrailer,
    /// The peer no longer uses it.
    Retired,
    /// The peer's queue pair number is that of another link: the device at the other end was replaced.
    Replaced,
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Post => f.write_str("cannot post to its queues"),
            Self::Send(status) => f.write_fmt(fmt!("a send ended with: {status}")),
            Self::Receive(status) => f.write_fmt(fmt!("a receive ended with: {status}")),
            Self::Register => f.write_str("memory was not registered in time"),
            Self::Stalled => f.write_str("the peer takes no messages"),
            Self::TestLinkTimeout => f.write_str("the peer does not answer"),
            Self::Port => f.write_str("its port is gone"),
            Self::MissingTrailer => f.write_str("the peer does not account for its receives"),
            Self::Retired => f.write_str("the peer gave it up"),
            Self::Replaced => f.write_str("the peer's queue pair is that of another link now"),
        }
    }
}
