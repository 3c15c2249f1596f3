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

# goes_by NAMESPACE PATTERN: the way of a connection from there.
goes_by() {
	local way
	way=$(path_of "$1")
	echo "# from $1: $way"
	case $way in $2) ;; *) return 1 ;; esac
}

host_network() {
	ip -n a link property add dev wire_a altname host_port && in_ns a "$BIN/smc" pnet add NET1 -I host_port
}

no_networks() {
	"$BIN/smc" pnet flush && in_ns a "$BIN/smc" pnet flush
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

# The name is the host's, and so is the table that it is in; the container sees neither.
require "the host's network device is on a network, by another name that it has" host_network
check "so is the container's on top of it, which has no RDMA device there" goes_by c "TCP: *(0x03030000)*"
require "the RDMA device is on it, too" "$BIN/smc" pnet add NET1 -D rxe_a
check "the host's connections use it" goes_by a "SMC-R*"
# Soft RoCE does not hear what comes to the Ethernet address of the container's device.
check "the container's try it" goes_by c "TCP: *(0x02010000)*"
require "no network has a name" no_networks

require "module loads again" reload
require "groups of the first namespace end at once" first smcr_lgr_idle_time 0
check "a namespace cannot keep its groups for longer" eval "smctest --expect smc path; within 30 no_groups"
check "module unloads" within 20 unload_smc
finish
