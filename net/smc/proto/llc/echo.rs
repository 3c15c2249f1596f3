// SPDX-License-Identifier: GPL-2.0

//! TEST_LINK with a number (RFC 7609 section 3.5.5.5): the peer returns the bytes of the request, so that the answer
//! identifies it.

use crate::wire::llc::{
    Body,
    Kind,
    LlcMessage, //
};

impl Body<'_> {
    /// A TEST_LINK with a number.
    pub(super) const fn numbered_test(number: u64) -> Self {
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        Self::TestLink([a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0])
    }
}

impl LlcMessage<'_> {
    /// The number of the TEST_LINK that the message answers; `None` if it answers none, or one without a number.
    pub fn echoed(&self) -> Option<u64> {
        let (Kind::Response, Body::TestLink([a, b, c, d, e, f, g, h, ..])) = (self.kind, self.body)
        else {
            return None;
        };
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        (number != 0).then_some(number)
    }

    /// Whether the message deletes RKeys of the peer's buffers.
    pub fn deletes_rkeys(&self) -> bool {
        matches!((self.kind, self.body), (Kind::Request, Body::DeleteRkey(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Version;

    #[test]
    fn the_answer_has_the_number_of_the_request() {
        let message = |kind, number| LlcMessage {
            version: Version::V2,
            kind,
            body: Body::numbered_test(number),
        };
        assert_eq!(
            message(Kind::Response, 0x0102_0304_0506).echoed(),
            Some(0x0102_0304_0506)
        );
        assert_eq!(message(Kind::Response, 0).echoed(), None);
        assert_eq!(message(Kind::Request, 7).echoed(), None);
    }
}
