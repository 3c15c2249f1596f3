// SPDX-License-Identifier: GPL-2.0
/*
 * Inline functions and macros that Rust cannot call, as functions: one object for all, one file per C
 * header that they stand for. bindgen reads this file, so they need no prototypes; Rust calls
 * smc_helper_x by the name x.
 */
#include "../bindings/bindings_helper.h"

#include "bottom_half.c"
#include "genl.c"
#include "hs_ctrl.c"
#include "ib.c"
#include "kthread.c"
#include "module.c"
#include "moduleparam.c"
#include "net.c"
#include "nsproxy.c"
#include "ratelimit.c"
#include "route.c"
#include "sock_diag.c"
#include "spinlock.c"
#include "tcp_option.c"
#include "trace.c"
#include "uaccess.c"
#include "utsname.c"
#include "workqueue.c"
