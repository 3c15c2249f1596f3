// SPDX-License-Identifier: GPL-2.0

//! The calls that are made for one option on one socket, and what they say as text.

use smc_user::Result;
use smc_user::Socket;

use super::options::Entry;
use super::options::Form;
use super::options::Target;
use super::options::Values;

/// What one call said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) call: String,
    pub(super) said: String,
}

impl Answer {
    /// Whether the whole value was read.
    pub(super) fn is_whole(&self) -> bool {
        self.call == READ
    }

    /// Whether the value was read in part, or to nowhere.
    pub(super) fn is_part(&self) -> bool {
        self.call.starts_with(READ_PART)
    }
}

const READ: &str = "read";
const READ_PART: &str = "read of ";

/// Lengths that are too short for most options.
const SHORT: [usize; 5] = [0, 1, 2, 3, 5];

/// Reads the option.
pub(super) fn read(entry: &Entry, socket: &Socket) -> Answer {
    answer(READ.into(), full(entry, entry.form, socket))
}

/// Reads the option, as it is meant and in wrong ways.
pub(super) fn read_all_ways(entry: &Entry, socket: &Socket) -> Vec<Answer> {
    let mut answers = vec![read(entry, socket)];
    match entry.target {
        Target::Option { level, name } => {
            for len in SHORT {
                let said = value(entry, entry.form, socket, len);
                answers.push(answer(format!("{READ_PART}{len} bytes"), said));
            }
            for len in [-1, 0, 4] {
                let said = text(socket.option_to_null(level, name, len), |len| {
                    len.to_string()
                });
                answers.push(answer(format!("{READ_PART}{len} bytes to NULL"), said));
            }
            let said = text(socket.option_without_len(level, name), |()| "ok".into());
            answers.push(answer(format!("{READ_PART}no length"), said));
        }
        Target::Ioctl(request) => {
            let said = text(socket.ioctl_null(request), |()| "ok".into());
            answers.push(answer("NULL".into(), said));
        }
    }
    answers
}

/// Sets the option in wrong ways, then to each of its values, and reads it after each.
pub(super) fn set(entry: &Entry, socket: &Socket) -> Vec<Answer> {
    let form = match entry.form {
        Form::OnceSet => Form::Exact,
        form => form,
    };
    let values = values(entry);
    let mut answers = Vec::new();
    if let Target::Option { level, name } = entry.target {
        for len in SHORT {
            // As far as it goes, the value that stays in the end.
            let mut value = values.last().map_or(Vec::new(), |(_, last)| last.clone());
            value.resize(len, 0);
            let said = set_to(entry, socket, &value);
            answers.push(answer(format!("set {len} bytes"), said));
        }
        for len in [-1, 0, 4] {
            let said = text(socket.set_option_from_null(level, name, len), |()| {
                "ok".into()
            });
            answers.push(answer(format!("set {len} bytes from NULL"), said));
        }
        answers.push(answer("read after that".into(), full(entry, form, socket)));
    }
    for (name, value) in &values {
        let said = set_to(entry, socket, value);
        answers.push(answer(format!("set {name}"), said));
        answers.push(answer(
            format!("read after {name}"),
            full(entry, form, socket),
        ));
    }
    answers
}

/// Sets the option to each of its values; what is said shows elsewhere.
pub(super) fn prepare(entry: &Entry, socket: &Socket) {
    for (_, value) in values(entry) {
        set_to(entry, socket, &value);
    }
}

fn answer(call: String, said: String) -> Answer {
    Answer { call, said }
}

/// The values to set, with a name each.
fn values(entry: &Entry) -> Vec<(String, Vec<u8>)> {
    let numbered = |(i, value): (usize, Vec<u8>)| (format!("value {}", i + 1), value);
    match entry.values {
        Values::Ints(values) => values
            .iter()
            .map(|value| (value.to_string(), value.to_ne_bytes().to_vec()))
            .collect(),
        Values::Bytes(values) => {
            let values = values.iter().map(|value| value.to_vec());
            values.enumerate().map(numbered).collect()
        }
        Values::Made(make) => make().into_iter().enumerate().map(numbered).collect(),
    }
}

fn set_to(entry: &Entry, socket: &Socket, value: &[u8]) -> String {
    let result = match entry.target {
        Target::Option { level, name } => socket.set_option(level, name, value),
        Target::Ioctl(request) => {
            let value = value
                .first_chunk()
                .map_or(0, |value| i32::from_ne_bytes(*value));
            socket.ioctl_set(request, value)
        }
    };
    text(result, |()| "ok".into())
}

/// Reads the whole value.
fn full(entry: &Entry, form: Form, socket: &Socket) -> String {
    value(entry, form, socket, Socket::MOST)
}

fn value(entry: &Entry, form: Form, socket: &Socket, len: usize) -> String {
    match entry.target {
        Target::Option { level, name } => text(socket.option_of_len(level, name, len), |value| {
            shape(form, value)
        }),
        Target::Ioctl(request) => text(socket.ioctl_int(request), |value| value.to_string()),
    }
}

fn text<T>(result: Result<T>, show: impl FnOnce(T) -> String) -> String {
    match result {
        Ok(value) => show(value),
        Err(error) => error.to_string(),
    }
}

/// Writes down a value of that length.
fn shape(form: Form, (len, bytes): (usize, Vec<u8>)) -> String {
    match form {
        Form::Exact => match bytes.first_chunk() {
            Some(number) if len == 4 => i32::from_ne_bytes(*number).to_string(),
            _ => format!("{len} bytes: {}", hex(&bytes)),
        },
        // The first bytes alone may be 0 by chance.
        Form::IsSet if len < 4 => format!("{len} bytes"),
        Form::IsSet => match bytes.iter().all(|byte| *byte == 0) {
            true => format!("{len} bytes: 0"),
            false => format!("{len} bytes: not 0"),
        },
        Form::Index => match bytes.iter().all(|byte| *byte == 0xff) {
            true => format!("{len} bytes: none"),
            false => format!("{len} bytes: one"),
        },
        Form::Length | Form::OnceSet => format!("{len} bytes"),
        Form::First(count) => {
            let first = bytes.get(..count).unwrap_or(&bytes);
            format!("{len} bytes: {}", hex(first))
        }
        Form::Numbers(at) => {
            let (numbers, _) = bytes.as_chunks();
            let at = at.iter().filter_map(|i| numbers.get(*i));
            let texts: Vec<_> = at.map(|n| u32::from_ne_bytes(*n).to_string()).collect();
            format!("{len} bytes: {}", texts.join(" "))
        }
    }
}

/// In hexadecimal; zeroes at the end are left out.
fn hex(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    let digits: String = bytes[..end]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    match digits.is_empty() {
        true => "0".into(),
        false => digits,
    }
}
