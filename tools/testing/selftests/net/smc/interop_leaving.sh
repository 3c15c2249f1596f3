#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# timeout: 300
# Data whose application goes, with the C module at either end, and either module as the server.

. "${LIB%/*}/leaving.bash"

all_ways 7100 "C sends, C serves" at_c at_ours at_c at_ours
all_ways 7200 "C sends, ours serves" at_c at_ours at_ours at_c
all_ways 7300 "ours sends, ours serves" at_ours at_c at_ours at_c
all_ways 7400 "ours sends, C serves" at_ours at_c at_c at_ours
check "a server" far serve 7500
check "SMC still works" talk 7500 --expect smc integrity --mib 1
dismiss
finish
