#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# kernels: um-debug and um-6.12
# every: 7 days
# timeout: 560
# Our module as the client of the C module of Linux 6.12, the kernel of Debian 13.

PHASES=(basics endings fallbacks eids ours_goes)
. "${LIB%/*}/interop.bash"
