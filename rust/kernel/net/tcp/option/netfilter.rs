// SPDX-License-Identifier: GPL-2.0

//! The SMC option without hooks in TCP.
//!
//! A netfilter hook writes it into the SYN of our sockets and the SYN-ACK of our listeners on their way out. What the
//! peer sent is read from the copy that TCP makes of a SYN (TCP_SAVE_SYN), and from the SYN-ACK, with which TCP calls
//! the socket ([`af_ops`]).
//!
//! A peer that got the option begins SMC's handshake, so what was decided for a connection must hold for each
//! retransmission, and be known when it is accepted. It is kept in the copy of the SYN: the first byte of the option's
//! magic number is overwritten by it. Without a copy, as with SYN cookies, there is no SMC.
//!
//! C headers: [`include/linux/netfilter.h`](srctree/include/linux/netfilter.h),
//! [`include/net/request_sock.h`](srctree/include/net/request_sock.h)

use core::{
    ffi::c_void,
    ptr,
    slice,
    sync::atomic::{
        AtomicU8,
        Ordering::Relaxed, //
    }, //
};

use kernel::{
    error::to_result,
    new_mutex,
    sync::Mutex, //
};

use super::{
    super::{
        hook::{
            hs_congested,
            with_offer, //
        },
        TcpSocket, //
    },
    af_ops,
    header, //
};
use crate::{
    bindings,
    net::pernet::{
        NetNs,
        NewNetNs,
        PerNet,
        PerNetKey,
        PerNetRegistration, //
    },
    own_record,
    prelude::*, //
};

// The netfilter hook of a namespace ---------------------------------------------------------------

/// The hook, for both versions of IP.
struct HookOps([bindings::nf_hook_ops; 2]);

// SAFETY: The kernel only reads them.
unsafe impl Sync for HookOps {}

static HOOKS: HookOps = HookOps([hook(bindings::NFPROTO_IPV4), hook(bindings::NFPROTO_IPV6)]);

const fn hook(family: u32) -> bindings::nf_hook_ops {
    let mut ops: bindings::nf_hook_ops = pin_init::zeroed();
    ops.hook = Some(local_out);
    // CAST: small numbers of the kernel's.
    ops.pf = family as u8;
    ops.hooknum = bindings::nf_inet_hooks_NF_INET_LOCAL_OUT;
    // Before the rules of an administrator, who may remove the option. The same for both versions.
    ops.priority = bindings::nf_ip_hook_priorities_NF_IP_PRI_RAW_BEFORE_DEFRAG;
    ops
}

/// Whether a namespace has the hook: from the first socket on that offers SMC.
#[pin_data(PinnedDrop)]
struct Hooks {
    net: *mut bindings::net,
    #[pin]
    is_registered: Mutex<bool>,
}

// SAFETY: The namespace outlives its object, and netfilter's functions may be called by any thread.
unsafe impl Send for Hooks {}
// SAFETY: As above.
unsafe impl Sync for Hooks {}

own_record! { Hooks: PerNetKey<Hooks> }

impl PerNet for Hooks {
    fn new(net: &mut NewNetNs) -> Result<KBox<Self>> {
        let this = pin_init!(Self {
            net: net.as_ptr(),
            is_registered <- new_mutex!(false, "smc::Hooks::is_registered"),
        });
        let this = KBox::pin_init(this, GFP_KERNEL)?;
        // SAFETY: Objects of namespaces are not moved out of their boxes.
        Ok(unsafe { Pin::into_inner_unchecked(this) })
    }
}

impl Hooks {
    /// Registers the hook, unless it is.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Those of `nf_register_net_hooks`.
    fn register(&self) -> Result {
        let mut is_registered = self.is_registered.lock();
        if !*is_registered {
            // SAFETY: The namespace is alive, and the hooks are a static.
            to_result(unsafe {
                bindings::nf_register_net_hooks(self.net, HOOKS.0.as_ptr(), HOOKS.0.len() as u32)
            })?;
            *is_registered = true;
        }
        Ok(())
    }
}

#[pinned_drop]
impl PinnedDrop for Hooks {
    fn drop(self: Pin<&mut Self>) {
        if *self.is_registered.lock() {
            // SAFETY: Registered before, in a namespace that is not gone yet.
            unsafe {
                bindings::nf_unregister_net_hooks(self.net, HOOKS.0.as_ptr(), HOOKS.0.len() as u32)
            };
        }
    }
}

/// The option can be offered while it lives.
pub struct SynOption {
    _hooks: PerNetRegistration<Hooks>,
}

impl SynOption {
    /// Who adds the option: `SMC_SYN_OPTION_*`.
    // CAST: a small number.
    pub const WAY: u8 = bindings::SMC_SYN_OPTION_NETFILTER as u8;

    /// Enables the option. At most one may exist.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn enable() -> Result<Self> {
        let hooks = PerNetRegistration::new()?;
        pr_info!("this kernel has no CONFIG_SMC: netfilter adds the SMC option to TCP's SYN\n");
        Ok(Self { _hooks: hooks })
    }
}

// What a socket has of it -------------------------------------------------------------------------

/// Whether a socket offers SMC, and whether its peer does.
pub(in crate::net::tcp) struct Offer {
    state: AtomicU8,
    /// What the application set TCP_SAVE_SYN to; [`NOT_OURS`] if TCP's own value is the application's.
    save_syn: AtomicU8,
}

/// TCP_SAVE_SYN is not in use by us.
const NOT_OURS: u8 = u8::MAX;

/// Nothing is offered.
const NO: u8 = 0;
/// The SYN will offer SMC; of a listener, each SYN-ACK.
const WANTED: u8 = 1;
/// A SYN offered it.
const OFFERED: u8 = 2;
/// Both ends have offered it.
const ACCEPTED: u8 = 3;

impl Offer {
    pub(in crate::net::tcp) const NONE: Self = Self {
        state: AtomicU8::new(NO),
        save_syn: AtomicU8::new(NOT_OURS),
    };

    /// Changes the state to `to` if it is `from`.
    fn advance(&self, from: u8, to: u8) {
        let _ = self.state.compare_exchange(from, to, Relaxed, Relaxed);
    }
}

impl TcpSocket {
    /// Whether both ends have offered SMC, once there is a connection.
    /// Context: any.
    pub fn syn_smc(&self) -> bool {
        self.offer.state.load(Relaxed) == ACCEPTED
    }

    /// The same of a socket that has connected.
    /// Context: any.
    pub fn connected_syn_smc(&self) -> bool {
        self.syn_smc()
    }

    /// Whether SMC is offered, or would be to a peer that asks for it.
    /// Context: any.
    pub(in crate::net::tcp) fn offers_smc(&self) -> bool {
        self.offer.state.load(Relaxed) != NO
    }

    /// Sets whether the SYN offers SMC; of a listener, the SYN-ACK. Only before connecting or listening. Without memory
    /// for the hook nothing is offered.
    /// Context: may sleep.
    pub fn set_syn_smc(&self, on: bool) {
        // SAFETY: The socket is alive, and holds its namespace.
        let net = unsafe { NetNs::from_ptr(bindings::sock_net(self.sk_ptr())) };
        let can = on
            && net
                .get::<Hooks>()
                .is_some_and(|hooks| hooks.register().is_ok());
        self.offer
            .state
            .store(if can { WANTED } else { NO }, Relaxed);
    }

    /// To be called before the socket is closed, or disconnected: no table of ours may be left in it.
    /// Context: may sleep.
    pub(in crate::net::tcp) fn leave_option(&self) {
        self.locked(|sk| {
            // No SYN is sent while the socket is locked.
            self.offer.advance(OFFERED, NO);
            // SAFETY: The socket is alive, and locked.
            unsafe { af_ops::restore(sk) };
        });
    }
}

/// A listener has a hook from now on: TCP is to copy each SYN.
/// Context: may sleep.
pub(in crate::net::tcp) fn hook_listener(tcp: &TcpSocket) {
    tcp.locked(|sk| {
        // SAFETY: The socket is alive and locked.
        let by_application = unsafe { bindings::tcp_save_syn(sk) };
        tcp.offer.save_syn.store(by_application, Relaxed);
        // SAFETY: As above.
        unsafe { bindings::tcp_set_save_syn(sk, by_application.max(1)) };
    });
}

/// A listener's hook ends.
/// Context: may sleep.
pub(in crate::net::tcp) fn unhook_listener(tcp: &TcpSocket) {
    give_save_syn_back(tcp);
}

/// Makes TCP's value of TCP_SAVE_SYN that of the application; returns false if it is.
fn give_save_syn_back(tcp: &TcpSocket) -> bool {
    tcp.locked(|sk| {
        let by_application = tcp.offer.save_syn.swap(NOT_OURS, Relaxed);
        if by_application == NOT_OURS {
            return false;
        }
        // SAFETY: The socket is alive and locked.
        unsafe { bindings::tcp_set_save_syn(sk, by_application) };
        true
    })
}

/// Runs a call of the application that sets or gets an option, for which TCP_SAVE_SYN is its own. A SYN that arrives
/// meanwhile may be answered without SMC.
/// Context: may sleep.
pub(in crate::net::tcp) fn with_own_save_syn<T>(
    tcp: &TcpSocket,
    level: i32,
    name: i32,
    call: impl FnOnce() -> T,
) -> T {
    let is_it = (level, name) == (bindings::SOL_TCP as i32, bindings::TCP_SAVE_SYN as i32);
    let was_ours = is_it && give_save_syn_back(tcp);
    let result = call();
    if was_ours {
        hook_listener(tcp);
    }
    result
}

/// A connection was accepted by `listener`: the copy of its SYN says whether SMC was offered to the peer.
/// Context: may sleep.
pub(in crate::net::tcp) fn accepted(child: &TcpSocket, listener: &TcpSocket) {
    let by_application = listener.offer.save_syn.load(Relaxed);
    child.locked(|sk| {
        // SAFETY: The socket is alive and locked; the copy is its own.
        let syn = unsafe { SavedSyn::new(bindings::tcp_saved_syn(sk)) };
        if let Some(mark) = syn.as_ref().and_then(SavedSyn::mark) {
            let is_offered = mark.swap(header::MAGIC_START, Relaxed) == MARK_OFFERED;
            let state = if is_offered { ACCEPTED } else { NO };
            child.offer.state.store(state, Relaxed);
        }
        if by_application == 0 {
            // A SYN that comes twice may be answered on another CPU just now, with the copy of the same request:
            // netfilter calls hooks in an RCU read section.
            // SAFETY: As above.
            unsafe { bindings::tcp_saved_syn_free_rcu(sk) };
            // SAFETY: As above.
            unsafe { bindings::tcp_set_save_syn(sk, 0) };
        }
    });
}

// Segments ----------------------------------------------------------------------------------------

/// In a copy of a SYN: the SYN-ACK offers SMC.
const MARK_OFFERED: u8 = b's';
/// In a copy of a SYN: no SYN-ACK offers SMC.
const MARK_REFUSED: u8 = b'x';

/// The TCP header in TCP's copy of a SYN.
struct SavedSyn<'a>(&'a [AtomicU8]);

impl SavedSyn<'_> {
    /// # Safety
    ///
    /// `syn` must be null, or a copy that lives for the result's lifetime and is not written except by us.
    unsafe fn new(syn: *mut bindings::saved_syn) -> Option<Self> {
        if syn.is_null() {
            return None;
        }
        // SAFETY: By the caller's promise.
        let (start, len) = unsafe {
            (
                bindings::saved_syn_tcp_header(syn),
                (*syn).tcp_hdrlen as usize,
            )
        };
        // SAFETY: The header has that length; bytes may be accessed as atomic ones, and are by all who write them.
        Some(Self(unsafe { slice::from_raw_parts(start.cast(), len) }))
    }

    /// Returns the byte of the SMC option that keeps the decision: [`MARK_OFFERED`], [`MARK_REFUSED`], or as it was
    /// received if there is none yet. `None` if the SYN has no such option.
    fn mark(&self) -> Option<&AtomicU8> {
        let mut bytes = [0; 60];
        let header = bytes.get_mut(..self.0.len())?;
        for (to, from) in header.iter_mut().zip(self.0) {
            *to = from.load(Relaxed);
        }
        self.0.get(header::smc_magic(header)?)
    }
}

/// A segment whose headers are in the linear part of its buffer.
struct Segment(*mut bindings::sk_buff);

impl Segment {
    /// # Safety
    ///
    /// The buffer must hold a TCP segment with its headers, and be valid for the lifetime of the result, which must not
    /// outlive a change of the buffer.
    unsafe fn header<'a>(skb: *const bindings::sk_buff) -> &'a [u8] {
        // SAFETY: By the caller's promise: the length is that of the header.
        unsafe {
            slice::from_raw_parts(bindings::skb_tcp_header(skb), bindings::skb_tcp_hdrlen(skb))
        }
    }

    /// Returns SYN and ACK.
    fn flags(&self) -> (bool, bool) {
        // SAFETY: The type is made for segments on their way out.
        let flags = unsafe { Self::header(self.0) }
            .get(13)
            .copied()
            .unwrap_or(0);
        (flags & 0x02 != 0, flags & 0x10 != 0)
    }

    fn has_smc(&self) -> bool {
        // SAFETY: As in `flags`.
        header::has_smc(unsafe { Self::header(self.0) })
    }

    /// Adds the option; returns false, and leaves the segment as it was, if there is no room for it.
    fn add(&self) -> bool {
        // SAFETY: As in `flags`.
        let header = unsafe { Self::header(self.0) };
        let len = header.len();
        // SAFETY: The buffer is valid. What is signed, or has data, is left as it is.
        if !header::has_room(header) || unsafe { bindings::skb_tcp_payload_len(self.0) } > 0 {
            return false;
        }
        // SAFETY: As above; the netfilter hook owns the buffer. Moves the headers so that there is room behind them.
        if !unsafe { bindings::skb_extend_tcp_header(self.0, header::SPACE as u32) } {
            return false;
        }
        // SAFETY: There are `SPACE` bytes behind the header of `len` bytes.
        unsafe {
            let end = bindings::skb_tcp_header(self.0).add(len);
            ptr::copy_nonoverlapping(header::OPTION.as_ptr(), end, header::SPACE);
        }
        true
    }
}

/// The netfilter hook LOCAL_OUT.
///
/// # Safety
///
/// To be called by netfilter only.
unsafe extern "C" fn local_out(
    _private: *mut c_void,
    skb: *mut bindings::sk_buff,
    _state: *const bindings::nf_hook_state,
) -> u32 {
    // SAFETY: By the caller's promise.
    let sk = unsafe { bindings::skb_sk(skb) };
    if sk.is_null() {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: A segment holds its socket, of whatever kind, and each kind has a state.
    match u32::from(unsafe { (&raw const (*sk).__sk_common.skc_state).read_volatile() }) {
        // SAFETY: As above. Other protocols have such a state, too.
        bindings::TCP_SYN_SENT if unsafe { bindings::sk_is_tcp(sk) } => {
            // SAFETY: A TCP socket in this state, which TCP has locked; the segment is its own.
            unsafe { on_syn(sk, &Segment(skb)) };
            bindings::NF_ACCEPT
        }
        // SAFETY: Only requests of TCP listeners have this state.
        bindings::TCP_NEW_SYN_RECV => unsafe { on_syn_ack(sk, &Segment(skb)) },
        _ => bindings::NF_ACCEPT,
    }
}

/// A socket that connects sends a segment.
///
/// # Safety
///
/// `sk` must be a live TCP socket in SYN_SENT, locked.
unsafe fn on_syn(sk: *mut bindings::sock, segment: &Segment) {
    if segment.flags() != (true, false) {
        return;
    }
    let add = |offer: &Offer| {
        let state = offer.state.load(Relaxed);
        // The hook runs twice for a packet that goes by a VRF device.
        if ![WANTED, OFFERED].contains(&state) || segment.has_smc() {
            return;
        }
        // SAFETY: By the caller's promise.
        if unsafe { af_ops::install(sk, sk_rx_dst_set) } && segment.add() {
            offer.advance(WANTED, OFFERED);
        } else {
            // What an earlier SYN offered may be answered all the same.
            offer.advance(WANTED, NO);
        }
    };
    // SAFETY: By the caller's promise.
    unsafe { with_offer(sk, add) };
}

/// TCP calls a socket whose SYN offered SMC with a segment that it received: the SYN-ACK, unless both ends connected at
/// the same time.
///
/// # Safety
///
/// To be called by TCP only, by the table of a live socket that is locked, with a segment for it.
unsafe extern "C" fn sk_rx_dst_set(sk: *mut bindings::sock, skb: *const bindings::sk_buff) {
    // SAFETY: By the caller's promise.
    let Some(original) = (unsafe { af_ops::restore(sk) }) else {
        return;
    };
    // SAFETY: By the caller's promise.
    let header = unsafe { Segment::header(skb) };
    let is_syn_ack = header.get(13).is_some_and(|flags| flags & 0x12 == 0x12);
    let next = match is_syn_ack && header::has_smc(header) {
        true => ACCEPTED,
        false => NO,
    };
    // SAFETY: By the caller's promise.
    unsafe { with_offer(sk, |offer| offer.advance(OFFERED, next)) };
    // SAFETY: A table of TCP's, the function of which is called as TCP would have.
    if let Some(function) = unsafe { (*original).sk_rx_dst_set } {
        // SAFETY: By the caller's promise.
        unsafe { function(sk, skb) };
    }
}

/// A listener answers a SYN. Returns the verdict of the netfilter hook.
///
/// # Safety
///
/// `request` must be a live request of a TCP listener.
unsafe fn on_syn_ack(request: *mut bindings::sock, segment: &Segment) -> u32 {
    if segment.flags() != (true, true) {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: By the caller's promise; a request holds its listener, if it has one, and its copy of the SYN.
    let (listener, syn) = unsafe {
        (
            bindings::reqsk_listener(request),
            SavedSyn::new(bindings::reqsk_saved_syn(request)),
        )
    };
    let Some(mark) = syn.as_ref().and_then(SavedSyn::mark) else {
        return bindings::NF_ACCEPT;
    };
    let before = mark.load(Relaxed);
    // The hook runs twice for a packet that goes by a VRF device.
    if before == MARK_REFUSED || segment.has_smc() {
        return bindings::NF_ACCEPT;
    }
    let mut is_ours = false;
    if !listener.is_null() {
        // SAFETY: The listener is alive.
        unsafe {
            with_offer(listener, |offer| {
                is_ours = offer.state.load(Relaxed) == WANTED
            })
        };
    }
    if before == header::MAGIC_START && !is_ours {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: The listener is alive. It is asked once for each request.
    let is_refused = before == header::MAGIC_START && unsafe { hs_congested(listener) };
    if !is_refused && segment.add() {
        return match set_mark(mark, MARK_OFFERED) {
            true => bindings::NF_ACCEPT,
            // Another SYN-ACK went without it meanwhile.
            false => bindings::NF_DROP,
        };
    }
    match set_mark(mark, MARK_REFUSED) {
        true => bindings::NF_ACCEPT,
        // Another SYN-ACK offered it, so this one must not go without.
        false => bindings::NF_DROP,
    }
}

/// Keeps a decision in a copy of a SYN; returns false if another one was made before.
fn set_mark(mark: &AtomicU8, to: u8) -> bool {
    let before = mark.compare_exchange(header::MAGIC_START, to, Relaxed, Relaxed);
    before.is_ok() || before == Err(to)
}
