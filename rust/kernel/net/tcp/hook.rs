// SPDX-License-Identifier: GPL-2.0

//! Hooks for the events of a TCP socket.
//!
//! The callbacks of a connection are replaced by ones that call the original and the owner of the [`Hook`]: of data and
//! space first the original, of state changes and errors first the owner, so that whom the original wakes finds what
//! the owner has noted. Nothing is taken away from TCP: tasks that sleep on its queue are woken as before.
//!
//! TCP clones a listener into every connection to it, callbacks included, and such a connection may move elsewhere: a
//! BPF program may put it into a sockmap, and with `net.ipv4.tcp_migrate_req` another listener of the port may get it.
//! So no callback of a listener is replaced. Its hook is an entry on the wait queue, which no connection inherits.
//!
//! C header: [`include/net/sock.h`](srctree/include/net/sock.h)

use core::{
    ffi::c_void,
    marker::PhantomData,
    mem::offset_of,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::{
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

use super::{
    option,
    AcceptQueue,
    TcpSocket, //
};
use crate::{
    bindings,
    prelude::*, //
};

mod callbacks;
mod request;

pub(in crate::net) use callbacks::learn_defaults;
pub(super) use callbacks::refuses_smc;
use callbacks::Callbacks;
pub use request::RequestEnds;

/// Events for the owner of a [`Hook`]. All may be called in softirq context: they must not sleep, nor take a lock that
/// process context takes with softirqs enabled.
pub trait TcpEvents: Send + Sync + Sized + 'static {
    /// A listener may have a connection to accept, of `queue`. Called once for each that comes, with the lock of TCP's
    /// wait queue held and interrupts off: no lock may be taken whose release enables softirqs. May wake waiters of an
    /// application's socket, but none of a TCP socket below.
    fn on_connection(this: ArcBorrow<'_, Self>, queue: AcceptQueue);

    /// A listener listens no more, because the application has it so or something else. Context as for
    /// [`Self::on_connection`], without waking anyone.
    fn on_listener_end(this: ArcBorrow<'_, Self>);

    /// A connection has data, or the end of the stream.
    fn on_readable(this: ArcBorrow<'_, Self>);

    /// The state of TCP changed; who waits in a call of TCP has not been woken yet. `take` as for
    /// [`Self::on_error`].
    fn on_state_change(this: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result);

    /// There is space in the send buffer again, and it had been requested.
    fn on_writable(this: ArcBorrow<'_, Self>);

    /// An error is pending; who waits in a call of TCP has not been woken yet. `take` clears it in the TCP socket and
    /// returns it.
    fn on_error(this: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result);

    /// A connection request asks for SMC: returns whether to refuse that.
    fn refuses_smc(this: ArcBorrow<'_, Self>, request: &RequestEnds) -> bool;
}

/// [`TcpEvents`] of an owner of unknown type: the callbacks are the same for all types, so that a late call never
/// mistakes the owner of one hook for that of another type.
trait Owner: Send + Sync {
    fn connection(self: ArcBorrow<'_, Self>, queue: AcceptQueue);
    fn listener_end(self: ArcBorrow<'_, Self>);
    fn readable(self: ArcBorrow<'_, Self>);
    fn state_change(self: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result);
    fn writable(self: ArcBorrow<'_, Self>);
    fn error(self: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result);
    fn refuses_smc(self: ArcBorrow<'_, Self>, request: &RequestEnds) -> bool;
}

impl<T: TcpEvents> Owner for T {
    fn connection(self: ArcBorrow<'_, Self>, queue: AcceptQueue) {
        T::on_connection(self, queue);
    }

    fn listener_end(self: ArcBorrow<'_, Self>) {
        T::on_listener_end(self);
    }

    fn readable(self: ArcBorrow<'_, Self>) {
        T::on_readable(self);
    }

    fn state_change(self: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result) {
        T::on_state_change(self, take);
    }

    fn writable(self: ArcBorrow<'_, Self>) {
        T::on_writable(self);
    }

    fn error(self: ArcBorrow<'_, Self>, take: &dyn Fn() -> Result) {
        T::on_error(self, take);
    }

    fn refuses_smc(self: ArcBorrow<'_, Self>, request: &RequestEnds) -> bool {
        T::refuses_smc(self, request)
    }
}

/// The target of the user data of a socket with a hook.
#[repr(C, align(8))]
struct SavedCallbacks {
    /// The address of [`MARK`], which distinguishes a cell from other user data of a socket.
    mark: *const u8,
    owner: Arc<dyn Owner>,
    /// The previous callbacks.
    saved: Callbacks,
    /// For a listener: the entry on its wait queue.
    entry: Opaque<bindings::wait_queue_entry>,
    /// The socket, which lives as long as its hook.
    tcp: NonNull<TcpSocket>,
}

/// Where a [`TcpSocket`] has its [`SavedCallbacks`]: filled while it has a [`Hook`].
pub(super) struct Cell(Opaque<SavedCallbacks>);

impl Cell {
    pub(super) const EMPTY: Self = Self(Opaque::uninit());

    fn as_ptr(&self) -> *mut SavedCallbacks {
        self.0.get()
    }
}

/// Identifies a [`SavedCallbacks`]: nothing else in the kernel points here.
static MARK: u8 = 0;

/// Tag bits of the user data; the rest is the pointer.
const FLAGS: usize = (bindings::SK_USER_DATA_NOCOPY
    | bindings::SK_USER_DATA_BPF
    | bindings::SK_USER_DATA_PSOCK) as usize;

/// The user data must not be copied when TCP clones a listener into a connection.
const NOCOPY: usize = bindings::SK_USER_DATA_NOCOPY as usize;

impl SavedCallbacks {
    /// Returns the cell of a socket, if it has one of ours.
    /// Context: any.
    ///
    /// # Safety
    ///
    /// `sk` must be a live socket, and its callback lock held for `'a`.
    unsafe fn of<'a>(sk: *const bindings::sock) -> Option<&'a Self> {
        // SAFETY: The socket is alive.
        let data = unsafe { (&raw const (*sk).sk_user_data).read_volatile() };
        if data.addr() & FLAGS != NOCOPY {
            return None;
        }
        let cell = data.map_addr(|addr| addr & !FLAGS).cast::<Self>();
        // SAFETY: Code that sets the user data keeps what they point to, at least a word, until they are cleared, for
        // which the callback lock is needed.
        let mark = unsafe { (&raw const (*cell).mark).read() };
        if !ptr::eq(mark, &raw const MARK) {
            return None;
        }
        // SAFETY: Only cells have the mark, and one lives until it was removed under the lock.
        Some(unsafe { &*cell })
    }
}

/// Which events a [`Hook`] is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HookKind {
    Connection,
    Listener,
}

/// Reports the events of one TCP socket. To be dropped in process context; afterwards none of its callbacks runs, so
/// they must not drop it.
///
/// # Invariants
///
/// The cell of `tcp` is filled, and its user data are that, tagged. For [`HookKind::Connection`] the callbacks are
/// those of [`callbacks`]; for [`HookKind::Listener`] the cell's entry is on the wait queue of `tcp`.
pub struct Hook<T: TcpEvents> {
    tcp: Arc<TcpSocket>,
    kind: HookKind,
    _owner: PhantomData<Arc<T>>,
}

// SAFETY: The socket may be used from any thread, and `Arc<T>` is `Send` and `Sync` as `T` is both.
unsafe impl<T: TcpEvents> Send for Hook<T> {}
// SAFETY: As above.
unsafe impl<T: TcpEvents> Sync for Hook<T> {}

impl<T: TcpEvents> Hook<T> {
    /// Reports all events of a connection to `owner`.
    ///
    /// # Errors
    ///
    /// `EBUSY` if there is a hook already, another user in the kernel, or a protocol on top of TCP.
    pub fn connection(tcp: Arc<TcpSocket>, owner: Arc<T>) -> Result<Self> {
        Self::install(tcp, owner, HookKind::Connection)
    }

    /// Reports connections to be accepted to `owner`, and asks it whether to refuse a request for SMC.
    ///
    /// # Errors
    ///
    /// As [`Hook::connection`].
    pub fn listener(tcp: Arc<TcpSocket>, owner: Arc<T>) -> Result<Self> {
        let this = Self::install(tcp, owner, HookKind::Listener)?;
        // SAFETY: By the type invariant the cell is filled. It does not move, as the hook shares the socket.
        let entry = unsafe { (*this.tcp.hook.as_ptr()).entry.get() };
        // TCP goes over to another queue with this lock held, and not while there is an entry on its own.
        // SAFETY: The socket is alive, and sleeping is allowed. The queue and the entry are initialised; the entry is
        // removed in `drop`, and the queue lives as long as `tcp`.
        unsafe {
            bindings::lock_sock_nested(this.tcp.sk_ptr(), 0);
            bindings::add_wait_queue(this.tcp.queue(), entry);
            bindings::release_sock(this.tcp.sk_ptr());
        }
        option::hook_listener(&this.tcp);
        Ok(this)
    }

    fn install(tcp: Arc<TcpSocket>, owner: Arc<T>, kind: HookKind) -> Result<Self> {
        // It may call what was there when it came, which can be functions of an earlier hook: with a hook above it
        // these would call it in turn.
        if tcp.has_ulp() {
            return Err(EBUSY);
        }
        let sk = tcp.sk_ptr();
        // SAFETY: The socket is alive.
        unsafe { bindings::callback_write_lock_bh(sk) };
        // SAFETY: As above, and under the lock.
        let is_free = unsafe { (&raw const (*sk).sk_user_data).read_volatile() }.is_null();
        let left = match is_free {
            true => {
                // SAFETY: As above.
                unsafe { Self::occupy(&tcp, owner, kind) };
                None
            }
            false => Some(owner),
        };
        // SAFETY: Taken above.
        unsafe { bindings::callback_write_unlock_bh(sk) };
        // An owner that is left is dropped without the lock.
        match left {
            // INVARIANT: Set up above, but for the entry of a listener, which the caller adds.
            None => Ok(Self {
                tcp,
                kind,
                _owner: PhantomData,
            }),
            Some(_) => Err(EBUSY),
        }
    }

    /// Fills the cell of a socket and makes it the user data.
    ///
    /// # Safety
    ///
    /// The user data of `tcp` must be null, and its callback lock held for writing.
    unsafe fn occupy(tcp: &TcpSocket, owner: Arc<T>, kind: HookKind) {
        let (sk, cell) = (tcp.sk_ptr(), tcp.hook.as_ptr());
        let filled = SavedCallbacks {
            mark: &raw const MARK,
            owner,
            // SAFETY: The socket is alive, and by the caller's promise locked.
            saved: unsafe { Callbacks::of(sk) }.originals(),
            entry: Opaque::zeroed(),
            tcp: NonNull::from(tcp),
        };
        // SAFETY: By the caller's promise the user data do not point to the cell, so nothing else uses it. What an
        // earlier hook had there was taken out.
        unsafe { cell.write(filled) };
        // SAFETY: As above.
        unsafe { bindings::init_waitqueue_func_entry((*cell).entry.get(), Some(on_wake)) };
        let data = cell.cast::<c_void>().map_addr(|addr| addr | NOCOPY);
        // A barrier is not needed: without the lock only the tag is read.
        // SAFETY: By the caller's promise.
        unsafe { (&raw mut (*sk).sk_user_data).write_volatile(data) };
        if kind == HookKind::Connection {
            // SAFETY: By the caller's promise.
            unsafe { Callbacks::OURS.put(sk) };
        }
    }
}

impl<T: TcpEvents> Drop for Hook<T> {
    fn drop(&mut self) {
        let (sk, cell) = (self.tcp.sk_ptr(), self.tcp.hook.as_ptr());
        if self.kind == HookKind::Listener {
            option::unhook_listener(&self.tcp);
            // SAFETY: By the type invariant the entry is on that queue. Its function runs under the queue's lock, so
            // not any more afterwards.
            unsafe { bindings::remove_wait_queue(self.tcp.queue(), (*cell).entry.get()) };
        }
        // SAFETY: The socket is alive.
        unsafe { bindings::callback_write_lock_bh(sk) };
        // SAFETY: As above, and under the lock.
        unsafe { (&raw mut (*sk).sk_user_data).write_volatile(ptr::null_mut()) };
        // Our callbacks hold the lock for reading as long as they use the cell, and from now on they find none.
        // SAFETY: By the type invariant the cell is filled. It is taken out once, and nothing reads it before another
        // hook fills it.
        let taken = unsafe { cell.read() };
        if self.kind == HookKind::Connection {
            // SAFETY: As above.
            unsafe { taken.saved.replace_ours(sk) };
        }
        // SAFETY: Taken above.
        unsafe { bindings::callback_write_unlock_bh(sk) };
        // Without the lock, as this may be the last reference to the owner.
        drop(taken);
    }
}

/// Wait queue function: waiters for events of a listener are woken.
///
/// # Safety
///
/// To be called by the kernel only, with the entry of a [`SavedCallbacks`] that is on a queue whose lock is held.
unsafe extern "C" fn on_wake(
    entry: *mut bindings::wait_queue_entry,
    _mode: u32,
    _flags: i32,
    key: *mut c_void,
) -> i32 {
    // SAFETY: By the caller's promise the entry is a field of a cell.
    let cell =
        unsafe { entry.byte_sub(offset_of!(SavedCallbacks, entry)) }.cast::<SavedCallbacks>();
    // SAFETY: The cell lives until the entry was removed, for which the lock is needed.
    let cell = unsafe { &*cell };
    // SAFETY: The hook holds the socket.
    let tcp = unsafe { cell.tcp.as_ref() };
    // CAST: The kernel passes poll(2) bits as a pointer; null for a change of state, which is not a connection.
    if key.addr() as u32 & bindings::POLLIN != 0 {
        cell.owner
            .as_arc_borrow()
            .connection(tcp.try_accept_queue());
    } else if !tcp.state().is_listening() {
        cell.owner.as_arc_borrow().listener_end();
    }
    // No exclusive waiter was woken.
    0
}

/// Restores what TCP may have copied into a connection from a socket with a [`Hook`].
pub(super) fn reset_inherited(child: &TcpSocket) {
    // SAFETY: The socket is alive.
    unsafe { restore_callbacks(child.sk_ptr()) };
}

/// Releases a socket without a [`Hook`]. A protocol on top of TCP then gives back the callbacks that it found, which
/// may be ours; the connection may live on, also longer than this module.
/// Context: may sleep.
///
/// # Safety
///
/// The `struct socket` must be the caller's, and is not used afterwards.
pub(super) unsafe fn release(tcp: &TcpSocket) {
    let restored = tcp.has_ulp().then(|| tcp.sk_ptr());
    if let Some(sk) = restored {
        // SAFETY: The socket is alive.
        unsafe { bindings::sock_hold(sk) };
    }
    // SAFETY: By the caller's promise.
    unsafe { bindings::sock_release(tcp.as_ptr()) };
    if let Some(sk) = restored {
        // SAFETY: It was held above.
        unsafe { restore_callbacks(sk) };
        // SAFETY: As above.
        unsafe { bindings::sock_put(sk) };
    }
}

/// Puts TCP's own callbacks in place of those of ours that a socket without a [`Hook`] has.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
pub(super) unsafe fn restore_callbacks(sk: *mut bindings::sock) {
    // Nobody else replaces a callback by one of ours.
    // SAFETY: By the caller's promise.
    if !unsafe { Callbacks::of(sk) }.has_ours() {
        return;
    }
    // SAFETY: The socket is alive; callbacks change under the lock.
    unsafe { bindings::callback_write_lock_bh(sk) };
    // SAFETY: As above.
    unsafe { Callbacks::NONE.originals().replace_ours(sk) };
    // SAFETY: Taken above.
    unsafe { bindings::callback_write_unlock_bh(sk) };
}

/// Has a socket whose hook reports readable data no longer do so, and calls `f` with the lock of the callbacks held:
/// from now on TCP's own callback is called. Without such a hook nothing happens, and `f` is not called.
/// Context: any; `f` must not sleep.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
pub(super) unsafe fn stop_readable(sk: *mut bindings::sock, f: impl FnOnce()) {
    // SAFETY: By the caller's promise.
    unsafe { bindings::callback_write_lock_bh(sk) };
    // SAFETY: As above, and the lock is held.
    let cell = unsafe { SavedCallbacks::of(sk) };
    // SAFETY: As above.
    if cell.is_some_and(|cell| unsafe { cell.saved.put_data_ready(sk) }) {
        f();
    }
    // SAFETY: Taken above.
    unsafe { bindings::callback_write_unlock_bh(sk) };
}

/// Calls `f` with the lock of the callbacks held, unless the socket has a hook of ours.
/// Context: any; `f` must not sleep.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
pub(super) unsafe fn unless_hooked(sk: *mut bindings::sock, f: impl FnOnce()) {
    // SAFETY: By the caller's promise.
    unsafe { bindings::callback_write_lock_bh(sk) };
    // SAFETY: As above, and the lock is held.
    if unsafe { SavedCallbacks::of(sk) }.is_none() {
        f();
    }
    // SAFETY: Taken above.
    unsafe { bindings::callback_write_unlock_bh(sk) };
}

/// Calls `f` with what a socket with a hook has of the SMC option; not at all if it has no hook.
/// Context: does not sleep.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
#[cfg(not(CONFIG_SMC))]
pub(super) unsafe fn with_offer(sk: *mut bindings::sock, f: impl FnOnce(&super::Offer)) {
    // Nearly all sockets that are not ours have none, which is seen without the lock.
    // SAFETY: By the caller's promise.
    if unsafe { (&raw const (*sk).sk_user_data).read_volatile() }.is_null() {
        return;
    }
    // SAFETY: By the caller's promise.
    unsafe { bindings::callback_read_lock_bh(sk) };
    // SAFETY: As above, and the lock is held.
    if let Some(cell) = unsafe { SavedCallbacks::of(sk) } {
        // SAFETY: The hook holds the socket, and takes the cell out before it releases that.
        f(unsafe { &cell.tcp.as_ref().offer });
    }
    // SAFETY: Taken above.
    unsafe { bindings::callback_read_unlock_bh(sk) };
}
