// SPDX-License-Identifier: GPL-2.0

//! Connections for queue pairs of iWARP devices.
//!
//! C header: [`include/rdma/iw_cm.h`](srctree/include/rdma/iw_cm.h)
//!
//! Such a queue pair reaches Ready to Send through a TCP connection that the driver makes: one side listens; the other
//! connects and identifies itself by a few bytes (the private data of the request). The end of the connection is not
//! reported here: it puts the queue pair into the error state, which flushes its receives.

mod connect;

use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::NonNull,
    slice, //
};

use kernel::{
    error::{
        from_err_ptr,
        from_result,
        to_result, //
    },
    ffi::{
        c_int,
        c_void, //
    },
    new_condvar,
    new_mutex,
    sync::{
        Arc,
        CondVar,
        Mutex, //
    }, //
};

use super::{
    deferred::{
        Deferred,
        OnDevice, //
    },
    Device, Handler, Qp,
};
use crate::{
    bindings,
    net::{
        with_netns,
        InetAddr,
        NetNs, //
    },
    prelude::*,
    random,
    time, //
};

/// Requests that may be pending at a listener, which accepts one.
const BACKLOG: c_int = 8;

/// First of the ports that a listener tries: the dynamic range of IANA.
const FIRST_PORT: u16 = 49152;
/// Number of ports tried.
const TRIES: usize = 16;

/// The most private data of a request or a reply, bytes: drivers and the connection manager have its length in one byte
/// here and there.
const MAX_PRIVATE_DATA: usize = u8::MAX as usize;

/// State of a connection.
enum IwConnState<H: Handler> {
    /// All requests are rejected for now.
    Idle,
    /// Waiting for a request with this private data; all others are rejected.
    Listening(KVec<u8>),
    /// Waiting for a reply.
    Connecting,
    /// Established; an accepted id is kept here until the listener becomes a connection.
    Open(Option<Deferred<CmId<H>>>),
    /// It was not established.
    Failed(Error),
}

/// The context of a connection's events.
#[pin_data]
struct Context<H: Handler> {
    qp: Arc<Qp<H>>,
    /// The peer's address.
    remote: IpAddr,
    // Lock order: held while a request is accepted; the locks of the connection manager and of the driver
    // are taken under it, and it is never taken under them.
    #[pin]
    state: Mutex<IwConnState<H>>,
    #[pin]
    changed: CondVar,
}

/// # Invariants
///
/// `ptr` is an id of the connection manager that this object owns. Its context is `context`, and its
/// handler `on_event::<H>`.
struct CmId<H: Handler> {
    ptr: NonNull<bindings::iw_cm_id>,
    context: Arc<Context<H>>,
}

// SAFETY: The connection manager may be called from any thread.
unsafe impl<H: Handler> Send for CmId<H> {}
// SAFETY: As above; nothing is done by a shared reference that is not synchronised there.
unsafe impl<H: Handler> Sync for CmId<H> {}

impl<H: Handler> OnDevice for CmId<H> {
    fn device(&self) -> &Device {
        self.context.qp.device()
    }
}

impl<H: Handler> Drop for CmId<H> {
    /// Runs in the device's worker: it waits for a pending reply.
    fn drop(&mut self) {
        // SAFETY: By the type invariant the id is ours. This is not its handler, and no event is delivered afterwards.
        unsafe { bindings::iw_destroy_cm_id(self.ptr.as_ptr()) };
    }
}

impl<H: Handler> Context<H> {
    fn new(qp: &Arc<Qp<H>>, remote: IpAddr, state: IwConnState<H>) -> Result<Arc<Self>> {
        let qp = qp.clone();
        Arc::pin_init(
            pin_init!(Self {
                qp,
                remote,
                state <- new_mutex!(state, "ib::iwarp::Context::state"),
                changed <- new_condvar!("ib::iwarp::Context::changed"),
            }),
            GFP_KERNEL,
        )
    }

    /// The parameters of accept and connect. RDMA reads are never used in either direction, but some devices require
    /// room for one.
    fn param(&self, data: &[u8]) -> bindings::iw_cm_conn_param {
        bindings::iw_cm_conn_param {
            private_data: data.as_ptr().cast(),
            // At most `MAX_PRIVATE_DATA`.
            private_data_len: u16::try_from(data.len()).unwrap_or(0),
            ord: 1,
            ird: 1,
            qpn: self.qp.number(),
        }
    }

    fn set(&self, state: IwConnState<H>) {
        *self.state.lock() = state;
        self.changed.notify_all();
    }

    /// Handles a connection request. An error rejects it.
    fn on_request(
        self: &Arc<Self>,
        ptr: NonNull<bindings::iw_cm_id>,
        event: &bindings::iw_cm_event,
    ) -> Result {
        let mut state = self.state.lock();
        let IwConnState::Listening(awaited) = &*state else {
            return Err(ECONNREFUSED);
        };
        let len = usize::from(event.private_data_len);
        let is_elsewhere =
            InetAddr::parse(&event.remote_addr).ok().map(|end| end.ip) != Some(self.remote);
        if is_elsewhere || len != awaited.len() || len == 0 {
            return Err(ECONNREFUSED);
        }
        // SAFETY: The connection manager passes private data of that length, valid during the event.
        let data = unsafe { slice::from_raw_parts(event.private_data.cast::<u8>(), len) };
        if data != awaited.as_slice() {
            return Err(ECONNREFUSED);
        }
        // Reserved first, so that nothing can fail after the request was accepted.
        let place = Deferred::<CmId<H>>::reserve()?;
        let mut param = self.param(&[]);
        // SAFETY: The id is a request waiting for a reply; the queue pair is alive while we are.
        to_result(unsafe { bindings::iw_cm_accept(ptr.as_ptr(), &mut param) })?;
        // INVARIANT: The id of an accepted request is ours. It inherited context and handler from the listener.
        let id = CmId {
            ptr,
            context: self.clone(),
        };
        *state = IwConnState::Open(Some(place.fill(id)));
        drop(state);
        self.changed.notify_all();
        Ok(())
    }

    /// Handles the reply to our request.
    fn on_reply(&self, status: c_int) {
        self.set(match to_result(status) {
            Ok(()) => IwConnState::Open(None),
            Err(error) => IwConnState::Failed(error),
        });
    }
}

impl<H: Handler> CmId<H> {
    fn new(context: &Arc<Context<H>>, tos: u8) -> Result<Self> {
        let device = context.qp.device();
        if !has_iwarp(device) {
            return Err(EOPNOTSUPP);
        }
        let raw = Arc::as_ptr(context).cast_mut().cast::<c_void>();
        // SAFETY: The device is alive while the queue pair is, and has the functions that the connection manager calls;
        // the context lives as long as the id, which holds a reference to it.
        let ptr = unsafe { bindings::iw_create_cm_id(device.as_ptr(), Some(on_event::<H>), raw) };
        let ptr = NonNull::new(from_err_ptr(ptr)?).ok_or(ENOMEM)?;
        // INVARIANT: Just created with this context and handler.
        let this = Self {
            ptr,
            context: context.clone(),
        };
        // SAFETY: The id is ours, and not yet in use by the connection manager.
        let id = unsafe { &mut *ptr.as_ptr() };
        id.tos = tos;
        id.set_tos_set(true);
        Ok(this)
    }
}

/// Returns whether the device has all functions that the connection manager calls without a look.
fn has_iwarp(device: &Device) -> bool {
    // SAFETY: The device is alive, and its table does not change any more.
    let ops = unsafe { &(*device.as_ptr()).ops };
    ops.iw_add_ref.is_some()
        && ops.iw_rem_ref.is_some()
        && ops.iw_get_qp.is_some()
        && ops.iw_connect.is_some()
        && ops.iw_accept.is_some()
        && ops.iw_reject.is_some()
        && ops.iw_create_listen.is_some()
        && ops.iw_destroy_listen.is_some()
}

/// Waits for one connection for a queue pair. To be dropped where sleeping is allowed.
pub struct IwListener<H: Handler> {
    id: Deferred<CmId<H>>,
    port: u16,
}

impl<H: Handler> IwListener<H> {
    /// Listens at the address `local` of a network namespace, on a random port, for a request from `remote`; see
    /// [`IwListener::accept_request`]. Drivers for hardware send the connection's packets with `tos` in the IP header.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EOPNOTSUPP` if the device is none of iWARP, `EADDRINUSE`, `EADDRNOTAVAIL`, else the driver's error.
    pub fn new(
        qp: &Arc<Qp<H>>,
        net: &NetNs,
        local: IpAddr,
        remote: IpAddr,
        tos: u8,
    ) -> Result<Self> {
        let context = Context::new(qp, remote, IwConnState::Idle)?;
        let mut result = Err(EADDRINUSE);
        for _ in 0..TRIES {
            let port = FIRST_PORT | u16::from_ne_bytes(random::bytes());
            // An id that failed once cannot be used again.
            result = listen(CmId::new(&context, tos)?, net, local, port);
            match &result {
                Err(error) if *error == EADDRINUSE => {}
                _ => break,
            }
        }
        result
    }

    /// The TCP port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Accepts the request with this private data from now on; before that all are rejected. The queue pair must be
    /// past Reset, with its receives posted.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than 255 bytes, `ENOMEM`.
    pub fn accept_request(&self, data: &[u8]) -> Result {
        if data.len() > MAX_PRIVATE_DATA {
            return Err(EINVAL);
        }
        let mut awaited = KVec::with_capacity(data.len(), GFP_KERNEL)?;
        awaited.extend_from_slice(data, GFP_KERNEL)?;
        let mut state = self.id.context.state.lock();
        if let IwConnState::Idle = *state {
            *state = IwConnState::Listening(awaited);
        }
        Ok(())
    }

    /// Waits for the connection until time `end` (ns); returns whether it is established.
    /// Context: may sleep.
    pub fn wait(&self, end: u64) -> bool {
        let context = &self.id.context;
        let mut state = context.state.lock();
        loop {
            let now = time::now_ns();
            if !matches!(*state, IwConnState::Listening(_)) || now >= end {
                return matches!(*state, IwConnState::Open(Some(_)));
            }
            let left = time::jiffies(end.saturating_sub(now));
            // The wait is short, and signals do not end it.
            let _ = context.changed.wait_interruptible_timeout(&mut state, left);
        }
    }

    /// Stops listening and returns the connection, if it is established.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOTCONN` if it is not.
    pub fn take_conn(&self) -> Result<IwConn<H>> {
        match self.close() {
            Some(id) => Ok(IwConn { _id: id }),
            None => Err(ENOTCONN),
        }
    }

    /// Rejects all further requests; returns the id of an accepted one.
    fn close(&self) -> Option<Deferred<CmId<H>>> {
        let mut state = self.id.context.state.lock();
        match core::mem::replace(&mut *state, IwConnState::Failed(ECONNREFUSED)) {
            IwConnState::Open(id) => id,
            IwConnState::Idle
            | IwConnState::Listening(_)
            | IwConnState::Connecting
            | IwConnState::Failed(_) => None,
        }
    }
}

impl<H: Handler> Drop for IwListener<H> {
    fn drop(&mut self) {
        // The accepted id holds the context, so it must not stay in it.
        drop(self.close());
    }
}

fn listen<H: Handler>(id: CmId<H>, net: &NetNs, local: IpAddr, port: u16) -> Result<IwListener<H>> {
    let raw = id.ptr.as_ptr();
    let id = Deferred::new(id)?;
    // SAFETY: The id is ours, and not yet in use by the connection manager.
    unsafe { put_address(&mut (*raw).local_addr, SocketAddr::new(local, port)) };
    // The driver creates the socket in the network namespace of the task.
    // SAFETY: The id is ours and new.
    let result = with_netns::run(net, || unsafe { bindings::iw_cm_listen(raw, BACKLOG) })?;
    to_result(result)?;
    Ok(IwListener { id, port })
}

/// Keeps the connection of a queue pair. Dropping it ends the connection.
pub struct IwConn<H: Handler> {
    _id: Deferred<CmId<H>>,
}

/// # Safety
///
/// The connection manager calls this with an id of ours, or with one that it made for a request at one of
/// ours, and an event that is valid during the call.
unsafe extern "C" fn on_event<H: Handler>(
    id: *mut bindings::iw_cm_id,
    event: *mut bindings::iw_cm_event,
) -> c_int {
    // SAFETY: By the type invariant of `CmId` this is the context, to which the id holds a reference. The id of a
    // request has the listener's context, which is not freed while one of its events is handled.
    let context = unsafe { Arc::<Context<H>>::from_raw((*id).context.cast()) };
    // The reference still belongs to the id.
    let context = core::mem::ManuallyDrop::new(context);
    // SAFETY: By the caller's promise.
    let event = unsafe { &*event };
    from_result(|| {
        match event.event {
            bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REQUEST => {
                context.on_request(NonNull::new(id).ok_or(EINVAL)?, event)?;
            }
            bindings::iw_cm_event_type_IW_CM_EVENT_CONNECT_REPLY => context.on_reply(event.status),
            // An accepted connection is established; its end is reported by the queue pair.
            _ => {}
        }
        Ok(0)
    })
}

/// Writes a socket address to a storage for any family.
fn put_address(to: &mut bindings::__kernel_sockaddr_storage, address: SocketAddr) {
    let to: *mut bindings::__kernel_sockaddr_storage = to;
    match address {
        SocketAddr::V4(v4) => {
            let v4 = bindings::sockaddr_in {
                // CAST: it is small.
                sin_family: bindings::AF_INET as u16,
                sin_port: v4.port().to_be(),
                sin_addr: bindings::in_addr {
                    s_addr: v4.ip().to_bits().to_be(),
                },
                ..Default::default()
            };
            // SAFETY: The storage is large and aligned enough for every socket address.
            unsafe { to.cast::<bindings::sockaddr_in>().write(v4) };
        }
        SocketAddr::V6(v6) => {
            let mut raw = bindings::sockaddr_in6 {
                // CAST: it is small.
                sin6_family: bindings::AF_INET6 as u16,
                sin6_port: v6.port().to_be(),
                ..Default::default()
            };
            raw.sin6_addr.in6_u.u6_addr8 = v6.ip().octets();
            // SAFETY: As above.
            unsafe { to.cast::<bindings::sockaddr_in6>().write(raw) };
        }
    }
}
