#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: um-debug
# timeout: 900
# Links go and come back under connections that transfer both ways: nothing is lost, doubled or broken.

. "$LIB"
. "${LIB%/*}/failover.bash"

up_fabric() {
	ip netns add a && ip netns add b && up_bridge &&
		ip -n a link set lo up && ip -n b link set lo up &&
		up_device wire_a a "$IP_A" 9000 && up_device wire2_a a 10.9.0.11 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.12 9000
}

export LINKED="rxe_wire2_a rxe_wire2_b rxe_wire_a rxe_wire_b"

# losses NAME NUMBER LOSE RESTORE DEVICE...: so many losses, of these devices in turn.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline "$(scale 500 5000)" --expect smc failover \
		--losses "$number" "${OPTIONS[@]}"
}

# carried DEVICE: it sent more than messages about links.
carried() {
	local sent
	sent=$(cat "/sys/class/infiniband/$1/ports/1/hw_counters/sent_bytes")
	echo "# $1 sent $sent bytes"
	[ "$sent" -gt 1000000 ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_fabric
require "enterprise ID" common_eid

losses "links go down" "$(scale 40 400)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
# The counters go with the devices.
check "the first device carried data" carried rxe_wire_a
check "the second device carried data" carried rxe_wire2_a
losses "devices are removed" "$(scale 40 400)" device_del device_add \
	"wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "packets get lost" "$(scale 20 200)" silence noise "wire_a a wire_b b" "wire2_a a wire2_b b"

check "SMC still works" smctest --expect smc integrity --mib 1
check "module unloads" within 20 unload_smc
finish
