// SPDX-License-Identifier: GPL-2.0

//! The requests of ioctl(2) in tcp(7) and socket(7), and in `asm-generic/ioctls.h` and `linux/sockios.h` those for
//! which a stream has a meaning.

use super::Entry;
use super::Form;
use super::Target;
use super::Values;

/// A request that writes an `int`.
const fn reads(name: &'static str, request: u64) -> Entry {
    sets(name, request, &[])
}

/// A request that reads an `int`.
const fn sets(name: &'static str, request: u64, values: &'static [i32]) -> Entry {
    Entry {
        name,
        target: Target::Ioctl(request),
        values: Values::Ints(values),
        form: Form::Exact,
        is_alone: false,
    }
}

pub(super) const REQUESTS: &[Entry] = &[
    reads("SIOCINQ (FIONREAD)", 0x541b),
    reads("SIOCOUTQ (TIOCOUTQ)", 0x5411),
    reads("SIOCOUTQNSD", 0x894b),
    reads("SIOCATMARK", 0x8905),
    sets("FIOSETOWN", 0x8901, &[0, i32::MAX]),
    sets("SIOCSPGRP", 0x8902, &[0, i32::MAX]),
    reads("FIOGETOWN", 0x8903),
    reads("SIOCGPGRP", 0x8904),
    sets("FIOASYNC", 0x5452, &[1, 0]),
    sets("FIONBIO", 0x5421, &[1, 0]),
    reads("SIOCGSTAMP", 0x8906),
    reads("SIOCGSTAMPNS", 0x8907),
    reads("SIOCGSTAMP_NEW", 0x8010_8906),
    reads("SIOCGSTAMPNS_NEW", 0x8010_8907),
    reads("SIOCGIFCONF", 0x8912),
    reads("SIOCADDRT", 0x890b),
    reads("SIOCRTMSG", 0x890d),
    reads("TCGETS", 0x5401),
    reads("0xdead", 0xdead),
    reads("0x89ff", 0x89ff),
];
