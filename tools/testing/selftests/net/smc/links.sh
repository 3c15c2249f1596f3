#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# beside: nothing
# timeout: 540
# Which links a group has: one for each two ports that reach each other, symmetric or not, up to eight, and
# again when ports go and come. What 64 connections send by eight links is spread over them.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

# up_fabric: two devices for each end, and one more in a subnet of its own.
up_fabric() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 && up_device wire2_a a 10.9.0.12 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.22 9000 &&
		up_device far_a a 10.7.0.1 9000 && up_device far_b b 10.8.0.1 9000 &&
		device_del far_a a && device_del far_b b
}

# up_eight: six more for each end.
up_eight() {
	local number
	for number in 3 4 5 6 7 8; do
		up_device "wire${number}_a" a "10.9.0.1$number" 9000 &&
			up_device "wire${number}_b" b "10.9.0.2$number" 9000 || return
	done
}

# field NAME: the values of a field, of JSON with a line for each.
field() {
	sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"
}

# group_is LINKS CLIENT SERVER: each end has one group with so many links, which are all active, and of the
# kind that it says.
group_is() {
	local groups states kinds
	groups=$("$BIN/smc" lgr --json) && states=$("$BIN/smc" link --json | field state) || return
	kinds=$(paste -d' ' <(field role <<<"$groups") <(field kind <<<"$groups") | sort)
	[ "$kinds" = "client $2"$'\n'"server $3" ] &&
		[ "$(sort <<<"$states" | uniq -c | xargs)" = "$((2 * $1)) active" ]
}

# becomes LINKS CLIENT SERVER: as group_is, soon. Shows it.
becomes() {
	within 20 group_is "$@"
	local code=$?
	{ "$BIN/smc" lgr && "$BIN/smc" link; } | sed 's/^/# /'
	return $code
}

# stays SECONDS LINKS CLIENT SERVER: as group_is, all the time.
stays() {
	local end=$((SECONDS + $1))
	shift
	while [ "$SECONDS" -le "$end" ]; do
		group_is "$@" || { "$BIN/smc" link && return 1; }
		sleep 0.1
	done
}

# Kinds, with all ports, and where one end has one port only.
SINGLE=(1 single single)
SYMMETRIC=(2 symmetric symmetric)
CLIENT_HAS_ONE=(2 "asymmetric local" "asymmetric peer")
SERVER_HAS_ONE=(2 "asymmetric peer" "asymmetric local")

# fresh DEVICE...: these devices, and no group.
fresh() {
	local device
	for device in $(ls /sys/class/infiniband); do
		device=${device#rxe_}
		device_del "$device" "${device##*_}" || return
	done
	within 20 no_groups || return
	for device; do
		device_add "$device" "${device##*_}" || return
	done
}

# from_start LINKS CLIENT SERVER -- DEVICE...: what a new group of these devices is.
from_start() {
	fresh "${@:5}" && smctest --expect smc path && becomes "${@:1:3}"
}

# changes VERB DEVICE LINKS CLIENT SERVER: what the group is after that.
changes() {
	"device_$1" "$2" "${2##*_}" && becomes "${@:3}"
}

# max_links CLIENT SERVER: what each end allows.
max_links() {
	in_ns a sh -c "echo $1 >/proc/sys/net/smc/smcr_max_links_per_lgr" &&
		in_ns b sh -c "echo $2 >/proc/sys/net/smc/smcr_max_links_per_lgr"
}

# offer_ends: a link is offered that nobody answers to, now and again.
offer_ends() {
	silence wire_a a wire_b b && device_add wire2_b b && within 15 is_offered && within 15 group_is "${SINGLE[@]}"
}

is_offered() {
	"$BIN/smc" link --json | field state | grep -qx activating
}

# buffers BYTES: of new connections. Of those with a megabyte an RMB has two.
buffers() {
	set_sysctl rmem "$1"
}

# share: what 64 connections send by each link. Where links are taken away, failover.sh looks at that.
share() {
	local devices_a devices_b
	devices_a=$(echo rxe_wire{,2,3,4,5,6,7,8}_a)
	devices_b=$(echo rxe_wire{,2,3,4,5,6,7,8}_b)
	smctest --expect smc failover --connections 64 --pause 200 --losses 0 --lose true --restore true \
		--compare 20 --linked "$devices_a" --linked "$devices_b"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_fabric

require "connections" hold --deadline 250 --connections 4
check "two ports each: symmetric" becomes "${SYMMETRIC[@]}"
check "the server's second goes: asymmetric" changes del wire2_b "${SERVER_HAS_ONE[@]}"
check "the client's, too: single" changes del wire2_a "${SINGLE[@]}"
check "the client's comes: asymmetric" changes add wire2_a "${SERVER_HAS_ONE[@]}"
check "the server's, too: symmetric" changes add wire2_b "${SYMMETRIC[@]}"
check "the client's goes: asymmetric" changes del wire2_a "${CLIENT_HAS_ONE[@]}"
check "the server's, too: single" changes del wire2_b "${SINGLE[@]}"
check "the server's comes: asymmetric" changes add wire2_b "${CLIENT_HAS_ONE[@]}"
check "the client's, too: symmetric" changes add wire2_a "${SYMMETRIC[@]}"
check "the connections live" hold_end

check "one port each from the start: single" from_start "${SINGLE[@]}" -- wire_a wire_b
check "a port of another subnet is of no use to the server" device_add far_b b
check "and is not offered" stays 3 "${SINGLE[@]}"
check "one is of no use to the client" device_add far_a a
check "and is not offered either" stays 3 "${SINGLE[@]}"
check "the server has two from the start: asymmetric" \
	from_start "${CLIENT_HAS_ONE[@]}" -- wire_a wire_b wire2_b
check "the client has two from the start: asymmetric" \
	from_start "${SERVER_HAS_ONE[@]}" -- wire_a wire2_a wire_b

check "one port each again: single" from_start "${SINGLE[@]}" -- wire_a wire_b
check "an offer without an answer ends" offer_ends
check "what was lost is sent again" noise wire_a a wire_b b
check "and another offer has an answer" becomes "${CLIENT_HAS_ONE[@]}"

require "connections take a megabyte each" buffers 1048576
check "one port each: single" from_start "${SINGLE[@]}" -- wire_a wire_b
require "connections with 32 RMBs" hold --connections 64
check "a link for all of them" changes add wire2_b "${CLIENT_HAS_ONE[@]}"
check "these live" hold_end
require "connections take less" buffers 65536

require "no devices" fresh
require "eight devices each" up_eight
for device in wire_a wire2_a wire_b wire2_b; do
	require "with $device" device_add "$device" "${device##*_}"
done
require "both ends allow eight links" max_links 8 8
check "64 connections by eight links, evenly" share
check "eight ports each: symmetric" becomes 8 symmetric symmetric
check "module unloads" within 20 unload_smc
require "module loads again" load_smc
require "one end allows two" max_links 8 2
check "it is two" smctest --expect smc path
check "though there are eight ports each" becomes "${SYMMETRIC[@]}"
check "module unloads" within 20 unload_smc
finish
