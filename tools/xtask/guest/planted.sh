#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 60
# leaks: no
# Says that all is well while the kernel's log says otherwise: the runner must believe the log.

echo "1..1"
echo "WARNING: printed by a program, which may do so"
echo "WARNING: CPU: 0 PID: 1 at net/smc/planted.c:1 planted+0x0/0x1" >/dev/kmsg
echo "WARNING: possible circular locking dependency detected" >/dev/kmsg
echo "ok 1 - a warning was planted"
exit 0
