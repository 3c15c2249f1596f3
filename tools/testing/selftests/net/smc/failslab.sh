#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 400
# Allocations fail: calls may fail, connections may become TCP, nothing may break.

. "$LIB"

FAIL=/sys/kernel/debug/failslab
HUNG=124

# inject PERCENT: from now on, of the allocations of processes that ask for it.
inject() {
	echo 1 >$FAIL/task-filter
	echo 0 >$FAIL/ignore-gfp-wait
	echo "$1" >$FAIL/probability
	echo 1 >$FAIL/interval
	echo 0 >$FAIL/verbose
	echo -1 >$FAIL/times
}

failing() {
	(
		echo 1 >/proc/self/make-it-fail
		exec "$BIN/smctest" --client-netns=a --server-netns=b --addr="$IP_B" "$@"
	) >/dev/null 2>&1
}

# survives ROUNDS COMMAND...: failures are expected, a hang is not.
survives() {
	local rounds=$1 failed=0 round
	shift
	for ((round = 0; round < rounds; round++)); do
		"$@"
		case $? in
		0) ;;
		"$HUNG") return 1 ;;
		*) failed=$((failed + 1)) ;;
		esac
	done
	echo "# $failed of $rounds failed, none hung"
	[ "$failed" -gt 0 ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "fault injection is there" test -d "$FAIL"

inject 3
check "connections with 3 % of allocations failing" \
	survives 15 failing --deadline 60 integrity --mib 1 --chunk 5000
inject 20
check "connections with 20 % of allocations failing" survives 15 failing --deadline 60 path
inject 0

check "SMC works afterwards" within 20 smctest --expect smc integrity --mib 2
check "module unloads" within 20 unload_smc

# Loading is a chain of registrations: each of them fails in turn, and what was done is undone.
inject 3
loaded=0
for ((round = 0; round < 30; round++)); do
	(
		echo 1 >/proc/self/make-it-fail
		case $MODULE in
		ours) exec insmod "$SMC_KO" ;;
		*) exec insmod "$C_SMC_KO" ;;
		esac
	) 2>/dev/null && loaded=$((loaded + 1))
	rmmod smc 2>/dev/null
done
inject 0
echo "# loaded $loaded of 30 times"
check "loading failed at times" test "$loaded" -lt 30
check "module loads afterwards" load_smc
common_eid
check "SMC works then" smctest --expect smc integrity --mib 1
check "module unloads then" within 20 unload_smc
finish
