#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# kernels: um-no-smc and um-debug, debian-7.3 and um-debug
# timeout: 560
# cpus: 1
# Our module as the client of the C module, on kernels whose TCP knows nothing of the SMC option.

PHASES=(basics endings fallbacks)
. "${LIB%/*}/interop.bash"
