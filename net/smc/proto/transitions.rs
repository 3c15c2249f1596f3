// SPDX-License-Identifier: GPL-2.0

//! State tables as data: one macro call gives the transition function, and the table itself for the tests and for
//! `Documentation/states.md`.
//!
//! For state machines that a specification draws and that keep no data of their own per state
//! (connection close, links, link-group types). A machine whose data differ by state is an enum of
//! structs consumed by value instead.

/// Declares the table of a state machine.
///
/// For `transitions! { State, Event; Idle: Opened => Open; Open | Closing: Closed => Idle; }` it
/// implements on `State`:
///
/// - `on(self, Event) -> Option<State>`: the next state, `None` if the event is not allowed here;
/// - `TRANSITIONS: &[(State, Event, State)]`: the same as data, one entry per allowed pair.
///
/// States and events are variants of field-less enums that are `Copy`, `Debug` and `PartialEq`. A
/// pair that is named twice is refused by the compiler (unreachable pattern).
#[macro_export]
macro_rules! transitions {
    ($state:ident, $event:ident; $($from:ident $(| $more:ident)*: $on:ident => $to:ident;)+) => {
        impl $state {
            /// Every allowed pair of state and event, with the state that follows.
            pub const TRANSITIONS: &'static [($state, $event, $state)] = &[
                $(
                    ($state::$from, $event::$on, $state::$to),
                    $(($state::$more, $event::$on, $state::$to),)*
                )+
            ];

            /// The state that follows when `event` happens; `None` if it cannot happen here.
            #[must_use]
            #[deny(unreachable_patterns)]
            pub const fn on(self, event: $event) -> ::core::option::Option<Self> {
                match (self, event) {
                    $(
                        ($state::$from, $event::$on) => ::core::option::Option::Some($state::$to),
                        $(
                            ($state::$more, $event::$on) => {
                                ::core::option::Option::Some($state::$to)
                            }
                        )*
                    )+
                    #[allow(unreachable_patterns)]
                    _ => ::core::option::Option::None,
                }
            }
        }
    };
}

#[cfg(test)]
#[expect(unreachable_pub, reason = "the macro is for public state types")]
mod tests {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Door {
        Shut,
        Open,
        Locked,
    }

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        Pushed,
        Pulled,
        KeyTurned,
    }

    transitions! {
        Door, Event;
        Shut: Pushed => Open;
        Open: Pulled => Shut;
        Shut: KeyTurned => Locked;
        Locked: KeyTurned => Shut;
        Open | Locked: Pushed => Open;
    }

    #[test]
    fn the_function_and_the_data_agree_on_every_pair() {
        let mut allowed = 0;
        for state in [Door::Shut, Door::Open, Door::Locked] {
            for event in [Event::Pushed, Event::Pulled, Event::KeyTurned] {
                let listed: Option<&(Door, Event, Door)> = Door::TRANSITIONS
                    .iter()
                    .find(|t| (t.0, t.1) == (state, event));
                assert_eq!(state.on(event), listed.map(|t| t.2), "{state:?} {event:?}");
                allowed += usize::from(listed.is_some());
            }
        }
        assert_eq!(allowed, Door::TRANSITIONS.len());
    }
}
