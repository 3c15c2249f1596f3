#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# also: debian-7.3
# timeout: 400
# The second opinion, on an architecture with real interrupts: unmodified programs over SMC-R.

. "${LIB:=${0%/*}/lib.sh}"

RESULTS=$(mktemp -d)

iperf() {
	ip netns exec b smc run iperf3 -s -1 >"$RESULTS/iperf.server" 2>&1 &
	await_port b 5201 20 &&
		in_ns a timeout 90 smc run iperf3 -c "$IP_B" -n 16M >"$RESULTS/iperf" && grep sender "$RESULTS/iperf"
}

redis() {
	ip netns exec b smc run redis-server --bind "$IP_B" --save '' --protected-mode no >"$RESULTS/redis" 2>&1 &
	redis=$!
	await_port b 6379 20 &&
		in_ns a timeout 90 smc run redis-benchmark -h "$IP_B" -t set,get -c 8 -d 1024 -n 1000 --csv
}

# asks MOST COMMAND...: the command succeeds, and RDMA devices are asked for the state of their port so often at most.
asks() {
	local most=$1 tracing=/sys/kernel/tracing asked code
	shift
	[ -e $tracing/trace ] || mount -t tracefs none $tracing
	echo rxe_query_port >$tracing/set_ftrace_filter && echo function >$tracing/current_tracer || return
	"$@"
	code=$?
	asked=$(grep -c rxe_query_port $tracing/trace)
	echo nop >$tracing/current_tracer
	echo >$tracing/set_ftrace_filter
	echo "# asked $asked times"
	[ $code = 0 ] && [ "$asked" -le "$most" ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

check "the path is SMC-R" smctest --expect smc path
check "data is whole" smctest --expect smc integrity --mib 4
check "IPPROTO_SMC" smctest --family ipproto --expect smc integrity --mib 1
check "iperf3" by_rdma $((16 << 20)) iperf
check "redis" by_rdma $((1000 * 1024)) redis
check_not "the module stays while redis listens" rmmod smc
kill "$redis"
wait "$redis" 2>/dev/null
check "connections at once" smctest --expect smc many --connections 50 --kib 16
# With the function tracer: the kernel for tests has none. A new link asks once.
case $FLAVOUR in
debian-*) check "connections ask no device" asks 4 smctest --expect smc many --connections 50 --kib 1 ;;
esac
# Of a kernel without the sizes that debugging adds. Two RMBEs have 32 KiB, and two TCP sockets 7. What else the kernel
# allocates meanwhile makes a difference of some KiB.
check "an idle connection is small" smctest --expect smc idle --connections 500 --most 47
check "module unloads" within 20 unload_smc
check "module loads again" load_smc
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads again" within 20 unload_smc
finish
