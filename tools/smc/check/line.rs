// SPDX-License-Identifier: GPL-2.0

//! The lines of the report.

use std::io;
use std::io::Write;

use serde::Serialize;

/// How serious it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Status {
    /// As it should be.
    Ok,
    /// SMC works, though less well, or not for all connections; or it is not known.
    Warn,
    /// SMC does not work.
    Fail,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Line {
    pub(super) status: Status,
    /// For scripts: what was looked at and, unless all is well, a slash and what is wrong.
    pub(super) id: String,
    /// The explanation.
    pub(super) sentence: String,
    /// What to type.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
    /// The id of `smc why` for a connection that is TCP, as this end sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why: Option<String>,
    /// The same as the other end sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) peer_why: Option<String>,
}

impl Line {
    pub(super) fn ok(id: &str, sentence: impl Into<String>) -> Self {
        Self {
            status: Status::Ok,
            id: id.to_string(),
            sentence: sentence.into(),
            hint: None,
            why: None,
            peer_why: None,
        }
    }

    pub(super) fn warn(id: &str, sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            status: Status::Warn,
            hint: Some(hint.into()),
            ..Self::ok(id, sentence)
        }
    }

    pub(super) fn fail(id: &str, sentence: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            status: Status::Fail,
            ..Self::warn(id, sentence, hint)
        }
    }

    /// The same, but at most a warning.
    pub(super) fn at_most_warn(mut self) -> Self {
        self.status = self.status.min(Status::Warn);
        self
    }
}

/// Whether nothing failed.
pub(super) fn is_good(lines: &[Line]) -> bool {
    lines.iter().all(|line| line.status != Status::Fail)
}

/// Prints them for people.
pub(super) fn print(lines: &[Line]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let width = lines.iter().map(|line| line.id.len()).max().unwrap_or(0);
    for line in lines {
        let status = match line.status {
            Status::Ok => "ok",
            Status::Warn => "warn",
            Status::Fail => "FAIL",
        };
        writeln!(out, "{status:<4}  {:<width$}  {}", line.id, line.sentence)?;
        if let Some(hint) = &line.hint {
            writeln!(out, "      change: {hint}")?;
        }
    }
    out.flush()
}
