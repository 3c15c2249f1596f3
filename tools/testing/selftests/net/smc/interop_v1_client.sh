#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# cpus: 1
# roce: v1
# timeout: 560
# Our module as the client of the C module, in version 1.

VERSION=1 PHASES=(v1_basics v1_versions v1_subnets endings fallbacks c_goes)
. "${LIB%/*}/interop.bash"
