// SPDX-License-Identifier: GPL-2.0

//! TCP_DEFER_ACCEPT: a connection is one for accept(2) and poll(2) once there is something to read, or has ended, or
//! the time is over.
//!
//! TCP itself sees to that before its accept, but there the data are those of the handshake, after which the
//! application's are still to come. They are awaited by a worker for each connection, so that a client which stays
//! silent delays nobody else.

use kernel::{
    impl_has_work,
    new_work,
    sync::Arc,
    workqueue::{
        Work,
        WorkItem, //
    }, //
};
use kernel_ext::{
    net,
    prelude::*, //
};
use smc_proto::time::Duration;

use super::{
    Listener,
    Sock, //
};
use crate::{
    clock,
    namespace, //
};

/// A connection whose handshake is over, and whose data are awaited.
#[pin_data]
struct Deferred {
    child: Arc<Sock>,
    listener: Arc<Listener>,
    wait: Duration,
    #[pin]
    work: Work<Deferred>,
}

impl_has_work! {
    impl HasWork<Self> for Deferred { self.work }
}

/// Queues a connection for accept(2), the `number`th that was taken from TCP, when it is due by the option of its
/// listener.
/// Context: may sleep, but does not wait for a peer.
pub(super) fn enqueue_when_due(child: &Arc<Sock>, listener: &Arc<Listener>, number: u64) {
    let wait = listener.defer_time();
    if wait == Duration::ZERO || is_due(child) || !begin(child, listener, wait) {
        listener.accept_enqueue(child, number);
    }
}

/// Has a worker wait for data; returns whether there is one.
fn begin(child: &Arc<Sock>, listener: &Arc<Listener>, wait: Duration) -> bool {
    let namespace = namespace::of(&child.sk);
    let workers = &namespace.queues().workers;
    if !workers.begin_deferred() {
        return false;
    }
    let deferred = Arc::pin_init(
        pin_init!(Deferred {
            child: child.clone(),
            listener: listener.clone(),
            wait,
            work <- new_work!("smc::sock::Deferred::work"),
        }),
        GFP_KERNEL,
    );
    if let Ok(deferred) = deferred {
        if listener.add_deferred(child) {
            let _ = workers.deferred.enqueue::<Arc<Deferred>, 0>(deferred);
            return true;
        }
    }
    workers.end_deferred();
    false
}

/// Whether there is something to read, or the connection has ended.
fn is_due(child: &Sock) -> bool {
    let events = match child.conn() {
        Some(conn) => conn.poll(&child.sk),
        None => child.poll_tcp(),
    };
    events & (net::POLLIN | net::POLLHUP | net::POLLERR) != 0 || child.sk.has_err()
}

impl WorkItem for Deferred {
    type Pointer = Arc<Self>;

    fn run(this: Arc<Self>) {
        let Self {
            child, listener, ..
        } = &*this;
        // A listener that is closed ends the connections that it has, and wakes who waits for them.
        let _ = child.sk.wait_until(clock::timeout(this.wait), false, || {
            !listener.is_open() || is_due(child)
        });
        namespace::of(&child.sk).queues().workers.end_deferred();
        if listener.remove_deferred(child) {
            // As TCP, in the order in which the data came.
            listener.accept_enqueue(child, listener.last_taken());
        }
    }
}
