// SPDX-License-Identifier: GPL-2.0

//! Hearing of what happens to a TCP socket.
//!
//! The socket's callbacks are replaced by ones that call the original first and then the owner of
//! the [`Hook`]. Nothing is taken away from TCP: those who sleep on its queue are woken as before.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    ptr::{
        self,
        NonNull, //
    },
    sync::atomic::{
        AtomicU32,
        AtomicUsize,
        Ordering::Relaxed, //
    }, //
};

use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};

use super::TcpSocket;
use crate::bindings;

/// What the owner of a [`Hook`] hears. All of it may come in softirq context: nothing may sleep, and no
/// lock may be taken that process context takes with softirqs enabled.
pub trait TcpEvents: Send + Sync + Sized + 'static {
    /// Data, the end of the stream, or a connection to accept.
    fn on_readable(this: ArcBorrow<'_, Self>);

    /// The state of TCP changed.
    fn on_state_change(this: ArcBorrow<'_, Self>);

    /// There is space in the send buffer again, and somebody had asked for it.
    fn on_writable(this: ArcBorrow<'_, Self>);

    /// An error is pending. `take` takes it away from the TCP socket.
    fn on_error(this: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result);

    /// Urgent data arrived.
    fn on_urgent(this: ArcBorrow<'_, Self>);

    /// A connection request asks for SMC: whether to refuse that, since there is too much to do.
    fn is_congested(this: ArcBorrow<'_, Self>) -> bool;
}

type Callback = Option<unsafe extern "C" fn(*mut bindings::sock)>;

/// What was there before.
struct Saved {
    data_ready: Callback,
    state_change: Callback,
    write_space: Callback,
    error_report: Callback,
}

#[repr(align(8))]
struct Cell<T: TcpEvents> {
    owner: Arc<T>,
    saved: Saved,
    /// Where the last urgent mark was that the owner has heard of.
    urg_seq: AtomicU32,
}

/// The replaced callbacks of one TCP socket. When it is dropped they are put back, and none of ours
/// runs any more; so it must not be dropped by one of them.
///
/// # Invariants
///
/// `sk` is a TCP socket of which we hold a reference, whose user data are `cell`, tagged, and whose
/// callbacks are those of this module.
pub struct Hook<T: TcpEvents> {
    sk: NonNull<bindings::sock>,
    cell: NonNull<Cell<T>>,
    _owner: PhantomData<Cell<T>>,
}

// SAFETY: The socket may be used from any thread, and `Arc<T>` is `Send` and `Sync` as `T` is both.
unsafe impl<T: TcpEvents> Send for Hook<T> {}
// SAFETY: As above.
unsafe impl<T: TcpEvents> Sync for Hook<T> {}

/// The user data must not be copied when TCP clones a listener into a connection.
const NOCOPY: usize = bindings::SK_USER_DATA_NOCOPY as usize;

impl<T: TcpEvents> Hook<T> {
    /// Tells `owner` of all events of a connection.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a hook already, `ENOMEM`.
    pub fn connection(tcp: &TcpSocket, owner: Arc<T>) -> Result<Self> {
        Self::install(tcp, owner, |sk| {
            // SAFETY: `install` calls this with the callback lock of a living socket held.
            unsafe {
                (*sk).sk_data_ready = Some(data_ready::<T>);
                (*sk).sk_state_change = Some(state_change::<T>);
                (*sk).sk_write_space = Some(write_space::<T>);
                (*sk).sk_error_report = Some(error_report::<T>);
            }
        })
    }

    /// Tells `owner` of connections that wait to be accepted, and asks it whether more can be done over
    /// SMC.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a hook already, `ENOMEM`.
    pub fn listener(tcp: &TcpSocket, owner: Arc<T>) -> Result<Self> {
        let this = Self::install(tcp, owner, |sk| {
            // SAFETY: `install` calls this with the callback lock of a living socket held.
            unsafe { (*sk).sk_data_ready = Some(data_ready::<T>) };
        })?;
        // SAFETY: The socket is alive and a TCP socket.
        unsafe { bindings::tcp_set_hs_congested(this.sk.as_ptr(), Some(hs_congested::<T>)) };
        Ok(this)
    }

    fn install(
        tcp: &TcpSocket,
        owner: Arc<T>,
        replace: impl FnOnce(*mut bindings::sock),
    ) -> Result<Self> {
        let sk = tcp.sk_ptr();
        // SAFETY: The socket is alive, and nobody replaces callbacks but under the lock below, which
        // only we take for that.
        let saved = unsafe {
            Saved {
                data_ready: (*sk).sk_data_ready,
                state_change: (*sk).sk_state_change,
                write_space: (*sk).sk_write_space,
                error_report: (*sk).sk_error_report,
            }
        };
        remember_readable(saved.data_ready);
        let cell = Cell {
            owner,
            saved,
            urg_seq: AtomicU32::new(0),
        };
        let cell = KBox::into_raw(KBox::new(cell, GFP_KERNEL)?);
        // SAFETY: The socket is alive.
        unsafe { bindings::callback_write_lock_bh(sk) };
        // SAFETY: As above.
        let is_free = unsafe { (*sk).sk_user_data.is_null() };
        if is_free {
            // SAFETY: As above, and under the lock.
            unsafe { (*sk).sk_user_data = cell.cast::<c_void>().map_addr(|addr| addr | NOCOPY) };
            replace(sk);
        }
        // SAFETY: Taken above.
        unsafe { bindings::callback_write_unlock_bh(sk) };
        if !is_free {
            // SAFETY: From `into_raw` above, and published nowhere.
            drop(unsafe { KBox::from_raw(cell) });
            return Err(EBUSY);
        }
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_hold(sk) };
        // INVARIANT: Set up above.
        Ok(Self {
            // SAFETY: A socket always has its `sk`, by the invariant of `TcpSocket`.
            sk: unsafe { NonNull::new_unchecked(sk) },
            // SAFETY: `KBox::into_raw` does not return null.
            cell: unsafe { NonNull::new_unchecked(cell) },
            _owner: PhantomData,
        })
    }
}

impl<T: TcpEvents> Drop for Hook<T> {
    fn drop(&mut self) {
        let sk = self.sk.as_ptr();
        // SAFETY: The cell lives until the end of this function.
        let saved = unsafe { &(*self.cell.as_ptr()).saved };
        // SAFETY: By the type invariant we hold a reference of the socket.
        unsafe {
            bindings::callback_write_lock_bh(sk);
            (*sk).sk_user_data = ptr::null_mut();
            (*sk).sk_data_ready = saved.data_ready;
            (*sk).sk_state_change = saved.state_change;
            (*sk).sk_write_space = saved.write_space;
            (*sk).sk_error_report = saved.error_report;
            bindings::tcp_set_hs_congested(sk, None);
            bindings::callback_write_unlock_bh(sk);
        }
        // Our callbacks hold the lock for reading as long as they use the cell, and from now on they
        // find none. SAFETY: From `KBox::into_raw` in `install`.
        drop(unsafe { KBox::from_raw(self.cell.as_ptr()) });
        // SAFETY: Gives up the reference of `install`.
        unsafe { bindings::sock_put(sk) };
    }
}

/// Puts back what TCP copied from a listener with a [`Hook`] into a connection.
pub(super) fn reset_inherited(child: &TcpSocket) {
    let sk = child.sk_ptr();
    // SAFETY: The socket is alive; callbacks change under the lock.
    unsafe {
        bindings::callback_write_lock_bh(sk);
        if (*sk).sk_user_data.is_null() {
            (*sk).sk_data_ready = readable();
        }
        bindings::callback_write_unlock_bh(sk);
        bindings::tcp_set_hs_congested(sk, None);
    }
}

/// The `sk_data_ready` of TCP, which is the same for all its sockets but not exported. A connection
/// needs it that TCP clones from a listener while our callback is in place.
static READABLE: AtomicUsize = AtomicUsize::new(0);

fn remember_readable(original: Callback) {
    READABLE.store(original.map_or(0, |callback| callback as usize), Relaxed);
}

fn readable() -> Callback {
    // SAFETY: Only `remember_readable` writes here: nothing, or such a function.
    unsafe { core::mem::transmute::<usize, Callback>(READABLE.load(Relaxed)) }
}

/// Calls the original callback, which `saved` finds, or which is back in its place, and then `then`.
///
/// # Safety
///
/// `sk` must be a living TCP socket whose user data, if any, are a `Cell<T>`.
unsafe fn forward<T: TcpEvents>(
    sk: *mut bindings::sock,
    saved: impl FnOnce(&Saved) -> Callback,
    without: impl FnOnce(*mut bindings::sock) -> Callback,
    then: impl FnOnce(&Cell<T>),
) {
    // SAFETY: The caller promises that the socket is alive.
    unsafe { bindings::callback_read_lock_bh(sk) };
    // SAFETY: As above; the field changes only under the lock.
    let data = unsafe { (*sk).sk_user_data }.map_addr(|addr| addr & !7);
    // SAFETY: The caller promises that the data are a `Cell<T>` or null; it lives at least until
    // the lock is released.
    let cell = unsafe { data.cast::<Cell<T>>().as_ref() };
    let original = match cell {
        Some(cell) => saved(&cell.saved),
        None => without(sk),
    };
    if let Some(original) = original {
        // SAFETY: The kernel's own callback, called as the kernel would have.
        unsafe { original(sk) };
    }
    if let Some(cell) = cell {
        then(cell);
    }
    // SAFETY: Taken above.
    unsafe { bindings::callback_read_unlock_bh(sk) };
}

unsafe extern "C" fn data_ready<T: TcpEvents>(sk: *mut bindings::sock) {
    // A connection that TCP has just cloned from a listener has our callback but no user data.
    // SAFETY: The kernel passes a living socket; by the invariant of `Hook` the data are ours.
    unsafe {
        forward::<T>(
            sk,
            |saved| saved.data_ready,
            |_| readable(),
            |cell| {
                cell.hear_of_urgent(sk);
                T::on_readable(cell.owner.as_arc_borrow());
            },
        )
    };
}

unsafe extern "C" fn state_change<T: TcpEvents>(sk: *mut bindings::sock) {
    // SAFETY: As in `data_ready`.
    unsafe {
        forward::<T>(
            sk,
            |saved| saved.state_change,
            |sk| other_than(state_change::<T>, (*sk).sk_state_change),
            |cell| T::on_state_change(cell.owner.as_arc_borrow()),
        )
    };
}

unsafe extern "C" fn write_space<T: TcpEvents>(sk: *mut bindings::sock) {
    // SAFETY: As in `data_ready`.
    unsafe {
        forward::<T>(
            sk,
            |saved| saved.write_space,
            |sk| other_than(write_space::<T>, (*sk).sk_write_space),
            |cell| {
                if bindings::sk_stream_is_writeable(sk) {
                    T::on_writable(cell.owner.as_arc_borrow());
                }
            },
        )
    };
}

unsafe extern "C" fn error_report<T: TcpEvents>(sk: *mut bindings::sock) {
    // SAFETY: As in `data_ready`.
    unsafe {
        forward::<T>(
            sk,
            |saved| saved.error_report,
            |sk| other_than(error_report::<T>, (*sk).sk_error_report),
            |cell| {
                T::on_error(cell.owner.as_arc_borrow(), &|| {
                    kernel::error::to_result(bindings::sock_error(sk))
                })
            },
        )
    };
}

unsafe extern "C" fn hs_congested<T: TcpEvents>(sk: *const bindings::sock) -> bool {
    let mut congested = false;
    // SAFETY: As in `data_ready`.
    unsafe {
        forward::<T>(
            sk.cast_mut(),
            |_| None,
            |_| None,
            |cell| congested = T::is_congested(cell.owner.as_arc_borrow()),
        )
    };
    congested
}

/// A callback that was read too late, after the hook had gone: what is there now.
fn other_than(ours: unsafe extern "C" fn(*mut bindings::sock), now: Callback) -> Callback {
    now.filter(|now| *now as usize != ours as usize)
}

impl<T: TcpEvents> Cell<T> {
    /// TCP signals urgent data to its own file only, and that socket has none.
    fn hear_of_urgent(&self, sk: *mut bindings::sock) {
        // SAFETY: The socket is alive and a TCP socket.
        if unsafe { bindings::tcp_urg_data(sk) } & URG_VALID == 0 {
            return;
        }
        // SAFETY: As above.
        let seq = unsafe { bindings::tcp_urg_seq(sk) };
        if self.urg_seq.swap(seq, Relaxed) != seq {
            T::on_urgent(self.owner.as_arc_borrow());
        }
    }
}

/// `TCP_URG_VALID` of `include/net/tcp.h`: the urgent byte is there.
const URG_VALID: u16 = bindings::TCP_URG_VALID as u16;
