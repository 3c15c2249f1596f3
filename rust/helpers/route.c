// SPDX-License-Identifier: GPL-2.0
/* include/net/route.h, include/net/neighbour.h, include/linux/inetdevice.h, include/net/addrconf.h,
 * include/net/l3mdev.h, include/linux/netdevice.h, include/net/vxlan.h
 */
struct dst_entry *smc_helper_sk_dst_get_rcu(struct sock *sk)
{
	return rcu_dereference(sk->sk_dst_cache);
}

struct net_device *smc_helper_dst_dev_rcu(const struct dst_entry *dst)
{
	return dst_dev_rcu(dst);
}

/* Not NULL if IPsec transforms packets of the route; NULL without CONFIG_XFRM. */
const struct xfrm_state *smc_helper_dst_xfrm(const struct dst_entry *dst)
{
	return dst_xfrm(dst);
}

struct in_device *smc_helper_in_dev_get_rcu(const struct net_device *dev)
{
	return __in_dev_get_rcu(dev);
}

const struct in_ifaddr *smc_helper_ifa_first_rcu(const struct in_device *in_dev)
{
	return rcu_dereference(in_dev->ifa_list);
}

const struct in_ifaddr *smc_helper_ifa_next_rcu(const struct in_ifaddr *ifa)
{
	return rcu_dereference(ifa->ifa_next);
}

bool smc_helper_inet_ifa_match(__be32 addr, const struct in_ifaddr *ifa)
{
	return inet_ifa_match(addr, ifa);
}

struct rtable *smc_helper_route_output(struct net *net, struct flowi4 *flow)
{
	return ip_route_output_flow(net, flow, NULL);
}

bool smc_helper_is_vlan_dev(const struct net_device *dev)
{
	return is_vlan_dev(dev);
}

u16 smc_helper_vlan_id(const struct net_device *dev)
{
	return vlan_dev_vlan_id(dev);
}

bool smc_helper_netif_hides_packets(const struct net_device *dev)
{
	return netif_is_macsec(dev) || netif_is_vxlan(dev);
}

int smc_helper_netdev_vrf_rcu(const struct net_device *dev)
{
	return l3mdev_master_ifindex_rcu(dev);
}

struct net *smc_helper_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

void smc_helper_flow4_init(struct flowi4 *flow, __be32 saddr, __be32 daddr)
{
	*flow = (struct flowi4){ .saddr = saddr, .daddr = daddr };
}

void smc_helper_rt_put(struct rtable *rt)
{
	ip_rt_put(rt);
}

struct neighbour *smc_helper_rt_neigh_lookup(struct rtable *rt, const void *daddr)
{
	return dst_neigh_lookup(&rt->dst, daddr);
}

void smc_helper_neigh_put(struct neighbour *n)
{
	neigh_release(n);
}

/* Not 0 while the address is not known: it is being asked for now. */
int smc_helper_neigh_event_send(struct neighbour *n)
{
	return neigh_event_send(n, NULL);
}

void smc_helper_neigh_mac(const struct neighbour *n, u8 *mac)
{
	unsigned int seq;

	/* As neigh_ha_snapshot(), but no more than there is room for. */
	do {
		seq = read_seqbegin(&n->ha_lock);
		memcpy(mac, n->ha, ETH_ALEN);
	} while (read_seqretry(&n->ha_lock, seq));
}

#if IS_ENABLED(CONFIG_IPV6)
struct inet6_dev *smc_helper_in6_dev_get_rcu(const struct net_device *dev)
{
	return __in6_dev_get(dev);
}

const struct inet6_ifaddr *smc_helper_if6_first_rcu(struct inet6_dev *idev)
{
	return list_first_or_null_rcu(&idev->addr_list, struct inet6_ifaddr, if_list);
}

const struct inet6_ifaddr *smc_helper_if6_next_rcu(struct inet6_dev *idev,
						   struct inet6_ifaddr *ifa)
{
	return list_next_or_null_rcu(&idev->addr_list, &ifa->if_list, struct inet6_ifaddr, if_list);
}
#endif
