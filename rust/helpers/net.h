/* SPDX-License-Identifier: GPL-2.0 */
struct module *smc_helper_this_module(void);

bool smc_helper_this_module_is_live(void);
int smc_helper_this_module_refcount(void);

void smc_helper_tcp_have_smc_enable(void);
void smc_helper_tcp_have_smc_disable(void);

void smc_helper_sock_hold(struct sock *sk);
void smc_helper_sock_put(struct sock *sk);
void smc_helper_sock_graft(struct sock *sk, struct socket *parent);
void smc_helper_sock_orphan(struct sock *sk);
bool smc_helper_sock_flag(const struct sock *sk, enum sock_flags flag);
void smc_helper_sock_set_flag(struct sock *sk, enum sock_flags flag);
int smc_helper_sock_error(struct sock *sk);
struct net *smc_helper_sock_net(const struct sock *sk);
struct net *smc_helper_maybe_get_net(struct net *net);
void smc_helper_put_net(struct net *net);
u64 smc_helper_sock_net_cookie(const struct sock *sk);
long smc_helper_sock_rcvtimeo(const struct sock *sk, bool noblock);
long smc_helper_sock_sndtimeo(const struct sock *sk, bool noblock);
int smc_helper_sock_intr_errno(long timeo);
void smc_helper_sock_prot_inuse_add(struct sock *sk, int val);
u32 smc_helper_sk_uid_munged(const struct sock *sk);
int smc_helper_sk_fin_timeout(const struct sock *sk);
void smc_helper_sk_spin_lock_bh(struct sock *sk);
void smc_helper_sk_spin_unlock_bh(struct sock *sk);
bool smc_helper_sk_wmem_schedule(struct sock *sk, int size);
bool smc_helper_sk_rmem_schedule(struct sock *sk, int size);
void smc_helper_sk_mem_charge(struct sock *sk, int size);
void smc_helper_sk_mem_uncharge(struct sock *sk, int size);
void smc_helper_sk_mem_reclaim(struct sock *sk);
bool smc_helper_sock_owned_by_user(const struct sock *sk);
void smc_helper_sk_wmem_queued_add(struct sock *sk, int val);
void smc_helper_sk_rmem_alloc_add(struct sock *sk, int val);
int __percpu *smc_helper_memory_per_cpu_fw_alloc(void);
struct mem_cgroup *smc_helper_mem_cgroup_from_sk(const struct sock *sk);
bool smc_helper_mem_cgroup_tryget(struct mem_cgroup *memcg);
struct socket_wq *smc_helper_sk_wq_rcu(const struct sock *sk);
bool smc_helper_skwq_has_sleeper(struct socket_wq *wq);
bool smc_helper_wq_has_sleeper(struct wait_queue_head *wq);
void smc_helper_sk_wake_async_rcu(struct sock *sk, int how, int band);
void smc_helper_sock_poll_wait(struct file *file, struct socket *sock, poll_table *p);
void smc_helper_sock_set_bit(struct socket *sock, int nr);
void smc_helper_sock_clear_bit(struct socket *sock, int nr);
bool smc_helper_sk_stream_is_writeable(const struct sock *sk);
struct socket *smc_helper_sk_socket(const struct sock *sk);
void smc_helper_sk_set_socket(struct sock *sk, struct socket *sock);
void smc_helper_sk_set_wq(struct sock *sk, struct socket *sock);

void smc_helper_callback_write_lock_bh(struct sock *sk);
void smc_helper_callback_write_unlock_bh(struct sock *sk);
void smc_helper_callback_read_lock_bh(struct sock *sk);
void smc_helper_callback_read_unlock_bh(struct sock *sk);

void smc_helper_init_waitqueue_head(struct wait_queue_head *wq);
void smc_helper_init_waitqueue_func_entry(struct wait_queue_entry *entry, wait_queue_func_t func);
void smc_helper_init_wait_woken(struct wait_queue_entry *entry);

bool smc_helper_tcp_has_keys(const struct sock *sk);
bool smc_helper_tcp_syn_smc(const struct sock *sk);
void smc_helper_tcp_set_syn_smc(struct sock *sk, bool on);
void smc_helper_tcp_set_hs_congested(struct sock *sk, bool (*fn)(const struct sock *));
bool smc_helper_current_is_exiting(void);
int smc_helper_tcp_unread(struct sock *sk);
bool smc_helper_tcp_has_attempt(const struct socket *sock);
bool smc_helper_tcp_is_corked(const struct sock *sk);
bool smc_helper_tcp_is_nodelay(const struct sock *sk);
bool smc_helper_tcp_wants_inq(const struct sock *sk);
u16 smc_helper_tcp_urg_data(const struct sock *sk);
u32 smc_helper_tcp_urg_seq(const struct sock *sk);
bool smc_helper_sk_has_xfrm_policy(const struct sock *sk);

sockptr_t smc_helper_kernel_sockptr(void *p);
int smc_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size);
size_t smc_helper_msg_data_left(const struct msghdr *msg);

int smc_helper_pernet_read_lock(void);
void smc_helper_pernet_read_unlock(int idx);
void smc_helper_pernet_synchronize(void);
void *smc_helper_net_generic(const struct net *net, unsigned int id);
bool smc_helper_sk_holds_net(const struct sock *sk);

/* What the C compiler says of the layouts that Rust relies on; see rust/kernel/net/layout.rs. */
enum smc_layout {
	SMC_SIZEOF_SOCK = sizeof(struct sock),
	SMC_SIZEOF_INET_SOCK = sizeof(struct inet_sock),
	SMC_SIZEOF_TCP_SOCK = sizeof(struct tcp_sock),
	SMC_SIZEOF_IPV6_PINFO = sizeof(struct ipv6_pinfo),
	SMC_SIZEOF_PROTO = sizeof(struct proto),
	SMC_SIZEOF_PROTO_OPS = sizeof(struct proto_ops),
	SMC_SIZEOF_MSGHDR = sizeof(struct msghdr),
	SMC_OFFSETOF_ICSK_ULP_DATA = offsetof(struct inet_connection_sock, icsk_ulp_data),
	SMC_OFFSETOF_KEEPALIVE_TIME = offsetof(struct tcp_sock, keepalive_time),
	SMC_OFFSETOF_NOTSENT_LOWAT = offsetof(struct tcp_sock, notsent_lowat),
	SMC_OFFSETOF_SOCKET_WQ = offsetof(struct socket, wq),
	SMC_OFFSETOF_SK_DATA_READY = offsetof(struct sock, sk_data_ready),
	SMC_OFFSETOF_SK_PROT_CREATOR = offsetof(struct sock, sk_prot_creator),
	SMC_OFFSETOF_SK_USER_DATA = offsetof(struct sock, sk_user_data),
	SMC_OFFSETOF_SK_WQ = offsetof(struct sock, sk_wq),
	SMC_OFFSETOF_NET_TCP_RMEM = offsetof(struct net, ipv4.sysctl_tcp_rmem),
	SMC_OFFSETOF_NET_TCP_WMEM = offsetof(struct net, ipv4.sysctl_tcp_wmem),
};
