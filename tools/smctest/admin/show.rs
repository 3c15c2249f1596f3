// SPDX-License-Identifier: GPL-2.0

//! Prints netlink messages as text, one line per attribute.

use std::fmt::Write as _;
use std::io;

use smc_tools::genl::Message;
use smc_tools::netlink::raw_attributes;
use smc_user::Errno;

/// Prints the messages of an answer, sorted by their text.
pub(super) fn answer(title: &str, hidden: &[&str], answer: io::Result<Vec<Message>>) {
    match answer {
        Ok(messages) => {
            println!("{title}: {} messages", messages.len());
            let mut texts: Vec<_> = messages.iter().map(|m| text(m, hidden)).collect();
            texts.sort_unstable();
            texts.iter().for_each(|text| print!("{text}"));
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

fn text(message: &Message, hidden: &[&str]) -> String {
    let mut text = format!("  message {}\n", message.command);
    put(&mut text, "", &message.attributes, hidden);
    text
}

/// Appends attributes as `PATH VALUE`, or `PATH LENGTH bytes` for those in `hidden`. The path of a
/// nested attribute starts with the type of the nest.
fn put(text: &mut String, above: &str, bytes: &[u8], hidden: &[&str]) {
    for attribute in raw_attributes(bytes) {
        let (path, value) = (format!("{above}{}", attribute.kind()), attribute.value());
        if attribute.nested_flag() {
            let _ = writeln!(text, "    {path} nest");
            put(text, &format!("{path}."), value, hidden);
        } else if hidden.contains(&path.as_str()) {
            let _ = writeln!(text, "    {path} {} bytes", value.len());
        } else {
            let _ = writeln!(text, "    {path} {}", hex(value));
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
