#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 60
# trouble: BUG: KASAN: slab-use-after-free in .*planted
# trouble: possible circular locking dependency detected
# trouble: task insmod:\d+ blocked for more than 1 seconds
# trouble: WARNING: .*planted
# trouble: kmemleak: unreferenced object
# trouble: UBSAN: array-index-out-of-bounds in .*planted_c
# trouble: BUG: workqueue lockup - pool
# Says that all is well while the kernel's log says otherwise: each checker has to find its fault, in
# Rust code if it looks there, and the runner has to believe the log.

echo "1..1"
echo "WARNING: printed by a program, which may do so"
echo 1 >/proc/sys/kernel/hung_task_timeout_secs
echo 1 >/sys/module/workqueue/parameters/watchdog_thresh
insmod "${PLANTED_KO%.ko}_c.ko" out_of_bounds=1 stall=1
insmod "$PLANTED_KO" use_after_free=1 lock_order=1 hang=1 warn=1 leak=1
echo "ok 1 - faults were planted"
exit 0
