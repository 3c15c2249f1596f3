/* SPDX-License-Identifier: GPL-2.0 */
/* The only list of C headers that the module binds, alphabetical. */
#ifndef SMC_BINDINGS_HELPER_H
#define SMC_BINDINGS_HELPER_H

#include <asm/ioctls.h>
#include <linux/device.h>
#include <linux/fs.h>
#include <linux/if_vlan.h>
#include <linux/inetdevice.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/pci.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/ratelimit.h>
#include <linux/reboot.h>
#include <linux/scatterlist.h>
#include <linux/sched/signal.h>
#include <linux/sched/task.h>
#include <linux/shrinker.h>
#include <linux/smc_diag.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <linux/sysctl.h>
#include <linux/tcp.h>
#include <linux/utsname.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/addrconf.h>
#include <net/genetlink.h>
#include <net/inet_common.h>
#include <net/ipv6.h>
#include <net/netns/generic.h>
#include <net/protocol.h>
#include <net/route.h>
#include <net/smc.h>
#include <net/sock.h>
#include <net/sock_reuseport.h>
#include <net/tcp.h>
#include <rdma/ib_cache.h>
#include <rdma/ib_verbs.h>
#include <rdma/iw_cm.h>
#include <uapi/linux/smc.h>

#include "../helpers/helpers.h"

const unsigned long RUST_CONST_HELPER_SMC_HZ = CONFIG_HZ;
const u32 RUST_CONST_HELPER_SOCK_DIAG_ALLOC = SKB_WITH_OVERHEAD(32768);
const gfp_t RUST_CONST_HELPER_GFP_KERNEL = GFP_KERNEL;
const gfp_t RUST_CONST_HELPER_GFP_ATOMIC = GFP_ATOMIC;

#endif
