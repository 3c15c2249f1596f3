// SPDX-License-Identifier: GPL-2.0

//! Alert tokens: the numbers by which a peer addresses our connections.
//!
//! One counter serves every link group, so that a token is not met again soon after its
//! connection is gone (RFC 7609 section 2.3; C function `smc_lgr_add_alert_token`).

use crate::id::Token;

/// Returns the token after `last` that is neither zero nor `in_use` in the link group; `None`
/// after [`MAX_TRIES`] in a row were, which the connections of a group cannot do.
///
/// The caller makes the result its next `last`.
pub fn next(last: Token, in_use: impl Fn(Token) -> bool) -> Option<Token> {
    (1..=MAX_TRIES)
        .map(|step| Token(last.0.wrapping_add(step)))
        .find(|token| token.0 != 0 && !in_use(*token))
}

/// More than the connections of a group (255 by the server's count, for a moment more by the client's)
/// and the zero that is skipped.
pub const MAX_TRIES: u32 = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_skip_zero_and_those_in_use() {
        assert_eq!(next(Token(0), |_| false), Some(Token(1)));
        assert_eq!(next(Token(u32::MAX), |_| false), Some(Token(1)));
        assert_eq!(next(Token(7), |t| t.0 < 10), Some(Token(10)));
    }

    #[test]
    fn a_full_group_still_gets_a_token() {
        let in_use = |t: Token| t.0 == u32::MAX || (1..=254).contains(&t.0);
        assert_eq!(next(Token(u32::MAX - 1), in_use), Some(Token(255)));
        assert_eq!(next(Token(7), |_| true), None);
    }
}
