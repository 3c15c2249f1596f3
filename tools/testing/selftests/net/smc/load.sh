#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 240
# The module loads and unloads, leaves nothing behind, and cannot go while sockets need it.

. "$LIB"

registered() {
	grep -q '^SMC ' /proc/net/protocols && grep -q '^SMC6 ' /proc/net/protocols
}

has_sysctls() {
	[ -d /proc/sys/net/smc ]
}

has_af_smc() {
	"$BIN/smctest" semantics --only "domain, type and protocol" >/dev/null
}

check_not "no AF_SMC without the module" has_af_smc
check "a program under smc run keeps its TCP then" \
	"$BIN/smc" run "$BIN/smctest" --family tcp path
check_not "nor is the management interface there" "$BIN/smc" ueid show

require "RDMA modules load" load_rdma
for round in 1 2 3; do
	require "module loads, round $round" load_smc
	check "families are registered, round $round" registered
	todo "settings are the defaults" "sysctls are registered, round $round" has_sysctls
	check "a socket works, round $round" has_af_smc
	check "module unloads, round $round" unload_smc
	check_not "nothing is left, round $round" registered
done

require "module loads again" load_smc
"$BIN/smctest" serve &
server=$!
sleep 1
check_not "the module stays while a socket is open" rmmod smc
check "a connection works after that refusal" "$BIN/smctest" --remote path
kill -9 "$server"
wait "$server" 2>/dev/null
check "the module goes once the socket is closed" within 10 unload_smc
finish
