#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 220
# cpus: 1
# A client of no kernel has two links with the server, and names another one than the server does.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

RAW=10.9.0.50

# up_fabric: one device for the client's end, two for the server's.
up_fabric() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.22 9000
}

# known DEVICE...: b reaches the peer of no kernel by these devices.
known() {
	local device
	for device; do
		ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev "$device" || return
	done
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "a server with two devices" up_fabric
require "a peer of no kernel" known wire_b wire2_b

require "closed connections are given up soon" in_ns b sysctl -q net.ipv4.tcp_fin_timeout=1
suite "links" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 170 \
	rawclc --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" --links
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads" within 30 unload_smc
finish
