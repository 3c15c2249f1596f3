#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 7 days
# killed: b
# timeout: 300
# The other machine, with the C module, loses power under load: one link over soft RoCE.

. "${LIB%/*}/pair_power.bash"

require_ends 2
lead
survive rxe -
finish
