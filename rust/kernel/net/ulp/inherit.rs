// SPDX-License-Identifier: GPL-2.0

//! The settings of a TCP socket that becomes one of ours: its options and its address, for the TCP socket below ours.
//!
//! The SOL_SOCKET options that our own socket reads stay where they are: see [`super`].
//!
//! C headers: [`include/net/sock.h`](srctree/include/net/sock.h),
//! [`include/linux/tcp.h`](srctree/include/linux/tcp.h)

use core::ffi::c_void;

use super::super::{
    args::SockOptIn,
    tcp::{
        put_port,
        TcpSocket, //
    }, //
};
use crate::{
    bindings,
    prelude::*, //
};

/// Copies plain fields.
macro_rules! copy {
    ($from:expr, $to:expr, { $($($field:ident).+,)+ }) => {{
        let (from, to) = ($from, $to);
        // SAFETY: See the callers: one is locked, the other is used by nothing else.
        $(unsafe { (*to).$($field).+ = (*from).$($field).+ };)+
    }};
}

/// Copies all settings from `old` to `new`.
///
/// # Errors
///
/// `EOPNOTSUPP` if a setting cannot be copied, `EBUSY` if another kernel service uses the socket, `EADDRINUSE`.
///
/// # Safety
///
/// `old` must be a TCP socket that the caller has locked and that is not connected; `new` must be new, used by nothing
/// else, and of the same version of IP.
pub(super) unsafe fn all(old: *mut bindings::sock, new: &TcpSocket) -> Result {
    // SAFETY: By the caller's promise.
    unsafe {
        check(old)?;
        sock(old, new.sk_ptr());
        ip(old, new.sk_ptr());
        tcp(old, new.sk_ptr());
        congestion_control(old, new)?;
        address(old, new)
    }
}

/// # Safety
///
/// As [`all`].
unsafe fn check(old: *mut bindings::sock) -> Result {
    let inet = old.cast::<bindings::inet_sock>();
    let csk = old.cast::<bindings::inet_connection_sock>();
    let tp = old.cast::<bindings::tcp_sock>();
    // SAFETY: By the caller's promise.
    unsafe {
        if !(*old).sk_user_data.is_null() {
            return Err(EBUSY);
        }
        let queue = &raw const (*csk).icsk_accept_queue;
        let mut is_special = !(*old).sk_filter.is_null()
            || !(*old).sk_reuseport_cb.is_null()
            || bindings::sk_has_xfrm_policy(old)
            || !(*inet).inet_opt.is_null()
            || !(*inet).mc_list.is_null()
            || (*old).sk_tsflags != 0
            || (*queue).rskq_defer_accept != 0
            || (*queue).fastopenq.max_qlen != 0
            || (*tp).repair() != 0
            || (*tp).fastopen_connect() != 0
            || (*tp).fastopen_no_cookie() != 0
            || !(*tp).fastopen_req.is_null()
            || FLAGS_NOT_INHERITED
                .iter()
                .any(|flag| bindings::sock_flag(old, *flag));
        #[cfg(CONFIG_TCP_MD5SIG)]
        {
            is_special |= !(*tp).md5sig_info.is_null();
        }
        #[cfg(CONFIG_TCP_AO)]
        {
            is_special |= !(*tp).ao_info.is_null();
        }
        if let Some(inet6) = inet6_of(old) {
            is_special |= !(*inet6).opt.is_null() || !(*inet6).ipv6_mc_list.is_null();
        }
        if is_special {
            return Err(EOPNOTSUPP);
        }
    }
    Ok(())
}

const FLAGS_NOT_INHERITED: [bindings::sock_flags; 4] = [
    bindings::sock_flags_SOCK_ZEROCOPY,
    bindings::sock_flags_SOCK_TXTIME,
    bindings::sock_flags_SOCK_RCVTSTAMP,
    bindings::sock_flags_SOCK_RXQ_OVFL,
];

/// Not SO_LINGER: the release of the TCP socket must not wait.
const FLAGS: [bindings::sock_flags; 5] = [
    bindings::sock_flags_SOCK_KEEPOPEN,
    bindings::sock_flags_SOCK_URGINLINE,
    bindings::sock_flags_SOCK_DBG,
    bindings::sock_flags_SOCK_LOCALROUTE,
    bindings::sock_flags_SOCK_BROADCAST,
];

/// # Safety
///
/// As [`all`].
unsafe fn sock(old: *mut bindings::sock, new: *mut bindings::sock) {
    copy!(old, new, {
        sk_mark,
        sk_priority,
        sk_rcvtimeo,
        sk_sndtimeo,
        sk_max_pacing_rate,
        sk_pacing_rate,
        sk_pacing_status,
        __sk_common.skc_bound_dev_if,
    });
    // They have no names here that do not depend on the order of unions in the structure.
    // CAST: Offsets.
    const INCOMING_CPU: usize = bindings::smc_layout_SMC_OFFSETOF_SK_INCOMING_CPU as usize;
    const TXREHASH: usize = bindings::smc_layout_SMC_OFFSETOF_SK_TXREHASH as usize;
    // SAFETY: By the caller's promise; the fields are an `int` and a byte at these offsets.
    unsafe {
        *new.byte_add(INCOMING_CPU).cast::<i32>() = *old.byte_add(INCOMING_CPU).cast::<i32>();
        *new.byte_add(TXREHASH).cast::<u8>() = *old.byte_add(TXREHASH).cast::<u8>();
    }
    #[cfg(CONFIG_NET_RX_BUSY_POLL)]
    copy!(old, new, { sk_ll_usec, sk_busy_poll_budget, sk_prefer_busy_poll, });
    // SAFETY: By the caller's promise.
    unsafe {
        let common = &raw mut (*new).__sk_common;
        (*common).set_skc_reuse((*old).__sk_common.skc_reuse());
        (*common).set_skc_reuseport((*old).__sk_common.skc_reuseport());
        (*common).set_skc_ipv6only((*old).__sk_common.skc_ipv6only());
        let locks = (*old).sk_userlocks;
        (*new).sk_userlocks |= locks & (SNDBUF_LOCK | RCVBUF_LOCK);
        if locks & SNDBUF_LOCK != 0 {
            (*new).sk_sndbuf = (*old).sk_sndbuf;
        }
        if locks & RCVBUF_LOCK != 0 {
            (*new).sk_rcvbuf = (*old).sk_rcvbuf;
        }
        for flag in FLAGS {
            if bindings::sock_flag(old, flag) {
                bindings::sock_set_flag(new, flag);
            }
        }
    }
}

// CAST: Bits of a byte.
const SNDBUF_LOCK: u8 = bindings::SOCK_SNDBUF_LOCK as u8;
const RCVBUF_LOCK: u8 = bindings::SOCK_RCVBUF_LOCK as u8;

/// Returns the IPv6 part of a socket.
///
/// # Safety
///
/// `sk` must be a live TCP socket.
unsafe fn inet6_of(sk: *mut bindings::sock) -> Option<*mut bindings::ipv6_pinfo> {
    #[cfg(CONFIG_IPV6)]
    {
        let inet = sk.cast::<bindings::inet_sock>();
        // SAFETY: By the caller's promise.
        let inet6 = unsafe { (*inet).pinet6 };
        (!inet6.is_null()).then_some(inet6)
    }
    #[cfg(not(CONFIG_IPV6))]
    {
        let _ = sk;
        None
    }
}

/// # Safety
///
/// As [`all`].
unsafe fn ip(old: *mut bindings::sock, new: *mut bindings::sock) {
    let from = old.cast::<bindings::inet_sock>();
    let to = new.cast::<bindings::inet_sock>();
    copy!(from, to, {
        inet_flags,
        uc_ttl,
        uc_index,
        tos,
        rcv_tos,
        min_ttl,
        mc_ttl,
        mc_index,
        mc_addr,
        pmtudisc,
        local_port_range,
    });
    // SAFETY: By the caller's promise.
    let (Some(from), Some(to)) = (unsafe { inet6_of(old) }, unsafe { inet6_of(new) }) else {
        return;
    };
    copy!(from, to, {
        flow_label,
        hop_limit,
        pmtudisc,
        tclass,
        mcast_hops,
        mcast_oif,
        ucast_oif,
        frag_size,
        rxopt,
        srcprefs,
        min_hopcount,
        rcv_flowinfo,
        sticky_pktinfo,
    });
}

/// # Safety
///
/// As [`all`].
unsafe fn tcp(old: *mut bindings::sock, new: *mut bindings::sock) {
    let from = old.cast::<bindings::tcp_sock>();
    let to = new.cast::<bindings::tcp_sock>();
    copy!(from, to, {
        keepalive_time,
        keepalive_intvl,
        keepalive_probes,
        linger2,
        window_clamp,
        notsent_lowat,
        tcp_tx_delay,
        rx_opt.user_mss,
        inet_conn.icsk_user_timeout,
        inet_conn.icsk_syn_retries,
        inet_conn.icsk_rto_min,
        inet_conn.icsk_rto_max,
        inet_conn.icsk_delack_max,
        inet_conn.icsk_ack.pingpong,
    });
    // SAFETY: By the caller's promise.
    unsafe {
        (*to).set_nonagle((*from).nonagle());
        (*to).set_thin_lto((*from).thin_lto());
        (*to).set_save_syn((*from).save_syn());
        (*to).set_recvmsg_inq((*from).recvmsg_inq());
    }
}

/// # Safety
///
/// As [`all`].
unsafe fn congestion_control(old: *mut bindings::sock, new: &TcpSocket) -> Result {
    let from = old.cast::<bindings::inet_connection_sock>();
    let to = new.sk_ptr().cast::<bindings::inet_connection_sock>();
    // SAFETY: By the caller's promise.
    let (ops, is_same) = unsafe {
        (
            (*from).icsk_ca_ops,
            (*from).icsk_ca_ops == (*to).icsk_ca_ops,
        )
    };
    if ops.is_null() || is_same {
        return Ok(());
    }
    // SAFETY: The socket holds its congestion control.
    let name = unsafe { (*ops).name };
    let value = name.as_ptr().cast_mut().cast::<c_void>();
    // SAFETY: The name is valid for reading its whole length while the call lasts.
    let value = unsafe { SockOptIn::new(bindings::kernel_sockptr(value), name.len() as u32) };
    new.setsockopt(
        super::super::SOL_TCP,
        bindings::TCP_CONGESTION as i32,
        value,
    )
}

/// Gives `new` the address and the port of `old`, which has them no longer.
///
/// # Safety
///
/// As [`all`].
unsafe fn address(old: *mut bindings::sock, new: &TcpSocket) -> Result {
    let csk = old.cast::<bindings::inet_connection_sock>();
    // SAFETY: By the caller's promise.
    let (has_port, locks) = unsafe {
        (
            !(*csk).icsk_bind_hash.is_null(),
            (*old).sk_userlocks & BOUND,
        )
    };
    if !has_port && locks == 0 {
        return Ok(());
    }
    // bind(2) would ask anew who may have the port, and programs of the control group for another address.
    new.locked(|sk| {
        // SAFETY: As above; `sk` is new, of the same version of IP, and locked.
        unsafe {
            names(old, sk);
            let ports = match (*(*sk).__sk_common.skc_prot).get_port {
                Some(get_port) if has_port => Some((
                    get_port,
                    (*old).__sk_common.__bindgen_anon_3.__bindgen_anon_1.skc_num,
                )),
                _ => None,
            };
            if let Some((get_port, number)) = ports {
                // Both have the port for a moment, so that no other socket gets it.
                let reuse = (*sk).__sk_common.skc_reuse();
                let force = bindings::SK_FORCE_REUSE as u8;
                (*sk).__sk_common.set_skc_reuse(force);
                let failed = get_port(sk, number);
                (*sk).__sk_common.set_skc_reuse(reuse);
                if failed != 0 {
                    return Err(EADDRINUSE);
                }
                (*sk.cast::<bindings::inet_sock>()).inet_sport = number.to_be();
            }
            // The address does not show whether the application has chosen the port.
            (*sk).sk_userlocks = (*sk).sk_userlocks & !BOUND | locks;
        }
        Ok(())
    })?;
    // SAFETY: By the caller's promise.
    unsafe { put_port(old) };
    Ok(())
}

// CAST: Bits of a byte.
const BOUND: u8 = (bindings::SOCK_BINDADDR_LOCK | bindings::SOCK_BINDPORT_LOCK) as u8;

/// Copies the local addresses.
///
/// # Safety
///
/// As [`all`]; `new` must be locked.
unsafe fn names(old: *mut bindings::sock, new: *mut bindings::sock) {
    // SAFETY: By the caller's promise; the addresses of a socket are plain data.
    unsafe {
        let (from, to) = (&raw const (*old).__sk_common, &raw mut (*new).__sk_common);
        (*to).__bindgen_anon_1.__bindgen_anon_1.skc_rcv_saddr =
            (*from).__bindgen_anon_1.__bindgen_anon_1.skc_rcv_saddr;
        (*new.cast::<bindings::inet_sock>()).inet_saddr =
            (*old.cast::<bindings::inet_sock>()).inet_saddr;
        #[cfg(CONFIG_IPV6)]
        {
            (*to).skc_v6_rcv_saddr = (*from).skc_v6_rcv_saddr;
        }
        if let (Some(from), Some(to)) = (inet6_of(old), inet6_of(new)) {
            (*to).saddr = (*from).saddr;
        }
    }
}
