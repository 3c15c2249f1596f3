#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 200
# mem: 3G
# So many peers come that all handshakes of a namespace's listeners are taken, or come without end: what else it
# does goes on.

. "${LIB:=${0%/*}/lib.sh}"

RAW=10.9.0.50

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
require "long queues" in_ns b sysctl -qw net.core.somaxconn=65535 net.ipv4.tcp_max_syn_backlog=4096
ulimit -n 8192
# Clients' packets arrive in batches.
require "a wire that sends now and then" ip netns exec a tc qdisc add dev wire_a root netem slot 40ms 40ms
suite "acceptors" smctest --expect any acceptors
require "and one that sends at once" ip netns exec a tc qdisc del dev wire_a root
suite "flooded" smctest flooded
suite "crowded" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" --deadline 150 \
	crowded --raw-addr "$RAW" --device wire_a --peer-mac "$(mac b)"
check "data is whole after that" smctest --expect smc integrity --mib 1
check "module unloads" within 30 unload_smc
finish
