// SPDX-License-Identifier: GPL-2.0
/* include/net/genetlink.h, include/net/netlink.h */
void smc_helper_genlmsg_end(struct sk_buff *skb, void *hdr)
{
	genlmsg_end(skb, hdr);
}

int smc_helper_genlmsg_reply(struct sk_buff *skb, struct genl_info *info)
{
	return genlmsg_reply(skb, info);
}

struct sk_buff *smc_helper_genlmsg_new(size_t payload, gfp_t flags)
{
	return genlmsg_new(payload, flags);
}

void smc_helper_nlmsg_free(struct sk_buff *skb)
{
	nlmsg_free(skb);
}

struct nlmsghdr *smc_helper_nlmsg_put(struct sk_buff *skb, u32 portid, u32 seq, int type,
				      int payload, int flags)
{
	return nlmsg_put(skb, portid, seq, type, payload, flags);
}

void smc_helper_nlmsg_end(struct sk_buff *skb, struct nlmsghdr *nlh)
{
	nlmsg_end(skb, nlh);
}

void *smc_helper_nlmsg_data(const struct nlmsghdr *nlh)
{
	return nlmsg_data(nlh);
}

int smc_helper_nlmsg_len(const struct nlmsghdr *nlh)
{
	return nlmsg_len(nlh);
}

struct net *smc_helper_genl_info_net(const struct genl_info *info)
{
	return genl_info_net(info);
}

const struct genl_info *smc_helper_genl_info_dump(struct netlink_callback *cb)
{
	return genl_info_dump(cb);
}

struct nlattr *smc_helper_nla_nest_start(struct sk_buff *skb, int attrtype)
{
	return nla_nest_start(skb, attrtype);
}

int smc_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start)
{
	return nla_nest_end(skb, start);
}

void smc_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start)
{
	nla_nest_cancel(skb, start);
}

int smc_helper_nla_put_uint(struct sk_buff *skb, int attrtype, u64 value)
{
	return nla_put_uint(skb, attrtype, value);
}

int smc_helper_nla_put_u64_64bit(struct sk_buff *skb, int attrtype, u64 value, int padattr)
{
	return nla_put_u64_64bit(skb, attrtype, value, padattr);
}

int smc_helper_nla_len(const struct nlattr *nla)
{
	return nla_len(nla);
}

void *smc_helper_nla_data(const struct nlattr *nla)
{
	return nla_data(nla);
}
