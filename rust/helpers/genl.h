/* SPDX-License-Identifier: GPL-2.0 */
void smc_helper_genlmsg_end(struct sk_buff *skb, void *hdr);
void smc_helper_genlmsg_cancel(struct sk_buff *skb, void *hdr);
int smc_helper_genlmsg_reply(struct sk_buff *skb, struct genl_info *info);
struct sk_buff *smc_helper_genlmsg_new(size_t payload, gfp_t flags);
void smc_helper_nlmsg_free(struct sk_buff *skb);
struct nlmsghdr *smc_helper_nlmsg_put(struct sk_buff *skb, u32 portid, u32 seq, int type,
				      int payload, int flags);
void smc_helper_nlmsg_end(struct sk_buff *skb, struct nlmsghdr *nlh);
void *smc_helper_nlmsg_data(const struct nlmsghdr *nlh);
int smc_helper_nlmsg_len(const struct nlmsghdr *nlh);
struct net *smc_helper_genl_info_net(const struct genl_info *info);
const struct genl_info *smc_helper_genl_info_dump(struct netlink_callback *cb);
struct nlattr *smc_helper_nla_nest_start(struct sk_buff *skb, int attrtype);
int smc_helper_nla_nest_end(struct sk_buff *skb, struct nlattr *start);
void smc_helper_nla_nest_cancel(struct sk_buff *skb, struct nlattr *start);
int smc_helper_nla_put_uint(struct sk_buff *skb, int attrtype, u64 value);
int smc_helper_nla_put_u64_64bit(struct sk_buff *skb, int attrtype, u64 value, int padattr);
int smc_helper_nla_len(const struct nlattr *nla);
void *smc_helper_nla_data(const struct nlattr *nla);
