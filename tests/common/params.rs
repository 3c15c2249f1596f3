// SPDX-License-Identifier: GPL-2.0
//! What link groups of tests have in common.

use smc_proto::lgr::{
    Role,
    MAX_LINKS_DEFAULT, //
};
use smc_proto::llc::Params;
use smc_proto::time::Duration;
use smc_proto::wire::Version;

/// A link group of the usual number of links, which are not tested.
pub fn params(role: Role, version: Version) -> Params {
    Params {
        role,
        version,
        max_links: MAX_LINKS_DEFAULT,
        test_after: Duration::ZERO,
    }
}
