#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# What a connection uses goes away under it, with soft iWARP: also the network device, and the module while a stream
# is opened that nobody answers.

RDMA=siw COUNTER="stream_bytes a 7000" MIB=256
: "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/removal.bash"

start_transfer "network device down"
check "network device down: it is" ip -n b link set wire_b down
sleep 1
check "network device down: it is up again" ip -n b link set wire_b up
check "network device down: the transfer ends" transfer_ends
check "network device down: SMC is back" smc_back 10

# A stream that cannot say that it ends keeps its namespace, and soft iWARP, as long as TCP tries.
check "TCP gives up soon" each_end sh -c "echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries"
start_transfer "network device removed"
check "network device removed: it is" ip -n b link delete wire_b
check "network device removed: the transfer ends" transfer_ends
check "network device removed: no RDMA device is left" within 10 no_devices
down_netns
check "network device removed: new ones" up_netns
check "network device removed: new RDMA devices" up_devices
check "network device removed: SMC works there" smctest --expect smc integrity --mib 1

# The server opens a stream to an address where nobody is.
RAW=10.9.0.50
require "a peer of no kernel" ip -n b neighbor add "$RAW" lladdr "$(mac a)" dev wire_b
ip netns exec a "$BIN/smctest" --server-netns=b --addr="$IP_B" rawclc --raw-addr "$RAW" --device wire_a \
	--peer-mac "$(mac b)" --iwarp --only "a stream that nobody answers" >/tmp/opening &
opening=$!
check "module: a stream is being opened" within 10 sh -c "kill -0 $opening && ps -e | grep smc_iwarp"
kill -9 "$opening"
wait "$opening" 2>/dev/null
check "module unloads while a stream is opened" within 20 unload_smc
down_netns
check "the namespaces go" within 20 no_devices
check "soft iWARP unloads" within 20 rmmod siw
finish
