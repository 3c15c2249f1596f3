// SPDX-License-Identifier: GPL-2.0

//! Capabilities of this host, and the limitation of handshakes.

use kernel_ext::{
    genl::{
        Dump,
        Request, //
    },
    net::SynOption,
    prelude::*,
    uapi::*, //
};

use crate::{
    local::LOCAL,
    namespace, //
};

/// The supported version and release.
const VERSION: u8 = 2;
const RELEASE: u8 = 1;

pub(super) fn info(dump: &mut Dump<'_>) -> Result {
    let local = LOCAL.get().ok_or(ENODEV)?;
    dump.each([(0, ())], |unit, ()| {
        unit.message(unit.command(), |attrs| {
            attrs.nest(SMC_GEN_SYS_INFO, |attrs| {
                attrs.u8(SMC_NLA_SYS_VER, VERSION)?;
                attrs.u8(SMC_NLA_SYS_REL, RELEASE)?;
                attrs.u8(SMC_NLA_SYS_IS_ISM_V2, 0)?;
                attrs.u8(SMC_NLA_SYS_IS_SMCR_V2, 1)?;
                attrs.u8(SMC_NLA_SYS_SYN_OPTION, SynOption::WAY)?;
                attrs.string(SMC_NLA_SYS_LOCAL_HOST, &local.hostname.0)
            })
        })
    })
}

pub(super) fn dump_limitation(dump: &mut Dump<'_>) -> Result {
    let is_on = namespace::within(dump.netns()).config.limits_handshakes();
    dump.each([(0, ())], |unit, ()| {
        unit.message(unit.command(), |attrs| {
            attrs.u8(SMC_NLA_HS_LIMITATION_ENABLED, u8::from(is_on))
        })
    })
}

pub(super) fn limit(request: &Request<'_>) -> Result {
    let namespace = namespace::within(request.netns());
    namespace.config.limit_handshakes(true);
    Ok(())
}

pub(super) fn no_limit(request: &Request<'_>) -> Result {
    let namespace = namespace::within(request.netns());
    namespace.config.limit_handshakes(false);
    Ok(())
}
