#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 600
# Several links of a group over soft iWARP, and beside soft RoCE: they come, they go under connections that transfer
# both ways, and nothing is lost, doubled or broken.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

# Each pair of ports has a subnet of its own, as streams go where the routes say.
up_fabric() {
	up_ends &&
		up_port wire_a a "$IP_A" 9000 && up_port wire2_a a 10.9.1.1 9000 &&
		up_port wire_b b "$IP_B" 9000 && up_port wire2_b b 10.9.1.2 9000
}

# with KIND_DEVICE...: these RDMA devices, and no group.
with() {
	local device
	for device in $(ls /sys/class/infiniband); do
		rdma_del "$device" "${device##*_}" || return
	done
	within 20 no_groups || return
	for device; do
		rdma_add "$device" "${device##*_}" || return
	done
	LINKED_A=$(printf '%s\n' "$@" | grep _a$ | xargs)
	LINKED_B=$(printf '%s\n' "$@" | grep _b$ | xargs)
}

# losses NAME NUMBER LOSE RESTORE DEVICE...: so many losses, of these devices in turn.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline "$(scale 400 4000)" --expect smc failover --losses "$number" \
		--linked "$LINKED_A" --linked "$LINKED_B" "${OPTIONS[@]}"
}

# often: where packets get lost only the test of a link tells.
often() {
	set_sysctl smcr_testlink_time 1
}

require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "module loads" load_smc
require "two network devices each" up_fabric
require "links are tested often" often

require "two iWARP ports each" with siw_wire_a siw_wire2_a siw_wire_b siw_wire2_b
check "iWARP: first contact" smctest --expect smc path
check "iWARP: two links" links_on "siw_wire2_a siw_wire2_b siw_wire_a siw_wire_b"
check "iWARP: data is whole" smctest --expect smc integrity --mib 8
check "iWARP: many connections" smctest --expect smc many --connections 100 --kib 8
losses "iWARP: links go down" "$(scale 8 240)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "iWARP: devices are removed" "$(scale 8 240)" rdma_del rdma_add \
	"siw_wire_a a" "siw_wire2_b b" "siw_wire_b b" "siw_wire2_a a"
losses "iWARP: packets get lost" "$(scale 2 20)" silence noise "wire_a a wire_b b" "wire2_a a wire2_b b"

require "RoCE on one, iWARP on the other" with rxe_wire_a siw_wire2_a rxe_wire_b siw_wire2_b
check "both kinds: first contact" smctest --expect smc path
check "both kinds: two links" links_on "rxe_wire_a rxe_wire_b siw_wire2_a siw_wire2_b"
check "both kinds: data is whole" smctest --expect smc integrity --mib 4
losses "both kinds: links go down" "$(scale 8 240)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "both kinds: devices are removed" "$(scale 8 240)" rdma_del rdma_add \
	"rxe_wire_a a" "siw_wire2_b b" "rxe_wire_b b" "siw_wire2_a a"

require "both on each port" with rxe_wire_a siw_wire_a rxe_wire_b siw_wire_b
check "one port: first contact" smctest --expect smc path
check "one port: a link of each kind" links_on "rxe_wire_a rxe_wire_b siw_wire_a siw_wire_b"
losses "one port: devices are removed" "$(scale 4 120)" rdma_del rdma_add "rxe_wire_a a" "siw_wire_b b"

require "the client has one" with siw_wire_a siw_wire_b siw_wire2_b
check "the client has one: first contact" smctest --expect smc path
check "the client has one: its port has no way to the second" links_on "siw_wire_a siw_wire_b"

check "SMC still works" smctest --expect smc integrity --mib 1
check "module unloads" within 20 unload_smc
finish
