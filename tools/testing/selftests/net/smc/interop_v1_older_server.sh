#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(c,ours)
# every: 5 days
# roce: v1
# timeout: 400
# Our module as the server of an older C module, in version 1.

VERSION=1 PHASES=(v1_older devices ours_goes) C_SMC_KO=$OLD_C_SMC_KO
. "${LIB%/*}/interop.bash"
