// SPDX-License-Identifier: GPL-2.0

//! Alert tokens: the numbers by which a peer addresses our connections.
//!
//! One counter serves all link groups, so that a token is not reused soon after its connection is gone (RFC 7609
//! section 2.3; C function `smc_lgr_add_alert_token`).

use crate::id::AlertToken;

/// Returns the next token after `last` that is neither zero nor `in_use` in the link group; `None` after [`MAX_TRIES`]
/// tokens in use, more than a group has connections.
///
/// The caller passes the result as `last` in its next call.
pub fn next(last: AlertToken, in_use: impl Fn(AlertToken) -> bool) -> Option<AlertToken> {
    (1..=MAX_TRIES)
        .map(|step| AlertToken(last.0.wrapping_add(step)))
        .find(|token| token.0 != 0 && !in_use(*token))
}

/// More than the connections of a group (255 by the server's count, briefly more by the client's) plus the skipped
/// zero.
pub const MAX_TRIES: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_skip_zero_and_those_in_use() {
        assert_eq!(next(AlertToken(0), |_| false), Some(AlertToken(1)));
        assert_eq!(next(AlertToken(u32::MAX), |_| false), Some(AlertToken(1)));
        assert_eq!(next(AlertToken(7), |t| t.0 < 10), Some(AlertToken(10)));
    }

    #[test]
    fn a_full_group_still_gets_a_token() {
        let in_use = |t: AlertToken| t.0 == u32::MAX || (1..=254).contains(&t.0);
        assert_eq!(
            next(AlertToken(u32::MAX - 1), in_use),
            Some(AlertToken(255))
        );
        assert_eq!(next(AlertToken(7), |_| true), None);
    }
}
