// SPDX-License-Identifier: GPL-2.0

//! Compares the layouts found by bindgen with those of the C compiler, for the fields used here.

use core::mem::{
    offset_of,
    size_of, //
};

use crate::bindings::*;

macro_rules! same {
    ($($ours:expr, $theirs:ident;)+) => {
        // CAST: Sizes of structures.
        $(const _: () = assert!($ours == $theirs as usize, stringify!($theirs));)+
    };
}

same! {
    size_of::<sock>(), smc_layout_SMC_SIZEOF_SOCK;
    size_of::<inet_sock>(), smc_layout_SMC_SIZEOF_INET_SOCK;
    size_of::<tcp_sock>(), smc_layout_SMC_SIZEOF_TCP_SOCK;
    size_of::<ipv6_pinfo>(), smc_layout_SMC_SIZEOF_IPV6_PINFO;
    size_of::<proto>(), smc_layout_SMC_SIZEOF_PROTO;
    size_of::<proto_ops>(), smc_layout_SMC_SIZEOF_PROTO_OPS;
    size_of::<msghdr>(), smc_layout_SMC_SIZEOF_MSGHDR;
    offset_of!(msghdr, msg_iter) + offset_of!(iov_iter, __bindgen_anon_1) +
        offset_of!(iov_iter__bindgen_ty_1__bindgen_ty_1, count), smc_layout_SMC_OFFSETOF_MSG_COUNT;
    offset_of!(inet_connection_sock, icsk_ulp_data), smc_layout_SMC_OFFSETOF_ICSK_ULP_DATA;
    offset_of!(tcp_sock, keepalive_time), smc_layout_SMC_OFFSETOF_KEEPALIVE_TIME;
    offset_of!(tcp_sock, notsent_lowat), smc_layout_SMC_OFFSETOF_NOTSENT_LOWAT;
    offset_of!(socket, wq), smc_layout_SMC_OFFSETOF_SOCKET_WQ;
    offset_of!(sock, sk_data_ready), smc_layout_SMC_OFFSETOF_SK_DATA_READY;
    offset_of!(sock, sk_prot_creator), smc_layout_SMC_OFFSETOF_SK_PROT_CREATOR;
    offset_of!(sock, sk_user_data), smc_layout_SMC_OFFSETOF_SK_USER_DATA;
}

#[cfg(CONFIG_SMC_HS_CTRL_BPF)]
same! {
    size_of::<smc_hs_ctrl>(), smc_layout_SMC_SIZEOF_HS_CTRL;
    size_of::<bpf_struct_ops>(), smc_layout_SMC_SIZEOF_BPF_STRUCT_OPS;
    size_of::<bpf_verifier_ops>(), smc_layout_SMC_SIZEOF_BPF_VERIFIER_OPS;
    offset_of!(bpf_struct_ops, name), smc_layout_SMC_OFFSETOF_BPF_STRUCT_OPS_NAME;
}
