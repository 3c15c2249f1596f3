// SPDX-License-Identifier: GPL-2.0

//! Constants and structures of SMC's user-space API, under the names of the C headers and with the
//! types in which they are used.
//!
//! C headers: `include/uapi/linux/smc_rs.h` of this repository, and the kernel's `linux/smc.h`,
//! `linux/smc_diag.h`, `linux/in.h`, `sys/socket.h`. A test compares all of them by means of the C
//! compiler.

#![no_std]
#![forbid(unsafe_code)]

use zerocopy_derive::FromBytes;
use zerocopy_derive::Immutable;
use zerocopy_derive::KnownLayout;

/// Defines constants, and a list of them for the test.
macro_rules! constants {
    ($(#[$doc:meta])* $list:ident; $($ty:ty: $($name:ident = $value:expr),+;)+) => {
        $($(
            #[doc = concat!("`", stringify!($name), "`")]
            pub const $name: $ty = $value;
        )+)+

        $(#[$doc])*
        #[allow(clippy::cast_lossless, reason = "of several types")]
        pub const $list: &[(&str, i64)] = &[$($((stringify!($name), $name as i64),)+)+];
    };
}

constants! {
    /// Macros that older headers lack.
    MACROS;
    i32:
        AF_SMC = 43,
        IPPROTO_SMC = 256,
        SOL_SMC = 286;
}

constants! {
    /// Constants that are in the headers of all versions.
    NUMBERS;
    i32:
        SMC_LIMIT_HS = 1,
        SMC_INFO = 0x5201;
    u32:
        SMC_INFO_MODE_SMCR = 0,
        SMC_INFO_MODE_TCP = 1,
        SMC_INFO_MODE_SMCD = 2,
        SMC_INFO_MODE_NONE = 3,
        SMC_ROLE_CLIENT = 1,
        SMC_ROLE_SERVER = 2;
    u16:
        SMC_DIAG_CONNINFO = 1,
        SMC_DIAG_LGRINFO = 2,
        SMC_DIAG_SHUTDOWN = 3,
        SMC_DIAG_DMBINFO = 4,
        SMC_DIAG_FALLBACK = 5,
        SMC_DIAG_CAUSE = 8;
    u8:
        SMC_SYN_OPTION_TCP = 1,
        SMC_SYN_OPTION_NETFILTER = 2,
        SMC_DIAG_MODE_SMCR = 0,
        SMC_DIAG_MODE_FALLBACK_TCP = 1,
        SMC_DIAG_MODE_SMCD = 2,
        SMC_NETLINK_GET_SYS_INFO = 1,
        SMC_NETLINK_GET_LGR_SMCR = 2,
        SMC_NETLINK_GET_LINK_SMCR = 3,
        SMC_NETLINK_GET_LGR_SMCD = 4,
        SMC_NETLINK_GET_DEV_SMCD = 5,
        SMC_NETLINK_GET_DEV_SMCR = 6,
        SMC_NETLINK_GET_STATS = 7,
        SMC_NETLINK_GET_FBACK_STATS = 8,
        SMC_NETLINK_DUMP_UEID = 9,
        SMC_NETLINK_ADD_UEID = 10,
        SMC_NETLINK_REMOVE_UEID = 11,
        SMC_NETLINK_FLUSH_UEID = 12,
        SMC_NETLINK_DUMP_SEID = 13,
        SMC_NETLINK_ENABLE_SEID = 14,
        SMC_NETLINK_DISABLE_SEID = 15,
        SMC_RS_GENL_VERSION = 1,
        SMC_RS_CMD_GET_RULES = 1,
        SMC_RS_CMD_SET_RULES = 2,
        SMC_RULE_ALLOW = 1,
        SMC_RULE_DENY = 2,
        SMC_PNETID_GET = 1,
        SMC_PNETID_ADD = 2,
        SMC_PNETID_DEL = 3,
        SMC_PNETID_FLUSH = 4;
    u16:
        SMC_RS_A_RULES = 1,
        SMC_RS_A_GENERATION = 2,
        SMC_PNETID_NAME = 1,
        SMC_PNETID_ETHNAME = 2,
        SMC_PNETID_IBNAME = 3,
        SMC_PNETID_IBPORT = 4,
        SMC_NLA_EID_TABLE_ENTRY = 1,
        SMC_NLA_SYS_VER = 1,
        SMC_NLA_SYS_REL = 2,
        SMC_NLA_SYS_IS_ISM_V2 = 3,
        SMC_NLA_SYS_LOCAL_HOST = 4,
        SMC_NLA_SYS_SEID = 5,
        SMC_NLA_SYS_IS_SMCR_V2 = 6,
        SMC_NLA_SYS_SYN_OPTION = 0x52,
        SMC_NLA_LGR_V2_VER = 0,
        SMC_NLA_LGR_V2_REL = 1,
        SMC_NLA_LGR_V2_OS = 2,
        SMC_NLA_LGR_V2_NEG_EID = 3,
        SMC_NLA_LGR_V2_PEER_HOST = 4,
        SMC_NLA_LGR_R_V2_DIRECT = 1,
        SMC_NLA_LGR_R_ID = 1,
        SMC_NLA_LGR_R_ROLE = 2,
        SMC_NLA_LGR_R_TYPE = 3,
        SMC_NLA_LGR_R_PNETID = 4,
        SMC_NLA_LGR_R_VLAN_ID = 5,
        SMC_NLA_LGR_R_CONNS_NUM = 6,
        SMC_NLA_LGR_R_V2_COMMON = 7,
        SMC_NLA_LGR_R_V2 = 8,
        SMC_NLA_LGR_R_VLAN = 0x52,
        SMC_NLA_LGR_R_BUF_TYPE = 11,
        SMC_NLA_LINK_ID = 1,
        SMC_NLA_LINK_IB_DEV = 2,
        SMC_NLA_LINK_IB_PORT = 3,
        SMC_NLA_LINK_GID = 4,
        SMC_NLA_LINK_PEER_GID = 5,
        SMC_NLA_LINK_CONN_CNT = 6,
        SMC_NLA_LINK_NET_DEV = 7,
        SMC_NLA_LINK_UID = 8,
        SMC_NLA_LINK_PEER_UID = 9,
        SMC_NLA_LINK_STATE = 10,
        SMC_NLA_LINK_TRAFFIC_CLASS = 0x52,
        SMC_NLA_LGR_D_ID = 1,
        SMC_NLA_LGR_D_GID = 2,
        SMC_NLA_LGR_D_PEER_GID = 3,
        SMC_NLA_LGR_D_VLAN_ID = 4,
        SMC_NLA_LGR_D_CONNS_NUM = 5,
        SMC_NLA_LGR_D_PNETID = 6,
        SMC_NLA_LGR_D_CHID = 7,
        SMC_NLA_LGR_D_V2_COMMON = 9,
        SMC_NLA_DEV_PORT_PNET_USR = 1,
        SMC_NLA_DEV_PORT_PNETID = 2,
        SMC_NLA_DEV_PORT_NETDEV = 3,
        SMC_NLA_DEV_PORT_STATE = 4,
        SMC_NLA_DEV_PORT_LNK_CNT = 6,
        SMC_NLA_DEV_PORT_MTU = 0x52,
        SMC_NLA_DEV_USE_CNT = 1,
        SMC_NLA_DEV_IS_CRIT = 2,
        SMC_NLA_DEV_PCI_FID = 3,
        SMC_NLA_DEV_PCI_CHID = 4,
        SMC_NLA_DEV_PCI_DEVICE = 6,
        SMC_NLA_DEV_PCI_ID = 7,
        SMC_NLA_DEV_PORT = 8,
        SMC_NLA_DEV_PORT2 = 9,
        SMC_NLA_DEV_IB_NAME = 10,
        SMC_NLA_STATS_RMB_SIZE_SM_PEER_CNT = 1,
        SMC_NLA_STATS_RMB_SIZE_SM_CNT = 2,
        SMC_NLA_STATS_RMB_FULL_PEER_CNT = 3,
        SMC_NLA_STATS_RMB_FULL_CNT = 4,
        SMC_NLA_STATS_RMB_REUSE_CNT = 5,
        SMC_NLA_STATS_RMB_ALLOC_CNT = 6,
        SMC_NLA_STATS_RMB_DGRADE_CNT = 7,
        SMC_NLA_STATS_T_TX_RMB_SIZE = 1,
        SMC_NLA_STATS_T_RX_RMB_SIZE = 2,
        SMC_NLA_STATS_T_TXPLOAD_SIZE = 3,
        SMC_NLA_STATS_T_RXPLOAD_SIZE = 4,
        SMC_NLA_STATS_T_TX_RMB_STATS = 5,
        SMC_NLA_STATS_T_RX_RMB_STATS = 6,
        SMC_NLA_STATS_T_CLNT_V1_SUCC = 7,
        SMC_NLA_STATS_T_CLNT_V2_SUCC = 8,
        SMC_NLA_STATS_T_SRV_V1_SUCC = 9,
        SMC_NLA_STATS_T_SRV_V2_SUCC = 10,
        SMC_NLA_STATS_T_SENDPAGE_CNT = 11,
        SMC_NLA_STATS_T_SPLICE_CNT = 12,
        SMC_NLA_STATS_T_CORK_CNT = 13,
        SMC_NLA_STATS_T_NDLY_CNT = 14,
        SMC_NLA_STATS_T_URG_DATA_CNT = 15,
        SMC_NLA_STATS_T_RX_BYTES = 16,
        SMC_NLA_STATS_T_TX_BYTES = 17,
        SMC_NLA_STATS_T_RX_CNT = 18,
        SMC_NLA_STATS_T_TX_CNT = 19,
        SMC_NLA_STATS_SMCD_TECH = 1,
        SMC_NLA_STATS_SMCR_TECH = 2,
        SMC_NLA_STATS_CLNT_HS_ERR_CNT = 3,
        SMC_NLA_STATS_SRV_HS_ERR_CNT = 4,
        SMC_NLA_FBACK_STATS_TYPE = 1,
        SMC_NLA_FBACK_STATS_SRV_CNT = 2,
        SMC_NLA_FBACK_STATS_CLNT_CNT = 3,
        SMC_NLA_FBACK_STATS_RSN_CODE = 4,
        SMC_NLA_FBACK_STATS_RSN_CNT = 5,
        SMC_NLA_FBACK_STATS_RSN_TOTAL = 0x52,
        SMC_NLA_SEID_ENTRY = 1,
        SMC_NLA_SEID_ENABLED = 2;
    usize:
        SMC_RULES_MAX = 1024,
        SMC_MAX_EID_LEN = 32;
}

constants! {
    /// Constants that are in the headers since Linux 6.14.
    NUMBERS_6_14;
    u16:
        SMC_NLA_LGR_R_V2_MAX_CONNS = 2,
        SMC_NLA_LGR_R_V2_MAX_LINKS = 3,
        SMC_NLA_LGR_R_SNDBUF_ALLOC = 12,
        SMC_NLA_LGR_R_RMB_ALLOC = 13,
        SMC_NLA_LGR_D_EXT_GID = 10,
        SMC_NLA_LGR_D_PEER_EXT_GID = 11,
        SMC_NLA_LGR_D_SNDBUF_ALLOC = 12,
        SMC_NLA_LGR_D_DMB_ALLOC = 13,
        SMC_NLA_STATS_T_RX_RMB_USAGE = 20,
        SMC_NLA_STATS_T_TX_RMB_USAGE = 21;
}

/// The generic netlink family for link groups, links, devices, statistics and enterprise IDs.
pub const SMC_GENL_FAMILY_NAME: &str = "SMC_GEN_NETLINK";

/// The generic netlink family for physical networks.
pub const SMCR_GENL_FAMILY_NAME: &str = "SMC_PNETID";

/// The generic netlink family of this module alone: rules about which connections may use SMC. `struct smc_rule` is
/// `RawRule` of the protocol crate.
pub const SMC_RS_GENL_NAME: &str = "SMC_RS";

/// `struct smc_info`: the value of [`SMC_INFO`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Info {
    /// One of `SMC_INFO_MODE_*`.
    pub mode: u32,
    /// Why the socket fell back to TCP, as in `struct smc_diag_fallback`.
    pub reason: u32,
    /// The reason in the peer's DECLINE, as in `struct smc_diag_fallback`; 0 if it did not decline.
    pub peer_diagnosis: u32,
    /// The id of the link group; 0 if there is none.
    pub lgr_id: u32,
    /// One of `SMC_CAUSE_*`; 0 if there is none.
    pub cause: u32,
    /// One of `SMC_ROLE_*`.
    pub role: u32,
}

/// `struct smc_diag_cause`: the attribute [`SMC_DIAG_CAUSE`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DiagCause {
    /// One of `SMC_CAUSE_*`; 0 if there is none.
    pub cause: u32,
    /// One of `SMC_ROLE_*`.
    pub role: u32,
}
