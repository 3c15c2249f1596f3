// SPDX-License-Identifier: GPL-2.0

//! `Documentation/sameness.md`: the differences as tables, one row an option.

use std::fmt::Write as _;

use super::differences;
use super::differences::Difference;
use super::effects;
use super::options::Page;
use super::options::PAGES;
use super::FAMILIES;
use crate::family::Family;

const HEAD: &str = "\
<!-- SPDX-License-Identifier: GPL-2.0 -->
<!-- Written by `sameness.sh`, which fails when this is not what it found; its message says how to renew it. -->
# Socket options, compared with TCP

`sameness.sh` sets and reads every option of these manual pages and of the kernel's headers, and calls the ioctls, on
TCP and on each kind of SMC socket, over IPv4 and IPv6: in range and out of it, too short, too long, to and from NULL.
It does so in every state: fresh, bound, refused, connecting, listening, connected, accepted, half closed at either end,
closed by the peer, reset, fallen back to TCP at either end; and it reads what was set before connect, at the listener,
or before `TCP_ULP`. TCP's answer in the same run is the right one.

\"same\" means: in every state, each call returned the same error or the same value. What differs has a number, and below
the table stands where, what an SMC socket says there, and why. The last column names what else was compared: that the
option does what it is for.
";

/// Writes the whole document.
pub(super) fn render() -> String {
    let mut text = HEAD.to_string();
    for page in PAGES {
        text += &Section::new(page).render();
    }
    text
}

/// A manual page, and the differences of its options in the order in which they are met.
struct Section {
    page: &'static Page,
    differences: Vec<&'static Difference>,
}

impl Section {
    fn new(page: &'static Page) -> Self {
        let mut differences: Vec<&Difference> = Vec::new();
        for entry in page.entries {
            for family in FAMILIES {
                for difference in differences::of(entry.name, family) {
                    if !differences
                        .iter()
                        .any(|other| std::ptr::eq(*other, difference))
                    {
                        differences.push(difference);
                    }
                }
            }
        }
        Self { page, differences }
    }

    fn render(&self) -> String {
        let mut text = format!("\n## {}\n\n", self.page.name);
        text += "| option | `AF_SMC` | `IPPROTO_SMC` | `TCP_ULP` | effects compared |\n";
        text += "| --- | --- | --- | --- | --- |\n";
        for entry in self.page.entries {
            text += &self.row(entry.name);
        }
        if !self.differences.is_empty() {
            text += "\n";
        }
        for (number, difference) in (1..).zip(&self.differences) {
            let _ = writeln!(text, "{number}. {}", explain(difference));
        }
        text
    }

    fn row(&self, option: &str) -> String {
        let [smc, ipproto, ulp] = FAMILIES.map(|family| self.cell(option, family));
        let effects: Vec<_> = effects::all()
            .filter(|effect| effect.option == option)
            .map(|effect| effect.name)
            .collect();
        let effects = effects.join("; ");
        format!("| `{option}` | {smc} | {ipproto} | {ulp} | {effects} |\n")
    }

    /// The numbers of the differences of one option and one kind.
    fn cell(&self, option: &str, family: Family) -> String {
        let numbers: Vec<_> = differences::of(option, family)
            .filter_map(|difference| {
                let mut all = self.differences.iter();
                let at = all.position(|other| std::ptr::eq(*other, difference))?;
                Some((at + 1).to_string())
            })
            .collect();
        match numbers.is_empty() {
            true => "same".into(),
            false => format!("but for {}", numbers.join(", ")),
        }
    }
}

/// Where the difference is, what is said there, and why.
fn explain(difference: &Difference) -> String {
    let states = difference.groups.iter().map(|group| group.name.to_string());
    let effects = difference.effects.iter().map(|name| format!("\"{name}\""));
    let places: Vec<_> = states.chain(effects).collect();
    let answers: Vec<_> = difference
        .answers
        .iter()
        .map(|answer| format!("`{answer}`"))
        .collect();
    let (places, answers) = (places.join("; "), answers.join(" or "));
    format!("*{places}*: {answers}; {}", difference.why)
}
