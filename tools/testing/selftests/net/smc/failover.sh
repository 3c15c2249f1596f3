#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# Links go and come back under connections that transfer both ways: nothing is lost, doubled or broken.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

up_fabric() {
	ip netns add a && ip netns add b && up_bridge &&
		ip -n a link set lo up && ip -n b link set lo up &&
		up_device wire_a a "$IP_A" 9000 && up_device wire2_a a 10.9.0.11 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.12 9000
}

LINKED=(--linked "rxe_wire_a rxe_wire2_a" --linked "rxe_wire_b rxe_wire2_b")

# losses NAME NUMBER LOSE RESTORE DEVICE...: so many losses, of these devices in turn.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline "$(scale 400 4000)" --expect smc failover \
		--losses "$number" "${LINKED[@]}" "${OPTIONS[@]}"
}

# even NAME LOSE RESTORE DEVICE: what 64 connections send is spread over both links, also after one was lost.
even() {
	local name=$1
	shift
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline 300 --expect smc failover --connections 64 --pause 200 --losses 1 \
		--compare 5 "${LINKED[@]}" "${OPTIONS[@]}"
}

# often: where packets get lost only the test of a link tells.
often() {
	set_sysctl smcr_testlink_time 1
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_fabric
require "enterprise ID" common_eid
require "links are tested often" often

losses "links go down" "$(scale 48 480)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "devices are removed" "$(scale 48 480)" device_del device_add \
	"wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "packets get lost" "$(scale 4 40)" silence noise "wire_a a wire_b b" "wire2_a a wire2_b b"
even "the load is spread" link_down link_up "wire_a a"

check "SMC still works" smctest --expect smc integrity --mib 1
check "module unloads" within 20 unload_smc
finish
