// SPDX-License-Identifier: GPL-2.0

//! The SMC option without hooks in TCP.
//!
//! A netfilter hook writes it into the SYN of our sockets and the SYN-ACK of our listeners on their way out. What the
//! peer sent is read from the copy that TCP makes of a SYN (TCP_SAVE_SYN), and from the SYN-ACK, with which TCP calls
//! the socket ([`af_ops`]).
//!
//! A peer that got the option begins SMC's handshake, so what was decided for a connection must hold for each
//! retransmission, and be known when it is accepted. It is kept in the copy of the SYN ([`SavedSyn`]). Without a copy,
//! as with SYN cookies, there is no SMC.
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
            refuses_smc,
            with_offer, //
        },
        RequestEnds,
        TcpSocket, //
    },
    af_ops,
    header,
    saved_syn::{
        with_syn,
        Answer,
        SavedSyn, //
    }, //
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
pub(in crate::net::tcp) struct Offer(AtomicU8);

/// Nothing is offered.
const NO: u8 = 0;
/// The SYN will offer SMC; of a listener, each SYN-ACK.
const WANTED: u8 = 1;
/// A SYN offered it.
const OFFERED: u8 = 2;
/// Both ends have offered it.
const ACCEPTED: u8 = 3;

impl Offer {
    pub(in crate::net::tcp) const NONE: Self = Self(AtomicU8::new(NO));

    /// Changes the state to `to` if it is `from`.
    fn advance(&self, from: u8, to: u8) {
        let _ = self.0.compare_exchange(from, to, Relaxed, Relaxed);
    }
}

impl TcpSocket {
    /// Whether both ends have offered SMC, once there is a connection.
    /// Context: any.
    pub fn syn_smc(&self) -> bool {
        self.offer.0.load(Relaxed) == ACCEPTED
    }

    /// The same of a socket that has connected.
    /// Context: any.
    pub fn connected_syn_smc(&self) -> bool {
        self.syn_smc()
    }

    /// Whether SMC is offered, or would be to a peer that asks for it.
    /// Context: any.
    pub(in crate::net::tcp) fn offers_smc(&self) -> bool {
        self.offer.0.load(Relaxed) != NO
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
        self.offer.0.store(if can { WANTED } else { NO }, Relaxed);
    }

    /// To be called before the socket is closed, or disconnected: no table of ours may be left in it.
    /// Context: may sleep.
    pub(in crate::net::tcp) fn leave_option(&self) {
        self.locked(|sk| {
            // No SYN is sent while the socket is locked, and none afterwards puts the table in again.
            self.offer.advance(WANTED, NO);
            self.offer.advance(OFFERED, NO);
            // SAFETY: The socket is alive, and locked.
            unsafe { af_ops::restore(sk) };
        });
    }
}

/// TCP_SAVE_SYN as we set it where the application has not: to TCP it is the same as 1.
const SAVE_SYN: u8 = 3;

/// A listener has a hook from now on: TCP is to copy each SYN if SMC is offered.
/// Context: may sleep.
pub(in crate::net::tcp) fn hook_listener(tcp: &TcpSocket) {
    tcp.locked(|sk| {
        // An attempt to connect that failed may have left a table of ours, which connections would inherit, and which
        // another listener may get (`net.ipv4.tcp_migrate_req`).
        // SAFETY: The socket is alive, and locked.
        unsafe { af_ops::restore(sk) };
    });
    save_syn(tcp);
}

/// A listener's hook ends.
/// Context: may sleep.
pub(in crate::net::tcp) fn unhook_listener(tcp: &TcpSocket) {
    give_save_syn_back(tcp);
}

/// Has TCP copy each SYN, if SMC is offered.
fn save_syn(tcp: &TcpSocket) {
    if tcp.offers_smc() {
        replace_save_syn(tcp, 0, SAVE_SYN);
    }
}

/// Makes TCP's value of TCP_SAVE_SYN that of the application.
fn give_save_syn_back(tcp: &TcpSocket) {
    replace_save_syn(tcp, SAVE_SYN, 0);
}

fn replace_save_syn(tcp: &TcpSocket, from: u8, to: u8) {
    tcp.locked(|sk| {
        // SAFETY: The socket is alive and locked.
        if unsafe { bindings::tcp_save_syn(sk) } == from {
            // SAFETY: As above.
            unsafe { bindings::tcp_set_save_syn(sk, to) };
        }
    });
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
    if (level, name) != (bindings::SOL_TCP as i32, bindings::TCP_SAVE_SYN as i32) {
        return call();
    }
    give_save_syn_back(tcp);
    let result = call();
    save_syn(tcp);
    result
}

/// Whether both ends of a connection that was not accepted yet have offered SMC.
///
/// # Safety
///
/// `child` must be a live TCP socket, and not be accepted meanwhile: until then nobody else uses its copy of the SYN.
pub(in crate::net::tcp) unsafe fn unaccepted_syn_smc(child: *mut bindings::sock) -> bool {
    // SAFETY: By the caller's promise.
    unsafe { SavedSyn::new(bindings::tcp_saved_syn(child)) }
        .is_some_and(|syn| syn.answer() == Answer::Offers)
}

/// A connection was accepted: the copy of its SYN says whether SMC was offered to the peer.
/// Context: may sleep.
pub(in crate::net::tcp) fn accepted(child: &TcpSocket, _listener: &TcpSocket) {
    child.locked(|sk| {
        // SAFETY: The socket is alive and locked; the copy is its own.
        if let Some(mut syn) = unsafe { SavedSyn::new(bindings::tcp_saved_syn(sk)) } {
            if syn.answer() == Answer::Offers {
                child.offer.0.store(ACCEPTED, Relaxed);
            }
            // The application may read it.
            syn.forget();
        }
        // SAFETY: The socket is alive and locked.
        if unsafe { bindings::tcp_save_syn(sk) } == SAVE_SYN {
            // SAFETY: As above.
            unsafe { bindings::tcp_saved_syn_free(sk) };
            // SAFETY: As above.
            unsafe { bindings::tcp_set_save_syn(sk, 0) };
        }
    });
}

// Segments ----------------------------------------------------------------------------------------

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

    /// Whether it is a segment with these of the flags SYN and ACK.
    fn is(&self, flags: u8) -> bool {
        // SAFETY: The buffer is valid.
        let is_tcp = unsafe { bindings::skb_is_tcp(self.0) };
        // SAFETY: The buffer holds a TCP segment then.
        is_tcp && header::flags(unsafe { Self::header(self.0) }) & SYN_ACK == flags
    }

    /// Drops it, as if it had got lost on its way. Returns the verdict of the netfilter hook: TCP counts a segment that
    /// netfilter drops as one that could not be sent, and gives the request up.
    fn lose(self) -> u32 {
        // SAFETY: The netfilter hook owns the buffer, which nobody uses after this verdict.
        unsafe { bindings::kfree_skb(self.0) };
        bindings::NF_STOLEN
    }

    fn has_smc(&self) -> bool {
        // SAFETY: The type is made for segments on their way out.
        header::has_smc(unsafe { Self::header(self.0) })
    }

    /// Adds the option; returns false, and leaves the segment as it was, if there is no room for it.
    fn add(&self) -> bool {
        // SAFETY: The type is made for segments on their way out.
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

/// The netfilter hook LOCAL_OUT. Each packet of the namespace passes it, so what is done for a SYN or SYN-ACK is in
/// functions of its own, whose registers the others need not save.
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
        bindings::TCP_NEW_SYN_RECV => unsafe { on_syn_ack(sk, Segment(skb)) },
        _ => bindings::NF_ACCEPT,
    }
}

/// The flags of a SYN-ACK.
const SYN_ACK: u8 = header::SYN | header::ACK;

/// A socket that connects sends a segment.
///
/// # Safety
///
/// `sk` must be a live TCP socket in SYN_SENT, locked.
#[inline(never)]
unsafe fn on_syn(sk: *mut bindings::sock, segment: &Segment) {
    let add = |offer: &Offer| {
        let state = offer.0.load(Relaxed);
        if ![WANTED, OFFERED].contains(&state) || !segment.is(header::SYN) {
            return;
        }
        // The hook runs twice for a packet that goes by a VRF device.
        if segment.has_smc() {
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
    let is_syn_ack = header::flags(header) & SYN_ACK == SYN_ACK;
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
/// `request` must be a live request of a TCP listener, and the segment the netfilter hook's.
#[inline(never)]
unsafe fn on_syn_ack(request: *mut bindings::sock, segment: Segment) -> u32 {
    // SAFETY: By the caller's promise. Whether there is a copy is seen without the lock: who takes it sends no more.
    if unsafe { bindings::reqsk_saved_syn(request) }.is_null() || !segment.is(SYN_ACK) {
        return bindings::NF_ACCEPT;
    }
    // The hook runs twice for a packet that goes by a VRF device.
    if segment.has_smc() {
        return bindings::NF_ACCEPT;
    }
    // SAFETY: By the caller's promise.
    let offers = match unsafe { with_syn(request, |syn| syn.answer()) } {
        Some(Answer::NotAsked | Answer::Refuses) => return bindings::NF_ACCEPT,
        Some(Answer::Offers) => true,
        // SAFETY: By the caller's promise.
        Some(Answer::Open) if !unsafe { is_ours(request) } || unsafe { was_answered(request) } => {
            return bindings::NF_ACCEPT
        }
        // SAFETY: By the caller's promise: a request holds its listener, if it has one, and ours have one.
        Some(Answer::Open) => unsafe {
            !refuses_smc(
                bindings::reqsk_listener(request),
                &RequestEnds::of_request(request),
            )
        },
        // SAFETY: By the caller's promise. The answer is not known, and the segment does not matter any more, or comes
        // again.
        None if unsafe { is_ours(request) } => return segment.lose(),
        None => return bindings::NF_ACCEPT,
    };
    let offers = offers && segment.add();
    // SAFETY: By the caller's promise.
    match unsafe { with_syn(request, |syn| syn.decide(offers)) } {
        Some(true) => bindings::NF_ACCEPT,
        // Another SYN-ACK of this request got the other answer meanwhile.
        _ => segment.lose(),
    }
}

/// Whether a request is for a listener that offers SMC.
///
/// # Safety
///
/// `request` must be a live request of a TCP listener.
unsafe fn is_ours(request: *mut bindings::sock) -> bool {
    // SAFETY: By the caller's promise.
    let listener = unsafe { bindings::reqsk_listener(request) };
    let mut is_ours = false;
    if !listener.is_null() {
        // SAFETY: A request holds its listener.
        unsafe { with_offer(listener, |offer| is_ours = offer.0.load(Relaxed) == WANTED) };
    }
    is_ours
}

/// Whether a SYN-ACK was sent before, by a listener without SMC that has been closed since.
///
/// # Safety
///
/// `request` must be a live request of a TCP listener.
unsafe fn was_answered(request: *mut bindings::sock) -> bool {
    // SAFETY: By the caller's promise. A request that moves is not in the table at its first timeout.
    unsafe { bindings::reqsk_num_timeout(request) > 0 }
}
