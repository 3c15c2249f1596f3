// SPDX-License-Identifier: GPL-2.0

//! Sets of flags.

/// Declares a set of flags: `$known` are the bits that mean anything, others are dropped.
macro_rules! flags {
    (
        $(#[$doc:meta])*
        $name:ident($int:ty) & $known:literal;
        $($(#[$flag_doc:meta])* $flag:ident = $bit:literal;)+
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name($int);

        // Not each set needs all of them.
        #[allow(dead_code)]
        impl $name {
            $(
                $(#[$flag_doc])*
                pub const $flag: Self = Self($bit);
            )+

            /// The flags among `bits`.
            #[inline]
            pub const fn from_bits(bits: $int) -> Self {
                Self(bits & $known)
            }

            /// The flags as bits.
            #[inline]
            pub const fn bits(self) -> $int {
                self.0
            }

            /// Whether no flag is set.
            #[inline]
            pub const fn is_empty(self) -> bool {
                self.0 == 0
            }

            /// Whether every flag of `other` is set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Whether any flag of `other` is set.
            #[inline]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Sets every flag of `other`.
            #[inline]
            pub fn insert(&mut self, other: Self) {
                self.0 |= other.0;
            }

            /// These flags without `other`.
            #[inline]
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }

            /// These flags, with those of `other` set, or not, as `on` says.
            #[inline]
            #[must_use]
            pub const fn with(self, other: Self, on: bool) -> Self {
                match on {
                    true => Self(self.0 | other.0),
                    false => self.without(other),
                }
            }
        }
    };
}
pub(crate) use flags;
