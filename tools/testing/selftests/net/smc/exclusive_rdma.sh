#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 200
# cpus: 1
# RDMA devices that belong to one network namespace each (`rdma system set netns exclusive`): each end uses its own, and
# goes over TCP while that is another's.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/outcome.bash"

# moves DEVICE FROM TO: into another namespace; for the kernel it is a device that goes, and one that comes.
moves() {
	in_ns "$2" rdma dev set "$1" netns "$3"
}

# says_why ID: `smc why` of a connection from a to b.
says_why() {
	local code
	start_server 7050 && in_ns a "$BIN/smc" why "$IP_B:7050" >/tmp/why
	code=$?
	stop_servers
	cat /tmp/why
	[ $code = 3 ] && grep -q "^  id:     NOSMCDEV/$1 " /tmp/why
}

# moves_away: from under a transfer.
moves_away() {
	transfer_begins "in_ns a cat /sys/class/infiniband/rxe_a/ports/1/hw_counters/sent_bytes" \
		smctest --expect smc --deadline 60 integrity --mib 200 && moves rxe_a a b && transfer_ends
}

require "RDMA modules load" load_rdma
require "devices belong to namespaces" rdma system set netns exclusive
require "network" up_netns
require "soft RoCE" up_rxe
require "one of them belongs to a" rdma dev set rxe_a netns a
require "the other to b" rdma dev set rxe_b netns b
require "module loads" load_smc

check "the path is SMC-R" smctest --expect smc path
check "data" smctest --expect smc integrity --mib 4
check "connections at once" smctest --expect smc many --connections 40 --kib 64
check "a device moves away from under a transfer" moves_away
check "connections go over TCP" smctest --expect tcp integrity --mib 1
check "smc why says that it is another namespace's" says_why other-namespace
require "it comes back" moves rxe_a b a
check "and with it SMC" smc_back 20
check "module unloads" within 20 unload_smc
finish
