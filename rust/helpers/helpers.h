/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Prototypes of the C one-liners in this folder, for bindgen: inline functions
 * and macros that Rust cannot call. Rust calls smc_helper_x by the name x.
 */
#ifndef SMC_HELPERS_H
#define SMC_HELPERS_H

#if !IS_ENABLED(CONFIG_SMC)
#error "this kernel has no CONFIG_SMC: its TCP lacks the SMC option hooks"
#endif

#include "genl.h"
#include "ib.h"
#include "kthread.h"
#include "moduleparam.h"
#include "net.h"
#include "nsproxy.h"
#include "ratelimit.h"
#include "route.h"
#include "sock_diag.h"
#include "trace.h"
#include "trace_smc.h"
#include "utsname.h"
#include "workqueue.h"

#endif
