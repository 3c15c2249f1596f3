// SPDX-License-Identifier: GPL-2.0

//! The environment variables, read once when the library is loaded.
//!
//! Reading them later would race with `setenv` in another thread.

use core::ffi::c_int;
use std::env;
use std::ffi::OsString;
use std::sync::OnceLock;

/// The settings.
#[derive(Debug, Default)]
pub(crate) struct Config {
    /// Whether to log to standard error.
    pub(crate) debug: bool,
    /// Size of the send buffer, bytes.
    pub(crate) sndbuf: Option<usize>,
    /// Size of the receive buffer, bytes.
    pub(crate) rcvbuf: Option<usize>,
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// Runs at load time, before `main` and before there is a second thread.
#[used]
#[link_section = ".init_array"]
static READ_AT_LOAD: extern "C" fn() = {
    extern "C" fn read_at_load() {
        get();
    }
    read_at_load
};

/// Returns the configuration; reads it if a socket is opened before [`READ_AT_LOAD`] ran.
pub(crate) fn get() -> &'static Config {
    CONFIG.get_or_init(|| Config::from_env(|name| env::var_os(name)))
}

impl Config {
    fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Self {
        let text = |name| var(name).and_then(|value| value.into_string().ok());

        Self {
            debug: text("SMC_DEBUG").is_some_and(|value| is_on(&value)),
            sndbuf: text("SMC_SNDBUF").and_then(|value| parse_size(&value)),
            rcvbuf: text("SMC_RCVBUF").and_then(|value| parse_size(&value)),
        }
    }
}

fn is_on(value: &str) -> bool {
    !value.is_empty() && !value.starts_with('0')
}

/// Parses a size in bytes with an optional suffix `k` (1024) or `m` (1048576), which may be written
/// as `kB` or `KiB`, too.
///
/// `None` if it is invalid: then the kernel's default applies.
fn parse_size(value: &str) -> Option<usize> {
    let end = value.find(|c: char| c.is_ascii_alphabetic());
    let (digits, suffix) = value.split_at(end.unwrap_or(value.len()));
    let unit: c_int = match suffix.to_ascii_lowercase().as_str() {
        "" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        _ => return None,
    };
    let number: c_int = digits.trim().parse().ok()?;

    let size = number.checked_mul(unit).filter(|size| *size > 0)?;
    usize::try_from(size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_suffixes() {
        assert_eq!(parse_size("65536"), Some(65536));
        assert_eq!(parse_size("64k"), Some(65536));
        assert_eq!(parse_size("1M"), Some(1 << 20));
        assert_eq!(parse_size("64KB"), Some(65536));
        assert_eq!(parse_size("2MiB"), Some(2 << 20));
    }

    #[test]
    fn what_is_no_size_is_ignored() {
        for value in ["", "k", "x", "1kk", "1km", "1b", "-4k", "0", "4096m"] {
            assert_eq!(parse_size(value), None, "{value}");
        }
    }

    #[test]
    fn debug_is_off_by_zero_and_by_absence() {
        let debug = |value: Option<&str>| {
            Config::from_env(|name| value.filter(|_| name == "SMC_DEBUG").map(OsString::from)).debug
        };
        assert!(debug(Some("1")) && debug(Some("yes")));
        assert!(!debug(Some("0")) && !debug(Some("")) && !debug(None));
    }
}
