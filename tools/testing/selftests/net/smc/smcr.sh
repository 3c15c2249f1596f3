#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3, debian-7.2, x86_64-kcsan, arm64
# timeout: 400
# SMC-R over soft RoCE: the data goes by RDMA, whole and in order, over both sizes of packets.

. "${LIB:=${0%/*}/lib.sh}"

MIB=4

# uses_rdma COMMAND...: the command succeeds, and the RDMA devices send at least MIB each meanwhile.
uses_rdma() {
	local before_a before_b sent_a sent_b least=$((MIB << 20))
	before_a=$(rdma_bytes a) before_b=$(rdma_bytes b)
	"$@" || return
	sent_a=$(($(rdma_bytes a) - before_a)) sent_b=$(($(rdma_bytes b) - before_b))
	echo "# RDMA devices sent $sent_a and $sent_b bytes, at least $least each wanted"
	[ "$sent_a" -ge "$least" ] && [ "$sent_b" -ge "$least" ]
}

transfers() {
	check "$1: the path is SMC-R" smctest --expect smc path
	check "$1: data goes by RDMA" uses_rdma smctest --expect smc integrity --mib "$MIB"
	check "$1: small chunks" smctest --expect smc integrity --mib 1 --chunk 700
	check "$1: chunks beyond the buffers" smctest --expect smc integrity --mib 4 --chunk 1000000
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns 9000
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

transfers "packets of 9000"
check "several connections, one after another" smctest --expect smc integrity --mib 1 --rounds 8
check "IPPROTO_SMC" smctest --family ipproto --expect smc integrity --mib 1
check "a TCP client of an SMC server" smctest --family tcp --server-family smc integrity --mib 1
check "an SMC client of a TCP server" smctest --server-family tcp --expect tcp integrity --mib 1
check "link-local addresses" add_link_local
check "between them: data is whole" smctest_local --expect smc integrity --mib 2
check "between them: IPPROTO_SMC" smctest_local --family ipproto --expect smc path
suite "clients of TCP and SMC" smctest mixed
check "round trips" smctest --expect smc pingpong --count 5000

down_netns
require "the namespaces go" within 20 no_devices
require "network with small packets" up_netns 1500
require "soft RoCE on it" up_rxe
transfers "packets of 1500"

# uneven SMALL LARGE: the ends' network devices differ in their MTU, and so do the ports.
uneven() {
	up_netns 1500 && ip -n "$2" link set "wire_$2" mtu 9000 && up_rxe
}

for ends in "a b" "b a"; do
	small=${ends% *}
	down_netns
	require "the namespaces go, for small packets at $small" within 20 no_devices
	# Two words.
	# shellcheck disable=SC2086
	require "small packets at $small" uneven $ends
	check "small packets at $small: data, of the size that both take" uses_rdma smctest --expect smc integrity --mib "$MIB"
done

check "no RMBE came with data of another connection" sh -c '! dmesg | grep "smc: an RMBE holds data"'
check "module unloads with its link groups" within 20 unload_smc
finish
