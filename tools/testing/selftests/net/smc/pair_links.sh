#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,ours)
# every: 5 days
# timeout: 400
# Eight links of a group between two kernels: they come, connections are spread over them at both ends, and they go
# and come back under transfers.

. "${LIB%/*}/pair_ours.bash"

# shares: what 64 connections send by each link of this guest.
shares() {
	talk $PORT --deadline 120 --expect smc failover --connections 64 --pause 200 --losses 0 --lose true --restore true \
		--compare 20 --linked "$DEVICES"
}

# link_number NUMBER: this guest has so many active links.
link_number() {
	[ "$("$BIN/smc" link --json | grep -c '"state": "active"')" = "$1" ]
}

require_ends 8
require "eight links are allowed" setting smcr_max_links_per_lgr 8
lead

require "eight devices each" both with rxe rxe rxe rxe rxe rxe rxe rxe
servers_begin
check "first contact" talk $PORT --expect smc path
check "eight links here" linked
check "eight links there" linked far
check "data is whole" talk $PORT --expect smc integrity --mib 8
check "64 connections by eight links, evenly" shares
losses "links go down" "$(scale 8 240)" link_down link_up -- \
	near_a near8_b near2_a near7_b near3_a near6_b near4_a near5_b
losses "devices are removed" "$(scale 4 240)" rdma_del rdma_add -- rxe_near_b rxe_near8_a rxe_near2_b rxe_near7_a
check "64 connections by eight links, evenly again" shares
servers_end
unload_both

require "the module is back here" load_smc
require "the module is back there" far load_smc
require "one end allows eight" setting smcr_max_links_per_lgr 8
require "the other end allows three" far setting smcr_max_links_per_lgr 3
far serve $PORT
check "it is three: first contact" talk $PORT --expect smc path
check "it is three here" within 20 link_number 3
check "and there" far within 20 link_number 3
far unserve $PORT
unload_both
finish
