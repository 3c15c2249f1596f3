// SPDX-License-Identifier: GPL-2.0

//! Generic netlink family `SMC_RS`, which the C module does not have: the rules of a namespace about which connections
//! may use SMC. See `include/uapi/linux/smc_rs.h`.

use kernel_ext::{
    genl::{
        self,
        Access,
        AttrType,
        Family,
        Op,
        Policy,
        Request, //
    },
    own_record,
    prelude::*,
    uapi::*, //
};
use smc_proto::policy;

use super::number;
use crate::namespace;

/// The registered family.
pub(super) type PolicyRegistration = genl::Registration<SmcRs>;

/// The commands of the family.
pub(crate) struct SmcRs;

own_record! { SmcRs: genl::Record<SmcRs> }

impl Family for SmcRs {
    const NAME: &'static CStr = c"SMC_RS";
    const VERSION: u32 = 1;
    const STRICT_FROM: u32 = SMC_RS_CMD_GET_RULES;
    const DONT_VALIDATE: bool = false;
    const OPS: &'static [Op] = &[
        Op {
            command: SMC_RS_CMD_GET_RULES,
            call: Some(get),
            dump: None,
            access: Access::All,
            attrs: &[],
        },
        Op {
            command: SMC_RS_CMD_SET_RULES,
            call: Some(set),
            dump: None,
            access: Access::NamespaceAdmin,
            attrs: &[
                Policy {
                    attr: SMC_RS_A_RULES,
                    kind: AttrType::Bytes(u16::MAX),
                },
                Policy {
                    attr: SMC_RS_A_GENERATION,
                    kind: AttrType::U32,
                },
            ],
        },
    ];
}

fn get(request: &Request<'_>) -> Result {
    let rules = namespace::within(request.netns()).policy.rules();
    let mut bytes = KVVec::new();
    for rule in rules.as_slice() {
        bytes.extend_from_slice(policy::RawRule::from(rule).bytes(), GFP_KERNEL)?;
    }
    /// Two headers of attributes and a number.
    const REST: usize = 3 * 4;
    let command = number(SMC_RS_CMD_GET_RULES)?;
    request.answer_list(command, bytes.len() + REST, &[bytes], |attrs, bytes| {
        attrs.u32(SMC_RS_A_GENERATION, rules.generation())?;
        attrs.bytes(SMC_RS_A_RULES, bytes)
    })
}

fn set(request: &Request<'_>) -> Result {
    let bytes = request.attr(SMC_RS_A_RULES).ok_or(EINVAL)?;
    let parsed = policy::parse(bytes).map_err(|_| EINVAL)?;
    let mut rules = KVVec::new();
    for rule in parsed {
        if rules.len() == policy::MAX_RULES {
            return Err(E2BIG);
        }
        rules.push(rule.map_err(|_| EINVAL)?, GFP_KERNEL_ACCOUNT)?;
    }
    let table = &namespace::within(request.netns()).policy;
    table.replace(rules, request.u32(SMC_RS_A_GENERATION))
}
