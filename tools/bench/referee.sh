#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# timeout: 900
# cpus: 1
# clock: instructions
# leaks: no
# Figures of one system, `ours`, `c_module` or `tcp`, where a nanosecond is an instruction. Writes "KEY VALUE" lines to
# $OUT/figures; `make bench ARGS=--referee` adds them up. The keys are explained in Documentation/performance.md.

. "$LIB"
. "${0%/*}/figures.bash"

SYSTEM=$1
PORT=11111
SAID=$(mktemp -d)

# per COUNT BEFORE AFTER: how much of it there was for each of COUNT.
per() {
	awk -v n="$1" -v before="$2" -v after="$3" 'BEGIN { printf "%.4f", (after - before) / n }'
}

# packets: on the wire so far, both ways. switches: from task to task.
packets() {
	in_ns a cat /sys/class/net/wire_a/statistics/{tx,rx}_packets | awk '{ sum += $1 } END { print sum }'
}

switches() {
	awk '$1 == "ctxt" { print $2 }' /proc/stat
}

# sockperf_between WHAT SIZE SECONDS: the client's report is in $SAID/sockperf, counts before and after in PACKETS and
# SWITCHES.
sockperf_between() {
	local server packets switches
	PORT=$((PORT + 1))
	# The prefix is a command, or nothing.
	# shellcheck disable=SC2086
	ip netns exec b $PREFIX sockperf server --tcp -i "$IP_B" -p $PORT >"$SAID/server" 2>&1 &
	server=$!
	await_port b $PORT 20 || die "sockperf does not listen: $(tail -n 3 "$SAID/server")"
	packets=$(packets) switches=$(switches)
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX sockperf "$1" --tcp -i "$IP_B" -p $PORT -m "$2" -t "$3" >"$SAID/sockperf" 2>&1 ||
		die "sockperf $1: $(tail -n 3 "$SAID/sockperf")"
	PACKETS="$packets $(packets)" SWITCHES="$switches $(switches)"
	kill $server
	wait $server 2>/dev/null
}

# reported PATTERN: the number behind that text in sockperf's report.
reported() {
	sed -n "s/.*$1[^0-9]*\([0-9.]*\).*/\1/p" "$SAID/sockperf" | head -n 1
}

# round_trips NAME SIZE SECONDS
round_trips() {
	local count
	sockperf_between ping-pong "$2" "$3"
	count=$(reported "ReceivedMessages=")
	figure "oneway_$1_us" "$(reported "percentile 50.000 =")"
	# shellcheck disable=SC2086
	figure "packets_per_trip_$1" "$(per "$count" $PACKETS)"
	# shellcheck disable=SC2086
	figure "switches_per_trip_$1" "$(per "$count" $SWITCHES)"
}

# messages SECONDS: as many as go, one way.
messages() {
	local rate
	sockperf_between throughput 64 "$1"
	rate=$(reported "Message Rate is")
	figure messages_64b_per_s "$rate"
	# shellcheck disable=SC2086
	figure packets_per_message_64b "$(per "$(awk -v rate="$rate" -v s="$1" 'BEGIN { print rate * s }')" $PACKETS)"
	# shellcheck disable=SC2086
	figure switches_per_message_64b "$(per "$(awk -v rate="$rate" -v s="$1" 'BEGIN { print rate * s }')" $SWITCHES)"
}

bulk() {
	iperf3_begin "$PREFIX" "$PREFIX" 1 && iperf3_end || die "iperf3: $(tail -2 "$IPERF_JSON")"
	figure bulk_gbps "$(awk -v bits="$(iperf3_field sum_received bits_per_second)" 'BEGIN { printf "%.4f", bits / 1e9 }')"
}

# connections KEY EXPECTED
connections() {
	local line
	line=$(smctest --family "$FAMILY" --expect "$2" connrate --count 500) || die "connrate: $line"
	line=${line#*"connections: "}
	figure "$1" "${line%%" a second"*}"
}

: >"$OUT/figures"
load_rdma && up_netns && up_rxe || die "cannot set up the network"
case $SYSTEM in
ours | c_module)
	load_smc && common_eid || die "cannot load the module"
	FAMILY=smc PREFIX="smc run"
	;;
tcp)
	FAMILY=tcp PREFIX=
	;;
*)
	die "no such system"
	;;
esac
round_trips 64b 64 1
round_trips 4k 4096 1
messages 1
connections conns_per_s "$FAMILY"
bulk
[ "$FAMILY" = tcp ] || {
	del_rdma rxe a && del_rdma rxe b || die "cannot remove the devices"
	connections fallback_conns_per_s tcp
}
