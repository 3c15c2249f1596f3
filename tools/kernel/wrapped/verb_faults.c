// SPDX-License-Identifier: GPL-2.0
/*
 * For tests: each verb that smc.ko calls fails once, at each call site.
 *
 * A call site is a verb and the functions of the module that led to the call. /proc/verb_faults lists those seen,
 * one a line: its number, the number of calls, the verb, and the functions, innermost first. The next call from
 * the site whose number is in `site` fails; `failed` counts such calls.
 *
 * smc.ko is linked so that it calls these functions in place of the RDMA core's: see `build`.
 */
#include <linux/dma-mapping.h>
#include <linux/hash.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/stacktrace.h>
#include <linux/string.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>

#define MAX_SITES 512
#define MAX_FRAMES 12
#define MAX_DEPTH 32

struct call_site {
	const char *verb;
	unsigned long frames[MAX_FRAMES];
	unsigned int nr_frames;
	unsigned int calls;
};

static struct call_site sites[MAX_SITES];
static unsigned int nr_sites;
static DEFINE_SPINLOCK(lock);

static int site = -1;
module_param(site, int, 0644);
MODULE_PARM_DESC(site, "Call site whose next call fails; it is -1 after that");
static unsigned int failed;
module_param(failed, uint, 0444);
MODULE_PARM_DESC(failed, "Calls that failed");
static unsigned int lost;
module_param(lost, uint, 0444);
MODULE_PARM_DESC(lost, "Calls from sites for which the list has no room");

/*
 * Where the function of smc.ko begins that has a return address, by that address; 0 for other functions. Symbols of a
 * module are looked up one by one, which takes more than all else here.
 */
#define KNOWN_BITS 12
static struct {
	unsigned long address, start;
} known[1 << KNOWN_BITS];
static DEFINE_SPINLOCK(known_lock);

/* smc.ko registers once, before it calls anything else, and may be another one at the same address than before. */
static void forget_known(void)
{
	unsigned long flags;

	spin_lock_irqsave(&known_lock, flags);
	memset(known, 0, sizeof(known));
	spin_unlock_irqrestore(&known_lock, flags);
}

static unsigned long look_up(unsigned long address)
{
	char name[KSYM_SYMBOL_LEN], *plus;
	unsigned long offset;

	/* NAME+OFFSET/SIZE [MODULE] */
	sprint_symbol(name, address);
	plus = strrchr(name, '+');
	if (plus && strstr(plus, " [smc]") && sscanf(plus, "+%lx", &offset) == 1)
		return address - offset;
	return 0;
}

static unsigned long start_of(unsigned long address)
{
	unsigned int place = hash_long(address, KNOWN_BITS);
	unsigned long flags, start = 0;
	bool is_known;

	spin_lock_irqsave(&known_lock, flags);
	is_known = known[place].address == address;
	if (is_known)
		start = known[place].start;
	spin_unlock_irqrestore(&known_lock, flags);
	if (is_known)
		return start;
	start = look_up(address);
	spin_lock_irqsave(&known_lock, flags);
	known[place].address = address;
	known[place].start = start;
	spin_unlock_irqrestore(&known_lock, flags);
	return start;
}

/* Where the functions of smc.ko that led here begin, innermost first. */
static unsigned int callers(unsigned long *frames)
{
	unsigned long all[MAX_DEPTH], start;
	unsigned int nr = 0, i, depth;

	depth = stack_trace_save(all, MAX_DEPTH, 2);
	for (i = 0; i < depth && nr < MAX_FRAMES; i++) {
		start = start_of(all[i]);
		if (start)
			frames[nr++] = start;
		else if (nr)
			break;
	}
	return nr;
}

static bool fails(const char *verb)
{
	unsigned long frames[MAX_FRAMES];
	unsigned int nr_frames, i;
	unsigned long flags;
	bool fail = false;

	nr_frames = callers(frames);
	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < nr_sites; i++)
		if (sites[i].verb == verb && sites[i].nr_frames == nr_frames &&
		    !memcmp(sites[i].frames, frames, nr_frames * sizeof(frames[0])))
			break;
	if (i == MAX_SITES) {
		lost++;
	} else {
		if (i == nr_sites) {
			nr_sites++;
			sites[i].verb = verb;
			sites[i].nr_frames = nr_frames;
			memcpy(sites[i].frames, frames, nr_frames * sizeof(frames[0]));
		}
		sites[i].calls++;
		fail = site == i;
	}
	if (fail) {
		site = -1;
		failed++;
	}
	spin_unlock_irqrestore(&lock, flags);
	return fail;
}

static int show(struct seq_file *file, void *unused)
{
	unsigned int i, frame;

	for (i = 0; i < READ_ONCE(nr_sites); i++) {
		seq_printf(file, "%u %u %s", i, sites[i].calls, sites[i].verb);
		for (frame = 0; frame < sites[i].nr_frames; frame++)
			seq_printf(file, " %ps", (void *)sites[i].frames[frame]);
		seq_putc(file, '\n');
	}
	return 0;
}

/* Verbs that return an errno, and those that return a pointer. */
#define WRAP_INT(name, error, params, args)			\
	int __wrap_##name params;				\
	int __wrap_##name params				\
	{							\
		return fails(#name) ? (error) : name args;	\
	}							\
	EXPORT_SYMBOL_GPL(__wrap_##name)

#define WRAP_PTR(type, name, error, params, args)			\
	type __wrap_##name params;					\
	type __wrap_##name params					\
	{								\
		return fails(#name) ? ERR_PTR(error) : name args;	\
	}								\
	EXPORT_SYMBOL_GPL(__wrap_##name)

int __wrap_ib_register_client(struct ib_client *client);
int __wrap_ib_register_client(struct ib_client *client)
{
	forget_known();
	return fails("ib_register_client") ? -ENOMEM : ib_register_client(client);
}
EXPORT_SYMBOL_GPL(__wrap_ib_register_client);

WRAP_PTR(struct ib_pd *, __ib_alloc_pd, -ENOMEM,
	 (struct ib_device *dev, unsigned int flags, const char *caller), (dev, flags, caller));
WRAP_PTR(struct ib_mr *, ib_alloc_mr, -ENOMEM,
	 (struct ib_pd *pd, enum ib_mr_type type, u32 max_num_sg), (pd, type, max_num_sg));
WRAP_PTR(struct ib_cq *, ib_cq_pool_get, -ENOMEM,
	 (struct ib_device *dev, unsigned int nr_cqe, int hint, enum ib_poll_context ctx),
	 (dev, nr_cqe, hint, ctx));
WRAP_PTR(struct ib_qp *, ib_create_qp_kernel, -ENOMEM,
	 (struct ib_pd *pd, struct ib_qp_init_attr *attr, const char *caller), (pd, attr, caller));
WRAP_INT(ib_modify_qp, -EINVAL,
	 (struct ib_qp *qp, struct ib_qp_attr *attr, int mask), (qp, attr, mask));
WRAP_INT(ib_map_mr_sg, -EINVAL,
	 (struct ib_mr *mr, struct scatterlist *sg, int nents, unsigned int *offset, unsigned int size),
	 (mr, sg, nents, offset, size));
WRAP_INT(ib_query_port, -EIO,
	 (struct ib_device *dev, u32 port, struct ib_port_attr *attr), (dev, port, attr));
WRAP_PTR(const struct ib_gid_attr *, rdma_get_gid_attr, -ENODATA,
	 (struct ib_device *dev, u32 port, int index), (dev, port, index));
WRAP_PTR(struct net_device *, rdma_read_gid_attr_ndev_rcu, -ENODEV,
	 (const struct ib_gid_attr *attr), (attr));
WRAP_INT(rdma_read_gid_l2_fields, -EINVAL,
	 (const struct ib_gid_attr *attr, u16 *vlan, u8 *mac), (attr, vlan, mac));
WRAP_PTR(struct iw_cm_id *, iw_create_cm_id, -ENOMEM,
	 (struct ib_device *dev, iw_cm_handler handler, void *context), (dev, handler, context));
WRAP_INT(iw_cm_listen, -EADDRINUSE, (struct iw_cm_id *id, int backlog), (id, backlog));
WRAP_INT(iw_cm_accept, -EIO,
	 (struct iw_cm_id *id, struct iw_cm_conn_param *param), (id, param));
WRAP_INT(iw_cm_connect, -ENOMEM,
	 (struct iw_cm_id *id, struct iw_cm_conn_param *param), (id, param));

struct net_device *__wrap_ib_device_get_netdev(struct ib_device *dev, u32 port);
struct net_device *__wrap_ib_device_get_netdev(struct ib_device *dev, u32 port)
{
	return fails("ib_device_get_netdev") ? NULL : ib_device_get_netdev(dev, port);
}
EXPORT_SYMBOL_GPL(__wrap_ib_device_get_netdev);

/* Inline functions of the RDMA core, which smc.ko calls by helpers. */
#define WRAP(name) __wrap_smc_helper_ib_##name

#define WRAP_POST(what)								\
	int WRAP(post_##what)(struct ib_qp *qp, const struct ib_##what##_wr *wr,	\
			      const struct ib_##what##_wr **bad_wr);		\
	int WRAP(post_##what)(struct ib_qp *qp, const struct ib_##what##_wr *wr,	\
			      const struct ib_##what##_wr **bad_wr)			\
	{										\
		if (!fails("ib_post_" #what))					\
			return ib_post_##what(qp, wr, bad_wr);			\
		*bad_wr = wr;								\
		return -ENOMEM;							\
	}										\
	EXPORT_SYMBOL_GPL(WRAP(post_##what))

WRAP_POST(send);
WRAP_POST(recv);

u64 WRAP(dma_map_single)(struct ib_device *dev, void *addr, size_t size, enum dma_data_direction dir);
u64 WRAP(dma_map_single)(struct ib_device *dev, void *addr, size_t size, enum dma_data_direction dir)
{
	return fails("ib_dma_map_single") ? DMA_MAPPING_ERROR : ib_dma_map_single(dev, addr, size, dir);
}
EXPORT_SYMBOL_GPL(WRAP(dma_map_single));

int WRAP(dma_mapping_error)(struct ib_device *dev, u64 addr);
int WRAP(dma_mapping_error)(struct ib_device *dev, u64 addr)
{
	return addr == DMA_MAPPING_ERROR ? -ENOMEM : ib_dma_mapping_error(dev, addr);
}
EXPORT_SYMBOL_GPL(WRAP(dma_mapping_error));

static int __init init(void)
{
	return proc_create_single("verb_faults", 0444, NULL, show) ? 0 : -ENOMEM;
}

static void __exit cleanup(void)
{
	remove_proc_entry("verb_faults", NULL);
}

module_init(init);
module_exit(cleanup);

MODULE_DESCRIPTION("Verbs that fail, for tests");
MODULE_LICENSE("GPL");
