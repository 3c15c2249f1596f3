#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# beside: nothing
# every: 7 days
# timeout: 700
# also: x86_64-kcsan
# A peer that goes through the handshake and then lies over RDMA, LLC and TCP, or is silent: applications end, others go
# on, and nothing is left of it.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"
. "${LIB%/*}/quiet.bash"

RAW=10.9.0.50
PEERS=8

# up_fabric: one device for the client's end, two for the server's, which can offer a second link.
up_fabric() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.22 9000
}

# known: b knows the hardware addresses of the peers of no kernel.
known() {
	local i device
	for ((i = 0; i < PEERS; i++)); do
		for device in wire_b wire2_b; do
			ip -n b neighbor add "${RAW%.*}.$((50 + i))" lladdr "$(mac a)" dev $device || return
		done
	done
}

hostile() {
	in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline "$(scale 500 6500)" \
		hostile --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" "$@"
}

# no_pairs: no reliable queue pair is left, and so nothing that belongs to one.
no_pairs() {
	[ "$(rdma resource show qp | grep -c 'type RC')" = 0 ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "a server with two devices" up_fabric
require "enterprise ID" common_eid
require "peers of no kernel" known
require "links are tested soon" set_sysctl smcr_testlink_time 1
require "groups end soon" set_sysctl smcr_lgr_idle_time 1
require "peers have little time to close" each_end sh -c "echo 2 >/proc/sys/net/ipv4/tcp_fin_timeout"
BEGUN=$SECONDS
suite "hostile" hostile --count "$(scale 150 8000)" --second-links "$(scale 50 2000)"
check "few lines in the log" few_lines 2
check "no link group is left" within 40 no_groups
check "no queue pair is left" within 10 no_pairs
check "the processors are idle" idle
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads" within 30 unload_smc
finish
