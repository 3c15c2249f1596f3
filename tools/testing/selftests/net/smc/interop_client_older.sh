#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# timeout: 400
# cpus: 1
# Our module as the client of an older C module.

PHASES=(older devices ours_goes) C_SMC_KO=$OLD_C_SMC_KO
. "${LIB%/*}/interop.bash"
