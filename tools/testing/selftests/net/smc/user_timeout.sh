#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# TCP_USER_TIMEOUT of connections over RDMA: one whose data nothing confirms ends in that time, as over TCP, and not
# after the test of a link; one whose peer answers does not. sameness.sh has a peer that reads nothing.

. "${LIB:=${0%/*}/lib.sh}"

# cut WAY: a byte is on its way at both ends, and packets of that kind of connection stop.
cut() {
	smctest --expect "$1" hold --connections 4 --used --user-timeout 1000 --speak --seconds 10 \
		--then "tc -n a qdisc add dev wire_a root netem loss 100% && tc -n b qdisc add dev wire_b root netem loss 100%" \
		--ends ETIMEDOUT
	local code=$?
	tc -n a qdisc del dev wire_a root && tc -n b qdisc del dev wire_b root && return $code
}

# stays WAY: connections that are used again and again stay, with a limit that is shorter than the pauses.
stays() {
	smctest --expect "$1" hold --connections 8 --used --user-timeout 1000 --uses 3 --seconds 3
}

down() {
	del_rdma "$1" a && del_rdma "$1" b
}

require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "module loads" load_smc
require "network" up_netns
require "groups end soon" set_sysctl smcr_lgr_idle_time 1

check "TCP: the wire is cut" cut tcp
check "TCP: connections stay" stays tcp

require "soft RoCE" up_rxe
check "RoCE: connections stay" stays smc
check "RoCE: the wire is cut" cut smc
check "RoCE: no group is left" within 60 no_groups
check "RoCE: SMC works" smctest --expect smc integrity --mib 1
require "no soft RoCE" down rxe

require "soft iWARP" up_siw
check "iWARP: connections stay" stays smc
require "no soft iWARP" down siw

check "module unloads" within 20 unload_smc
finish
