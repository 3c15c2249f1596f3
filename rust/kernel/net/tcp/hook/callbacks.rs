// SPDX-License-Identifier: GPL-2.0

//! The callbacks of TCP sockets: TCP's own, and those by which a hook replaces them.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::ptr::{
    self,
    NonNull, //
};

use kernel::{
    error::to_result,
    sync::SetOnce, //
};

use super::{
    RequestEnds,
    SavedCallbacks,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

/// The callbacks of a TCP socket that a hook replaces.
#[derive(Clone, Copy)]
pub(super) struct Callbacks {
    data_ready: Callback,
    state_change: Callback,
    write_space: Callback,
    error_report: Callback,
}

/// TCP's own, which are the same for all its sockets. Not all of them are exported. They are read from a new socket
/// when the module is loaded, as a used one may have others.
static DEFAULTS: SetOnce<Callbacks> = SetOnce::new();

/// Reads [`DEFAULTS`], once.
/// Context: may sleep.
///
/// # Errors
///
/// Those of `sock_create_kern`.
pub(in crate::net) fn learn_defaults() -> Result {
    if DEFAULTS.as_ref().is_some() {
        return Ok(());
    }
    let mut socket = ptr::null_mut();
    // SAFETY: The namespace is static; `socket` is valid for writing.
    to_result(unsafe {
        bindings::sock_create_kern(
            &raw mut bindings::init_net,
            bindings::AF_INET as i32,
            bindings::sock_type_SOCK_STREAM as i32,
            bindings::IPPROTO_TCP as i32,
            &mut socket,
        )
    })?;
    // SAFETY: A new socket, which is ours.
    let fresh = unsafe { TcpSocket::from_socket(NonNull::new(socket).ok_or(EINVAL)?) };
    // SAFETY: The socket is alive, and nothing else uses it.
    DEFAULTS.populate(unsafe { Callbacks::of(fresh.sk_ptr()) });
    Ok(())
}

impl Callbacks {
    pub(super) const NONE: Self = Self {
        data_ready: None,
        state_change: None,
        write_space: None,
        error_report: None,
    };

    pub(super) const OURS: Self = Self {
        data_ready: Some(data_ready),
        state_change: Some(state_change),
        write_space: Some(write_space),
        error_report: Some(error_report),
    };

    /// Returns the callbacks of a socket.
    ///
    /// # Safety
    ///
    /// `sk` must be a live socket. With its callback lock held they are those of one moment.
    pub(super) unsafe fn of(sk: *const bindings::sock) -> Self {
        /// Reads a callback once, as C's `READ_ONCE`.
        macro_rules! read {
            ($name:ident) => {
                // SAFETY: The socket is alive; a callback is written whole.
                unsafe { (&raw const (*sk).$name).read_volatile() }
            };
        }
        Self {
            data_ready: read!(sk_data_ready),
            state_change: read!(sk_state_change),
            write_space: read!(sk_write_space),
            error_report: read!(sk_error_report),
        }
    }

    /// Sets these as the socket's callbacks.
    ///
    /// # Safety
    ///
    /// `sk` must be a live socket, its callback lock held for writing.
    pub(super) unsafe fn put(self, sk: *mut bindings::sock) {
        /// Writes a callback once, as C's `WRITE_ONCE`: the kernel reads it without a lock.
        macro_rules! write {
            ($name:ident, $value:expr) => {
                // SAFETY: By the caller's promise.
                unsafe { (&raw mut (*sk).$name).write_volatile($value) }
            };
        }
        write!(sk_data_ready, self.data_ready);
        write!(sk_state_change, self.state_change);
        write!(sk_write_space, self.write_space);
        write!(sk_error_report, self.error_report);
    }

    /// Whether one is ours.
    pub(super) fn has_ours(self) -> bool {
        is_same(self.data_ready, Self::OURS.data_ready)
            || is_same(self.state_change, Self::OURS.state_change)
            || is_same(self.write_space, Self::OURS.write_space)
            || is_same(self.error_report, Self::OURS.error_report)
    }

    /// Returns them with TCP's own for each that is one of ours or none.
    pub(super) fn originals(self) -> Self {
        let Some(defaults) = DEFAULTS.copy() else {
            return self;
        };
        let pick = |callback: Callback, ours: Callback, default: Callback| match callback {
            Some(_) if !is_same(callback, ours) => callback,
            _ => default,
        };
        Self {
            data_ready: pick(self.data_ready, Self::OURS.data_ready, defaults.data_ready),
            state_change: pick(
                self.state_change,
                Self::OURS.state_change,
                defaults.state_change,
            ),
            write_space: pick(
                self.write_space,
                Self::OURS.write_space,
                defaults.write_space,
            ),
            error_report: pick(
                self.error_report,
                Self::OURS.error_report,
                defaults.error_report,
            ),
        }
    }

    /// Replaces the socket's callback for readable data, if that is ours, with this one. Returns whether it was ours.
    ///
    /// # Safety
    ///
    /// As for [`Self::put`].
    pub(super) unsafe fn put_data_ready(self, sk: *mut bindings::sock) -> bool {
        // SAFETY: By the caller's promise.
        let mut now = unsafe { Self::of(sk) };
        let was_ours = is_same(now.data_ready, Self::OURS.data_ready);
        if was_ours {
            now.data_ready = self.data_ready;
            // SAFETY: As above.
            unsafe { now.put(sk) };
        }
        was_ours
    }

    /// Replaces those of the socket's callbacks that are ours with these. Those of others are left.
    ///
    /// # Safety
    ///
    /// As for [`Self::put`].
    pub(super) unsafe fn replace_ours(self, sk: *mut bindings::sock) {
        // SAFETY: By the caller's promise.
        let now = unsafe { Self::of(sk) };
        let pick = |now: Callback, ours: Callback, other: Callback| match is_same(now, ours) {
            true => other,
            false => now,
        };
        let next = Self {
            data_ready: pick(now.data_ready, Self::OURS.data_ready, self.data_ready),
            state_change: pick(now.state_change, Self::OURS.state_change, self.state_change),
            write_space: pick(now.write_space, Self::OURS.write_space, self.write_space),
            error_report: pick(now.error_report, Self::OURS.error_report, self.error_report),
        };
        // SAFETY: By the caller's promise.
        unsafe { next.put(sk) };
    }
}

fn is_same(a: Callback, b: Callback) -> bool {
    a.map(|f| f as usize) == b.map(|f| f as usize)
}

/// Runs `f`, which calls the original of a callback, if the socket has a hook, else only the original.
///
/// A socket with this callback may have no hook: the callback may have been read before the hook was dropped, or copied
/// with the rest of a socket, and its user data may be another user's. Then TCP's own is called.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
unsafe fn with_hook(
    sk: *mut bindings::sock,
    which: impl FnOnce(&Callbacks) -> Callback,
    f: impl FnOnce(&SavedCallbacks, &dyn Fn()),
) {
    // SAFETY: The caller promises that the socket is alive.
    unsafe { bindings::callback_read_lock_bh(sk) };
    // SAFETY: As above, and the lock is held until the end.
    let cell = unsafe { SavedCallbacks::of(sk) };
    let saved = match cell {
        Some(cell) => Some(&cell.saved),
        None => DEFAULTS.as_ref(),
    };
    let callback = saved.and_then(which);
    let original = || {
        if let Some(callback) = callback {
            // SAFETY: The kernel's own callback, called as the kernel would have.
            unsafe { callback(sk) };
        }
    };
    match cell {
        Some(cell) => f(cell, &original),
        None => original(),
    }
    // SAFETY: Taken above.
    unsafe { bindings::callback_read_unlock_bh(sk) };
}

/// # Safety
///
/// To be called by the kernel only, with a live TCP socket.
unsafe extern "C" fn data_ready(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    unsafe {
        with_hook(
            sk,
            |saved| saved.data_ready,
            |cell, original| {
                original();
                cell.owner.as_arc_borrow().readable();
            },
        )
    };
}

/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn state_change(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    unsafe {
        with_hook(
            sk,
            |saved| saved.state_change,
            |cell, original| {
                cell.owner
                    .as_arc_borrow()
                    .state_change(&|| to_result(bindings::sock_error(sk)));
                original();
            },
        )
    };
}

/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn write_space(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    unsafe {
        with_hook(
            sk,
            |saved| saved.write_space,
            |cell, original| {
                original();
                if bindings::sk_stream_is_writeable(sk) {
                    cell.owner.as_arc_borrow().writable();
                }
            },
        )
    };
}

/// # Safety
///
/// As for [`data_ready`].
unsafe extern "C" fn error_report(sk: *mut bindings::sock) {
    // SAFETY: By the caller's promise.
    unsafe {
        with_hook(
            sk,
            |saved| saved.error_report,
            // Who is woken finds the error where the owner has put it.
            |cell, original| {
                cell.owner
                    .as_arc_borrow()
                    .error(&|| to_result(bindings::sock_error(sk)));
                original();
            },
        )
    };
}

/// Whether a listener refuses a connection request SMC; not if it has no hook.
///
/// # Safety
///
/// As for [`data_ready`].
pub(in crate::net::tcp) unsafe fn refuses_smc(
    listener: *mut bindings::sock,
    request: &RequestEnds,
) -> bool {
    let mut is_refused = false;
    // SAFETY: By the caller's promise.
    unsafe {
        with_hook(
            listener,
            |_| None,
            |cell, _| is_refused = cell.owner.as_arc_borrow().refuses_smc(request),
        )
    };
    is_refused
}
