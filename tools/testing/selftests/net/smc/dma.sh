#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 500
# cpus: 1
# dma: bounced
# Where devices see other memory than the CPU until it is synchronised: every byte is right, whatever way it is read,
# in elements that are used again, and where connections go from one link to another. A synchronisation that is left
# out is seen.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

SMC_KO=$BOUNCED_SMC_KO

up_fabric() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 && up_device wire_b b "$IP_B" 9000
}

up_second() {
	up_device wire2_a a 10.9.0.11 9000 && up_device wire2_b b 10.9.0.12 9000
}

no_devices_left() {
	device_del wire2_a a && device_del wire2_b b && device_del wire_a a && device_del wire_b b &&
		within 20 no_groups
}

# Streams go where the routes say, which are those of the second devices since the first ones were down. So there are
# others, in a subnet of their own.
up_iwarp() {
	link_down wire2_a a && link_down wire2_b b && up_port wire3_a a 10.9.1.1 9000 && up_port wire3_b b 10.9.1.2 9000 &&
		rdma_add siw_wire_a a && rdma_add siw_wire_b b && rdma_add siw_wire3_a a && rdma_add siw_wire3_b b
}

# thousand: connections of one process, which holds both ends.
thousand() {
	(ulimit -n 4096 && smctest --expect smc --deadline 300 many --connections 1000 --kib 4)
}

# noticed WAY: data are wrong while one of three long synchronisations that way is left out. The memory of the group,
# whose elements the CPU and the device see differently for good, goes.
noticed() {
	local before code
	before=$(counted left_out)
	echo 3 >"/sys/module/dma_bounce/parameters/skip_$1" || return
	smctest --expect smc --deadline 60 integrity --mib 1
	code=$?
	echo 0 >"/sys/module/dma_bounce/parameters/skip_$1"
	echo "# $(($(counted left_out) - before)) were left out; the transfer ended with $code"
	[ $code = 3 ] && within 20 no_groups
}

losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline 200 --expect smc failover --connections 6 --losses "$number" \
		"${LINKED[@]}" "${OPTIONS[@]}"
}

# counted NAME: what the mappings were asked for so far.
counted() {
	cat "/sys/module/dma_bounce/parameters/$1"
}

# is_synced: both ways, and nothing that a device wrote was overwritten from a cache, but for what was planted.
is_synced() {
	echo "# $(counted mapped) mappings, $(counted to_cpu) bytes to the CPU, $(counted to_device) to devices," \
		"$(counted written_back) written back"
	[ "$(counted to_cpu)" -gt 0 ] && [ "$(counted to_device)" -gt 0 ] && [ "$(counted written_back)" = "$PLANTED" ]
}

require "RDMA modules load" load_rdma
require "mappings are bounced" insmod "$DMA_BOUNCE_KO"
require "module loads" load_smc
require "a device each" up_fabric

require "groups end soon" set_sysctl smcr_lgr_idle_time 3
check "data" smctest --expect smc integrity --mib "$(scale 1 64)"
check "elements that were used before" smctest --expect smc integrity --mib 1 --rounds "$(scale 3 100)" --chunk 9000
check "a synchronisation for the CPU that is left out is noticed" noticed to_cpu
check "one for a device is, too" noticed to_device
PLANTED=$(counted written_back)
check "data are whole with all of them" smctest --expect smc integrity --mib 1 --rounds 3
suite "urgent data" smctest --expect smc semantics --only "urgent: "
suite "splice" smctest --expect smc semantics --only "splice"
suite "peek" smctest --expect smc semantics --only "peek"
check "buffers beyond what can be mapped" with_sysctl a net/smc/wmem 1048576 \
	with_sysctl b net/smc/rmem 1048576 smctest --expect smc integrity --mib 2

require "two devices each" up_second
losses "links go down" "$(scale 2 100)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
# After wire_a was down connections have another address here, and so a link group of their own.
require "its link groups have gone" within 20 no_groups
losses "devices are removed" "$(scale 2 100)" device_del device_add "wire_a a" "wire2_b b"

require "buffers that are not contiguous" set_sysctl smcr_buf_type 1
require "and new link groups" within 20 no_groups
check "data in them" smctest --expect smc integrity --mib "$(scale 1 64)"
losses "links go down" "$(scale 2 100)" link_down link_up "wire_a a" "wire2_b b"

check "a thousand connections" thousand

require "soft RoCE goes" no_devices_left
require "soft iWARP loads" load_siw
require "two devices of soft iWARP each" up_iwarp
check "iWARP: data" smctest --expect smc integrity --mib "$(scale 1 64)"
suite "iWARP: urgent data" smctest --expect smc semantics --only "urgent: "
LINKED=(--linked "siw_wire_a siw_wire3_a" --linked "siw_wire_b siw_wire3_b")
losses "iWARP: links go down" "$(scale 2 100)" link_down link_up "wire_a a" "wire3_b b"
require "iWARP: its link groups have gone" within 20 no_groups
losses "iWARP: devices are removed" "$(scale 2 100)" rdma_del rdma_add "siw_wire_a a" "siw_wire3_b b"
check "iWARP: a thousand connections" thousand

check "what was written was synchronised" is_synced
check "module unloads" within 20 unload_smc
check "and with it all mappings" rmmod dma_bounce
finish
