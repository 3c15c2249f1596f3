#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# cpus: 1
# The peer in user space that hostile.sh has lie is honest by the C module's standard, too.

MODULE=c
. "${LIB:=${0%/*}/lib.sh}"

RAW=10.9.0.50

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
suite "hostile" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" \
	hostile --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" --of-c
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads" within 30 unload_smc
finish
