#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# kernels: um-debug and um-no-smc, um-debug and debian-7.3
# timeout: 560
# cpus: 1
# Our module as the server of the C module, on kernels whose TCP knows nothing of the SMC option.

PHASES=(basics endings fallbacks)
. "${LIB%/*}/interop.bash"
