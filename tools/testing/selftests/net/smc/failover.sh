#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# beside: nothing
# timeout: 900
# Links go and come back under connections that transfer both ways: nothing is lost, doubled or broken.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"
. "${LIB%/*}/moment.bash"
. "${LIB%/*}/quiet.bash"

up_fabric() {
	up_two_each &&
		ip -n a address add "$IP6_A/64" dev wire_a nodad && ip -n b address add "$IP6_B/64" dev wire_b nodad &&
		each_end sh -c "echo 1 >/proc/sys/net/ipv6/conf/all/keep_addr_on_down"
}

# losses_by CLIENT OPTIONS NAME NUMBER LOSE RESTORE DEVICE...: so many losses, of these devices in turn, under
# connections that this function makes, with these options.
losses_by() {
	local client=$1 options=$2 name=$3 number=$4
	shift 4
	OPTIONS=()
	both_ways "$@"
	# The options are words.
	# shellcheck disable=SC2086
	check "$name" "$client" --deadline "$(scale 400 4000)" --expect smc failover $options \
		--losses "$number" "${LINKED[@]}" "${OPTIONS[@]}"
}

# losses NAME NUMBER LOSE RESTORE DEVICE...: of connections that send a little all the time.
losses() {
	losses_by smctest "" "$@"
}

# dialled COMMAND...: meanwhile connections are made and closed all the time, over TCP if not over SMC. Messages take
# their time, so that many are under way when a link goes.
dialled() {
	local code device dialler
	for device in a b; do
		in_place $device tc qdisc add dev wire_$device root netem delay 30ms || return
	done
	touch /tmp/dialled
	while [ -e /tmp/dialled ]; do smctest --port 7030 connrate --processes 8 --count 80; done >/dev/null 2>&1 &
	dialler=$!
	"$@"
	code=$?
	rm -f /tmp/dialled
	wait "$dialler"
	noise wire_a a wire_b b && return $code
}

# saturated NAME NUMBER LOSE RESTORE DEVICE... and saturated6, over IPv6: of connections that send all they can: rings
# are full, writers wait at both ends, urgent data is on its way, splice writes.
saturated() {
	losses_by smctest "--saturate --within $STALL" "$@"
}

saturated6() {
	# With IPv6 it is another group, and a device is to have one link.
	within 20 no_groups
	losses_by smctest6 "--saturate --within $STALL" "$@"
	within 20 no_groups
}

# full END: how often the writers of that end have found a ring full.
full() {
	in_ns "$1" "$BIN/smc" stats --json | awk -F'[:,]' '/"(peer_)?full"/ { n += $2 } END { print n + 0 }'
}

# rings_were_full: often, since FULL_A and FULL_B were taken.
rings_were_full() {
	local a b
	a=$(($(full a) - FULL_A)) b=$(($(full b) - FULL_B))
	echo "# full rings: $a times for the client, $b times for the server"
	[ "$a" -ge 1000 ] && [ "$b" -ge 1000 ]
}

# even NAME LOSE RESTORE DEVICE: what 64 connections send is spread over both links, also after one was lost.
even() {
	local name=$1
	shift
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline 300 --expect smc failover --connections 64 --pause 200 --losses 1 \
		--compare 20 "${LINKED[@]}" "${OPTIONS[@]}"
}

# often: where packets get lost only the test of a link tells. What is idle goes soon.
often() {
	set_sysctl smcr_testlink_time 1 && set_sysctl smcr_lgr_idle_time 5
}

# second_links: the states of the group's second links, the client's and the server's: `connected` if that waits for the
# client to confirm.
second_links() {
	"$BIN/smc" link | awk '
		$2 == 2 && /rxe_wire2?_a/ { a = $3 }
		$2 == 2 && /rxe_wire2?_b/ { b = $3 == "activating" && $(NF - 1) !~ /^[0:]+$/ ? "connected" : $3 }
		END { print a, b }'
}

are_active() {
	[ "$(second_links)" = "active active" ]
}

# sees CLIENT SERVER: the second links are in these states before they are active.
sees() {
	local states end=$((SECONDS + 20))
	while [ "$SECONDS" -lt "$end" ]; do
		states=$(second_links)
		[ "$states" != "$1 $2" ] || return 0
		[ "$states" != "active active" ] || return 1
	done
	return 1
}

# first_device END: that of its first link.
first_device() {
	"$BIN/smc" link | awk -v end="$1" '$2 == 1 && $5 ~ "rxe_wire2?_" end { gsub("rxe_|/.*", "", $5); print $5 }'
}

# lose END: the group's only link goes, and the other one comes.
lose() {
	link_down "$LOST" "$1" || return
	"$BIN/smc" link | sed 's/^/# /'
	within 30 are_active
}

ALL=("wire_a a" "wire2_a a" "wire_b b" "wire2_b b")

# goes_on CLIENT SERVER END: a connection goes on by the link that is being added, and is in these states when the
# group's only link goes. 2: these were over before they were seen.
goes_on() {
	local code
	within 20 no_groups && hold && LOST=$(first_device "$3") && [ -n "$LOST" ]
	code=$?
	if [ $code = 0 ] && sees "$1" "$2"; then
		lose "$3"
		code=$?
	elif [ $code = 0 ]; then
		code=2
	fi
	# The holder goes in any case: it would keep the module in use.
	hold_end || code=1
	return $code
}

# outlived CLIENT SERVER END: as goes_on, where each message takes its time, and with it each state.
outlived() {
	local code device
	for device in "${ALL[@]}"; do
		in_place "${device#* }" tc qdisc add dev "${device% *}" root netem delay 300ms || return
	done
	LOST=
	caught goes_on "$@"
	code=$?
	# The devices are words.
	# shellcheck disable=SC2068
	noise ${ALL[@]} && link_up "$LOST" "$3" || return
	return $code
}

# logged TYPE...: the log has said of some group that it has become one of each of these types.
logged() {
	local type
	for type; do
		dmesg | grep -q "smc: SMC-R lg [0-9a-f]* net [0-9]* state changed: $type, " || { echo "# not $type"; return 1; }
	done
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_fabric
require "enterprise ID" common_eid
require "links are tested often" often

# The longest that a connection may be without data, seconds.
STALL=15

losses "links go down" "$(scale 20 480)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
dialled losses "a link of the client goes while others connect" "$(scale 8 80)" link_down link_up "wire2_a a"
losses "devices are removed" "$(scale 20 480)" device_del device_add \
	"wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "packets get lost" "$(scale 2 40)" silence noise "wire_a a wire_b b" "wire2_a a wire2_b b"
FULL_A=$(full a) FULL_B=$(full b)
saturated "full load: links go down" "$(scale 8 240)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
saturated6 "full load, IPv6: devices are removed" "$(scale 8 240)" device_del device_add \
	"wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
check "full load: writers of both ends found rings full" rings_were_full
# What one device sends, as the links of a new group may be between any two of them.
saturated "full load: packets get lost" "$(scale 2 40)" silence noise "wire_a a" "wire2_b b"
even "the load is spread" link_down link_up "wire_a a"

check "the server's only link goes while another one is added, which the client uses" \
	outlived active connected b
check "the client's only link goes while another one is added" outlived activating connected a
check "SMC still works" smctest --expect smc integrity --mib 1
check "the processors are idle in the end" within 30 idle
check "the log says what becomes of the links" logged SINGLE SYMMETRIC NONE
check "module unloads" within 20 unload_smc
finish
