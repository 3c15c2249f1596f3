// SPDX-License-Identifier: GPL-2.0
/* The tracepoints themselves. */
#define CREATE_TRACE_POINTS
#include <trace/events/smc.h>
