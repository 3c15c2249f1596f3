// SPDX-License-Identifier: GPL-2.0

//! Prints netlink messages as text, one line per attribute.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io;

use smc_tools::genl::Message;
use smc_tools::netlink::raw_attributes;
use smc_user::Errno;

/// Attributes of which the value is not printed, by their paths.
#[derive(Clone, Copy, Default)]
pub(super) struct Hidden {
    /// Only the length is.
    pub(super) values: &'static [&'static str],
    /// Ids, each with the kind of what it is the id of: the name that [`Names`] gives it is printed, and `none` for 0.
    pub(super) ids: &'static [(&'static str, &'static str)],
}

/// The names of ids: which one of its kind it was to appear.
#[derive(Default)]
pub(super) struct Names(HashMap<(&'static str, Vec<u8>), usize>);

impl Names {
    fn of(&mut self, kind: &'static str, id: &[u8]) -> String {
        if id.iter().all(|byte| *byte == 0) {
            return format!("no {kind}");
        }
        let count = self.0.keys().filter(|(other, _)| *other == kind).count();
        let number = self.0.entry((kind, id.to_vec())).or_insert(count + 1);
        format!("{kind} {number}")
    }
}

/// What stands for an id until the messages are in order, which does not depend on ids.
const ID: char = '\0';

/// A message as text, and the ids in it.
#[derive(Default)]
struct Text {
    text: String,
    ids: Vec<(&'static str, Vec<u8>)>,
}

/// Prints the messages of an answer, sorted by their text; of the attributes in `hidden` only the length.
pub(super) fn answer(
    title: &str,
    hidden: &'static [&'static str],
    answer: io::Result<Vec<Message>>,
) {
    let hidden = Hidden {
        values: hidden,
        ids: &[],
    };
    list(title, hidden, &mut Names::default(), answer);
}

/// The same with names in the place of ids.
pub(super) fn list(
    title: &str,
    hidden: Hidden,
    names: &mut Names,
    answer: io::Result<Vec<Message>>,
) {
    match answer {
        Ok(messages) => {
            println!("{title}: {} messages", messages.len());
            let mut texts: Vec<_> = messages.iter().map(|m| Text::of(m, hidden)).collect();
            texts.sort_by(|a, b| a.text.cmp(&b.text));
            texts.iter().for_each(|text| text.print(names));
        }
        Err(error) => println!("{title}: {}", name(&error)),
    }
}

/// Returns the name of an errno.
pub(super) fn name(error: &io::Error) -> String {
    let errno = error.raw_os_error().map(Errno);
    match errno.and_then(Errno::name) {
        Some(name) => name.to_string(),
        None => error.to_string(),
    }
}

impl Text {
    fn of(message: &Message, hidden: Hidden) -> Self {
        let mut text = Self {
            text: format!("  message {}\n", message.command),
            ids: Vec::new(),
        };
        text.put("", &message.attributes, hidden);
        text
    }

    /// Appends attributes as `PATH VALUE`, or `PATH LENGTH bytes` for those that are hidden. The path of a nested
    /// attribute starts with the type of the nest.
    fn put(&mut self, above: &str, bytes: &[u8], hidden: Hidden) {
        for attribute in raw_attributes(bytes) {
            let (path, value) = (format!("{above}{}", attribute.kind()), attribute.value());
            let id = hidden.ids.iter().find(|(of, _)| *of == path);
            let shown = match id {
                _ if attribute.nested_flag() => "nest".to_string(),
                Some((_, kind)) => {
                    self.ids.push((kind, value.to_vec()));
                    format!("{} bytes, {ID}", value.len())
                }
                None if hidden.values.contains(&path.as_str()) => {
                    format!("{} bytes", value.len())
                }
                None => hex(value),
            };
            let _ = writeln!(self.text, "    {path} {shown}");
            if attribute.nested_flag() {
                self.put(&format!("{path}."), value, hidden);
            }
        }
    }

    fn print(&self, names: &mut Names) {
        let mut ids = self.ids.iter();
        for part in self.text.split_inclusive(ID) {
            print!("{}", part.trim_end_matches(ID));
            if let Some((kind, id)) = ids.next().filter(|_| part.ends_with(ID)) {
                print!("{}", names.of(kind, id));
            }
        }
    }
}

/// Formats bytes as text if they are a NUL-terminated string of at least three characters,
/// otherwise as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    if let Some((0, text)) = bytes.split_last() {
        let is_text = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
        if text.len() > 3 && text.iter().all(is_text) {
            return format!("{:?}", String::from_utf8_lossy(text));
        }
    }
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
