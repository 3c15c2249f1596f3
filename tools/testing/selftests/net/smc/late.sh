#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# A handshake that gets no processor in time, while others do: neither it nor they suffer.

. "${LIB:=${0%/*}/lib.sh}"

PORT=7300

# serve, unserve: a server for the clients below.
serve() {
	ip netns exec b "$BIN/smctest" --addr="$IP_B" --port=$PORT --deadline 300 greet --serve &
	SERVER=$!
	within 10 in_ns b sh -c "ss -Htln 'sport = :$PORT' | grep -q ."
}

unserve() {
	kill -9 "$SERVER"
	wait "$SERVER" 2>/dev/null
	true
}

# clients NICE OPTION...: connections of such a priority.
clients() {
	nice -n "$1" ip netns exec a "$BIN/smctest" --remote --addr="$IP_B" --port=$PORT --expect smc greet "${@:2}"
}

# late_first: the first contact of a link group, beside connections that join it.
late_first() {
	local first code
	clients 19 &
	first=$!
	clients -10 --connections 16
	code=$?
	wait "$first" && [ $code = 0 ]
}

# each_time TIMES COMMAND...: for so many new groups the command succeeds.
each_time() {
	local i
	for ((i = 0; i < $1; i++)); do
		within 20 no_groups && "${@:2}" || return
	done
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "groups end soon" set_sysctl smcr_lgr_idle_time 1
check "a server" serve
check "a first contact is late, and connections join at once" each_time "$(scale 5 50)" busy late_first
unserve
check "module unloads" within 20 unload_smc
finish
