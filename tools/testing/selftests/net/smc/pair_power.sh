#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,ours)
# every: 7 days
# killed: b
# timeout: 300
# The other machine, with our module, loses power under load: two links over soft RoCE.

. "${LIB%/*}/pair_power.bash"

require_ends 2
lead
survive rxe rxe
finish
