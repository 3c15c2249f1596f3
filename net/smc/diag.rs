// SPDX-License-Identifier: GPL-2.0

//! The sockets of a namespace for smcss(8): `sock_diag` with the messages and attributes of the C module (C file
//! `smc_diag.c`).
//!
//! The addresses of sockets of `IPPROTO_SMC` are included, unlike in the C module.

use kernel::transmute::AsBytes;
use kernel_ext::{
    genl::Attrs,
    ib,
    net::AF_SMC,
    prelude::*,
    sock_diag::{
        SockDiag,
        SockDiagRegistration,
        SockList, //
    },
    uapi::*, //
};
use smc_proto::{
    cause::Cause,
    conn::{
        ConnInfo,
        ConnState, //
    },
    cursor::Cursor, //
};

use crate::{
    carrier::Carrier,
    conn::{
        self,
        Conn, //
    },
    smcd::{
        self,
        SmcdConn, //
    },
    sock::{
        self,
        Sock, //
    }, //
};

/// The registered handler.
pub(crate) type DiagRegistration = SockDiagRegistration<Diag>;

/// Handles requests for the family.
pub(crate) struct Diag;

/// Sockets fetched at a time; more do not fit into a message.
const DUMP_BATCH: usize = 512;

impl SockDiag for Diag {
    const FAMILY: u16 = AF_SMC;

    fn dump(list: &mut SockList<'_>) -> Result {
        let socks = sock::list(list.netns(), list.next(), DUMP_BATCH)?;
        for sock in &socks {
            if !put(list, sock)? {
                break;
            }
        }
        Ok(())
    }
}

/// Returns true if an attribute was requested.
fn is_wanted(extensions: u8, attr: u32) -> bool {
    u32::from(extensions) & (1 << attr.saturating_sub(1)) != 0
}

/// Returns the directions that were shut down: by the application, or because the peer has finished sending.
fn shutdown(sock: &Sock, conn: Option<&Carrier>) -> u8 {
    // Bit 0 is for receiving.
    sock.sk.shutdown_mask() | u8::from(conn.is_some_and(Carrier::is_peer_done))
}

fn put(list: &mut SockList<'_>, sock: &Sock) -> Result<bool> {
    let why = sock.why();
    let conn = sock.conn();
    let mode = match (why, &conn) {
        (Some(_), _) => SMC_DIAG_MODE_FALLBACK_TCP,
        (None, Some(Carrier::SmcD(_))) => SMC_DIAG_MODE_SMCD,
        (None, _) => SMC_DIAG_MODE_SMCR,
    };
    let state = match &conn {
        Some(conn) => conn.state().number(),
        None if sock::awaits_tcp(sock) => ConnState::Init.number(),
        None => sock.sk.state(),
    };
    // CAST: One of three modes.
    let base = list.base(&sock.sk, state, mode as u8, &sock.tcp, sock.version);
    let extensions = list.extensions();
    list.put(sock.serial(), &base, |attrs| {
        attrs.u8(SMC_DIAG_SHUTDOWN, shutdown(sock, conn.as_ref()))?;
        let codes = why.map_or([0; 2], |why| [why.reason.code(), why.diagnosis]);
        let fallback = codes
            .into_iter()
            .fold(StructWriter::<8>::new(), StructWriter::u32);
        attrs.bytes(SMC_DIAG_FALLBACK, &fallback.bytes)?;
        if let Some(why) = why.filter(|_| is_wanted(extensions, SMC_DIAG_CAUSE)) {
            let cause = smc_diag_cause {
                cause: why.cause.map_or(0, Cause::code),
                role: sock.uapi_role(),
            };
            attrs.bytes(SMC_DIAG_CAUSE, cause.as_bytes())?;
        }
        let Some(conn) = &conn else {
            return Ok(());
        };
        let (is_conn_wanted, is_group_wanted, is_dmb_wanted) = (
            is_wanted(extensions, SMC_DIAG_CONNINFO),
            is_wanted(extensions, SMC_DIAG_LGRINFO),
            is_wanted(extensions, SMC_DIAG_DMBINFO),
        );
        match conn {
            Carrier::SmcR(conn) => {
                if is_conn_wanted {
                    put_smcr_conn(attrs, sock, conn)?;
                }
                if is_group_wanted && conn.group.terminating().is_none() {
                    put_group(attrs, conn)?;
                }
            }
            Carrier::SmcD(conn) => {
                if is_conn_wanted {
                    // CAST: The field has 32 bits.
                    put_conn(attrs, conn.tokens()[0] as u32, &conn.rings())?;
                }
                if is_dmb_wanted {
                    put_dmb(attrs, conn)?;
                }
            }
        }
        Ok(())
    })
}

/// A structure of consecutive numbers.
struct StructWriter<const LEN: usize> {
    bytes: [u8; LEN],
    len: usize,
}

impl<const LEN: usize> StructWriter<LEN> {
    const fn new() -> Self {
        Self {
            bytes: [0; LEN],
            len: 0,
        }
    }

    /// Appends bytes; those that do not fit are dropped.
    fn bytes(mut self, bytes: &[u8]) -> Self {
        let place = self.bytes.iter_mut().skip(self.len);
        for (to, from) in place.zip(bytes) {
            *to = *from;
        }
        self.len = self.len.saturating_add(bytes.len());
        self
    }

    /// Appends a text in a field of fixed length.
    fn text(mut self, text: &[u8], len: usize) -> Self {
        let end = self.len.saturating_add(len);
        self = self.bytes(text.get(..len.saturating_sub(1)).unwrap_or(text));
        self.len = end;
        self
    }

    fn u32(self, n: u32) -> Self {
        self.bytes(&n.to_ne_bytes())
    }

    fn u64(self, n: u64) -> Self {
        self.bytes(&n.to_ne_bytes())
    }

    fn cursor(self, cursor: Cursor) -> Self {
        let wrap = self.bytes(&[0; 2]).bytes(&cursor.wrap.to_ne_bytes());
        wrap.u32(cursor.offset)
    }
}

fn put_smcr_conn(attrs: &mut Attrs<'_>, sock: &Sock, conn: &Conn) -> Result {
    // A send buffer is assigned only while data are in flight; this is the size it would have.
    let peer = conn.with(|inner| inner.peer_size());
    let default_size = conn::sndbuf_class(&sock.sk, peer);
    let mut rings = conn.with(|inner| inner.stream.rings(default_size));
    if rings.sndbuf == 0 {
        rings.sndbuf = default_size.bytes();
    }
    put_conn(attrs, conn.token().0, &rings)
}

/// Adds `struct smc_diag_conninfo`.
fn put_conn(attrs: &mut Attrs<'_>, token: u32, rings: &ConnInfo) -> Result {
    let sizes = [token, rings.sndbuf, rings.rmbe, rings.peer_rmbe];
    let fields = sizes
        .into_iter()
        .fold(StructWriter::<76>::new(), StructWriter::u32);
    let peer = [rings.rx_prod, rings.rx_cons, rings.tx_prod, rings.tx_cons];
    let fields = peer.into_iter().fold(fields, StructWriter::cursor).bytes(&[
        rings.rx_flags.0.bits(),
        rings.rx_flags.1.bits(),
        rings.tx_flags.0.bits(),
        rings.tx_flags.1.bits(),
    ]);
    let own = [rings.tx_prep, rings.tx_sent, rings.tx_fin];
    let fields = own.into_iter().fold(fields, StructWriter::cursor);
    attrs.bytes(SMC_DIAG_CONNINFO, &fields.bytes)
}

/// Adds `struct smcd_diag_dmbinfo`.
fn put_dmb(attrs: &mut Attrs<'_>, conn: &SmcdConn) -> Result {
    let Some(device) = smcd::own_gid() else {
        return Ok(());
    };
    let [own, peer] = conn.tokens();
    let numbers = [
        device.gid,
        device.gid,
        own,
        peer,
        device.gid_ext,
        device.gid_ext,
    ];
    let fields = StructWriter::<56>::new()
        .u32(smcd::group_id())
        .bytes(&[0; 4]);
    let fields = numbers.into_iter().fold(fields, StructWriter::u64);
    attrs.bytes(SMC_DIAG_DMBINFO, &fields.bytes)
}

/// Adds `struct smc_diag_lgrinfo`.
fn put_group(attrs: &mut Attrs<'_>, conn: &Conn) -> Result {
    /// Length of the text of a GID.
    const GID_LEN: usize = 40;
    let link = conn.link();
    let (info, port) = (link.info(), link.port());
    let Some(device) = info.device else {
        return Ok(());
    };
    let fields = StructWriter::<147>::new()
        .bytes(&[info.number.0])
        .text(device.name().as_bytes(), ib::Name::MAX + 1)
        .bytes(&[u8::try_from(port.port)?])
        .text(&port.gid.text(), GID_LEN)
        .text(&info.peer_gid.text(), GID_LEN)
        .bytes(&[conn.group.params.role.number()]);
    attrs.bytes(SMC_DIAG_LGRINFO, &fields.bytes)
}
