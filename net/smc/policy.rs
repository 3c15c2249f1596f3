// SPDX-License-Identifier: GPL-2.0

//! The rules of a network namespace about which connections may use SMC: see [`smc_proto::policy`].

use kernel::sync::{
    atomic::{
        Atomic,
        Relaxed, //
    },
    Arc,
    UniqueArc, //
};
use kernel_ext::{
    net::{
        InetAddr,
        TcpSocket, //
    },
    prelude::*,
    spinlock_bh::{
        new_spinlock_bh,
        SpinLockBh, //
    }, //
};
use smc_proto::{
    lgr::Role,
    policy::{
        self,
        End,
        Ends,
        Rule, //
    }, //
};

/// The rules of a namespace at one time.
pub(crate) struct Rules {
    /// Grows with each replacement.
    generation: u32,
    rules: KVVec<Rule>,
}

impl Rules {
    /// Grows with each replacement.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The rules in their order.
    pub(crate) fn as_slice(&self) -> &[Rule] {
        &self.rules
    }
}

/// The rules of a namespace.
#[pin_data]
pub(crate) struct PolicyTable {
    /// Whether there are rules. Without, this is all that a connection looks at.
    has_rules: Atomic<bool>,
    /// Lock order: innermost.
    #[pin]
    rules: SpinLockBh<Arc<Rules>>,
}

impl PolicyTable {
    /// Creates a table without rules.
    pub(crate) fn new() -> Result<impl PinInit<Self>> {
        let none = Rules {
            generation: 0,
            rules: KVVec::new(),
        };
        let none = Arc::new(none, GFP_KERNEL)?;
        Ok(pin_init!(Self {
            has_rules: Atomic::new(false),
            rules <- new_spinlock_bh!(none, "smc::PolicyTable::rules"),
        }))
    }

    /// Returns the present rules.
    /// Context: may sleep.
    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.rules.lock().clone()
    }

    /// Replaces all rules at once; with `generation` only if they are still those of that one.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ESTALE` if they are not, `ENOMEM`.
    pub(crate) fn replace(&self, rules: KVVec<Rule>, generation: Option<u32>) -> Result {
        let has_rules = !rules.is_empty();
        let next = UniqueArc::new(
            Rules {
                generation: 0,
                rules,
            },
            GFP_KERNEL,
        )?;
        // The last reference to the earlier rules is dropped without the lock.
        let _before = self.exchange(next, generation, has_rules)?;
        Ok(())
    }

    fn exchange(
        &self,
        mut next: UniqueArc<Rules>,
        generation: Option<u32>,
        has_rules: bool,
    ) -> Result<Arc<Rules>> {
        let mut rules = self.rules.lock();
        let present = rules.generation;
        if generation.is_some_and(|generation| generation != present) {
            drop(rules);
            return Err(ESTALE);
        }
        next.generation = present.wrapping_add(1);
        let before = core::mem::replace(&mut *rules, next.into());
        self.has_rules.store(has_rules, Relaxed);
        drop(rules);
        Ok(before)
    }

    /// Whether a rule has a connection go over TCP, by what is known of it so far. `ends` may be asked for it.
    /// Context: any.
    pub(crate) fn denies(&self, role: Role, ends: impl FnOnce() -> Ends) -> bool {
        if !self.has_rules.load(Relaxed) {
            return false;
        }
        let ends = ends();
        policy::decide(self.rules.lock().as_slice(), role, &ends).is_denied()
    }

    /// As [`PolicyTable::denies`], of a TCP connection.
    /// Context: may sleep.
    pub(crate) fn denies_connection(&self, role: Role, tcp: &TcpSocket) -> bool {
        self.denies(role, || Ends {
            local: end(tcp.local().ok()),
            peer: end(tcp.peer().ok()),
        })
    }
}

/// What is known of an end by its address.
pub(crate) fn end(addr: Option<InetAddr>) -> End {
    addr.map_or(End::UNKNOWN, |addr| End::new(addr.ip, addr.port))
}
