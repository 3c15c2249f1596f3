#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# Peers that make a first contact under a new identity each time, and leave the link group behind: there are so many
# groups and no more, others keep their connections, and the memory comes back.

. "${LIB:=${0%/*}/lib.sh}"

# As in net/smc/groups/limits.rs: groups with one address, with those that are ending; and those of the two ends of
# others' connections.
OF_PEER=$((64 + 16))
OTHERS=2
COUNT=$(scale 160 2000)
RAW=10.9.0.50

strangers() {
	in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline "$(scale 150 1500)" \
		strangers --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" "$@"
}

# known FIRST COUNT: b knows the hardware address of so many peers of no kernel.
known() {
	local i
	for ((i = 0; i < $2; i++)); do
		ip -n b neighbor add "${RAW%.*}.$(($1 + i))" lladdr "$(mac a)" dev wire_b || return
	done
}

# Reliable queue pairs of this machine.
queue_pairs() {
	rdma resource show qp | grep -c 'type RC'
}

# available: memory that could be had, KiB.
available() {
	awk '$1 == "MemAvailable:" { print $2 }' /proc/meminfo
}

# bounded COUNT [OPTION...]: first contacts from one address, and what they leave.
bounded() {
	local before pairs used count=$1
	shift
	before=$(available)
	strangers --count "$count" --most $((OF_PEER + OTHERS)) "$@" >/tmp/strangers
	local code=$?
	grep -v 'server: ECONNRESET' /tmp/strangers
	[ $code = 0 ] || return
	pairs=$(queue_pairs)
	used=$((before - $(available)))
	echo "# afterwards $pairs queue pairs; $used KiB less available, $((used / pairs)) for each"
	[ "$pairs" -le $((OF_PEER + OTHERS)) ]
}

# says CAUSE: a command that finds a connection of the server in b that is TCP for this.
says() {
	echo "ip netns exec b '$BIN/smc' why --pid \$PPID | grep 'id:     MEM/$1 '"
}

# few_over_tcp: of the last ones less than a tenth, those that came while many groups were ending.
few_over_tcp() {
	local over_tcp
	over_tcp=$(sed -n 's/.* \([0-9]*\) went over TCP.*/\1/p' /tmp/strangers)
	[ "$over_tcp" -lt $((COUNT / 10)) ]
}

# allocations: how often the module allocated memory for 20 connections, most of which join a group. Nothing else in
# this kernel is written in Rust.
allocations() {
	local kmalloc=/sys/kernel/tracing/events/kmem/kmalloc/enable code
	echo >/sys/kernel/tracing/trace
	echo 1 >$kmalloc || return
	smctest --expect smc connrate --count 20
	code=$?
	echo 0 >$kmalloc
	ALLOCATIONS=$(grep -c 'call_site=rust_helper_' /sys/kernel/tracing/trace)
	echo "# $ALLOCATIONS allocations for 20 connections"
	[ $code = 0 ] && [ "$ALLOCATIONS" -gt 100 ]
}

# no_more_allocations: beside many other groups a connection costs no more of them.
no_more_allocations() {
	local before=$ALLOCATIONS
	[ "$("$BIN/smc" lgr --json | grep -c '"id"')" -ge 64 ] && allocations && [ "$ALLOCATIONS" -le $((before * 5 / 4)) ]
}

# gone: only the groups of others are left.
gone() {
	echo 2 >/proc/sys/vm/drop_caches
	[ "$("$BIN/smc" lgr --json | grep -c '"id"')" -le "$OTHERS" ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "peers of no kernel" known 50 1
# A twentieth of it is how long a group is idle before it ends for lack of memory.
require "groups are kept for 100 s" set_sysctl smcr_lgr_idle_time 100
check "allocations of a connection" allocations
check "one address makes new groups, in place of idle ones, and others go on" beside 4 bounded "$COUNT"
check "few contacts went over TCP" few_over_tcp
check "beside many groups a connection allocates no more" no_more_allocations
check "idle groups end when memory is short" within 30 gone
check "a peer that lets go of no connection has as many groups as may be" beside 4 bounded 100 --silent \
	--declined "$(says peer-groups-limit)"
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads" within 30 unload_smc
finish
