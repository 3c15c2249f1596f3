// SPDX-License-Identifier: GPL-2.0

//! The initiating side of a connection.
//!
//! A driver may establish the TCP connection before it returns, which takes minutes if packets are dropped silently. So
//! a separate thread does this, and a signal ends it at the deadline.

use core::{
    net::{
        IpAddr,
        SocketAddr, //
    },
    ptr::NonNull, //
};

use kernel::{
    error::from_err_ptr,
    ffi::{
        c_int,
        c_void, //
    },
    sync::{
        new_condvar,
        new_mutex,
        Arc,
        CondVar,
        Mutex, //
    }, //
};

use super::{
    put_address,
    CmId,
    Context,
    IwConn,
    IwConnState,
    MAX_PRIVATE_DATA, //
};
use crate::{
    bindings,
    ib::{
        deferred::Deferred,
        Handler,
        Qp, //
    },
    net::{
        with_netns,
        NetNs, //
    },
    prelude::*,
    time, //
};

/// Interval at which a thread that ignores its signal gets another one, ns.
const KILL_AGAIN: u64 = 50_000_000;

impl<H: Handler> IwConn<H> {
    /// Connects from the address `local` of a network namespace to `remote`, with `data` as private data of the
    /// request, and `tos` as for [`IwListener::new`](super::IwListener::new). The queue pair must be past Reset, with
    /// its receives posted; afterwards it is Ready to Send.
    /// Context: may sleep, until time `end` (ns).
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than 255 bytes of `data`, `EOPNOTSUPP` if the device is none of iWARP; `ETIMEDOUT`,
    /// `ECONNREFUSED` and `ECONNRESET` from TCP or the peer, else the driver's error. If there was a TCP connection,
    /// the queue pair is in the error state.
    pub fn connect(
        qp: &Arc<Qp<H>>,
        net: &NetNs,
        (local, remote): (IpAddr, SocketAddr),
        tos: u8,
        data: &[u8],
        end: u64,
    ) -> Result<Self> {
        if data.len() > MAX_PRIVATE_DATA {
            return Err(EINVAL);
        }
        let context = Context::new(qp, remote.ip(), IwConnState::Connecting)?;
        let id = CmId::new(&context, tos)?;
        let raw = id.ptr;
        let id = Deferred::new(id)?;
        // SAFETY: The id is ours, and not yet in use by the connection manager.
        unsafe { put_address(&mut (*raw.as_ptr()).local_addr, SocketAddr::new(local, 0)) };
        // SAFETY: As above.
        unsafe { put_address(&mut (*raw.as_ptr()).remote_addr, remote) };
        let job = KBox::pin_init(ConnectThread::new(raw, &context, net, data), GFP_KERNEL)?;
        job.run(end)?;
        if let Err(error) = context.await_reply(end) {
            // The driver may still use the queue pair for this connection, so it cannot be used for another one.
            let _ = qp.to_error();
            return Err(error);
        }
        Ok(Self { _id: id })
    }
}

impl<H: Handler> Context<H> {
    /// Waits until the peer has replied.
    fn await_reply(&self, end: u64) -> Result {
        let mut state = self.state.lock();
        loop {
            match &*state {
                IwConnState::Open(_) => return Ok(()),
                IwConnState::Failed(error) => return Err(*error),
                IwConnState::Idle | IwConnState::Listening(_) | IwConnState::Connecting => {}
            }
            let now = time::now_ns();
            if now >= end {
                return Err(ETIMEDOUT);
            }
            let left = time::jiffies(end.saturating_sub(now));
            // The wait is short, and signals do not end it.
            let _ = self.changed.wait_interruptible_timeout(&mut state, left);
        }
    }
}

/// The work of the thread.
///
/// # Invariants
///
/// `id` is new, and lives as long as this object, as does `net`.
#[pin_data]
struct ConnectThread<'a, H: Handler> {
    id: NonNull<bindings::iw_cm_id>,
    context: &'a Context<H>,
    net: &'a NetNs,
    /// Private data of the request.
    data: &'a [u8],
    /// The result of the connection manager, once it has returned.
    #[pin]
    answer: Mutex<Option<c_int>>,
    #[pin]
    answered: CondVar,
}

impl<'a, H: Handler> ConnectThread<'a, H> {
    fn new(
        id: NonNull<bindings::iw_cm_id>,
        context: &'a Context<H>,
        net: &'a NetNs,
        data: &'a [u8],
    ) -> impl PinInit<Self> + use<'a, H> {
        // INVARIANT: The only caller keeps the id until this object is dropped.
        pin_init!(Self {
            id,
            context,
            net,
            data,
            answer <- new_mutex!(None, "ib::iwarp::ConnectThread::answer"),
            answered <- new_condvar!("ib::iwarp::ConnectThread::answered"),
        })
    }

    /// Starts the thread and waits for it: until `end`, or a little longer until it responds to its signal.
    fn run(&self, end: u64) -> Result {
        let data: *const Self = self;
        // SAFETY: The function is for this type, and `data` lives until the thread has ended: see below.
        let task =
            unsafe { bindings::kthread_create(Some(main::<H>), data.cast_mut().cast::<c_void>()) };
        let task = NonNull::new(from_err_ptr(task)?).ok_or(ENOMEM)?;
        // SAFETY: The thread has not run yet, so it exists.
        unsafe { bindings::get_task(task.as_ptr()) };
        // SAFETY: As above.
        unsafe { bindings::wake_up_process(task.as_ptr()) };
        let answer = self.await_answer(task, end);
        // SAFETY: We hold a reference to the thread, and release it here. This waits until the thread has ended.
        unsafe { bindings::kthread_stop_put(task.as_ptr()) };
        kernel::error::to_result(answer)
    }

    fn await_answer(&self, task: NonNull<bindings::task_struct>, end: u64) -> c_int {
        let mut answer = self.answer.lock();
        let mut end = end;
        loop {
            if let Some(answer) = *answer {
                return answer;
            }
            let now = time::now_ns();
            if now >= end {
                // SAFETY: We hold a reference to the thread.
                unsafe { bindings::kill(task.as_ptr()) };
                end = now.saturating_add(KILL_AGAIN);
            }
            let left = time::jiffies(end.saturating_sub(now));
            // A signal to the waiting task does not end the wait for the thread.
            let _ = self.answered.wait_interruptible_timeout(&mut answer, left);
        }
    }

    fn connect(&self) -> Result {
        let mut param = self.context.param(self.data);
        let id = self.id.as_ptr();
        // SAFETY: By the type invariant the id is new; the queue pair is alive while the context is.
        let connect = || unsafe { bindings::iw_cm_connect(id, &mut param) };
        kernel::error::to_result(with_netns::run(self.net, connect)?)
    }
}

/// # Safety
///
/// `data` must be a `ConnectThread<H>` that lives until the thread has ended.
unsafe extern "C" fn main<H: Handler>(data: *mut c_void) -> c_int {
    // SAFETY: By the caller's promise.
    let job = unsafe { &*data.cast::<ConnectThread<'_, H>>() };
    // SAFETY: No precondition; signals of this thread are its own.
    unsafe { bindings::allow_kill() };
    let answer = match job.connect() {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    };
    *job.answer.lock() = Some(answer);
    job.answered.notify_all();
    0
}
