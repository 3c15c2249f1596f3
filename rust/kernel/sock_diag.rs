// SPDX-License-Identifier: GPL-2.0

//! `sock_diag`: lists a family's sockets for `ss` and similar tools.
//!
//! C headers: [`include/linux/sock_diag.h`](srctree/include/linux/sock_diag.h),
//! [`include/uapi/linux/smc_diag.h`](srctree/include/uapi/linux/smc_diag.h)

use core::{
    marker::PhantomData,
    mem::size_of,
    ptr::{
        self,
        NonNull, //
    }, //
};

use kernel::error::to_result;

use crate::{
    bindings,
    genl::Attrs,
    module::{
        __this_module,
        is_live,
        this_module, //
    },
    net::{
        IpVersion,
        NetNs,
        Sk,
        TcpSocket, //
    },
    prelude::*, //
};

/// A family whose sockets can be listed.
pub trait SockDiag: Sized + 'static {
    /// The family's number.
    const FAMILY: u16;

    /// Lists the sockets for a requester, in one or more passes.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// Any error that makes the list impossible.
    fn dump(list: &mut SockList<'_>) -> Result;
}

/// A registered [`SockDiag`].
pub struct SockDiagRegistration<D: SockDiag>(PhantomData<fn(D)>);

/// The kernel's record of the family.
#[repr(transparent)]
struct DiagHandler(bindings::sock_diag_handler);

// SAFETY: The record is never written, and holds functions and the module only.
unsafe impl Sync for DiagHandler {}

impl<D: SockDiag> SockDiagRegistration<D> {
    /// Memory of the module: the kernel reads it in an RCU section that may have begun before the end of the
    /// registration, and then with a reference to the module.
    const HANDLER: &'static DiagHandler = &DiagHandler(bindings::sock_diag_handler {
        owner: (&raw const __this_module).cast_mut().cast(),
        // CAST: The number of a family, which the registration checks.
        family: D::FAMILY as u8,
        dump: Some(Self::request_callback),
        ..pin_init::zeroed()
    });

    /// Registers the family; its sockets may be requested from then on.
    /// Context: may sleep.
    ///
    /// # Errors
    ///
    /// `EBUSY` if the family has a handler already, `EINVAL` for an invalid family number.
    pub fn new() -> Result<Self> {
        u8::try_from(D::FAMILY)?;
        // SAFETY: A static record.
        to_result(unsafe { bindings::sock_diag_register(&Self::HANDLER.0) })?;
        Ok(Self(PhantomData))
    }

    /// # Safety
    ///
    /// To be called by the kernel only, with a request.
    unsafe extern "C" fn request_callback(
        skb: *mut bindings::sk_buff,
        nlh: *mut bindings::nlmsghdr,
    ) -> i32 {
        if !is_live() {
            return ENODEV.to_errno();
        }
        // SAFETY: The kernel passes a request with its header.
        let (kind, flags) = unsafe { ((*nlh).nlmsg_type, (*nlh).nlmsg_flags) };
        // One bit of NLM_F_DUMP is enough: smcss sets no more.
        let is_list = u32::from(flags) & bindings::NLM_F_DUMP != 0;
        if u32::from(kind) != bindings::SOCK_DIAG_BY_FAMILY || !is_list {
            return 0;
        }
        let mut control = bindings::netlink_dump_control {
            dump: Some(Self::dump_callback),
            module: this_module(),
            min_dump_alloc: bindings::SOCK_DIAG_ALLOC,
            ..pin_init::zeroed()
        };
        // SAFETY: As above; the kernel's socket lives as long as its namespace, which the requester's socket holds.
        unsafe {
            bindings::__netlink_dump_start(bindings::diag_nlsk(skb), skb, nlh, &raw mut control)
        }
    }

    /// # Safety
    ///
    /// To be called by the kernel only, for a list begun by `request_callback`.
    unsafe extern "C" fn dump_callback(
        skb: *mut bindings::sk_buff,
        cb: *mut bindings::netlink_callback,
    ) -> i32 {
        let mut list = SockList {
            // SAFETY: The kernel passes no null pointers.
            skb: unsafe { NonNull::new_unchecked(skb) },
            // SAFETY: As above.
            cb: unsafe { NonNull::new_unchecked(cb) },
            _pass: PhantomData,
        };
        match D::dump(&mut list) {
            // The kernel calls again until a pass adds nothing.
            // SAFETY: The message is valid.
            Ok(()) => i32::try_from(unsafe { (*skb).len }).unwrap_or(i32::MAX),
            Err(e) => e.to_errno(),
        }
    }
}

impl<D: SockDiag> Drop for SockDiagRegistration<D> {
    fn drop(&mut self) {
        // SAFETY: Registered in `new`.
        unsafe { bindings::sock_diag_unregister(&Self::HANDLER.0) };
    }
}

/// One pass of a dump.
///
/// # Invariants
///
/// `skb` and `cb` are the message under construction and the state of a dump, and used by nothing else for `'a`.
pub struct SockList<'a> {
    skb: NonNull<bindings::sk_buff>,
    cb: NonNull<bindings::netlink_callback>,
    _pass: PhantomData<&'a mut bindings::netlink_callback>,
}

impl<'a> SockList<'a> {
    /// The network namespace of the requester.
    pub fn netns(&self) -> &'a NetNs {
        // SAFETY: The requester's socket keeps its namespace during the call.
        unsafe { NetNs::from_ptr(bindings::skb_net(self.skb.as_ptr())) }
    }

    /// The bits of the requested extensions; 0 if the request ends before them.
    pub fn extensions(&self) -> u8 {
        /// Offset of the byte in the request.
        const PLACE: i32 = 3;
        // SAFETY: By the type invariant; the request lives as long as the dump.
        let (data, len) = unsafe {
            let nlh = (*self.cb.as_ptr()).nlh;
            (bindings::nlmsg_data(nlh), bindings::nlmsg_len(nlh))
        };
        match len > PLACE {
            // SAFETY: The request has that many bytes.
            true => unsafe { data.cast::<u8>().add(PLACE as usize).read() },
            false => 0,
        }
    }

    /// The key at which this pass continues: 0 in the first one.
    pub fn next(&self) -> u64 {
        // SAFETY: See `place`.
        unsafe { self.place().read() }
    }

    fn place(&self) -> *mut u64 {
        // SAFETY: By the type invariant.
        let place = unsafe { &raw mut (*self.cb.as_ptr()).__bindgen_anon_1 };
        // The state is 48 bytes for the dump's owner, aligned for longs, and initially zero.
        place.cast()
    }

    /// Adds a socket, with a key that increases from socket to socket; returns whether it fitted. The next pass
    /// continues after the last one that did.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` for a socket that does not fit into an empty message; others of `fill`.
    pub fn put(
        &mut self,
        key: u64,
        base: &[u8; BASE_LEN],
        fill: impl FnOnce(&mut Attrs<'_>) -> Result,
    ) -> Result<bool> {
        // SAFETY: By the type invariant.
        let before = unsafe { (*self.skb.as_ptr()).len };
        match self.message(base, fill) {
            Ok(()) => {
                // SAFETY: See `place`.
                unsafe { self.place().write(key.saturating_add(1)) };
                Ok(true)
            }
            Err(e) => {
                // SAFETY: As above; the message was that long.
                unsafe { bindings::skb_trim(self.skb.as_ptr(), before) };
                match before > 0 && e == EMSGSIZE {
                    true => Ok(false),
                    false => Err(e),
                }
            }
        }
    }

    fn message(
        &mut self,
        base: &[u8; BASE_LEN],
        fill: impl FnOnce(&mut Attrs<'_>) -> Result,
    ) -> Result {
        // CAST: Small numbers.
        let (len, flags) = (BASE_LEN as i32, bindings::NLM_F_MULTI as i32);
        // SAFETY: By the type invariant; the request lives as long as the dump.
        let nlh = unsafe {
            let request = (*self.cb.as_ptr()).nlh;
            let portid = bindings::netlink_cb_portid(self.cb.as_ptr());
            let (seq, kind) = ((*request).nlmsg_seq, i32::from((*request).nlmsg_type));
            bindings::nlmsg_put(self.skb.as_ptr(), portid, seq, kind, len, flags)
        };
        let nlh = NonNull::new(nlh).ok_or(EMSGSIZE)?;
        // SAFETY: The message has room for that many bytes after its header.
        let data = unsafe { bindings::nlmsg_data(nlh.as_ptr()) }.cast::<u8>();
        // SAFETY: As above, and nothing else writes there.
        unsafe { ptr::copy_nonoverlapping(base.as_ptr(), data, BASE_LEN) };
        // SAFETY: By the type invariant.
        fill(&mut unsafe { Attrs::new(self.skb) })?;
        // SAFETY: As above; begun with this header.
        unsafe { bindings::nlmsg_end(self.skb.as_ptr(), nlh.as_ptr()) };
        Ok(())
    }

    /// Builds the base of a socket's message (`struct smc_diag_msg`). `state` is its state, `mode` how its data are
    /// transferred; the addresses are those of the TCP socket below it.
    pub fn base(
        &self,
        sk: &Sk,
        state: u8,
        mode: u8,
        tcp: &TcpSocket,
        version: IpVersion,
    ) -> [u8; BASE_LEN] {
        let id = tcp.id(version);
        let mut cookie = [0; 2];
        // SAFETY: The socket is alive, and there is room for the cookie.
        unsafe { bindings::sock_diag_save_cookie(sk.as_ptr(), cookie.as_mut_ptr()) };
        // SAFETY: The request is there, and the socket is alive.
        let uid = unsafe { bindings::netlink_cb_uid_of(self.cb.as_ptr(), sk.as_ptr()) };
        // SAFETY: The socket is alive.
        let inode = unsafe { bindings::sock_i_ino(sk.as_ptr()) };
        let parts: [&[u8]; 10] = [
            // The shutdown mask is an attribute.
            &[sk.family(), state, mode, 0],
            &id.source_port,
            &id.destination_port,
            &id.source,
            &id.destination,
            &id.interface.to_ne_bytes(),
            &cookie[0].to_ne_bytes(),
            &cookie[1].to_ne_bytes(),
            &uid.to_ne_bytes(),
            &inode.to_ne_bytes(),
        ];
        let mut base = [0; BASE_LEN];
        let bytes = parts.into_iter().flatten();
        for (to, from) in base.iter_mut().zip(bytes) {
            *to = *from;
        }
        base
    }
}

/// Bytes of the base of a socket's message.
pub const BASE_LEN: usize = size_of::<bindings::smc_diag_msg>();

const _: () = assert!(BASE_LEN == 64);

/// The endpoints of a TCP connection, in network byte order.
struct SockId {
    source_port: [u8; 2],
    destination_port: [u8; 2],
    source: [u8; 16],
    destination: [u8; 16],
    interface: i32,
}

impl TcpSocket {
    /// Returns the socket's addresses, also those of a connection that has ended.
    fn id(&self, version: IpVersion) -> SockId {
        let sk = self.sk_ptr();
        /// Reads a field, which may change concurrently: it is only displayed.
        macro_rules! read {
            ($($field:ident).+) => {
                // SAFETY: The socket is alive, and the field is a plain number or an array of such.
                unsafe { (&raw const (*sk).__sk_common.$($field).+).read_volatile() }
            };
        }
        let first = |word: u32| {
            let mut address = [0; 16];
            if let Some(place) = address.first_chunk_mut::<4>() {
                *place = word.to_ne_bytes();
            }
            address
        };
        let (source, destination) = match version {
            IpVersion::V4 => (
                first(read!(__bindgen_anon_1.__bindgen_anon_1.skc_rcv_saddr)),
                first(read!(__bindgen_anon_1.__bindgen_anon_1.skc_daddr)),
            ),
            #[cfg(CONFIG_IPV6)]
            IpVersion::V6 => (
                read!(skc_v6_rcv_saddr.in6_u.u6_addr8),
                read!(skc_v6_daddr.in6_u.u6_addr8),
            ),
            #[cfg(not(CONFIG_IPV6))]
            IpVersion::V6 => ([0; 16], [0; 16]),
        };
        SockId {
            // As getsockname(2) has it: TCP forgets the other one of its kind when its connection has ended.
            // SAFETY: A TCP socket is one of these, and alive; the field is a plain number, in network byte order.
            source_port: unsafe {
                (&raw const (*sk.cast::<bindings::inet_sock>()).inet_sport).read_volatile()
            }
            .to_ne_bytes(),
            destination_port: read!(__bindgen_anon_3.__bindgen_anon_1.skc_dport).to_ne_bytes(),
            source,
            destination,
            interface: read!(skc_bound_dev_if),
        }
    }
}
