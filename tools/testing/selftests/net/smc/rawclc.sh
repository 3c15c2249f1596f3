#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3
# timeout: 500
# cpus: 1
# A peer that agrees to SMC and then sends malformed, truncated, oversized, slow or no messages.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/quiet.bash"

RAW=10.9.0.50

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b

# logged: the peer's faults are in the log, but not each of a flood.
logged() {
	dmesg | grep -c 'smc: handshake with' && dmesg | grep 'smc: messages about peers: .* suppressed' && few_lines
}

BEGUN=$SECONDS
suite "malformed" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 450 \
	rawclc --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)"
check "faults are logged, within limits" logged
check "data is whole after all that" smctest integrity --mib 1
check "module unloads" within 30 unload_smc
finish
