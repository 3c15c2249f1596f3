// SPDX-License-Identifier: GPL-2.0
/*
 * include/linux/tcp.h, include/linux/skbuff.h, include/net/request_sock.h,
 * include/net/sock.h: for rust/kernel/net/tcp/option and rust/kernel/net/tcp/hook/request.rs
 */
__be32 smc_helper_sk_rcv_saddr(const struct sock *sk)
{
	return sk->sk_rcv_saddr;
}

const struct in6_addr *smc_helper_sk_v6_rcv_saddr(const struct sock *sk)
{
	return inet6_rcv_saddr(sk);
}

u16 smc_helper_sk_num(const struct sock *sk)
{
	return sk->sk_num;
}

#if IS_ENABLED(CONFIG_SMC)
void smc_helper_tcp_have_smc_enable(void)
{
	static_branch_enable(&tcp_have_smc);
}

void smc_helper_tcp_have_smc_disable(void)
{
	static_branch_disable(&tcp_have_smc);
}

bool smc_helper_tcp_syn_smc(const struct sock *sk)
{
	return tcp_sk(sk)->syn_smc;
}

bool smc_helper_tcp_smc_ok(const struct sock *sk)
{
	return tcp_sk(sk)->rx_opt.smc_ok;
}

void smc_helper_tcp_set_syn_smc(struct sock *sk, bool on)
{
	WRITE_ONCE(tcp_sk(sk)->syn_smc, on);
}

void smc_helper_tcp_set_hs_congested(struct sock *sk, bool (*fn)(const struct sock *))
{
	WRITE_ONCE(tcp_sk(sk)->smc_hs_congested, fn);
}
#else
__be32 smc_helper_sk_daddr(const struct sock *sk)
{
	return sk->sk_daddr;
}

const struct in6_addr *smc_helper_sk_v6_daddr(const struct sock *sk)
{
	return &sk->sk_v6_daddr;
}

__be16 smc_helper_sk_dport(const struct sock *sk)
{
	return sk->sk_dport;
}

struct sock *smc_helper_skb_sk(const struct sk_buff *skb)
{
	return skb->sk;
}

/* By the header: on its way through a VRF device a packet has no skb->protocol yet. */
static bool is_ipv4(const struct sk_buff *skb)
{
	return ip_hdr(skb)->version == 4;
}

/*
 * Whether a packet that leaves is TCP without further headers: an outer packet of a tunnel, or what IPsec made of a
 * segment, has the same socket.
 */
bool smc_helper_skb_is_tcp(const struct sk_buff *skb)
{
	u8 protocol;
	__be16 frag_off;
	int len;

	if (is_ipv4(skb)) {
		protocol = ip_hdr(skb)->protocol;
		len = ip_hdrlen(skb);
	} else {
		protocol = ipv6_hdr(skb)->nexthdr;
		len = ipv6_skip_exthdr(skb, sizeof(struct ipv6hdr), &protocol, &frag_off);
	}
	return protocol == IPPROTO_TCP && len == skb_transport_offset(skb);
}

void smc_helper_kfree_skb(struct sk_buff *skb)
{
	kfree_skb(skb);
}

u8 *smc_helper_skb_tcp_header(const struct sk_buff *skb)
{
	return skb_transport_header(skb);
}

size_t smc_helper_skb_tcp_hdrlen(const struct sk_buff *skb)
{
	return tcp_hdrlen(skb);
}

unsigned int smc_helper_skb_tcp_payload_len(const struct sk_buff *skb)
{
	return skb->len - skb_tcp_all_headers(skb);
}

/*
 * Moves the headers of an outgoing segment forward so that its TCP header has room at its end, and counts that in all
 * lengths and checksums. The options in it stay to be written. False if the segment cannot be changed.
 */
bool smc_helper_skb_extend_tcp_header(struct sk_buff *skb, u32 room)
{
	u32 headers = skb_tcp_all_headers(skb), len = skb->len - skb_transport_offset(skb);
	struct tcphdr *th;

	if (skb->ip_summed != CHECKSUM_PARTIAL || skb_cow_head(skb, room))
		return false;
	skb_push(skb, room);
	memmove(skb->data, skb->data + room, headers);
	skb->network_header -= room;
	skb->transport_header -= room;
	skb->csum_start -= room;
	th = tcp_hdr(skb);
	th->doff += room / 4;
	/* So far it is the sum of the pseudo header, which has the length. */
	inet_proto_csum_replace2(&th->check, skb, htons(len), htons(len + room), true);
	if (is_ipv4(skb)) {
		struct iphdr *iph = ip_hdr(skb);
		__be16 tot_len = htons(ntohs(iph->tot_len) + room);

		csum_replace2(&iph->check, iph->tot_len, tot_len);
		iph->tot_len = tot_len;
	} else {
		be16_add_cpu(&ipv6_hdr(skb)->payload_len, room);
	}
	return true;
}

const struct inet_connection_sock_af_ops *smc_helper_inet_csk_af_ops(const struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_af_ops);
}

void smc_helper_inet_csk_set_af_ops(struct sock *sk, const struct inet_connection_sock_af_ops *ops)
{
	WRITE_ONCE(inet_csk(sk)->icsk_af_ops, ops);
}

u8 smc_helper_tcp_save_syn(const struct sock *sk)
{
	return tcp_sk(sk)->save_syn;
}

void smc_helper_tcp_set_save_syn(struct sock *sk, u8 mode)
{
	tcp_sk(sk)->save_syn = mode;
}

struct saved_syn *smc_helper_tcp_saved_syn(const struct sock *sk)
{
	return tcp_sk(sk)->saved_syn;
}

void smc_helper_tcp_saved_syn_free(struct sock *sk)
{
	tcp_saved_syn_free(tcp_sk(sk));
}

u8 *smc_helper_saved_syn_tcp_header(struct saved_syn *syn)
{
	return syn->data + syn->mac_hdrlen + syn->network_hdrlen;
}

struct sock *smc_helper_reqsk_listener(const struct sock *req)
{
	return inet_reqsk(req)->rsk_listener;
}

struct saved_syn *smc_helper_reqsk_saved_syn(const struct sock *req)
{
	return READ_ONCE(inet_reqsk(req)->saved_syn);
}

u8 smc_helper_reqsk_num_timeout(const struct sock *req)
{
	return inet_reqsk(req)->num_timeout;
}

/* The lock under which a request leaves the hash table: its copy of the SYN is taken or freed only afterwards. */
spinlock_t *smc_helper_reqsk_hash_lock(const struct sock *req)
{
	return inet_ehash_lockp(tcp_get_hashinfo(req), inet_reqsk(req)->rsk_hash);
}

bool smc_helper_sk_hashed(const struct sock *sk)
{
	return sk_hashed(sk);
}

bool smc_helper_sk_is_tcp(const struct sock *sk)
{
	return sk_is_tcp(sk);
}
#endif
