#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,ours)
# every: 5 days
# timeout: 300
# Data whose application goes, both ends ours.

. "${LIB%/*}/leaving.bash"

# at_a COMMAND...: in the guest that gives the orders, as `far` is in the other one.
at_a() {
	"$@"
}

all_ways 7100 "the server sends" far at_a far at_a
all_ways 7200 "the client sends" at_a far far at_a
dismiss
finish
