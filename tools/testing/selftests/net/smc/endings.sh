#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 500
# cpus: 1
# What sockets say after every way in which a connection ends or never begins, and of urgent data, is what TCP says.

. "${LIB:=${0%/*}/lib.sh}"

SEQUENCES=$(scale 15 300)
DESTROYED=$(scale 1 40)

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

# Nobody answers for some address: that is known soon.
short_neighbour() {
	in_ns a sh -c '
		echo 100 >/proc/sys/net/ipv4/neigh/wire_a/retrans_time_ms
		echo 1 >/proc/sys/net/ipv4/neigh/wire_a/mcast_solicit
	'
}

require "addresses without a machine are found out" short_neighbour
suite "fallback" smctest --family tcp --expect tcp endings
suite "fallback, urgent" smctest --family tcp --expect tcp endings --urgent "$((SEQUENCES / 5))"
require "soft RoCE" up_rxe
suite "RDMA" smctest --deadline 300 --family tcp --expect smc endings
# The peer's answer races with what looks at TCP.
for _ in $(seq "$DESTROYED"); do
	busy suite "RDMA, while others compute" smctest --deadline 300 --family tcp --expect smc endings \
		--only "administrator destroys it"
done
suite "RDMA, urgent" smctest --family tcp --expect smc endings --urgent "$SEQUENCES"
check "module unloads" within 20 unload_smc
finish
