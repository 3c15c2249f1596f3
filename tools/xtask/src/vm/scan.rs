// SPDX-License-Identifier: GPL-2.0
//! Finds errors in the kernel log, independent of the test results.

mod kcsan;

use std::collections::BTreeMap;

use kcsan::{Kcsan, Line};
use regex::{Regex, RegexSet};

/// Patterns of error messages.
const TROUBLE: &[&str] = &[
    r"\bWARNING:",
    r"page allocation failure",
    r"\bBUG:",
    // SLUB's reports, such as `BUG kmalloc-64 (Not tainted): Poison overwritten`.
    r"^BUG \w",
    r"\bkernel BUG at\b",
    r"\bOops\b",
    r"\bKASAN\b.*\bin\b",
    r"\bUBSAN:",
    r"general protection fault",
    r"Unable to handle kernel",
    r"Kernel panic",
    TRACE,
    r"possible (circular|recursive|irq lock inversion|deadlock)",
    r"inconsistent lock state",
    r"bad unlock balance",
    r"held lock freed",
    r"lock held when returning to user space",
    r"turning off the locking correctness validator",
    r"suspicious RCU usage",
    r"Illegal (context switch|wait)",
    r"sleeping function called",
    r"scheduling while atomic",
    r"\bODEBUG:",
    r"refcount_t:",
    r"ref_tracker:.*(leaked|reference already released|dead|has \d+/\d+ users)",
    r"list_(add|del) corruption",
    r"\bslab-.*\b(out-of-bounds|use-after-free)\b",
    r"Objects remaining",
    r"blocked for more than \d+ seconds",
    r"rcu.*self-detected stall|rcu.*detected stalls",
    r"unregister_netdevice: waiting for",
    r"rust_kernel: panicked|panicked at",
    r"^smc-vm: kmemleak: (unreferenced object|off)",
    r"[Mm]emory leak detector disabled",
];

/// Patterns of messages with a call trace when memory is short, which is expected in scripts whose
/// header says so.
const SHORTAGE: &[&str] = &[
    r"page allocation failure",
    r"vmalloc error:",
    r"kmem_cache_create.* failed with error -\d+",
    // The tracepoints of a module that is being loaded get no memory for their fields. If one is
    // defined wrongly, it always lacks fields, which trace.sh detects.
    r"^WARNING: .* at event_define_fields\b",
];
const TRACE: &str = "Call Trace:";

/// Kernel lines between such a message and its trace: modules, registers, the stack, and those of other processors.
const TRACE_WITHIN: usize = 40;

/// Finds errors in a log, line by line.
pub(super) struct Scan {
    /// The timestamp of kernel messages.
    stamp: Regex,
    trouble: RegexSet,
    /// `None` if memory is not expected to be short.
    shortage: Option<RegexSet>,
    /// Within how many lines a call trace belongs to a memory shortage.
    short_for: usize,
    kcsan: Kcsan,
}

impl Scan {
    /// `shortage`: whether messages about failed allocations are expected.
    pub(super) fn new(shortage: bool) -> Result<Self, regex::Error> {
        Ok(Self {
            stamp: Regex::new(r"\[ *\d+\.\d{6}\](\[ *[CT]\d+\])? ?")?,
            trouble: RegexSet::new(TROUBLE)?,
            shortage: match shortage {
                true => Some(RegexSet::new(SHORTAGE)?),
                false => None,
            },
            short_for: 0,
            kcsan: Kcsan::new()?,
        })
    }

    /// Returns whether the kernel wrote this line.
    pub(super) fn is_kernel(&self, line: &str) -> bool {
        self.stamp
            .find(line)
            .is_some_and(|stamp| stamp.start() == 0)
    }

    /// Returns the message if this line indicates an error. Only lines of the kernel count, not
    /// those of programs. Of a race the message comes when its report ends.
    pub(super) fn trouble(&mut self, line: &str) -> Option<String> {
        let said = match self.stamp.find(line) {
            Some(stamp) => &line[stamp.end()..],
            None if line.starts_with("smc-vm: kmemleak:") => line,
            None => return None,
        };
        match self.kcsan.take(said) {
            Line::Other => {}
            Line::Report => return None,
            Line::Ours(gist) => return Some(gist),
        }
        if self.shortage.as_ref().is_some_and(|s| s.is_match(said)) {
            self.short_for = TRACE_WITHIN;
            return None;
        }
        if self.short_for > 0 && said.contains(TRACE) {
            self.short_for = 0;
            return None;
        }
        self.short_for = self.short_for.saturating_sub(1);
        self.trouble.is_match(said).then(|| said.to_owned())
    }

    /// Returns the message of what the log ended in the middle of.
    pub(super) fn end(&mut self) -> Option<String> {
        self.kcsan.end()
    }

    /// Returns the number of races in other code than ours, by the headings of their reports.
    pub(super) fn races_elsewhere(&self) -> &BTreeMap<String, usize> {
        self.kcsan.elsewhere()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_found() {
        let mut scan = Scan::new(false).unwrap();
        for line in [
            "[    1.260000] WARNING: CPU: 0 PID: 1 at net/x.c:1",
            "[   12.000000] BUG: KASAN: slab-use-after-free in smc_x+0x1/0x2",
            "[    0.000000] WARNING: possible circular locking dependency detected",
            "half a line[    9.100000] BUG: sleeping function called from invalid context",
            "[  100.500000] INFO: task smc:12 blocked for more than 30 seconds.",
            "[    1.000000][   T99] refcount_t: underflow; use-after-free.",
            "[    3.000000] Kernel panic - not syncing: x",
            "[    3.000000] rust_kernel: panicked at lib.rs:3:4:",
            "[    3.000000] BUG kmalloc-64 (Not tainted): Poison overwritten",
            "[    3.000000] kmemleak: Kernel memory leak detector disabled",
            "smc-vm: kmemleak: unreferenced object 0x61 (size 32):",
            "smc-vm: kmemleak: off",
        ] {
            assert!(scan.trouble(line).is_some(), "{line}");
        }
    }

    #[test]
    fn a_shortage_of_memory_excuses_one_trace() {
        let mut scan = Scan::new(true).unwrap();
        let trace = "[    2.000000] Call Trace:";
        for line in [
            "[    1.000000] x: page allocation failure: order:0, mode:0xdc0(GFP_KERNEL)",
            "[    1.000000] x: vmalloc error: size 32768, failed to allocated page array size 64",
            "[    1.000000] __kmem_cache_create_args(SMC6) failed with error -22",
            "[    1.000000] WARNING: kernel/trace/trace_events.c:3147 at event_define_fields+0x854/0x860, CPU#1: x/3",
        ] {
            assert_eq!(scan.trouble(line), None, "{line}");
            assert_eq!(scan.trouble(trace), None, "{line}");
            assert!(scan.trouble(trace).is_some(), "{line}");
        }
    }

    #[test]
    fn a_shortage_does_not_excuse_a_later_trace() {
        let mut scan = Scan::new(true).unwrap();
        let failure = "[    1.000000] x: page allocation failure: order:0, mode:0xdc0(GFP_KERNEL)";
        assert_eq!(scan.trouble(failure), None);
        for _ in 0..TRACE_WITHIN {
            assert_eq!(
                scan.trouble("[    1.000000] smc: adding RDMA device x"),
                None
            );
        }
        assert!(scan.trouble("[    2.000000] Call Trace:").is_some());
    }

    #[test]
    fn a_shortage_is_trouble_where_none_is_expected() {
        let mut scan = Scan::new(false).unwrap();
        let line = "[    1.000000] x: page allocation failure: order:5, mode:0xdc0(GFP_KERNEL)";
        assert!(scan.trouble(line).is_some());
        assert!(scan.trouble("[    2.000000] Call Trace:").is_some());
    }

    #[test]
    fn a_race_is_trouble_if_it_is_ours() {
        for (frame, is_trouble) in [("f+0x1/0x2 [smc]", true), ("f+0x1/0x2 [rdma_rxe]", false)] {
            let mut scan = Scan::new(false).unwrap();
            let said = [
                "[    1.000000] ==================================================================",
                "[    1.000000] BUG: KCSAN: data-race in f / f",
                "[    1.000000] write to 0xffff888003f2c4a8 of 8 bytes by task 7 on cpu 0:",
                &format!("[    1.000000]  {frame}"),
                "[    1.000000] ==================================================================",
            ]
            .map(|line| scan.trouble(line).is_some());
            assert_eq!(said, [false, false, false, false, is_trouble], "{frame}");
            assert_eq!(scan.races_elsewhere().len(), usize::from(!is_trouble));
        }
    }

    #[test]
    fn the_ordinary_is_not_trouble() {
        let mut scan = Scan::new(false).unwrap();
        for line in [
            "WARNING: a program may say so",
            "[    0.000000] KernelAddressSanitizer initialized (generic)",
            "[    0.000000] Lock dependency validator: Copyright (c) 2006 Red Hat",
            "[    0.000000] rcu: \tRCU lockdep checking is enabled.",
            "[    0.100000] smc: NET: Registered PF_SMC protocol family",
            "smc-vm: exit 0",
        ] {
            assert_eq!(scan.trouble(line), None, "{line}");
        }
    }
}
