// SPDX-License-Identifier: GPL-2.0

//! Loads of atomic variables without the call of a function.
//!
//! [`Atomic::load`] calls a C helper (`rust/helpers/atomic.c`) unless the kernel was built with
//! `CONFIG_RUST_INLINE_HELPERS`, which distributions that build with GCC cannot set. On the path of each message that
//! is a twentieth of all instructions (`Documentation/performance.md`). On x86-64 a load needs no helper.
//!
//! C headers: [`include/asm-generic/rwonce.h`](srctree/include/asm-generic/rwonce.h),
//! [`arch/x86/include/asm/barrier.h`](srctree/arch/x86/include/asm/barrier.h)

use kernel::sync::atomic::Atomic;

#[cfg(not(CONFIG_X86_64))]
use kernel::sync::atomic::{
    Acquire,
    Relaxed, //
};

/// Loads of an [`Atomic`] on a path where the call of a helper counts.
pub trait ReadOnce<T> {
    /// `READ_ONCE`: as `load(Relaxed)`.
    fn read_once(&self) -> T;

    /// `smp_load_acquire`: as `load(Acquire)`.
    fn read_acquire(&self) -> T;
}

macro_rules! impl_read_once {
    ($($word:ty),*) => { $(
        impl ReadOnce<$word> for Atomic<$word> {
            #[cfg(CONFIG_X86_64)]
            #[inline(always)]
            fn read_once(&self) -> $word {
                // SAFETY: `Atomic::as_ptr` guarantees a valid and aligned pointer, and an atomic variable always
                // holds a value of its type. A volatile load of a word is the `READ_ONCE` of the kernel, for which a
                // store at the same time is no data race.
                unsafe { self.as_ptr().read_volatile() }
            }

            #[cfg(CONFIG_X86_64)]
            #[inline(always)]
            fn read_acquire(&self) -> $word {
                let value = self.read_once();
                // The processor keeps loads, and stores after loads, in order: as in `smp_load_acquire`, the compiler
                // has to do so, too.
                // SAFETY: An empty asm block, which stands for any access to memory.
                unsafe { core::arch::asm!("") };
                value
            }

            #[cfg(not(CONFIG_X86_64))]
            fn read_once(&self) -> $word {
                self.load(Relaxed)
            }

            #[cfg(not(CONFIG_X86_64))]
            fn read_acquire(&self) -> $word {
                self.load(Acquire)
            }
        }
    )* };
}

impl_read_once!(bool, u32, u64);
