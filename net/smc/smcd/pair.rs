// SPDX-License-Identifier: GPL-2.0

//! The object that both sockets of a connection share.

use kernel::{
    impl_has_hr_timer,
    list::{
        impl_list_arc_safe,
        impl_list_item,
        AtomicTracker,
        ListLinks,
        TryNewListArc, //
    },
    new_spinlock,
    sync::{
        aref::ARef,
        atomic::{
            Atomic,
            Full,
            Relaxed, //
        },
        Arc,
        SpinLock, //
    },
    time::{
        hrtimer::{
            ArcHrTimerHandle,
            HrTimer,
            RelativeSoftMode, //
        },
        Monotonic, //
    }, //
};
use kernel_ext::{
    net::{
        Sk,
        TcpSocket, //
    },
    prelude::*,
    read_once::ReadOnce, //
};
use smc_proto::{
    conn::{
        ConnState,
        TcpEquivalent, //
    },
    lgr::Role,
    smcd::view::{
        ConnEnds, //
        EndFlags,
    },
    time::Instant, //
};

use super::pipe::Pipe;

/// What an end has until the application closes its socket.
struct Owner {
    /// The socket that the application holds.
    sk: ARef<Sk>,
    /// The TCP connection of that end.
    tcp: Arc<TcpSocket>,
}

/// One end of a connection.
#[pin_data]
pub(super) struct SmcdEnd {
    /// `None` after the application closed the socket.
    #[pin]
    owner: SpinLock<Option<Owner>>,
    /// Options of the socket, for the peer: what SO_SNDBUF and SO_RCVBUF allow for data, in bytes, SO_RCVLOWAT, and
    /// SO_OOBINLINE.
    sndbuf: Atomic<u32>,
    rcvbuf: Atomic<u32>,
    lowat: Atomic<u32>,
    is_urg_inline: Atomic<bool>,
    /// The application has set SO_RCVBUF.
    is_rcvbuf_locked: Atomic<bool>,
    /// Names the end in the handshake, and for diagnosis.
    pub(super) token: u64,
    /// Memory for a ring could not be had: writers wait before they try again.
    pub(super) is_short: Atomic<bool>,
}

impl SmcdEnd {
    pub(super) fn new(sk: ARef<Sk>, tcp: Arc<TcpSocket>, token: u64) -> impl PinInit<Self> {
        pin_init!(Self {
            sndbuf: Atomic::new(data_part(sk.sndbuf())),
            rcvbuf: Atomic::new(data_part(sk.rcvbuf())),
            lowat: Atomic::new(lowat(&sk)),
            is_urg_inline: Atomic::new(sk.is_urg_inline()),
            is_rcvbuf_locked: Atomic::new(sk.is_rcvbuf_locked()),
            owner <- new_spinlock!(Some(Owner { sk, tcp }), "smc::smcd::SmcdEnd::owner"),
            token,
            is_short: Atomic::new(false),
        })
    }

    /// Takes over the options of the socket that matter to the peer: of several at once, the last sees them all.
    /// Context: does not sleep.
    fn sync_options(&self, sk: &Sk) {
        let _last = self.owner.lock();
        self.sndbuf.store(data_part(sk.sndbuf()), Relaxed);
        self.rcvbuf.store(data_part(sk.rcvbuf()), Relaxed);
        self.lowat.store(lowat(sk), Relaxed);
        self.is_urg_inline.store(sk.is_urg_inline(), Relaxed);
        self.is_rcvbuf_locked.store(sk.is_rcvbuf_locked(), Relaxed);
    }

    /// SO_RCVLOWAT, at least 1.
    pub(super) fn lowat(&self) -> u32 {
        self.lowat.read_once()
    }

    /// SO_OOBINLINE.
    pub(super) fn is_urg_inline(&self) -> bool {
        self.is_urg_inline.read_once()
    }

    /// Whether SO_RCVBUF was set.
    pub(super) fn is_rcvbuf_locked(&self) -> bool {
        self.is_rcvbuf_locked.read_once()
    }

    /// Runs `f`, which must not sleep, with the socket, unless the application has closed it.
    pub(super) fn with_sk(&self, f: impl FnOnce(&Sk)) {
        if let Some(owner) = &*self.owner.lock() {
            f(&owner.sk);
        }
    }

    /// The socket, unless the application has closed it.
    pub(super) fn sk(&self) -> Option<ARef<Sk>> {
        let owner = self.owner.lock();
        owner.as_ref().map(|owner| owner.sk.clone())
    }

    /// Whether the application has closed the socket.
    pub(super) fn is_closed(&self) -> bool {
        self.owner.lock().is_none()
    }

    /// Sets the pending error of an end that the other one resets with `err`. Where TCP was ended here (`SOCK_DESTROY`,
    /// a timeout), the other end only answers that, and may be faster than the work that looks at TCP: then it is TCP's
    /// error. The caller has to wake waiters soon.
    pub(super) fn note_reset(&self, err: Error) {
        if let Some(owner) = &*self.owner.lock() {
            let cause = owner.tcp.pending_err();
            let cause = cause.filter(|cause| owner.tcp.state().is_closed() && is_own_end(cause));
            owner.sk.note_err(cause.unwrap_or(err));
        }
    }

    /// As [`Self::with_sk`]; returns whether nobody else runs something with the socket just now.
    pub(super) fn try_with_sk(&self, f: impl FnOnce(&Sk)) -> bool {
        let Some(owner) = self.owner.try_lock() else {
            return false;
        };
        if let Some(owner) = &*owner {
            f(&owner.sk);
        }
        true
    }

    /// The application has closed the socket: nothing keeps it, nor its network namespace, but the charge for a ring
    /// that the reader's cgroup has no room for.
    /// Context: may sleep.
    pub(super) fn detach_sk(&self) {
        let owner = self.owner.lock().take();
        drop(owner);
    }
}

/// Connections of which a socket is open.
static CONNECTIONS: Atomic<u64> = Atomic::new(0);

/// Counts a connection while it has sockets.
pub(super) struct Counted {
    is_over: Atomic<bool>,
}

impl Counted {
    pub(super) fn new() -> Self {
        CONNECTIONS.fetch_add(1, Relaxed);
        Self {
            is_over: Atomic::new(false),
        }
    }

    /// Both sockets are closed.
    pub(super) fn end(&self) {
        if !self.is_over.xchg(true, Full) {
            CONNECTIONS.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns how many connections there are, in all namespaces.
/// Context: any.
#[cold]
pub(crate) fn connections() -> u64 {
    CONNECTIONS.load(Relaxed)
}

/// A connection.
#[pin_data]
pub(super) struct Pair {
    #[pin]
    pub(super) client: SmcdEnd,
    #[pin]
    pub(super) server: SmcdEnd,
    /// [`EndFlags`] of both, which are only added.
    flags: Atomic<u32>,
    /// Held by whoever resets the connection: the errors of both ends are those of the first who does.
    #[pin]
    pub(super) reset: SpinLock<()>,
    #[pin]
    pub(super) to_client: Pipe,
    #[pin]
    pub(super) to_server: Pipe,
    /// Wakes the readers.
    #[pin]
    wake_timer: HrTimer<Self>,
    /// When the timer expires, or expired. Its handle keeps the connection; both ends let go of it when they close.
    #[pin]
    pub(super) wake_handle: SpinLock<Option<(Instant, ArcHrTimerHandle<Self>)>>,
    /// Its place among those that are looked at after some time.
    #[pin]
    links: ListLinks,
    #[pin]
    tracker: AtomicTracker,
    pub(super) counted: Counted,
}

impl_list_arc_safe! {
    impl ListArcSafe<0> for Pair { tracked_by tracker: AtomicTracker; }
}
impl_list_item! {
    impl ListItem<0> for Pair { using ListLinks { self.links }; }
}

impl_has_hr_timer! {
    impl HasHrTimer<Self> for Pair {
        mode: RelativeSoftMode<Monotonic>, field: self.wake_timer
    }
}

impl Pair {
    /// Context: may sleep.
    pub(super) fn new(
        client: impl PinInit<SmcdEnd>,
        server: impl PinInit<SmcdEnd>,
    ) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                client <- client,
                server <- server,
                flags: Atomic::new(0),
                reset <- new_spinlock!((), "smc::smcd::Pair::reset"),
                to_client <- Pipe::new(),
                to_server <- Pipe::new(),
                wake_timer <- HrTimer::new(),
                wake_handle <- new_spinlock!(None, "smc::smcd::Pair::wake_handle"),
                links <- ListLinks::new(),
                tracker <- AtomicTracker::new(),
                counted: Counted::new(),
            }),
            GFP_KERNEL,
        )
    }
}

/// A connection, as the socket at one end has it.
#[derive(Clone)]
pub(crate) struct SmcdConn {
    pub(super) pair: Arc<Pair>,
    pub(super) role: Role,
}

impl SmcdConn {
    pub(super) fn own(&self) -> &SmcdEnd {
        match self.role {
            Role::Client => &self.pair.client,
            Role::Server => &self.pair.server,
        }
    }

    pub(super) fn peer(&self) -> &SmcdEnd {
        match self.role {
            Role::Client => &self.pair.server,
            Role::Server => &self.pair.client,
        }
    }

    /// The direction in which this end sends.
    pub(super) fn tx(&self) -> &Pipe {
        match self.role {
            Role::Client => &self.pair.to_server,
            Role::Server => &self.pair.to_client,
        }
    }

    /// The direction in which this end receives.
    pub(super) fn rx(&self) -> &Pipe {
        match self.role {
            Role::Client => &self.pair.to_client,
            Role::Server => &self.pair.to_server,
        }
    }

    /// What was produced before a flag was added is visible after this.
    pub(super) fn ends(&self) -> ConnEnds {
        ConnEnds::from_word(self.pair.flags.read_acquire(), self.role)
    }

    /// Adds flags of the end with this role, but no orderly end after a reset; returns those that it had before.
    /// Whoever looks at the counters of a direction after this sees all that was produced by a writer that does not
    /// see the flags.
    pub(super) fn add(&self, role: Role, flags: EndFlags) -> EndFlags {
        let word = &self.pair.flags;
        let mut old = word.load(Relaxed);
        loop {
            let before = EndFlags::from_word(old, role);
            let added = match before.contains(EndFlags::RESET) {
                true => flags.without(EndFlags::SHUT_WRITE),
                false => flags,
            };
            match word.cmpxchg(old, old | added.to_word(role), Full) {
                Ok(_) => return before,
                Err(other) => old = other,
            }
        }
    }

    /// How many of `bytes` of memory for data to the peer are the writer's, as far as its SO_SNDBUF goes. The others
    /// are the reader's: without it nobody makes the writer hold more than it would for TCP.
    pub(super) fn writer_part(&self, bytes: u32) -> u32 {
        bytes.min(self.own().sndbuf.read_once())
    }

    /// The most bytes that may be under way to the peer: what SO_SNDBUF here and SO_RCVBUF there would allow a TCP
    /// connection, which raises the latter as well if data flow.
    pub(super) fn tx_limit(&self) -> u32 {
        limit(self.own(), self.peer(), self.tx())
    }

    /// As [`Self::tx_limit`], of the other direction.
    pub(super) fn rx_limit(&self) -> u32 {
        limit(self.peer(), self.own(), self.rx())
    }

    /// Bytes that a TCP connection would hold here: those beyond what SO_RCVBUF of the peer allows there.
    pub(super) fn unsent(&self) -> u32 {
        let used = self.tx().fill(0).used();
        let unsent = used.saturating_sub(rcvbuf(self.peer(), self.tx()).into());
        u32::try_from(unsent).unwrap_or(u32::MAX)
    }

    /// Options of the socket were set.
    /// Context: does not sleep.
    pub(crate) fn sync_options(&self, sk: &Sk) {
        self.own().sync_options(sk);
        // With a larger SO_RCVBUF there is more room.
        self.tell_writer();
    }

    /// Returns the state, for diagnosis.
    pub(crate) fn state(&self) -> ConnState {
        self.ends().state()
    }

    /// Whether getpeername(2) has an answer.
    pub(crate) fn has_peer(&self) -> bool {
        self.ends().is_connected()
    }

    /// What TCP_INFO tells of the state.
    pub(crate) fn tcp_equivalent(&self) -> TcpEquivalent {
        self.ends().tcp_equivalent()
    }

    /// Whether the peer has announced that it sends no more.
    pub(crate) fn is_peer_done(&self) -> bool {
        self.ends().is_peer_done()
    }

    /// The tokens of both ends, this one's first, for diagnosis.
    pub(crate) fn tokens(&self) -> [u64; 2] {
        [self.own().token, self.peer().token]
    }
}

/// Whether the error of a TCP connection is not what the peer's reset leaves.
fn is_own_end(err: &Error) -> bool {
    *err != ECONNRESET && *err != EPIPE
}

/// SO_SNDBUF and SO_RCVBUF are twice what an application asks for; the other half is for what buffers cost.
fn data_part(buf: u32) -> u32 {
    buf / 2
}

fn lowat(sk: &Sk) -> u32 {
    u32::try_from(sk.lowat()).unwrap_or(1).max(1)
}

fn limit(writer: &SmcdEnd, reader: &SmcdEnd, pipe: &Pipe) -> u32 {
    let sndbuf = writer.sndbuf.read_once();
    sndbuf.saturating_add(rcvbuf(reader, pipe))
}

/// What SO_RCVBUF allows, with what it was raised by.
fn rcvbuf(reader: &SmcdEnd, pipe: &Pipe) -> u32 {
    let raised = match reader.is_rcvbuf_locked() {
        true => 0,
        false => pipe.raised(),
    };
    reader.rcvbuf.read_once().saturating_add(raised)
}
