#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 200
# cpus: 1
# Namespaces that share an RDMA device: each uses it under its own address, in link groups of its own, and none of
# them keeps an idle group for longer than the first namespace allows.

. "${LIB:=${0%/*}/lib.sh}"

IP_C=10.9.0.11

# up_container: a namespace with a device on top of that of namespace a, as containers have them.
up_container() {
	ip netns add c && ip -n c link set lo up &&
		ip -n a link add mac_c link wire_a netns c type macvlan mode bridge &&
		ip -n c address add "$IP_C/24" dev mac_c && ip -n c link set mac_c up &&
		within 10 in_ns c ping -c 1 -W 1 "$IP_B" >/dev/null
}

# path_of NAMESPACE: which way a connection from there goes, with its link group if it has one.
path_of() {
	"$BIN/smctest" --client-netns="$1" --server-netns=b --addr="$IP_B" --deadline 60 path | sed -n 's/^# path: //p'
}

# is_apart: a connection from c is not in the link group of a, which is there.
is_apart() {
	local a c
	a=$(path_of a) c=$(path_of c)
	echo "# from a: $a; from c: $c"
	case $a in SMC-R*) [ -n "$c" ] && [ "$c" != "$a" ] ;; *) false ;; esac
}

# reload: the module as it is at first, without groups.
reload() {
	within 20 unload_smc && load_smc
}

# first NAME VALUE: a setting of the first namespace.
first() {
	echo "$2" >"/proc/sys/net/smc/$1"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "a container on the same network device" up_container

check "a container is not in the link group of its host" is_apart

require "module loads again" reload
require "groups of the first namespace end at once" first smcr_lgr_idle_time 0
check "a namespace cannot keep its groups for longer" eval "smctest --expect smc path; within 30 no_groups"
check "module unloads" within 20 unload_smc
finish
