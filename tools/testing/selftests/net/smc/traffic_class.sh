#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# cpus: 1
# roce: v1
# timeout: 600
# The traffic class of RDMA packets, in both directions: 0, what smcr_traffic_class of each end says, or that of the
# socket; between IPv4 and between IPv6 addresses, on both links of a group, also when links are lost.

RXE_KO=$ROCE_V1_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"
. "${LIB%/*}/capture.bash"

SETTING=/proc/sys/net/smc/smcr_traffic_class

up_fabric() {
	up_two_each &&
		ip -n a address add "$IP6_A/64" dev wire_a nodad && ip -n b address add "$IP6_B/64" dev wire_b nodad &&
		each_end sh -c "echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down"
}

# are_ready: all devices have link-local addresses, from which RoCE v1 sends.
are_ready() {
	link_local wire_a in_ns a && link_local wire2_a in_ns a && link_local wire_b in_ns b && link_local wire2_b in_ns b
}

# settings A B: of the two ends.
settings() {
	in_ns a sh -c "echo $1 >$SETTING" && in_ns b sh -c "echo $2 >$SETTING" &&
		[ "$(in_ns a cat $SETTING) $(in_ns b cat $SETTING)" = "$1 $2" ]
}

# refuses TEXT: the setting of a does, and stays as it was.
refuses() {
	settings 104 32 && ! in_ns a sh -c "echo $1 2>/dev/null >$SETTING" && [ "$(in_ns a cat $SETTING)" = 104 ]
}

# is_default COMMAND...: run by the command, the setting is 0.
is_default() {
	[ "$("$@" cat $SETTING)" = 0 ]
}

# captured COMMAND...: the command succeeds. $OUT/links has the links that there are then. Of each RDMA packet
# meanwhile, on any wire, $OUT/packets has the MAC address that it is from, and the byte in its header, of IPv4 or IPv6.
captured() {
	local SENDS='udp port 4791' code
	start_capture fabric || return
	"$@"
	code=$?
	# At once: the group goes soon, and tshark may take long.
	"$BIN/smc" link --json >"$OUT/links"
	"$BIN/smc" link | sed 's/^/# /'
	end_capture || return
	tshark -r "$OUT/wire.pcapng" -T fields -E separator='|' -e eth.src -e ip.dsfield -e ipv6.tclass \
		>"$OUT/packets" 2>/dev/null
	return "$code"
}

# classes VERSION END CLASS: what each of the two devices of that end sent has this class, by that version of IP.
classes() {
	local device mac all number v4 v6 class
	for device in "wire_$2" "wire2_$2"; do
		mac=$(ip -n "$2" -o link show "$device" | sed 's/.*link\/ether \([0-9a-f:]*\).*/\1/')
		all=$(sed -n "s/^$mac|//p" "$OUT/packets" | sort | uniq -c)
		echo "# from $device: ${all//$'\n'/,}"
		# One line: how many, and |CLASS of IPv6 or CLASS| of IPv4.
		read -r number class <<<"$all"
		v4=${class%|*} v6=${class#*|}
		[ "${number:-0}" -ge 10 ] && [ "$(wc -l <<<"$all")" = 1 ] || return
		case $1 in
		4) [ -z "$v6" ] && [ "$((v4))" = "$3" ] ;;
		6) [ -z "$v4" ] && [ "$((v6))" = "$3" ] ;;
		esac || return
	done
}

# shown CLASS...: what the links of the group said, each class once.
shown() {
	[ "$(sed -n 's/^ *"traffic_class": \([0-9]*\).*/\1/p' "$OUT/links" | sort -nu | xargs)" = \
		"$(printf '%s\n' "$@" | sort -nu | xargs)" ]
}

# sends NAME VERSION A B SMCTEST OPTION...: of a new group, the packets of both ends have the class A and B.
sends() {
	local name=$1 version=$2 of_a=$3 of_b=$4
	shift 4
	check "$name: no group" within 30 no_groups
	check "$name: two links, which go down in turn" \
		captured "$@" --deadline 200 --expect smc failover --connections 8 --losses 2 "${LINKED[@]}" "${OPTIONS[@]}"
	check "$name: the links say so" shown "$of_a" "$of_b"
	check "$name: the client's packets" classes "$version" a "$of_a"
	check "$name: the server's packets" classes "$version" b "$of_b"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_fabric
require "idle groups end soon" set_sysctl smcr_lgr_idle_time 12
both_ways link_down link_up "wire_a a" "wire2_b b"

check "0 is the default" is_default in_ns a
check "of a new namespace, too" is_default unshare --net
for text in 256 -2 65536 0x100 x; do
	check "$text is refused" refuses "$text"
done
check "255 is taken, and -1" settings 255 -1
check "ordinary users may not" in_ns a setpriv --reuid=65534 --clear-groups sh -c "! echo 8 2>/dev/null >$SETTING"

require "as by default" settings 0 0
sends "default" 4 0 0 smctest
require "each end another one" settings 106 32
sends "as set" 4 106 32 smctest
require "those of the sockets" settings -1 -1
require "whose ECN bits are TCP's" each_end sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_ecn'
sends "of the sockets" 4 72 72 smctest --tos 72
require "one end's socket" settings 16 -1
sends "of one end's socket" 4 16 72 smctest --tos 72

require "link-local addresses" within 20 are_ready
require "no enterprise ID, so version 1" "$BIN/smc" ueid flush
require "each end another one again" settings 106 32
sends "IPv6 GIDs, as set" 6 106 32 smctest
require "those of the sockets again" settings -1 -1
sends "IPv6 GIDs, of IPv6 sockets" 6 72 72 smctest6 --tos 72

check "module unloads" within 20 unload_smc
finish
