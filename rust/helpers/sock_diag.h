/* SPDX-License-Identifier: GPL-2.0 */
struct sock *smc_helper_diag_nlsk(const struct sk_buff *skb);
struct net *smc_helper_skb_net(const struct sk_buff *skb);
u32 smc_helper_netlink_cb_portid(const struct netlink_callback *cb);
u32 smc_helper_netlink_cb_uid_of(const struct netlink_callback *cb, const struct sock *sk);
u64 smc_helper_sock_i_ino(const struct sock *sk);
