#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 300
# cpus: 1
# What connections cost: messages to set one up, and memory that is kept for the next one until it is short.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/capture.bash"

# Messages -----------------------------------------------------------------------------------

CONNECTIONS=100

# one_link: the C module takes the other end's device for a second link, which has messages of its own.
one_link() {
	set_sysctl smcr_max_links_per_lgr 1
}

# with_module MODULE COMMAND...: the command with that module and buffers for some connections at each end. On a busy
# machine the C module's client may miss the request of a first contact, for which it is not ready, and declines.
with_module() {
	local code MODULE=$1
	shift
	load_smc && common_eid && up_netns && up_rxe && one_link &&
		within 30 smctest --expect smc hold --connections 16 --seconds 0 && "$@"
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

# A link on which nothing was heard for a moment is tested, which is one request and one answer.
sets_up_in_silence() {
	set_up && [ "$LLC" -le $((CONNECTIONS / 4)) ]
}

# The count is no good if it finds nothing here: the C module has a key exchange for each connection.
sets_up_with_messages() {
	set_up && [ "$LLC" -ge "$CONNECTIONS" ]
}

# Memory -------------------------------------------------------------------------------------

hold() {
	smctest --expect smc hold "$@"
}

# kept WHAT: bytes of the buffers of all groups: send_bytes or receive_bytes.
kept() {
	"$BIN/smc" lgr --json | awk -F'[:,]' -v what="\"$1\"" '$1 ~ what { n += $2 } END { print n + 0 }'
}

groups() {
	"$BIN/smc" lgr --json | grep '"id"'
}

keeps_buffers() {
	echo "# kept: $(kept send_bytes) bytes to send from, $(kept receive_bytes) to receive into"
	[ "$(kept send_bytes)" -gt 0 ] && [ "$(kept receive_bytes)" -gt 0 ]
}

keeps_none() {
	[ "$(kept send_bytes)" = 0 ] && [ "$(kept receive_bytes)" = 0 ]
}

# shrink: as if memory were short, for all that the kernel can do without.
SHRINK="echo 2 >/proc/sys/vm/drop_caches"
shrink() {
	sh -c "$SHRINK"
}

# empties COMMAND...: after it no group keeps a buffer, and all groups are still there.
empties() {
	local before
	before=$(groups)
	"$@" && within 10 keeps_none && [ -n "$before" ] && [ "$(groups)" = "$before" ]
}

# run_short: memory falls below what the kernel wants to have free, so that it looks for more by itself.
run_short() {
	local file=/proc/sys/vm/min_free_kbytes before free
	before=$(cat $file)
	free=$(awk '$1 == "MemFree:" { print $2 }' /proc/meminfo)
	echo $((free * 85 / 100)) >$file
	# Nobody looks before somebody allocates.
	within 10 eval 'head -c 1M /dev/zero >/tmp/some && keeps_none'
	local code=$?
	echo "$before" >$file
	rm -f /tmp/some
	return $code
}

# rmbs_made: how many b has made so far.
rmbs_made() {
	in_ns b "$BIN/smc" stats --json | awk -F'[:,]' '
		/"smcr"/ { in_smcr = 1 }
		in_smcr && /"received"/ { in_it = 1 }
		in_it && /"buffers_made"/ { print $2 + 0; exit }'
}

# while_shrinking COMMAND...: the command, and meanwhile memory is short again and again. RMBs have to go and be
# made anew; whether a shortage finds one unused is a matter of luck, so the command runs until that happened.
while_shrinking() {
	local before code made=0 shrinker
	before=$(rmbs_made)
	while sleep 0.05; do shrink; done &
	shrinker=$!
	for _ in {1..20}; do
		"$@"
		code=$?
		made=$(($(rmbs_made) - before))
		[ "$code" = 0 ] && [ "$made" -lt 3 ] || break
	done
	kill "$shrinker"
	wait "$shrinker" 2>/dev/null
	echo "# $made RMBs made"
	[ "$made" -ge 3 ] && return "$code"
}

# Namespaces ---------------------------------------------------------------------------------

NAMESPACES=20

# workqueues: the parts that all workqueues of the kernel have, at least one for each.
workqueues() {
	give_up_memory
	slabs | awk '$1 == "pool_workqueue" { print $2 }'
}

# with_namespaces COMMAND...: the command, in each of some namespaces, and what they have added to the count.
with_namespaces() {
	local before code=0
	before=$(workqueues)
	for ((i = 0; i < NAMESPACES; i++)); do
		ip netns add "n$i" && ip netns exec "n$i" "$@" || code=1
	done
	MADE=$(($(workqueues) - before))
	echo "# $MADE parts of workqueues"
	for ((i = 0; i < NAMESPACES; i++)); do
		ip netns del "n$i" || code=1
	done
	return $code
}

costs_no_workqueue() {
	with_namespaces true && [ "$MADE" -lt "$NAMESPACES" ]
}

costs_workqueues() {
	with_namespaces python3 -c 'import socket; socket.socket(43, socket.SOCK_STREAM)' && [ "$MADE" -ge "$NAMESPACES" ]
}

require "RDMA modules load" load_rdma
check "connections into a group with free buffers take no LLC message" with_module ours sets_up_in_silence
check "those of the C module do" with_module c sets_up_with_messages

require "module loads" load_smc
check "a network namespace without sockets costs no workqueue" costs_no_workqueue
check "one that had a socket does" costs_workqueues
require "network" up_netns
require "soft RoCE" up_rxe
require "connections that come and go" hold --connections 40 --seconds 0
check "their buffers are kept" keeps_buffers
check "when memory is short they go, and the peer is told" said 2 'llc == "0x29"' empties shrink
check "new ones are made" smctest --expect smc integrity --mib 1
check "which are kept" keeps_buffers
check "they go when the kernel looks for memory" empties run_short
check "what is in use stays" hold --connections 20 --seconds 1 --then "$SHRINK; sleep 1; $SHRINK"
check "connections come and go while memory is short" \
	while_shrinking smctest --expect smc churn --processes 2 --opens 100
check "many at once, too" while_shrinking smctest --expect smc many --connections 100 --kib 16
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads while memory is short" eval "shrink; within 20 unload_smc"
finish
