// SPDX-License-Identifier: GPL-2.0

//! Numbers that go to the peer or to user space, each with a name for programs and words for people.

/// Declares an enumeration of such numbers and its tables from one list, so that no two of them can
/// disagree. An entry is: variant, number, name, a sentence that says what happened, and one that says what
/// to look at or to change so that it does not happen again.
macro_rules! explained {
    (
        $(#[$doc:meta])*
        pub enum $type:ident {
            $($variant:ident = $code:literal, $name:literal, $sentence:literal, $hint:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $type {
            $(
                #[doc = $sentence]
                $variant = $code,
            )*
        }

        impl $type {
            /// Every one, in the order of the numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant),*];

            /// Returns the one with this number, or `None` for a number that nobody has defined.
            pub const fn from_code(code: u32) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// Returns the number.
            pub const fn code(self) -> u32 {
                self as u32
            }

            /// Returns the name, for programs.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Says what happened, in one sentence.
            pub const fn sentence(self) -> &'static str {
                match self {
                    $(Self::$variant => $sentence,)*
                }
            }

            /// Says what to look at or to change so that it does not happen again.
            pub const fn hint(self) -> &'static str {
                match self {
                    $(Self::$variant => $hint,)*
                }
            }
        }
    };
}

pub(crate) use explained;
