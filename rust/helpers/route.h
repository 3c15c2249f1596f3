/* SPDX-License-Identifier: GPL-2.0 */
struct dst_entry *smc_helper_sk_dst_get_rcu(struct sock *sk);
struct net_device *smc_helper_dst_dev_rcu(const struct dst_entry *dst);
struct in_device *smc_helper_in_dev_get_rcu(const struct net_device *dev);
const struct in_ifaddr *smc_helper_ifa_first_rcu(const struct in_device *in_dev);
const struct in_ifaddr *smc_helper_ifa_next_rcu(const struct in_ifaddr *ifa);
bool smc_helper_inet_ifa_match(__be32 addr, const struct in_ifaddr *ifa);
struct rtable *smc_helper_route_output(struct net *net, struct flowi4 *flow);
bool smc_helper_is_vlan_dev(const struct net_device *dev);
u16 smc_helper_vlan_id(const struct net_device *dev);
struct net *smc_helper_dev_net(const struct net_device *dev);
void smc_helper_flow4_init(struct flowi4 *flow, __be32 saddr, __be32 daddr);
void smc_helper_rt_put(struct rtable *rt);
struct neighbour *smc_helper_rt_neigh_lookup(struct rtable *rt, const void *daddr);
void smc_helper_neigh_put(struct neighbour *n);
void smc_helper_neigh_mac(const struct neighbour *n, u8 *mac);
