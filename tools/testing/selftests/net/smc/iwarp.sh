#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 500
# SMC-R over soft iWARP: on a wire and on one machine, beside soft RoCE, with peers that do not keep to it.

. "${LIB:=${0%/*}/lib.sh}"

RAW=10.9.0.50

# low_ports: those of streams are the others.
low_ports() {
	each_end sh -c "echo 20000 40000 >/proc/sys/net/ipv4/ip_local_port_range"
}

# out_of_reach add|del [END]: what b sends to the ports of streams gets nowhere, or what the other end sends.
out_of_reach() {
	ip -n "${2:-b}" rule "$1" ipproto tcp dport 49152-65534 blackhole
}

# link_failed [WHY]: the kernel log tells of a link that failed, or, if any will do, of lines that it left out.
link_failed() {
	dmesg | grep -E "smc: link .* failed: ${1:-|smc: messages about peers: .* suppressed}"
}

with_server_out_of_reach() {
	out_of_reach add a && "$@" && out_of_reach del a
}

require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "module loads" load_smc
require "network" up_netns
require "soft iWARP at one end" add_rdma siw a

check "one end alone: TCP" smctest --expect tcp integrity --mib 1
check "one end alone: at once" smctest --expect tcp --deadline 10 pingpong --count 3
require "soft iWARP at the other end" add_rdma siw b

check "first contact" smctest --expect smc path
check "the link is on soft iWARP" links_on "siw_a siw_b"
check "data is whole" smctest --expect smc integrity --mib 24
check "small chunks" smctest --expect smc integrity --mib 1 --chunk 700
check "chunks beyond the buffers" smctest --expect smc integrity --mib 4 --chunk 1000000
check "several connections, one after another" smctest --expect smc integrity --mib 1 --rounds 4
check "round trips" smctest --expect smc pingpong --count 5000
check "200 connections at once" smctest --expect smc many --connections 200 --kib 8
check "processes open and close" smctest --expect smc churn --processes 4 --opens 50
suite "killed" smctest --expect smc killed
check_not "no link failed" link_failed
check "groups go soon, as they hold their namespaces" within 12 no_groups
check "IPv6: data is whole" smctest6 --expect smc integrity --mib 4
check "IPv6: the link is on soft iWARP" links_on "siw_a siw_b"

# The server gets no answer from the ports that clients listen at.
check "a client that cannot be reached: clients have low ports" low_ports
check "a client that cannot be reached: it is so" out_of_reach add
check "a client that cannot be reached: it opens the stream" smctest --expect smc integrity --mib 1
check "a client that cannot be reached: the link is on soft iWARP" links_on "siw_a siw_b"
within 12 no_groups
check "neither can be reached: TCP" with_server_out_of_reach smctest --expect tcp path
check "it can be reached again" out_of_reach del

require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
suite "hostile" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 200 \
	rawclc --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)" --iwarp
check "data is whole after all that" smctest --expect smc integrity --mib 1

# Beside RoCE.
check "soft RoCE at one end" add_rdma rxe a
check "RoCE here, iWARP at both: iWARP" smctest --expect smc path
check "soft RoCE at the other end" add_rdma rxe b
within 12 no_groups
check "both at both: RoCE first" smctest --expect smc path
check "a link of each kind" links_on "rxe_a rxe_b siw_a siw_b"
check "both at both: data is whole" smctest --expect smc integrity --mib 1
check "no soft iWARP at one end" del_rdma siw b
check "the link on it failed, as the log tells" within 10 link_failed "its port is gone"
check "RoCE at both, iWARP here: RoCE" smctest --expect smc integrity --mib 1

down_netns
check "the namespaces go" within 20 no_devices

# One machine.
ip link set lo up
check "soft iWARP on lo" rdma link add siw_l type siw netdev lo
check "lo: data is whole" "$BIN/smctest" --addr 127.0.0.1 --expect smc integrity --mib 2
check "lo: round trips" "$BIN/smctest" --addr 127.0.0.1 --expect smc pingpong --count 50
check "module unloads" within 20 unload_smc
finish
