#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# cpus: 1
# roce: limits
# timeout: 300
# An RDMA device that has failed can be removed all the same: one that loses completions of work requests, and one that
# does not deregister memory. Connections end, and nothing of them is left.

RXE_KO=$ROCE_LIMITS_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/outcome.bash"

FAULTS=/sys/module/rdma_rxe/parameters

# fault NAME VALUE: from now on.
fault() {
	echo "$2" >"$FAULTS/$1"
}

is_gone() {
	[ ! -e /sys/class/infiniband/rxe_a ]
}

# goes_with NAME VALUE: a transfer is under way when the device of a has that fault and is removed; both go.
goes_with() {
	local code removal
	transfer_begins "rdma_bytes a" smctest --deadline 60 --expect smc integrity --mib 96 && fault "$1" "$2" || return
	del_rdma rxe a &
	removal=$!
	within 30 is_gone
	code=$?
	fault "$1" 0
	[ $code = 0 ] && wait $removal && transfer_ends
}

said() {
	dmesg | grep -q "smc: rxe_a: $1"
}

require "RDMA modules load" load_rdma
require "network" up_netns 9000
require "module loads" load_smc
require "soft RoCE" up_rxe

check "a device that loses completions of receives goes" goes_with lose_flushed 3
check "the log says so" said "3 completions of a queue pair were lost"
require "it comes back" add_rdma rxe a
check "connections are over SMC-R again" smc_back 20
check "a device that loses all flushed work requests but the last ones goes" goes_with lose_flushed 40
require "it comes back" add_rdma rxe a
check "connections are over SMC-R again" smc_back 20
check "a device that does not deregister memory goes" goes_with fail_dereg 1
check "the log says so" said "cannot deregister memory"
require "it comes back" add_rdma rxe a
check "connections are over SMC-R again" smc_back 20
check "the devices go" eval 'del_rdma rxe a && del_rdma rxe b'
check "no link group is left" within 20 no_groups
check "module unloads" within 20 unload_smc
finish
