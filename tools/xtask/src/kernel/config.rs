// SPDX-License-Identifier: GPL-2.0
//! Configuration fragments, and whether a `.config` fulfils them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Flavour;
use crate::dirs::Dirs;

/// The options that a flavour requires.
pub(super) struct RequiredOptions {
    /// `CONFIG_X=value` lines; the last one for an option applies.
    lines: Vec<String>,
}

impl RequiredOptions {
    pub(super) fn read(dirs: &Dirs, flavour: Flavour) -> Result<Self> {
        let mut lines = Vec::new();
        for name in flavour.fragments() {
            let path = dirs.repo.join("tools/kernel").join(name);
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            lines.extend(
                text.lines()
                    .map(str::trim)
                    .filter(|l| l.starts_with("CONFIG_"))
                    .map(str::to_owned),
            );
        }
        Ok(Self { lines })
    }

    /// Returns the fragment for `KCONFIG_ALLCONFIG`.
    pub(super) fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Returns the options that a configuration does not fulfil: an option was renamed, or depends
    /// on one that is not set.
    pub(super) fn unmet(&self, config: &Path) -> Result<Vec<String>> {
        let text = fs::read_to_string(config)
            .with_context(|| format!("cannot read {}", config.display()))?;
        let have: HashMap<&str, &str> = text.lines().filter_map(|l| l.split_once('=')).collect();
        let mut last: HashMap<&str, &str> = HashMap::new();
        for (option, value) in self.lines.iter().filter_map(|l| l.split_once('=')) {
            last.insert(option, value);
        }
        let mut unmet: Vec<String> = last
            .into_iter()
            .filter_map(|(option, value)| {
                let is = have.get(option).copied().unwrap_or("n");
                (is != value).then(|| format!("{option} is {is}, wanted {value}"))
            })
            .collect();
        unmet.sort();
        Ok(unmet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unmet_requests_are_named() {
        let dir = std::env::temp_dir().join(format!("xtask-config-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join(".config");
        fs::write(
            &path,
            "CONFIG_A=y\n# CONFIG_B is not set\nCONFIG_C=m\nCONFIG_D=\"x\"\n",
        )
        .unwrap();
        let lines = [
            "CONFIG_A=y",
            "CONFIG_B=y",
            "CONFIG_C=y",
            "CONFIG_D=\"x\"",
            "CONFIG_E=n",
            "CONFIG_C=m",
        ];
        let wanted = RequiredOptions {
            lines: lines.map(str::to_owned).to_vec(),
        };
        assert_eq!(wanted.unmet(&path).unwrap(), ["CONFIG_B is n, wanted y"]);
        fs::remove_dir_all(&dir).unwrap();
    }
}
