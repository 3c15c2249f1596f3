#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,ours)
# every: 7 days
# timeout: 600
# Our module in two kernels, over soft iWARP alone and beside soft RoCE: links come and go at either end, and nothing
# is lost, doubled or broken; groups, modules and soft iWARP go.

. "${LIB%/*}/pair_ours.bash"

# Streams go where the routes say, so each pair of ports has a subnet of its own.
require_ends 2 subnets
lead

require "iWARP, one device each" both with siw -
servers_begin
check "iWARP: first contact" talk $PORT --expect smc path
check "iWARP: one link" linked
check "iWARP: data is whole" talk $PORT --expect smc integrity --mib 16
check "iWARP: small chunks" talk $PORT --expect smc integrity --mib 1 --chunk 700
check "iWARP: round trips" talk $PORT --expect smc pingpong --count 100
check "iWARP: 100 connections at once" talk $PORT --expect smc many --connections 100 --kib 16
check "iWARP: processes open and close" talk $PORT --expect smc churn --processes 4 --opens 20
check "iWARP: all of them by one group" has_groups 1
check "iWARP: the other guest is the client" far client integrity --mib 4
far serve_at "$PEER_IP6" $((PORT + 3))
check "iWARP: IPv6" talk_to "$PEER_IP6" $((PORT + 3)) --expect smc integrity --mib 2
far unserve $((PORT + 3))
suite "iWARP: ends" talk $PORT --expect smc apart
check "iWARP: groups go here" within 20 no_groups
check "iWARP: groups go there" far within 20 no_groups

require "iWARP, two devices each" both with siw siw
check "iWARP: first contact of two" talk $PORT --expect smc path
check "iWARP: a second link comes here" linked
check "iWARP: and there" linked far
losses "iWARP: links go down" "$(scale 4 240)" link_down link_up -- near_a near2_b near_b near2_a
losses "iWARP: devices are removed" "$(scale 4 240)" rdma_del rdma_add -- siw_near_a siw_near2_b siw_near_b siw_near2_a
losses "iWARP: packets get lost" "$(scale 2 40)" silence noise -- near_a near2_b
saturated "iWARP, full load: links go down" "$(scale 4 240)" link_down link_up near_a near2_b near_b near2_a
saturated "iWARP, full load: packets get lost" "$(scale 2 40)" silence noise near_a near2_b

require "RoCE on one, iWARP on the other" both with rxe siw
check "both kinds: first contact" talk $PORT --expect smc path
check "both kinds: two links here" linked
check "both kinds: and there" linked far
check "both kinds: data is whole" talk $PORT --expect smc integrity --mib 8
losses "both kinds: links go down" "$(scale 4 240)" link_down link_up -- near_a near2_b near_b near2_a
losses "both kinds: devices are removed" "$(scale 4 240)" rdma_del rdma_add -- \
	rxe_near_a siw_near2_b rxe_near_b siw_near2_a
saturated "both kinds, full load: devices are removed" "$(scale 4 240)" rdma_del rdma_add \
	rxe_near_a siw_near2_b rxe_near_b siw_near2_a
check "data is whole after all that" talk $PORT --expect smc integrity --mib 1

servers_end
check "no devices are left" both with
unload_both
check "soft iWARP unloads here" within 20 rmmod siw
check "soft iWARP unloads there" far within 20 rmmod siw
finish
