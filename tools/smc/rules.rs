// SPDX-License-Identifier: GPL-2.0

//! The rules of the caller's network namespace about which connections may use SMC (`SMC_RS`).

use std::io;

use smc_proto::policy;
use smc_proto::policy::RawRule;
use smc_proto::policy::Rule;
use smc_uapi::SMC_RS_A_GENERATION as GENERATION;
use smc_uapi::SMC_RS_A_RULES as RULES;
use smc_uapi::SMC_RS_CMD_GET_RULES as GET;
use smc_uapi::SMC_RS_CMD_SET_RULES as SET;
use smc_uapi::SMC_RS_GENL_NAME;
use smc_user::Errno;

use crate::genl::header;
use crate::genl::Family;
use crate::netlink::attribute;
use crate::netlink::get;
use crate::netlink::put_attribute;

/// The rules at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Differs once they were replaced.
    pub generation: u32,
    /// In their order.
    pub rules: Vec<Rule>,
}

/// The rules of a namespace.
pub struct Table(Family);

impl Table {
    /// Opens them; `NotFound` if no SMC module is loaded, or it is the C module.
    pub fn open() -> io::Result<Self> {
        Family::open(SMC_RS_GENL_NAME).map(Self)
    }

    /// Returns all rules.
    pub fn list(&mut self) -> io::Result<Listed> {
        let messages = self.0.ask(0, &header(GET))?;
        let listed = messages.first().and_then(|message| {
            let bytes = attribute(&message.attributes, RULES)?;
            Some(Listed {
                generation: get(attribute(&message.attributes, GENERATION)?, 0)?,
                rules: policy::parse(bytes).ok()?.collect::<Result<_, _>>().ok()?,
            })
        });
        listed.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    /// Replaces all rules at once. With a generation ESTALE unless they still are those of that one;
    /// E2BIG if there are more than [`policy::MAX_RULES`].
    pub fn replace(&mut self, rules: &[Rule], generation: Option<u32>) -> io::Result<()> {
        let bytes: Vec<u8> = rules
            .iter()
            .flat_map(|rule| RawRule::from(rule).bytes().to_vec())
            .collect();
        // The length of an attribute has 16 bits.
        if rules.len() > policy::MAX_RULES {
            return Err(Errno::E2BIG.into());
        }
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, RULES, &bytes);
        if let Some(generation) = generation {
            put_attribute(&mut attributes, GENERATION, &generation.to_ne_bytes());
        }
        self.0.call(SET, &attributes).map(drop)
    }

    /// Changes the rules, anew if somebody else does so at the same time.
    pub fn change(
        &mut self,
        mut edit: impl FnMut(&mut Vec<Rule>) -> io::Result<()>,
    ) -> io::Result<()> {
        loop {
            let mut listed = self.list()?;
            edit(&mut listed.rules)?;
            match self.replace(&listed.rules, Some(listed.generation)) {
                Err(error) if error.raw_os_error() == Some(libc::ESTALE) => {}
                result => return result,
            }
        }
    }
}
