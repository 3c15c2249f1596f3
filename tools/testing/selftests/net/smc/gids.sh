#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 300
# cpus: 1
# An RDMA port with more addresses than a queue pair can name: those with an index up to 255 are used, for others
# connections are over TCP, and `smc why` says so.

. "${LIB:=${0%/*}/lib.sh}"

# addresses add|del: 260 of other subnets, for the RDMA device of a.
addresses() {
	local i
	for ((i = 0; i < 260; i++)); do
		echo "address $1 10.$((100 + i / 250)).$((1 + i % 250)).1/24 dev wire_a"
	done | ip -n a -batch -
}

# gid_index ADDRESS: the index of its RoCE v2 entry.
gid_index() {
	local file hex
	hex=$(printf '%02x%02x:%02x%02x' ${1//./ })
	for file in $(grep -l "ffff:$hex$" /sys/class/infiniband/rxe_a/ports/1/gids/* 2>/dev/null); do
		echo "${file##*/}"
	done
}

has_index() {
	local index
	index=$(gid_index "$1")
	echo "# $1 has index ${index:-none}"
	[ -n "$index" ] && [ "$index" "$2" "$3" ]
}

own() {
	ip -n a address "$1" "$IP_A/24" dev wire_a
}

# is_tcp_for CAUSE: a connection from a is over TCP for that cause.
is_tcp_for() {
	smctest --expect tcp --port 7010 hold --seconds 0 \
		--then "ip netns exec a '$BIN/smc' why --pid \$PPID; true" >/tmp/why || return
	sed 's/^/# /' /tmp/why
	grep -q "id: .*/$1 " /tmp/why && grep -q "Only the first 256 addresses of an RDMA port can be used" /tmp/why
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns 9000
require "soft RoCE" up_rxe
check "one address: SMC-R" smctest --expect smc integrity --mib 1

require "the address goes" own del
require "260 others" addresses add
require "they are in the table" within 20 has_index 10.101.10.1 -gt 200
require "the address comes back" own add
require "its index is beyond 255" within 20 has_index "$IP_A" -gt 255
check "TCP, as no address can be used" is_tcp_for wrong-subnet
check "data is whole" smctest --expect tcp integrity --mib 1

require "the others go" addresses del
require "the address goes again" own del
require "it comes back" own add
require "its index is low" within 20 has_index "$IP_A" -lt 255
check "SMC-R again" smc_back 20

check "module unloads" within 20 unload_smc
finish
