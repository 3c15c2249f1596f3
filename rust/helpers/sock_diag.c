// SPDX-License-Identifier: GPL-2.0
/* include/linux/sock_diag.h, include/linux/netlink.h */
struct sock *smc_helper_diag_nlsk(const struct sk_buff *skb)
{
	return sock_net(skb->sk)->diag_nlsk;
}

struct net *smc_helper_skb_net(const struct sk_buff *skb)
{
	return sock_net(skb->sk);
}

u32 smc_helper_netlink_cb_portid(const struct netlink_callback *cb)
{
	return NETLINK_CB(cb->skb).portid;
}

u32 smc_helper_netlink_cb_uid_of(const struct netlink_callback *cb, const struct sock *sk)
{
	return from_kuid_munged(sk_user_ns(NETLINK_CB(cb->skb).sk), sk_uid(sk));
}

u64 smc_helper_sock_i_ino(const struct sock *sk)
{
	return sock_i_ino(sk);
}
