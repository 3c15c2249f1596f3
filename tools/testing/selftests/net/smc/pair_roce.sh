#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,ours)
# every: 7 days
# timeout: 600
# Our module in two kernels, over soft RoCE: sockets of each kind, links that come and go at either end, groups and
# modules that go.

. "${LIB%/*}/pair_ours.bash"

# forms: data by each kind of socket and address.
forms() {
	local family
	for family in ipproto ulp; do
		check "$family: data is whole" talk $PORT --family $family --expect smc integrity --mib 2
	done
	far serve $((PORT + 2)) --server-family ipproto
	check "IPPROTO_SMC at the server, TCP_ULP at the client" \
		talk $((PORT + 2)) --family ulp --expect smc integrity --mib 1
	far serve_at "$PEER_IP6" $((PORT + 3))
	check "IPv6: data is whole" talk_to "$PEER_IP6" $((PORT + 3)) --expect smc integrity --mib 4
	check "IPv6: connections at once" talk_to "$PEER_IP6" $((PORT + 3)) --expect smc many --connections 30 --kib 16
	far serve_at :: $((PORT + 4))
	check "a listener at ::, IPv6" talk_to "$PEER_IP6" $((PORT + 4)) --expect smc integrity --mib 1
	check "a listener at ::, a client of IPv4" talk $((PORT + 4)) --expect smc integrity --mib 1
	check "a listener at ::, a mapped address" talk_to "::ffff:$PEER_IP" $((PORT + 4)) --expect smc integrity --mib 1
	far unserve $((PORT + 2)) && far unserve $((PORT + 3)) && far unserve $((PORT + 4))
}

# lasting: groups from now on are not given up for a minute because they are idle or silent.
lasting() {
	setting smcr_testlink_time 60 && setting smcr_lgr_idle_time 60
}

# own_groups: that of this guest's clients may have ended meanwhile, as it was idle.
own_groups() {
	talk $PORT --expect smc path && has_groups 2
}

require_ends 2
lead

require "one device each" both with rxe -
servers_begin
check "first contact" talk $PORT --expect smc path
check "one link" linked
check "data is whole" talk $PORT --expect smc integrity --mib 16
check "small chunks" talk $PORT --expect smc integrity --mib 1 --chunk 700
check "chunks beyond the buffers" talk $PORT --expect smc integrity --mib 4 --chunk 1000000
check "round trips" talk $PORT --expect smc pingpong --count 200
check "100 connections at once" talk $PORT --expect smc many --connections 100 --kib 32
check "processes open and close" talk $PORT --expect smc churn --processes 4 --opens 40
check "all of them by one group here" has_groups 1
check "and there" far has_groups 1
check "the other guest is the client: data is whole" far client integrity --mib 4
check "it has a group of its own" own_groups
forms
suite "ends" talk $PORT --expect smc apart
check "groups go here" within 20 no_groups
check "groups go there" far within 20 no_groups

require "two devices each" both with rxe rxe
check "first contact of two" talk $PORT --expect smc path
check "a second link comes here" linked
check "and there" linked far
losses "links go down" "$(scale 8 240)" link_down link_up -- near_a near2_b near_b near2_a
losses "devices are removed" "$(scale 8 240)" rdma_del rdma_add -- rxe_near_a rxe_near2_b rxe_near_b rxe_near2_a
losses "packets get lost" "$(scale 2 40)" silence noise -- near_a near2_b
saturated "full load: links go down" "$(scale 4 240)" link_down link_up near_a near2_b near_b near2_a
far serve_at "$PEER_IP6" $((PORT + 3))
saturated6 "full load, IPv6: devices are removed" "$(scale 4 240)" rdma_del rdma_add \
	rxe_near_a rxe_near2_b rxe_near_b rxe_near2_a
far unserve $((PORT + 3))
saturated "full load: packets get lost" "$(scale 2 40)" silence noise near_a near2_b
check "data is whole after all that" talk $PORT --expect smc integrity --mib 1

require "groups from now on stay" both lasting
check "those before go" both within 30 no_groups
check "SMC works without them" talk $PORT --expect smc path
check "a group is there" has_groups 1
check_not "a module stays that serves" far unload_smc
unserve $((PORT + 1))
check "the module of an idle group unloads here" within 20 unload_smc
# It is told: the group would stay otherwise.
check "the group goes there" far within 20 no_groups
require "the module is back" load_smc
require "its settings" settings
check "SMC is back" talk $PORT --expect smc integrity --mib 1
far unserve $PORT
unload_both
finish
