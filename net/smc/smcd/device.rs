// SPDX-License-Identifier: GPL-2.0

//! The emulated device of this kernel, and how the two ends of a connection find each other: the server's ACCEPT has
//! the token of an [`SmcdOffer`], which the client takes. The client's CONFIRM has the token of its own end, so that a
//! server knows that its client took it and nobody else.

use core::mem;

use kernel::{
    new_spinlock,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        aref::ARef,
        Arc,
        SpinLock, //
    }, //
};
use kernel_ext::{
    global::{
        Global,
        Published, //
    },
    net::{
        Sk,
        TcpSocket, //
    },
    prelude::*,
    random, //
};
use smc_proto::{
    buffer::SizeClass,
    lgr::Role,
    smcd::DeviceGid,
    wire::clc::SmcD, //
};

use super::{
    idle::PairList,
    pair::{
        Pair,
        SmcdConn, //
        SmcdEnd,
    }, //
};
use crate::local::{
    LocalSystem,
    LOCAL, //
};

static DEVICE: Global<Device> = Global::new();

/// The device.
#[pin_data]
struct Device {
    gid: DeviceGid,
    /// Servers that wait for their clients, by token.
    #[pin]
    offers: SpinLock<RBTree<u64, Arc<Offered>>>,
}

/// The device, while the module is loaded.
pub(crate) struct SmcdDevice {
    _device: Published<Device>,
    _pairs: PairList,
}

impl SmcdDevice {
    /// Draws the device's GID.
    /// Context: may sleep.
    pub(crate) fn new() -> Result<Self> {
        let device = Arc::pin_init(
            pin_init!(Device {
                gid: DeviceGid::from_random(random::bytes()),
                offers <- new_spinlock!(RBTree::new(), "smc::smcd::Device::offers"),
            }),
            GFP_KERNEL,
        )?;
        Ok(Self {
            _device: DEVICE.publish(device)?,
            _pairs: PairList::new()?,
        })
    }
}

/// Returns the GID of this kernel's device.
/// Context: any.
pub(crate) fn own_gid() -> Option<DeviceGid> {
    DEVICE.with(|device| device.gid)
}

/// A server that waits for its client.
#[pin_data]
struct Offered {
    sk: ARef<Sk>,
    tcp: Arc<TcpSocket>,
    token: u64,
    gid: DeviceGid,
    #[pin]
    state: SpinLock<OfferState>,
}

/// What has become of an offer.
enum OfferState {
    /// The server waits.
    Open,
    /// The client has made the connection.
    Taken(SmcdConn),
    /// The server has the connection, or waits no more.
    Ended,
}

/// A server that waits for its client, until this is dropped.
pub(crate) struct SmcdOffer(Arc<Offered>);

impl SmcdOffer {
    /// Waits for a client that knows the token.
    /// Context: may sleep.
    pub(crate) fn new(sk: &ARef<Sk>, tcp: &Arc<TcpSocket>) -> Result<Self> {
        let device = DEVICE.get().ok_or(ENODEV)?;
        let (token, gid) = (random::number_u64(), device.gid);
        let offered = Arc::pin_init(
            pin_init!(Offered {
                sk: sk.clone(),
                tcp: tcp.clone(),
                token,
                gid,
                state <- new_spinlock!(OfferState::Open, "smc::smcd::Offered::state"),
            }),
            GFP_KERNEL,
        )?;
        let node = RBTreeNode::new(token, offered.clone(), GFP_KERNEL)?;
        let replaced = device.offers.lock().insert(node);
        drop(replaced);
        Ok(Self(offered))
    }

    /// The server's end, for ACCEPT.
    pub(crate) fn endpoint(&self) -> SmcD {
        endpoint(self.0.gid, self.0.token, &self.0.sk)
    }

    /// Returns the connection if the end `client` of a CONFIRM has made it.
    /// Context: does not sleep.
    pub(crate) fn taken_by(self, client: &SmcD) -> Option<SmcdConn> {
        if !self.0.gid.is_of(client) {
            return None;
        }
        let mut state = self.0.state.lock();
        match &*state {
            OfferState::Taken(conn) if conn.pair.client.token == client.token => {
                let conn = conn.clone();
                *state = OfferState::Ended;
                Some(conn)
            }
            _ => None,
        }
    }
}

impl Drop for SmcdOffer {
    fn drop(&mut self) {
        if let Some(device) = DEVICE.get() {
            let node = device.offers.lock().remove_node(&self.0.token);
            drop(node);
        }
        // A client that has taken it, and of which the server does not know, has lost its peer. One that is about to
        // take it finds that it has ended.
        let state = mem::replace(&mut *self.0.state.lock(), OfferState::Ended);
        if let OfferState::Taken(conn) = state {
            conn.close(&self.0.sk, Some(0));
        }
    }
}

/// The client takes the offer that the end `server` of an ACCEPT names.
/// Context: may sleep.
///
/// # Errors
///
/// `ENOENT` if there is none, or the server waits no more; `ENOMEM`.
pub(crate) fn attach(
    server: &SmcD,
    sk: &ARef<Sk>,
    tcp: &Arc<TcpSocket>,
) -> Result<(SmcdConn, SmcD)> {
    let device = DEVICE.get().ok_or(ENOENT)?;
    if !device.gid.is_of(server) {
        return Err(ENOENT);
    }
    // Once: an offer that was taken is in the tree no more.
    let node = device.offers.lock().remove_node(&server.token);
    let (_, offered) = node.ok_or(ENOENT)?.to_key_value();
    let token = random::number_u64();
    let pair = Pair::new(
        SmcdEnd::new(sk.clone(), tcp.clone(), token),
        SmcdEnd::new(offered.sk.clone(), offered.tcp.clone(), offered.token),
    )?;
    let conn = |role| SmcdConn {
        pair: pair.clone(),
        role,
    };
    let mut state = offered.state.lock();
    let is_open = matches!(*state, OfferState::Open);
    if is_open {
        *state = OfferState::Taken(conn(Role::Server));
    }
    drop(state);
    if !is_open {
        return Err(ENOENT);
    }
    Ok((conn(Role::Client), endpoint(device.gid, token, sk)))
}

fn endpoint(gid: DeviceGid, token: u64, sk: &Sk) -> SmcD {
    gid.endpoint(token, SizeClass::for_bytes(sk.rcvbuf() / 2), group_id())
}

/// Returns the number of the one link group that all connections are in, as user space sees it.
/// Context: any.
pub(crate) fn group_id() -> u32 {
    LOCAL.with(LocalSystem::smcd_group_id).unwrap_or(0)
}
