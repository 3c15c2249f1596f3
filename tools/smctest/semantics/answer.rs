// SPDX-License-Identifier: GPL-2.0

//! Results of calls as text.

use smc_user::Address;
use smc_user::Errno;
use smc_user::Received;
use smc_user::Result;

/// A value that can be printed in a result.
pub(super) trait Text {
    fn text(&self) -> String;
}

impl Text for () {
    fn text(&self) -> String {
        "ok".to_string()
    }
}

impl Text for usize {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for i32 {
    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for bool {
    fn text(&self) -> String {
        self.to_string()
    }
}

/// Poll events, in hexadecimal as in the kernel's headers.
impl Text for i16 {
    fn text(&self) -> String {
        format!("{self:#x}")
    }
}

impl Text for &str {
    fn text(&self) -> String {
        (*self).to_string()
    }
}

impl Text for String {
    fn text(&self) -> String {
        self.clone()
    }
}

impl Text for Address {
    fn text(&self) -> String {
        let len = self.as_bytes().len();
        match self.to_ip() {
            Some(ip) => format!("{ip}/{len}"),
            None => format!("no IP address/{len}"),
        }
    }
}

impl Text for Received {
    fn text(&self) -> String {
        format!("{}/{:#x}", self.len, self.flags)
    }
}

/// A pending error, or its absence.
impl Text for Option<Errno> {
    fn text(&self) -> String {
        self.map_or_else(|| "none".to_string(), |error| error.to_string())
    }
}

impl<T: Text> Text for Result<T> {
    fn text(&self) -> String {
        match self {
            Ok(value) => value.text(),
            Err(error) => error.to_string(),
        }
    }
}

/// Joins results with blanks: `answer![a, b]`.
macro_rules! answer {
    ($($value:expr),+ $(,)?) => {
        Ok([$(crate::semantics::answer::Text::text(&$value)),+].join(" "))
    };
}

pub(super) use answer;
