#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 300
# What connections cost: messages to set one up.

. "$LIB"
. "${LIB%/*}/capture.bash"

# Messages -----------------------------------------------------------------------------------

CONNECTIONS=100

# one_link: the C module takes the other end's device for a second link, which has messages of its own.
one_link() {
	local end
	for end in a b; do
		in_ns "$end" sh -c "echo 1 >/proc/sys/net/smc/smcr_max_links_per_lgr" || return
	done
}

# with_module MODULE COMMAND...: the command with that module and buffers for some connections at each end.
with_module() {
	local code MODULE=$1
	shift
	load_smc && common_eid && up_netns && up_rxe && one_link &&
		smctest --expect smc hold --connections 16 --seconds 0 && "$@"
	code=$?
	down_netns && within 20 no_devices && within 20 unload_smc && return "$code"
}

connect_again() {
	smctest --expect smc connrate --count "$CONNECTIONS" >/tmp/rate && cat /tmp/rate
}

# set_up: connections into the group that is there; prints what they cost.
set_up() {
	count_llc connect_again || return
	cell "LLC messages per connection" "$(awk "BEGIN { printf \"%.2f\", $LLC / $CONNECTIONS }")"
	cell "connections/s, debug kernel" "$(sed 's/.*: \([0-9]*\) a second/\1/' /tmp/rate)"
}

cell() {
	echo "# table | Into a group with free buffers | $1 | $MODULE | $2"
}

sets_up_in_silence() {
	set_up && [ "$LLC" = 0 ]
}

# The count is no good if it finds nothing here: the C module has a key exchange for each connection.
sets_up_with_messages() {
	set_up && [ "$LLC" -ge "$CONNECTIONS" ]
}

require "RDMA modules load" load_rdma
check "connections into a group with free buffers take no LLC message" with_module ours sets_up_in_silence
check "those of the C module do" with_module c sets_up_with_messages
finish
