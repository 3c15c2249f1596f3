// SPDX-License-Identifier: GPL-2.0

//! The sockets of each network namespace, for those who look at them: from when they are made until
//! they are closed.

use kernel::{
    new_spinlock,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    }, //
};
use kernel_ext::{
    net::{
        NetNs,
        NewNetNs,
        PerNet,
        PerNetKey,
        Sk, //
    },
    own_record,
    prelude::*, //
};

use super::Sock;

static LAST_SERIAL: Atomic<u64> = Atomic::new(0);

/// A number that grows from socket to socket.
pub(super) fn next_serial() -> u64 {
    LAST_SERIAL.fetch_add(1, Relaxed) + 1
}

/// The sockets of a namespace.
pub(super) struct Sockets(Arc<SocketTree>);

#[pin_data]
pub(super) struct SocketTree {
    #[pin]
    by_serial: SpinLock<RBTree<u64, Arc<Sock>>>,
}

own_record! { Sockets: PerNetKey<Sockets> }

impl PerNet for Sockets {
    fn new(_net: &mut NewNetNs) -> Result<KBox<Self>> {
        let tree = pin_init!(SocketTree {
            by_serial <- new_spinlock!(RBTree::new(), "smc::SocketTree::by_serial"),
        });
        Ok(KBox::new(
            Self(Arc::pin_init(tree, GFP_KERNEL)?),
            GFP_KERNEL,
        )?)
    }
}

impl SocketTree {
    /// That of the namespace of `sk`.
    ///
    /// # Errors
    ///
    /// `ENODEV` if sockets cannot be made any more.
    pub(super) fn of(sk: &Sk) -> Result<Arc<Self>> {
        let sockets = sk.netns().get::<Sockets>().ok_or(ENODEV)?;
        Ok(sockets.0.clone())
    }

    /// Enters a new socket of the namespace, which stays until [`Self::remove`].
    /// Context: may sleep.
    pub(super) fn add(&self, sock: &Arc<Sock>) -> Result {
        let node = RBTreeNode::new(sock.serial, sock.clone(), GFP_KERNEL)?;
        // No two have the same number.
        let _ = self.by_serial.lock().insert(node);
        Ok(())
    }

    /// Removes a socket, if it is there.
    /// Context: any but interrupts.
    pub(super) fn remove(&self, sock: &Sock) {
        let node = self.by_serial.lock().remove_node(&sock.serial);
        // It may hold the last reference.
        drop(node);
    }
}

/// At most `max` sockets of a namespace from that serial number on, oldest first.
/// Context: may sleep.
pub(crate) fn list(net: &NetNs, from: u64, max: usize) -> Result<KVec<Arc<Sock>>> {
    let mut found = KVec::with_capacity(max, GFP_KERNEL)?;
    let Some(sockets) = net.get::<Sockets>() else {
        return Ok(found);
    };
    let mut tree = sockets.0.by_serial.lock();
    let mut cursor = tree.cursor_lower_bound_mut(&from);
    while let Some(at) = cursor.take().filter(|_| found.len() < max) {
        let (_, sock) = at.current();
        if found.push_within_capacity(sock.clone()).is_err() {
            break;
        }
        cursor = at.move_next();
    }
    Ok(found)
}
