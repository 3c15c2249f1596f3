#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 300
# A peer that says it is another one reaches nothing of that one's link group, and an element goes to another
# connection only when its peer has left it.

. "${LIB:=${0%/*}/lib.sh}"

RAW=10.9.0.50

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
# The first test of the suite learns who its victim is, and then wants no link group.
require "link groups end soon" set_sysctl smcr_lgr_idle_time 5

suite "impostor" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 200 \
	rawclc --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" --impostor
suite "handover" smctest handover
check "data is whole after all that" smctest integrity --mib 1
check "module unloads" within 30 unload_smc
finish
