// SPDX-License-Identifier: GPL-2.0
/* include/net/sock.h, include/net/tcp.h, include/linux/net.h */
struct module *smc_helper_this_module(void)
{
	return THIS_MODULE;
}

bool smc_helper_this_module_is_live(void)
{
	return READ_ONCE(THIS_MODULE->state) == MODULE_STATE_LIVE;
}

int smc_helper_this_module_refcount(void)
{
#ifdef CONFIG_MODULE_UNLOAD
	return module_refcount(THIS_MODULE);
#else
	return 0;
#endif
}

void smc_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void smc_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void smc_helper_sock_graft(struct sock *sk, struct socket *parent)
{
	sock_graft(sk, parent);
}

void smc_helper_sock_orphan(struct sock *sk)
{
	sock_orphan(sk);
}

bool smc_helper_sock_flag(const struct sock *sk, enum sock_flags flag)
{
	return sock_flag(sk, flag);
}

void smc_helper_sock_set_flag(struct sock *sk, enum sock_flags flag)
{
	sock_set_flag(sk, flag);
}

void smc_helper_sock_add_flags(struct sock *sk, const struct sock *from, unsigned long mask)
{
	sk->sk_flags |= from->sk_flags & mask;
}

int smc_helper_sock_error(struct sock *sk)
{
	return sock_error(sk);
}

struct net *smc_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

struct net *smc_helper_maybe_get_net(struct net *net)
{
	return maybe_get_net(net);
}

void smc_helper_put_net(struct net *net)
{
	put_net(net);
}

u64 smc_helper_sock_net_cookie(const struct sock *sk)
{
	return sock_net(sk)->net_cookie;
}

u8 smc_helper_inet_tos(const struct sock *sk)
{
	return READ_ONCE(inet_sk(sk)->tos);
}

u8 smc_helper_inet6_tclass(const struct sock *sk)
{
	return inet6_sk(sk) ? READ_ONCE(inet6_sk(sk)->tclass) : 0;
}

long smc_helper_sock_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

long smc_helper_sock_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int smc_helper_sock_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

void smc_helper_sock_prot_inuse_add(struct sock *sk, int val)
{
	sock_prot_inuse_add(sock_net(sk), sk->sk_prot, val);
}

u32 smc_helper_sk_uid_munged(const struct sock *sk)
{
	return from_kuid_munged(sock_net(sk)->user_ns, sk_uid(sk));
}

int smc_helper_net_fin_timeout(const struct net *net)
{
	return READ_ONCE(net->ipv4.sysctl_tcp_fin_timeout);
}

bool smc_helper_sk_fast_open_enabled(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_tcp_fastopen) & TFO_CLIENT_ENABLE;
}

void smc_helper_sk_spin_lock_bh(struct sock *sk)
{
	spin_lock_bh(&sk->sk_lock.slock);
}

void smc_helper_sk_spin_unlock_bh(struct sock *sk)
{
	spin_unlock_bh(&sk->sk_lock.slock);
}

void smc_helper_sk_set_owned(struct sock *sk)
{
	WRITE_ONCE(sk->sk_lock.owned, 1);
}

void smc_helper_sk_lock_acquired(struct sock *sk)
{
	mutex_acquire(&sk->sk_lock.dep_map, 0, 1, _RET_IP_);
}

bool smc_helper_sk_wmem_schedule(struct sock *sk, int size)
{
	return sk_wmem_schedule(sk, size);
}

bool smc_helper_sk_rmem_schedule(struct sock *sk, int size)
{
	return __sk_rmem_schedule(sk, size, false);
}

void smc_helper_sk_mem_charge(struct sock *sk, int size)
{
	sk_mem_charge(sk, size);
}

void smc_helper_sk_mem_uncharge(struct sock *sk, int size)
{
	sk_mem_uncharge(sk, size);
}

void smc_helper_sk_mem_reclaim(struct sock *sk)
{
	sk_mem_reclaim(sk);
}

bool smc_helper_sock_owned_by_user(const struct sock *sk)
{
	return sock_owned_by_user(sk);
}

bool smc_helper_sock_owned_by_user_nocheck(const struct sock *sk)
{
	return sock_owned_by_user_nocheck(sk);
}

void smc_helper_sk_wmem_queued_add(struct sock *sk, int val)
{
	sk_wmem_queued_add(sk, val);
}

void smc_helper_sk_rmem_alloc_add(struct sock *sk, int val)
{
	atomic_add(val, &sk->sk_rmem_alloc);
}

int smc_helper_sk_rmem_alloc_get(const struct sock *sk)
{
	return sk_rmem_alloc_get(sk);
}

#ifdef CONFIG_SOCK_CGROUP_DATA
void smc_helper_cgroup_get(struct cgroup *cgrp)
{
	cgroup_get(cgrp);
}

void smc_helper_cgroup_put(struct cgroup *cgrp)
{
	cgroup_put(cgrp);
}

void smc_helper_cgroup_bpf_get(struct cgroup *cgrp)
{
	cgroup_bpf_get(cgrp);
}

void smc_helper_cgroup_bpf_put(struct cgroup *cgrp)
{
	cgroup_bpf_put(cgrp);
}
#endif

static DEFINE_PER_CPU(int, memory_per_cpu_fw_alloc);

int __percpu *smc_helper_memory_per_cpu_fw_alloc(void)
{
	return &memory_per_cpu_fw_alloc;
}

struct mem_cgroup *smc_helper_mem_cgroup_from_sk(const struct sock *sk)
{
	return mem_cgroup_from_sk(sk);
}

#ifdef CONFIG_MEMCG
struct mem_cgroup *smc_helper_mem_cgroup_from_current(void)
{
	return mem_cgroup_from_task(current);
}
#endif

bool smc_helper_mem_cgroup_is_root(struct mem_cgroup *memcg)
{
	return mem_cgroup_is_root(memcg);
}

bool smc_helper_mem_cgroup_has_sockets(void)
{
	return mem_cgroup_sockets_enabled;
}

void smc_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

bool smc_helper_mem_cgroup_tryget(struct mem_cgroup *memcg)
{
	return mem_cgroup_tryget(memcg);
}

struct socket_wq *smc_helper_sk_wq_rcu(const struct sock *sk)
{
	return rcu_dereference(sk->sk_wq);
}

bool smc_helper_skwq_has_sleeper(struct socket_wq *wq)
{
	return skwq_has_sleeper(wq);
}

bool smc_helper_wq_has_sleeper(struct wait_queue_head *wq)
{
	return wq_has_sleeper(wq);
}

void smc_helper_sk_wake_async_rcu(struct sock *sk, int how, int band)
{
	sk_wake_async_rcu(sk, how, band);
}

void smc_helper_sock_poll_wait(struct file *file, struct socket *sock, poll_table *p)
{
	sock_poll_wait(file, sock, p);
}

void smc_helper_sock_set_bit(struct socket *sock, int nr)
{
	set_bit(nr, &sock->flags);
}

void smc_helper_sock_clear_bit(struct socket *sock, int nr)
{
	clear_bit(nr, &sock->flags);
}

void smc_helper_sk_set_async_nospace(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, sk);
}

void smc_helper_sk_set_async_waitdata(struct sock *sk)
{
	sk_set_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

void smc_helper_sk_clear_async_waitdata(struct sock *sk)
{
	sk_clear_bit(SOCKWQ_ASYNC_WAITDATA, sk);
}

bool smc_helper_sk_stream_is_writeable(const struct sock *sk)
{
	return sk_stream_is_writeable(sk);
}

struct inode *smc_helper_sock_inode(struct socket *sock)
{
	return SOCK_INODE(sock);
}

struct socket *smc_helper_socket_i(struct inode *inode)
{
	return SOCKET_I(inode);
}

struct socket *smc_helper_sk_socket(const struct sock *sk)
{
	return READ_ONCE(sk->sk_socket);
}

void smc_helper_sk_set_socket(struct sock *sk, struct socket *sock)
{
	sk_set_socket(sk, sock);
}

void smc_helper_sk_set_wq(struct sock *sk, struct socket *sock)
{
	rcu_assign_pointer(sk->sk_wq, &sock->wq);
}

static struct lock_class_key smc_tcp_wait_class;

void smc_helper_set_tcp_wait_class(struct socket *sock)
{
	lockdep_set_class(&sock->wq.wait.lock, &smc_tcp_wait_class);
}

void smc_helper_callback_write_lock_bh(struct sock *sk)
{
	write_lock_bh(&sk->sk_callback_lock);
}

void smc_helper_callback_write_unlock_bh(struct sock *sk)
{
	write_unlock_bh(&sk->sk_callback_lock);
}

void smc_helper_callback_read_lock_bh(struct sock *sk)
{
	read_lock_bh(&sk->sk_callback_lock);
}

void smc_helper_callback_read_unlock_bh(struct sock *sk)
{
	read_unlock_bh(&sk->sk_callback_lock);
}

/* The macro defines a lock class of its own for this place. */
void smc_helper_init_waitqueue_head(struct wait_queue_head *wq)
{
	init_waitqueue_head(wq);
}

void smc_helper_init_waitqueue_func_entry(struct wait_queue_entry *entry, wait_queue_func_t func)
{
	init_waitqueue_func_entry(entry, func);
}

void smc_helper_init_wait_woken(struct wait_queue_entry *entry)
{
	init_wait_func(entry, woken_wake_function);
}

/* Whether segments are signed (RFC 2385, RFC 5925), of whatever peer. */
bool smc_helper_tcp_has_keys(const struct sock *sk)
{
	bool has_keys = false;

	rcu_read_lock();
#ifdef CONFIG_TCP_MD5SIG
	{
		const struct tcp_md5sig_info *md5 =
			rcu_dereference(tcp_sk(sk)->md5sig_info);

		has_keys |= md5 && !hlist_empty(&md5->head);
	}
#endif
#ifdef CONFIG_TCP_AO
	has_keys |= !!rcu_access_pointer(tcp_sk(sk)->ao_info);
#endif
	rcu_read_unlock();
	return has_keys;
}

bool smc_helper_current_is_exiting(void)
{
	return current->flags & PF_EXITING;
}

int smc_helper_tcp_unread(struct sock *sk)
{
	return tcp_sk(sk)->rcv_nxt - READ_ONCE(tcp_sk(sk)->copied_seq) - sock_flag(sk, SOCK_DONE);
}

bool smc_helper_tcp_has_attempt(const struct socket *sock)
{
	return READ_ONCE(sock->state) == SS_CONNECTING;
}

u8 smc_helper_tcp_nonagle(const struct sock *sk)
{
	return tcp_sk(sk)->nonagle;
}

void smc_helper_tcp_set_nonagle(struct sock *sk, u8 nonagle)
{
	tcp_sk(sk)->nonagle = nonagle;
}

void smc_helper_tcp_touch_rcv_tstamp(struct sock *sk)
{
	WRITE_ONCE(tcp_sk(sk)->rcv_tstamp, tcp_jiffies32);
}

void smc_helper_tcp_forget_probes(struct sock *sk)
{
	WRITE_ONCE(inet_csk(sk)->icsk_probes_out, 0);
}

void smc_helper_cgroup_run_sock_release(struct sock *sk)
{
	BPF_CGROUP_RUN_PROG_INET_SOCK_RELEASE(sk);
}

int smc_helper_tcp_keepalive_time(const struct sock *sk)
{
	return keepalive_time_when(tcp_sk(sk));
}

void smc_helper_tcp_send_pure_ack(struct sock *sk)
{
	__tcp_send_ack(sk, tcp_sk(sk)->rcv_nxt, 0);
}

u32 smc_helper_tcp_user_timeout(const struct sock *sk)
{
	return READ_ONCE(inet_csk(sk)->icsk_user_timeout);
}

bool smc_helper_tcp_wants_inq(const struct sock *sk)
{
	return tcp_sk(sk)->recvmsg_inq;
}

u32 smc_helper_tcp_delivered(const struct sock *sk)
{
	return READ_ONCE(tcp_sk(sk)->delivered);
}

bool smc_helper_sk_has_xfrm_policy(const struct sock *sk)
{
#ifdef CONFIG_XFRM
	return rcu_access_pointer(sk->sk_policy[0]) || rcu_access_pointer(sk->sk_policy[1]);
#else
	return false;
#endif
}

void smc_helper_sk_clone_label(const struct sock *sk, struct sock *newsk)
{
	security_sk_clone(sk, newsk);
}

sockptr_t smc_helper_kernel_sockptr(void *p)
{
	return KERNEL_SOCKPTR(p);
}

sockptr_t smc_helper_user_sockptr(void __user *p)
{
	return USER_SOCKPTR(p);
}

bool smc_helper_sockptr_is_null(sockptr_t p)
{
	return sockptr_is_null(p);
}

int smc_helper_copy_to_sockptr(sockptr_t dst, const void *src, size_t size)
{
	return copy_to_sockptr(dst, src, size);
}

int smc_helper_copy_from_sockptr(void *dst, sockptr_t src, size_t size)
{
	return copy_from_sockptr(dst, src, size);
}

/* Whoever reads an object of ours of a namespace. */
DEFINE_STATIC_SRCU(smc_pernet_srcu);

int smc_helper_pernet_read_lock(void)
{
	return srcu_read_lock(&smc_pernet_srcu);
}

void smc_helper_pernet_read_unlock(int idx)
{
	srcu_read_unlock(&smc_pernet_srcu, idx);
}

void smc_helper_pernet_synchronize(void)
{
	synchronize_srcu(&smc_pernet_srcu);
}

void *smc_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

bool smc_helper_sk_holds_net(const struct sock *sk)
{
	return sk->sk_net_refcnt;
}
