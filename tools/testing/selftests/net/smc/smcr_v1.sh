#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# cpus: 1
# roce: v1
# timeout: 400
# SMC-R version 1 over RoCE v1 addresses: where no enterprise ID is in common, over IPv4 and IPv6; version 2 comes first
# where there is one.

RXE_KO=$ROCE_V1_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"

# no_eids and own_eids: of this machine, which both ends are on.
no_eids() {
	"$BIN/smc" ueid flush
}

own_eids() {
	"$BIN/smc" ueid add "$EID"
}

# groups_are NUMBER NUMBER: so many ends of link groups of version 1, and of version 2.
groups_are() {
	local said all v2
	said=$("$BIN/smc" lgr --json) || return
	all=$(grep -c '"role"' <<<"$said") v2=$(grep -c '"version": "2' <<<"$said")
	echo "# ends of groups: $all, of version 2: $v2"
	[ "$((all - v2)) $v2" = "$1 $2" ]
}

# are_ready: both ends have link-local addresses, from which RoCE v1 sends.
are_ready() {
	link_local wire_a in_ns a && link_local wire_b in_ns b
}

# transfers NAME SMCTEST: SMCTEST is smctest for IPv4 or IPv6.
transfers() {
	check "$1: the path is SMC-R" "$2" --expect smc path
	check "$1: the data is whole" "$2" --expect smc integrity --mib 4
	check "$1: small chunks" "$2" --expect smc integrity --mib 1 --chunk 700
	check "$1: connections one after another" "$2" --expect smc integrity --mib 1 --rounds 8
	check "$1: connections at once" "$2" --expect smc many --connections 40 --kib 32
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns 9000
require "soft RoCE" up_rxe
require "link-local addresses" within 20 are_ready
require "no enterprise ID" no_eids

transfers "version 1" smctest
check "the groups are of version 1" groups_are 2 0
transfers "version 1, IPv6" smctest6
check "the groups are of version 1" groups_are 4 0
check "an enterprise ID" own_eids
transfers "both" smctest
check "the new group is of version 2" groups_are 4 2

check "module unloads" within 20 unload_smc
finish
