#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# roce: v1
# timeout: 400
# Two links a group in version 1: RKeys are exchanged by ADD_LINK_CONT, and connections outlive a link.

RXE_KO=$ROCE_V1_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"
. "${LIB%/*}/capture.bash"

# are_ready: all devices have link-local addresses, from which RoCE v1 sends.
are_ready() {
	link_local wire_a in_ns a && link_local wire2_a in_ns a && link_local wire_b in_ns b && link_local wire2_b in_ns b
}

# has_two_links: both ends of the one group have.
has_two_links() {
	local said
	said=$("$BIN/smc" lgr --json) && [ "$(grep -c '"kind": "symmetric"' <<<"$said")" = 2 ] &&
		! grep -q '"version": "2' <<<"$said"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_two_each
require "link-local addresses" within 20 are_ready
require "no enterprise ID" "$BIN/smc" ueid flush

check "the capture starts" start_capture wire_b ip netns exec b
check "a connection" smctest --expect smc integrity --mib 1
check "the group gets a second link" within 20 has_two_links
check "the capture is whole" stop_capture
check "wire: keys of both ends" seen 2 'llc == "0x03"'
check "wire: none malformed" unseen bad
check "connections on both" smctest --expect smc many --connections 40 --kib 32
both_ways link_down link_up "wire_a a" "wire2_b b"
check "links go down" smctest --deadline 200 --expect smc failover --losses 4 "${LINKED[@]}" "${OPTIONS[@]}"
check "module unloads" within 20 unload_smc
finish
