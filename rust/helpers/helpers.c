// SPDX-License-Identifier: GPL-2.0
/* One object for all helpers; one file per C header that they stand for. */
#include "../bindings/bindings_helper.h"

#include "genl.c"
#include "ib.c"
#include "kthread.c"
#include "moduleparam.c"
#include "net.c"
#include "nsproxy.c"
#include "ratelimit.c"
#include "route.c"
#include "sock_diag.c"
#include "utsname.c"
#include "workqueue.c"
