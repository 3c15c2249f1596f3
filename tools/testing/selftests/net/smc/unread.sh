#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 200
# cpus: 1
# What has arrived can be read when the connection has been taken away: after a reset of TCP, and after the end of
# the link group.

. "${LIB:=${0%/*}/lib.sh}"

# without END: the RDMA device of that end goes.
without() {
	check "$1: what has arrived is read before the error" \
		smctest --expect smc unread --then "ip netns exec $1 rdma link delete rxe_$1"
	check "$1: the device comes back" add_rdma rxe "$1"
	check "$1: SMC is back" smc_back 10
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
suite "reset" smctest --expect smc reset
without a
without b
check "module unloads" within 20 unload_smc
finish
