#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 300
# cpus: 1
# What an administrator sets has an effect: enterprise IDs to begin with, the depth of links.

. "${LIB:=${0%/*}/lib.sh}"

# load_with PARAMETER...: our module with these parameters, in place of the one that is loaded.
load_with() {
	within 20 unload_smc && insmod "$SMC_KO" "$@" && same_host off
}

# refuses_parameter PARAMETER: the module does not load with it.
refuses_parameter() {
	within 20 unload_smc && ! insmod "$SMC_KO" "$1" && load_smc
}

# depth SEND RECV COMMAND...: with links of that depth at both ends, which the first namespace allows.
depth() {
	local send=$1 recv=$2
	shift 2
	load_with && echo 2048 >/proc/sys/net/smc/smcr_max_send_wr && echo 2048 >/proc/sys/net/smc/smcr_max_recv_wr &&
		set_sysctl smcr_max_send_wr "$send" && set_sysctl smcr_max_recv_wr "$recv" && "$@"
}

# receive_buffers END: how many of 128 KiB connections of that end got so far.
receive_buffers() {
	in_ns "$1" "$BIN/smc" stats --json | awk '
		/"smcr"/ { in_smcr = 1 }
		in_smcr && /"received"/ { in_it = 1 }
		in_it && place && ++place == 6 { print $1 + 0; exit }
		in_it && /"buffer_sizes"/ { place = 1 }'
}

# larger_in_b COMMAND...: with larger receive buffers in b the command has them there, and only there.
larger_in_b() {
	local before_a before_b
	before_a=$(receive_buffers a) before_b=$(receive_buffers b)
	with_sysctl b net/smc/rmem 131072 "$@" || return
	echo "# of 128 KiB: a $before_a, then $(receive_buffers a); b $before_b, then $(receive_buffers b)"
	[ "$(receive_buffers a)" = "$before_a" ] && [ "$(receive_buffers b)" -gt "$before_b" ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe

check "an empty UEID leaves none" load_with ueid=
check "and TCP" smctest --expect tcp path
check "another UEID" load_with ueid=MY.OWN-1
check "is the only one" [ "$("$BIN/smc" ueid show)" = MY.OWN-1 ]
check "and serves" smctest --expect smc path
check "a UEID in small letters is refused" refuses_parameter ueid=small
check "a UEID of 33 characters is refused" refuses_parameter ueid=ABCDEFGHIJABCDEFGHIJABCDEFGHIJABC

check "each namespace has a size of buffers of its own" larger_in_b smctest --expect smc integrity --mib 1
check "data over links of depth 2" depth 2 2 smctest --expect smc integrity --mib 1
check "many connections over one" smctest --expect smc many --connections 20 --kib 16
check "data over links of depth 2048" depth 2048 2048 smctest --expect smc integrity --mib 1
check "data over links of different depth" depth 100 3 smctest --expect smc integrity --mib 1
check "data that nobody takes are given up in time" \
	with_sysctl a net/ipv4/tcp_fin_timeout 2 smctest --expect smc left --seconds 2
check "a peer that reads slowly gets all of them" \
	with_sysctl a net/ipv4/tcp_fin_timeout 2 smctest --expect smc left --seconds 2 --slow
check "module unloads" within 20 unload_smc
finish
