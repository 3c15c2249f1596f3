#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 6 days
# timeout: 900
# iperf3 in each direction and in both, with several streams; sockperf with its check of each message.

. "${LIB%/*}/apps/apps.bash"

# iperf NAME OPTION...: ends well, and each side has received.
iperf() {
	local name=$1
	shift
	mark
	at a iperf3 -c "$IP_B" -t 3 -J "$@" >"$IPERF_JSON" 2>/tmp/iperf.log
	check "iperf3 $name: ends well" [ $? = 0 ]
	cat /tmp/iperf.log
	check_not "iperf3 $name: errors" grep '"error"' "$IPERF_JSON"
	bytes=$(iperf3_field sum_received bytes)
	check "iperf3 $name: data came" [ "${bytes:-0}" -gt 0 ]
	went_by_smc "iperf3 $name" "${bytes:-1}"
}

# sockperf_says NAME MODE OPTION...
sockperf_says() {
	local name=$1 mode=$2
	shift 2
	at a sockperf "$mode" --tcp -i "$IP_B" -p 11111 -t 4 "$@" >/tmp/sockperf 2>&1
	check "sockperf $name: ends well" [ $? = 0 ]
	sed 's/^/# /' /tmp/sockperf
	check_not "sockperf $name: errors" grep -iE 'error|fail|corrupt' /tmp/sockperf
}

complete() {
	check "sockperf $1: nothing is lost, twice or out of order" said /tmp/sockperf \
		'dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0'
}

up_apps
serve iperf3 b 5201 iperf3 -s
iperf "to the server"
iperf "from the server" -R
iperf "both ways" --bidir
iperf "eight streams" -P 8
iperf "small writes" -l 200 -N

mark
serve sockperf b 11111 sockperf server --tcp -i "$IP_B" -p 11111
sockperf_says "ping-pong" ping-pong --data-integrity -m 64
complete "ping-pong"
sockperf_says "ping-pong of 8 KiB" ping-pong --data-integrity -m 8192
complete "ping-pong of 8 KiB"
sockperf_says "under load" under-load --mps 500 -m 1000
complete "under load"
sockperf_says "throughput" throughput -m 4000
went_by_smc sockperf $((1 << 20))
over
