// SPDX-License-Identifier: GPL-2.0
//! Rules for Rust files: a module says what it is for, `unsafe` stays behind its fence and
//! is justified.

use super::Finding;

/// The only folders where `unsafe` may stand: the kernel's, the two crates of user space that call the system by
/// themselves, and the faults that the test runner plants.
const FENCED: &[&str] = &[
    "rust/",
    "tools/lib/user/",
    "tools/smc/preload/",
    "tools/xtask/guest/planted/",
];

pub(super) fn check(path: &str, text: &str, findings: &mut Vec<Finding>) {
    if !text.lines().any(|l| l.starts_with("//!")) {
        findings.push(Finding::at(
            path,
            1,
            "no //! that says what this file is for",
        ));
    }
    let code = code_only(text);
    let lines: Vec<&str> = text.lines().collect();
    for (n, line) in code.lines().enumerate() {
        for (column, _) in line.match_indices("unsafe") {
            if !is_word(line, column, "unsafe".len()) {
                continue;
            }
            if !FENCED.iter().any(|folder| path.starts_with(folder)) {
                let what = format!("unsafe outside {}", FENCED.join(", "));
                findings.push(Finding::at(path, n + 1, what));
            } else if needs_safety(&line[column..]) && !has_safety(&lines, n) {
                findings.push(Finding::at(
                    path,
                    n + 1,
                    "unsafe without a // SAFETY: comment above it",
                ));
            }
        }
    }
}

fn is_word(line: &str, start: usize, len: usize) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    let before = line[..start].chars().next_back().is_some_and(part);
    let after = line[start + len..].chars().next().is_some_and(part);
    !before && !after
}

/// Blocks and impls promise something; `unsafe fn` and `unsafe trait` ask for it.
fn needs_safety(code: &str) -> bool {
    let rest = code.trim_start_matches("unsafe").trim_start();
    rest.starts_with('{') || rest.starts_with("impl") || rest.is_empty()
}

/// Whether the comment of this statement says why it is sound. The comment stands above, with
/// only attributes and the first lines of the same statement between.
fn has_safety(lines: &[&str], at: usize) -> bool {
    if lines[at].contains("SAFETY:") {
        return true;
    }
    let mut between = 0;
    for line in lines[..at].iter().rev() {
        let line = line.trim_start();
        if line.starts_with("//") {
            if line.contains("SAFETY:") || line.contains("# Safety") {
                return true;
            }
        } else if line.starts_with("#[") {
            continue;
        } else {
            between += 1;
            // A statement that began further up, or something else altogether.
            if between > 3 || line.is_empty() || line.ends_with([';', '{', '}']) {
                return false;
            }
        }
    }
    false
}

/// The text with comments and the contents of literals blanked, line for line.
fn code_only(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |e| e + 2)
        } else if let Some(len) = string(rest, &out) {
            len
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        };
        out.extend(
            rest[..skip]
                .chars()
                .map(|c| if c == '\n' { '\n' } else { ' ' }),
        );
        rest = &rest[skip..];
    }
    out
}

/// The length of the literal that starts here, if one does.
fn string(rest: &str, before: &str) -> Option<usize> {
    let in_word = before
        .chars()
        .next_back()
        .is_some_and(|c| c.is_alphanumeric() || c == '_');
    if !in_word {
        if let Some(raw) = rest.strip_prefix('r') {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let body = hashes + 1;
                return Some(
                    1 + body
                        + raw[body..]
                            .find(&end)
                            .map_or(raw.len() - body, |e| e + end.len()),
                );
            }
        }
    }
    match rest.as_bytes() {
        [b'"', ..] => Some(quoted(rest)),
        // A lifetime has no closing quote after one character.
        [b'\'', b'\\', ..] => rest[2..].find('\'').map(|e| e + 3),
        [b'\'', ..] => {
            let c = rest[1..].chars().next()?;
            rest[1 + c.len_utf8()..]
                .starts_with('\'')
                .then_some(2 + c.len_utf8())
        }
        _ => None,
    }
}

fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whats(path: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        check(path, &format!("//! d\n{text}"), &mut findings);
        findings.into_iter().map(|f| f.what).collect()
    }

    #[test]
    fn unsafe_stays_behind_the_fence() {
        for path in ["net/smc/a.rs", "tools/smc/a.rs", "tools/lib/a.rs"] {
            let what = "unsafe outside rust/, tools/lib/user/, tools/smc/preload/, tools/xtask/guest/planted/";
            assert_eq!(whats(path, "let x = unsafe { *p };"), [what]);
        }
        assert!(whats(
            "net/smc/a.rs",
            "#![forbid(unsafe_code)]\n// unsafe\nlet s = \"unsafe { }\";"
        )
        .is_empty());
        assert!(whats(
            "net/smc/a.rs",
            "let s = r#\"say \"unsafe\" \"#; let q = '\"'; /* unsafe */"
        )
        .is_empty());
    }

    #[test]
    fn unsafe_is_justified() {
        let bad = "\nlet x = unsafe { *p };";
        assert_eq!(whats("rust/kernel/a.rs", bad).len(), 1);
        for good in [
            "// SAFETY: `p` is valid.\nlet x = unsafe { *p };",
            "// SAFETY: As above.\n#[inline]\nunsafe impl Send for X {}",
            "// SAFETY: As above, in\n// two lines.\nlet x =\n    unsafe { f() };",
            "/// # Safety\n///\n/// Be careful.\npub unsafe fn f() {}",
        ] {
            assert!(whats("rust/kernel/a.rs", good).is_empty(), "{good}");
        }
        assert_eq!(
            whats(
                "rust/a.rs",
                "// SAFETY: x\nunsafe { a() };\nunsafe { b() };"
            )
            .len(),
            1
        );
    }

    #[test]
    fn a_file_says_what_it_is_for() {
        let mut findings = Vec::new();
        check("a.rs", "fn f() {}\n", &mut findings);
        assert_eq!(findings.len(), 1);
    }
}
