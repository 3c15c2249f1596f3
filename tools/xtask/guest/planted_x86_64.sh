#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# timeout: 60
# trouble: task insmod:\d+ blocked for more than 1 seconds
# trouble: WARNING: .*planted
# As planted.sh, for the checkers of this kernel.

echo "1..1"
echo "WARNING: printed by a program, which may do so"
echo 1 >/proc/sys/kernel/hung_task_timeout_secs
insmod "$PLANTED_KO" hang=1 warn=1
echo "ok 1 - faults were planted"
exit 0
