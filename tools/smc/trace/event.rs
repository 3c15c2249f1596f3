// SPDX-License-Identifier: GPL-2.0

//! An event in the format of tracefs, and as text for users.

use std::fmt;

use serde::Serialize;
use serde::Serializer;
use serde_json::Value;
use smc_proto::reason::Reason;

/// An event of one of the module's tracepoints.
#[derive(Debug, PartialEq, Serialize)]
pub(super) struct Event {
    /// Seconds since boot.
    seconds: f64,
    /// The current process at the event, which may be unrelated if the event is about a link.
    program: String,
    pid: u32,
    tracepoint: String,
    /// The fields of the tracepoint, by name.
    #[serde(serialize_with = "as_map")]
    fields: Vec<(String, String)>,
    /// The description of the reason of a fallback.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

impl Event {
    /// Reads a line such as `iperf3-71 [001] ..... 12.345678: smc_tx_sendmsg: smc=... net=1 len=5 dev=rxe_a`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let mut parts = line.trim().splitn(3, ": ");
        let (head, tracepoint, rest) = (parts.next()?, parts.next()?, parts.next()?);
        let (who, head) = head.split_once(" [")?;
        let (program, pid) = who.rsplit_once('-')?;
        let seconds = head.rsplit(' ').next()?.parse().ok()?;
        let fields = fields(rest);
        let reason = fields.iter().find(|(name, _)| name == "fallback_rsn");
        Some(Self {
            seconds,
            program: program.trim().to_string(),
            pid: pid.trim().parse().ok()?,
            tracepoint: tracepoint.to_string(),
            reason: reason.and_then(|(_, number)| words(number)),
            fields,
        })
    }
}

/// The fields that are numbers. All digits of a pointer or a device's name may be decimal, too.
const NUMBERS: [&str; 4] = ["net", "len", "state", "fallback_rsn"];

/// Serializes the fields as an object; numbers as such.
fn as_map<S: Serializer>(fields: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    let number = |name: &str, text: &str| match NUMBERS.contains(&name) {
        true => text.parse::<i64>().ok(),
        false => None,
    };
    let value =
        |name: &str, text: &str| number(name, text).map_or_else(|| Value::from(text), Value::from);
    serializer.collect_map(fields.iter().map(|(name, text)| (name, value(name, text))))
}

/// Parses fields `name=value`, whose values may contain blanks. Demangles Rust symbols.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for word in text.split(' ') {
        match (word.split_once('='), fields.last_mut()) {
            (Some((name, value)), _) => fields.push((name.to_string(), legible(value))),
            (None, Some((_, value))) => {
                value.push(' ');
                value.push_str(word);
            }
            (None, None) => {}
        }
    }
    fields
}

/// Formats a location such as `name+0x10/0x20`; demangles Rust symbols.
fn legible(place: &str) -> String {
    let (symbol, offset) = place.split_at(place.find('+').unwrap_or(place.len()));
    match rustc_demangle::try_demangle(symbol) {
        Ok(name) => format!("{name:#}{offset}"),
        Err(_) => place.to_string(),
    }
}

/// Returns the description of a reason. The tracepoint prints its code as a signed number.
fn words(number: &str) -> Option<&'static str> {
    let number: i32 = number.parse().ok()?;
    // CAST: back to what it was.
    Reason::from_code(number as u32).map(Reason::sentence)
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            seconds,
            program,
            pid,
            tracepoint,
            ..
        } = self;
        write!(f, "{seconds:.6} {program}[{pid}] {tracepoint}")?;
        for (name, value) in &self.fields {
            write!(f, " {name}={value}")?;
        }
        match self.reason {
            Some(reason) => write!(f, " ({reason})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_tracefs_are_read() {
        let line = "    a-program b-171     [001] ...1.    12.345678: smc_tx_sendmsg: \
                    smc=00000000deadbeef net=1 len=5 dev=rxe_a";
        let event = Event::parse(line).unwrap();
        assert_eq!((&*event.program, event.pid), ("a-program b", 171));
        assert_eq!(event.fields[3], ("dev".to_string(), "rxe_a".to_string()));
        assert_eq!(event.reason, None);
        let text =
            "12.345678 a-program b[171] smc_tx_sendmsg smc=00000000deadbeef net=1 len=5 dev=rxe_a";
        assert_eq!(event.to_string(), text);
        assert_eq!(Event::parse("CPU:1 [LOST 17 EVENTS]"), None);
    }

    #[test]
    fn what_is_no_number_stays_text() {
        let line = "x-1 [000] ..... 1.5: smc_tx_sendmsg: smc=0000000012345678 net=1 len=5 dev=7";
        let json = serde_json::to_value(Event::parse(line).unwrap()).unwrap();
        let fields = &json["fields"];
        assert_eq!((&fields["net"], &fields["len"]), (&1.into(), &5.into()));
        assert_eq!(fields["smc"], "0000000012345678");
        assert_eq!(fields["dev"], "7");
        let line = "x-1 [000] ..... 1.5: smcr_link_down: lnk=9000000012345678 lgr=(null) state=-1";
        let json = serde_json::to_value(Event::parse(line).unwrap()).unwrap();
        assert_eq!(json["fields"]["lnk"], "9000000012345678");
        assert_eq!(json["fields"]["state"], -1);
    }

    #[test]
    fn places_are_told_as_they_are_written() {
        let line = "x-1 [000] ..... 1.5: smcr_link_down: state=1 \
                    location=_RNvCs1rDy7EWigxY_3smc4fail+0x985/0xea0 [smc]";
        let event = Event::parse(line).unwrap();
        assert_eq!(event.fields[1].1, "smc::fail+0x985/0xea0 [smc]");
        assert_eq!(
            legible("smc_llc_event_work+0x1/0x2"),
            "smc_llc_event_work+0x1/0x2"
        );
    }

    #[test]
    fn reasons_are_told_in_words() {
        let line =
            "x-1 [000] ..... 1.5: smc_switch_to_fallback: sk=1 clcsk=2 net=1 fallback_rsn=50397184";
        let event = Event::parse(line).unwrap();
        assert_eq!(event.reason, Some(Reason::PeerNoSmc.sentence()));
        let json = serde_json::to_value(&event).unwrap();
        assert_eq!(json["tracepoint"], "smc_switch_to_fallback");
        assert_eq!(json["fields"]["net"], 1);
    }
}
