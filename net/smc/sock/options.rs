// SPDX-License-Identifier: GPL-2.0

//! setsockopt(2) and getsockopt(2).
//!
//! Options of SOL_SOCKET are set on the application's socket, from which the kernel reads them back,
//! and on the TCP socket, for which they may mean something. All others are TCP's.

use kernel::{
    sync::{
        atomic::Relaxed,
        Arc,
        ArcBorrow, //
    },
    transmute::AsBytes, //
};
use kernel_ext::{
    barrier::{
        smp_mb,
        Full, //
    },
    net::{
        self,
        Caller,
        SockOptIn,
        SockOptOut,
        StreamSocket, //
    },
    prelude::*,
    uapi::{
        smc_info,
        SMC_INFO_MODE_NONE,
        SMC_INFO_MODE_SMCD,
        SMC_INFO_MODE_SMCR,
        SMC_INFO_MODE_TCP, //
    }, //
};
use smc_proto::{
    cause::Cause,
    reason::Reason,
    time::Duration, //
};

use super::{
    fallback,
    syn,
    uaccess::{
        announced,
        outside_handshake, //
    },
    Phase,
    Sock, //
};
use crate::carrier::Carrier;

/// setsockopt(2).
pub(super) fn set(
    this: ArcBorrow<'_, Sock>,
    caller: Caller<'_>,
    level: i32,
    name: i32,
    value: SockOptIn<'_>,
) -> Result {
    match (level, name) {
        // They choose among TCP's listeners.
        (net::SOL_SOCKET, net::SO_ATTACH_REUSEPORT_CBPF) => {
            outside_handshake(this, || this.tcp.setsockopt(level, name, value))
        }
        (net::SOL_SOCKET, net::SO_ATTACH_REUSEPORT_EBPF | net::SO_DETACH_REUSEPORT_BPF) => {
            this.tcp.setsockopt(level, name, value)
        }
        (net::SOL_SOCKET, _) => set_socket(this, caller, name, value),
        (net::SOL_SMC, net::SMC_LIMIT_HS) => {
            this.limit_hs.store(value.read_int()? != 0, Relaxed);
            Ok(())
        }
        (net::SOL_SMC, _) => Err(EOPNOTSUPP),
        (net::SOL_TCP, net::TCP_ULP) => set_ulp(&this, value),
        (net::SOL_TCP, net::TCP_MD5SIG | net::TCP_MD5SIG_EXT | net::TCP_AO_ADD_KEY) => {
            let _setup = this.setup.lock();
            set_of_tcp(&this, name, value)
        }
        (net::SOL_TCP, net::TCP_REPAIR) => {
            let sock = this.into();
            let _setup = this.setup.lock();
            set_of_tcp(&this, name, value)?;
            // What it connects has had no handshake.
            fallback::switch_to_fallback(&sock, &[Phase::Init], Reason::OptionUnsupported.into());
            Ok(())
        }
        (
            net::SOL_TCP,
            net::TCP_FASTOPEN
            | net::TCP_FASTOPEN_CONNECT
            | net::TCP_FASTOPEN_KEY
            | net::TCP_FASTOPEN_NO_COOKIE,
        ) => {
            let sock = this.into();
            let _setup = this.setup.lock();
            match this.phase() {
                Phase::Init | Phase::Fallback => this.tcp.setsockopt(level, name, value)?,
                // One of TCP alone.
                Phase::Listening if this.why().is_some() => {
                    return this.tcp.setsockopt(level, name, value);
                }
                // What cannot be read is another error. A key has other lengths, which TCP looks at first.
                _ if name != net::TCP_FASTOPEN_KEY => return value.read_int().and(Err(EINVAL)),
                _ => return Err(EINVAL),
            }
            fallback::switch_to_fallback(&sock, &[Phase::Init], Reason::OptionUnsupported.into());
            Ok(())
        }
        (net::SOL_TCP, net::TCP_DEFER_ACCEPT) => {
            this.tcp.setsockopt(level, name, value)?;
            let seconds = u32::try_from(value.read_int()?).unwrap_or(0);
            this.defer_accept_s.store(seconds, Relaxed);
            Ok(())
        }
        (net::SOL_TCP, net::TCP_NODELAY | net::TCP_CORK) => {
            this.tcp.setsockopt(level, name, value)?;
            if let Some(conn) = this.conn() {
                flush(&this, &conn, name);
            }
            Ok(())
        }
        (net::SOL_TCP, net::TCP_WINDOW_CLAMP) => {
            // No other attempt takes the place of one whose SYN is not answered meanwhile.
            let _setup = this.setup.lock();
            this.tcp.setsockopt(level, name, value)?;
            if this.phase() == Phase::Connecting {
                syn::note_window_clamp(&this);
            }
            Ok(())
        }
        (net::SOL_TCP, net::TCP_USER_TIMEOUT) => {
            this.tcp.setsockopt(level, name, value)?;
            if let Some(conn) = this.conn() {
                conn.set_user_timeout(user_timeout(&this));
            }
            Ok(())
        }
        (net::SOL_IP, net::IP_TOS) => {
            this.tcp.setsockopt(level, name, value)?;
            // It sets SO_PRIORITY, too.
            this.sk.take_priority(&this.tcp);
            Ok(())
        }
        // Read with TCP's lock held. Of all others TCP gets a copy.
        (net::SOL_TLS, _) => announced(this, || this.tcp.setsockopt(level, name, value)),
        _ => this.tcp.setsockopt(level, name, value),
    }
}

/// TCP_USER_TIMEOUT as it is set; zero: none.
pub(super) fn user_timeout(this: &Sock) -> Duration {
    Duration::from_millis(this.tcp.user_timeout_ms().into())
}

/// Sets a TCP option that has no equivalent over RDMA: signatures (TCP_MD5SIG, TCP_AO), or a change of the TCP
/// connection itself (TCP_REPAIR). Refused while connecting, too, as the connection may turn out to be over RDMA.
fn set_of_tcp(this: &Sock, name: i32, value: SockOptIn<'_>) -> Result {
    match this.phase() {
        Phase::Connecting | Phase::Active => Err(EOPNOTSUPP),
        _ => this.tcp.setsockopt(net::SOL_TCP, name, value),
    }
}

/// Sets an upper layer protocol (TLS) on the TCP socket, if TCP carries the data. `smc` itself is refused: the socket
/// is one already, or can no longer become one.
fn set_ulp(this: &Sock, value: SockOptIn<'_>) -> Result {
    let mut name = [0; ULP_NAME_MAX];
    let name = value.read(&mut name)?;
    let end = name.iter().position(|byte| *byte == 0);
    let is_ours = name.get(..end.unwrap_or(name.len())) == Some(Sock::ULP.to_bytes());
    match this.phase() {
        Phase::Fallback if !is_ours => this.tcp.set_ulp(name),
        _ if this.sk.was_tcp() => Err(EEXIST),
        _ => Err(EOPNOTSUPP),
    }
}

/// Bytes of a protocol's name with its end (`TCP_ULP_NAME_MAX`).
const ULP_NAME_MAX: usize = 16;

/// Sends what was held back, if the option as it is set now is for that, and counts it. As over TCP, TCP_NODELAY lets
/// go what TCP_CORK holds, once.
fn flush(this: &Sock, conn: &Carrier, name: i32) {
    let (stats, nagle) = (conn.stats(&this.shared.stats), this.tcp.nagle());
    match name {
        net::TCP_NODELAY if nagle.is_nodelay => stats.nodelay.add(1),
        net::TCP_CORK if !nagle.is_corked => stats.uncorked.add(1),
        _ => return,
    }
    conn.uncork();
}

/// Sets a SOL_SOCKET option on both sockets.
///
/// Some are for TCP sockets only (SO_ZEROCOPY, SO_PEEK_OFF): they can be had once it is certain that
/// TCP answers, since a connection over RDMA would not do what was promised.
fn set_socket(
    this: ArcBorrow<'_, Sock>,
    caller: Caller<'_>,
    name: i32,
    value: SockOptIn<'_>,
) -> Result {
    let is_of_tcp = matches!(name, net::SO_ZEROCOPY | net::SO_PEEK_OFF);
    let is_refused = match name {
        // The kernel would change what is charged without the lock under which we do.
        net::SO_RESERVE_MEM => true,
        _ => is_of_tcp && this.sk.was_tcp() && this.phase() != Phase::Fallback,
    };
    let is_tcp_asked = name == net::SO_ATTACH_FILTER;
    if is_tcp_asked {
        // Who may do so with a TCP socket.
        outside_handshake(this, || this.tcp.setsockopt(net::SOL_SOCKET, name, value))?;
    }
    let result = match is_refused {
        true => value.read_int().and(Err(EOPNOTSUPP)),
        false => caller.setsockopt(name, value),
    };
    match result {
        Err(e) if e == EOPNOTSUPP && name == net::SO_REUSEPORT => {
            this.tcp.setsockopt(net::SOL_SOCKET, name, value)?;
            // To be read back.
            this.sk.set_reuseport(value.read_int()? != 0);
            return Ok(());
        }
        Err(e) if e == EOPNOTSUPP && this.phase() == Phase::Fallback => {
            return this.tcp.setsockopt(net::SOL_SOCKET, name, value);
        }
        result => result?,
    }
    match name {
        // TCP would not tell of messages of the handshake, which are shorter.
        net::SO_RCVLOWAT if this.phase() != Phase::Fallback => {}
        // Whoever releases the TCP socket is not to wait.
        net::SO_LINGER => {}
        // What was read from the application is not read again.
        net::SO_RCVTIMEO_OLD | net::SO_RCVTIMEO_NEW => this.tcp.take_rcvtimeo(&this.sk),
        net::SO_SNDTIMEO_OLD | net::SO_SNDTIMEO_NEW => this.tcp.take_sndtimeo(&this.sk),
        _ if is_tcp_asked => {}
        // What the application was told counts; TCP may have no use for the option.
        _ => drop(this.tcp.setsockopt(net::SOL_SOCKET, name, value)),
    }
    // Either a connection is found here, or whoever makes it known finds the option.
    smp_mb(Full);
    if let Some(conn) = this.conn() {
        conn.sync_options(&this.sk);
        match name {
            // There may be enough to read now.
            net::SO_RCVLOWAT => this.sk.wake_readable(),
            // Or space to write to.
            net::SO_SNDBUF | net::SO_SNDBUFFORCE => this.sk.wake_writable(),
            _ => {}
        }
    }
    Ok(())
}

/// getsockopt(2), but for SOL_SOCKET.
pub(super) fn get(this: ArcBorrow<'_, Sock>, level: i32, name: i32, out: SockOptOut) -> Result {
    let of_tcp = || {
        // TCP_ZEROCOPY_RECEIVE reads, and TCP_INQ counts.
        this.is_decline_settled();
        this.tcp.getsockopt(level, name, out)
    };
    match (level, name) {
        (net::SOL_SMC, net::SMC_LIMIT_HS) => {
            out.write(&i32::from(this.limit_hs.load(Relaxed)).to_ne_bytes())
        }
        (net::SOL_SMC, net::SMC_INFO) => out.write(info(&this).as_bytes()),
        (net::SOL_SMC, _) => Err(EOPNOTSUPP),
        // TCP would read it with the lock held for which our work waits.
        (net::SOL_TCP, net::TCP_AO_INFO) if cfg!(CONFIG_TCP_AO) && !this.tcp.has_keys() => {
            out.no_ao_info()
        }
        (net::SOL_TCP, net::TCP_INFO) => {
            of_tcp()?;
            if let Some(conn) = this.conn() {
                // Its end is announced by SMC, before or after that of TCP.
                return out.set_tcp_state(conn.tcp_equivalent() as u8);
            }
            match this.with_listener(|listener| (listener.ready(), listener.backlog())) {
                Some((ready, backlog)) => out.add_listen_queue(ready, backlog),
                None => Ok(()),
            }
        }
        (
            net::SOL_IPV6,
            net::IPV6_2292PKTOPTIONS
            | net::IPV6_HOPOPTS
            | net::IPV6_RTHDRDSTOPTS
            | net::IPV6_RTHDR
            | net::IPV6_DSTOPTS
            | net::MCAST_MSFILTER,
        )
        | (net::SOL_IP, net::IP_MSFILTER | net::MCAST_MSFILTER)
        | (net::SOL_TCP, net::TCP_AO_GET_KEYS | net::TCP_AO_INFO) => {
            outside_handshake(this, of_tcp)
        }
        (net::SOL_TCP, net::TCP_ULP) if this.sk.was_tcp() => {
            out.write(Sock::ULP.to_bytes_with_nul())
        }
        (net::SOL_TCP, net::TCP_ZEROCOPY_RECEIVE) => match (this.phase(), this.conn()) {
            (_, Some(conn)) => out.map_nothing(conn.queues().inq, conn.has_ended_in_order()),
            // What TCP has is for the handshake.
            (Phase::Connecting, None) => out.map_nothing(0, false),
            _ => announced(this, of_tcp),
        },
        (net::SOL_TCP, net::TCP_SAVED_SYN) | (net::SOL_TLS, _) => announced(this, of_tcp),
        _ => of_tcp(),
    }
}

fn info(this: &Sock) -> smc_info {
    let info = smc_info {
        mode: SMC_INFO_MODE_NONE,
        role: this.uapi_role(),
        ..Default::default()
    };
    if let Some(conn) = this.conn() {
        return match conn {
            Carrier::SmcR(conn) => smc_info {
                mode: SMC_INFO_MODE_SMCR,
                lgr_id: conn.group_id(),
                ..info
            },
            Carrier::SmcD(_) => smc_info {
                mode: SMC_INFO_MODE_SMCD,
                ..info
            },
        };
    }
    match this.why() {
        Some(why) => smc_info {
            mode: SMC_INFO_MODE_TCP,
            reason: why.reason.code(),
            peer_diagnosis: why.diagnosis,
            cause: why.cause.map_or(0, Cause::code),
            ..info
        },
        None => info,
    }
}

/// Makes a new socket one of TCP, for the sake of what SMC does not have.
///
/// # Errors
///
/// `EINVAL` if the socket is in use already.
pub(super) fn fall_back(this: &Arc<Sock>, reason: Reason) -> Result {
    let _setup = this.setup.lock();
    match this.phase() {
        Phase::Fallback => Ok(()),
        _ if fallback::switch_to_fallback(this, &[Phase::Init], reason.into()) => Ok(()),
        _ => Err(EINVAL),
    }
}
