// SPDX-License-Identifier: GPL-2.0
/* include/linux/bpf.h, include/linux/btf.h, include/net/smc.h: for rust/kernel/net/hs_ctrl.rs */
#if IS_ENABLED(CONFIG_SMC_HS_CTRL_BPF)
/* The macro describes the type in the module's BTF, for which pahole leaves out all that comes from Rust. */
int smc_helper_register_smc_hs_ctrl(struct bpf_struct_ops *ops)
{
	return register_bpf_struct_ops(ops, smc_hs_ctrl);
}

/* By the types of these functions in the module's BTF, too, the kernel checks programs. */
int smc_helper_hs_ctrl_syn_option(struct tcp_sock *tp)
{
	return 1;
}

int smc_helper_hs_ctrl_synack_option(const struct tcp_sock *tp, struct inet_request_sock *ireq)
{
	return 1;
}

u32 smc_helper___btf_member_bit_offset(const struct btf_type *t, const struct btf_member *member)
{
	return __btf_member_bit_offset(t, member);
}

bool smc_helper_bpf_tracing_btf_ctx_access(int off, int size, enum bpf_access_type type,
					   const struct bpf_prog *prog,
					   struct bpf_insn_access_aux *info)
{
	return bpf_tracing_btf_ctx_access(off, size, type, prog, info);
}

struct smc_hs_ctrl *smc_helper_net_hs_ctrl(const struct net *net)
{
	return rcu_dereference(net->smc.hs_ctrl);
}

struct smc_hs_ctrl *smc_helper_net_xchg_hs_ctrl(struct net *net, struct smc_hs_ctrl *ctrl)
{
	return unrcu_pointer(xchg(&net->smc.hs_ctrl, RCU_INITIALIZER(ctrl)));
}
#endif
