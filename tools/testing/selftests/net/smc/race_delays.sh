#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 900
# races: delayed
# Random delays around the module's locks and atomics, so that what happens between two of them is met often: many
# connections, listeners that are closed, processes that die, messages that wait for a slot or a timer, links that go.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

SMC_KO=$DELAYED_SMC_KO
DELAYS=/sys/module/race_delays/parameters

# delays ONE_IN MOST_US: one in so many calls waits, for so many microseconds at most.
delays() {
	echo "$1" >$DELAYS/one_in && echo "$2" >$DELAYS/most_us
}

# run NAME EXPECTED PROGRAM...
run() {
	check "$1" smctest --deadline "$(scale 200 2000)" --expect "$2" "${@:3}"
}

# connections NAME EXPECTED LISTENERS: those that come and go, and so many listeners that are closed.
connections() {
	run "$1: connections in every way" "$2" churn --processes 8 --opens "$(scale 100 1000)"
	# A server that answers, and closes before its client's call of send has returned.
	run "$1: one answer, and the end" "$2" churn --processes 8 --opens "$(scale 200 4000)" --way 5
	run "$1: clients are closed when they are accepted" "$2" closed-client --connections "$(scale 500 5000)"
	run "$1: and reset" "$2" closed-client --reset --connections "$(scale 500 5000)"
	run "$1: listeners are closed while handshakes end" "$2" closed-listener --connections "$(scale "$3" 15000)"
	run "$1: many at once" "$2" many --connections 200 --kib 64
	run "$1: many are destroyed at once" "$2" destroyed --rounds "$(scale 12 120)"
	suite "$1: killed" smctest --expect "$2" killed
}

# losses NAME NUMBER LOSE RESTORE DEVICE...: so many losses, of these devices in turn.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	run "$name" smc failover --losses "$number" "${LINKED[@]}" "${OPTIONS[@]}"
}

# few_slots: groups have one link and two send slots from now on.
few_slots() {
	set_sysctl smcr_max_links_per_lgr 1 && set_sysctl smcr_max_send_wr 2 && within 20 no_groups
}

were_delayed() {
	local delays sleeps
	delays=$(cat $DELAYS/delays) sleeps=$(cat $DELAYS/sleeps)
	echo "# $delays delays, $sleeps of them asleep"
	[ "$delays" -ge 10000 ] && [ "$sleeps" -ge 100 ]
}

require "RDMA modules load" load_rdma
require "locks and atomics can be delayed" insmod "$RACE_DELAYS_KO"
require "module loads" load_smc
require "two devices each" up_two_each
require "groups end soon" set_sysctl smcr_lgr_idle_time 1

require "many short delays" delays 8 100
run "SMC-R: data that are held back" smc bursts --held-back --connections 64 --rounds "$(scale 60 600)"
suite "SMC-R: a listener that becomes a client" smctest --expect smc semantics --only "on a listener"
check "TCP: no worker waits for senders whose memory nobody serves" \
	smctest --deadline "$(scale 200 2000)" --server-family tcp --expect tcp stuck-senders --connections "$(scale 200 2000)"
require "shared memory" same_host on
connections SMC-D smcd 1500
require "no shared memory" same_host off

require "some longer delays" delays 64 1000
connections SMC-R smc 700
losses "links go down" "$(scale 6 240)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "devices are removed" "$(scale 6 240)" device_del device_add "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"

require "few long delays" delays 256 4000
require "few send slots" few_slots
run "SMC-R: messages that wait for a slot" smc bursts --connections 3 --rounds "$(scale 3000 30000)"

require "no delays" delays 0 0
check "there were delays" were_delayed
check "module unloads" within 30 unload_smc
finish
