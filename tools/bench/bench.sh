#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um
# timeout: 180
# cpus: 1
# leaks: no
# One round of figures for one system: `ours`, `c_module`, `tcp` or `verbs`, between two network namespaces
# with soft RoCE, or `ours_iwarp` with soft iWARP. Writes "KEY VALUE" lines to $OUT/figures; `make bench` runs it
# again and again and adds up. The keys are explained in Documentation/performance.md.

. "$LIB"
. "${0%/*}/figures.bash"
. "${LIB%/*}/capture.bash"

SYSTEM=$1
BULK_SECONDS=3
MANY="1 16 64 256"
MANY_SECONDS=2

# sent_bytes: what the RDMA device of a has sent, beside iperf3.
sent_bytes() {
	case $RDMA in
	rxe) rdma_bytes a ;;
	siw) stream_bytes a 5201 ;;
	esac
}

# between TEXT BEFORE AFTER: what stands between the two.
between() {
	local rest=${1#*"$2"}
	echo "${rest%%"$3"*}"
}

# Sockets ------------------------------------------------------------------------------------

bulk() {
	local before bytes
	before=$(sent_bytes)
	iperf3_begin "$PREFIX" "$PREFIX" "$BULK_SECONDS" && iperf3_end ||
		die "iperf3: $(tail -2 "$IPERF_JSON")"
	bytes=$(iperf3_field sum_sent bytes)
	[ "$FAMILY" = tcp ] || [ $(($(sent_bytes) - before)) -ge "$bytes" ] ||
		die "iperf3's data did not go by RDMA"
	figure bulk_gbps "$(awk -v bits="$(iperf3_field sum_received bits_per_second)" \
		'BEGIN { printf "%.4f", bits / 1e9 }')"
}

# run COMMAND...: smctest on the sockets that are measured; its one line of figures is in LINE.
run() {
	LINE=$(smctest --family "$FAMILY" --expect "$FAMILY" "$@") || die "$*: $LINE"
}

# rate OPTIONS...: connections per second; their path is looked at before, as asking each of them for it takes time.
rate() {
	run connrate --count 20
	LINE=$(smctest --family "$FAMILY" connrate "$@") || die "connrate: $LINE"
}

# talk: what both sides say about each connection into the group that is there. Not while it is timed.
talk() {
	local count=200
	count_llc run connrate --count "$count" || die "no capture"
	rm -f "$OUT/wire.pcapng"
	figure llc_per_conn "$(awk -v n="$LLC" -v count="$count" 'BEGIN { printf "%.3f", n / count }')"
}

sockets() {
	local count
	# First: later there are buffers of earlier connections, which cost nothing any more.
	run idle --connections 1000
	figure idle_conn_kib "$(between "$LINE" "connections: " " KiB")"
	bulk
	run pingpong --count 5000
	figure pingpong_64b_us "$(between "$LINE" "median " " us")"
	rate --count 1000
	figure conns_per_s "$(between "$LINE" "connections: " " a second")"
	rate --count 1000 --processes 8
	figure conns_per_s_8 "$(between "$LINE" "connections: " " a second")"
	[ "$FAMILY" = tcp ] || talk
	for count in $MANY; do
		run flood --connections "$count" --seconds "$MANY_SECONDS"
		figure "many_gbps.$count" "$(between "$LINE" " s: " " Gb/s")"
	done
}

# Verbs --------------------------------------------------------------------------------------

# flowing: the RDMA device of a sends.
flowing() {
	local before
	before=$(rdma_bytes a)
	sleep 0.1
	[ $(($(rdma_bytes a) - before)) -gt 1000000 ]
}

# sends QUEUE_PAIRS: 64 KiB messages, in Gb/s, by what the RDMA device counts; the program's own figures need
# a processor clock that a guest does not tell. It sleeps between completions: on one processor a program
# that polls takes the time that the device needs.
sends() {
	local options="-e -x 1 -q $1 -s 65536 -t 16 -r 16 -n 10000000 -F" server client before start
	# shellcheck disable=SC2086
	ip netns exec b ib_send_bw -d rxe_b $options >/dev/null 2>&1 &
	server=$!
	await_port b 18515 || die "ib_send_bw does not listen"
	# shellcheck disable=SC2086
	ip netns exec a ib_send_bw -d rxe_a $options "$IP_B" >/dev/null 2>&1 &
	client=$!
	within 20 flowing || die "ib_send_bw sends nothing"
	sleep 0.5
	before=$(rdma_bytes a) start=$(date +%s%N)
	sleep "$MANY_SECONDS"
	awk -v bytes=$(($(rdma_bytes a) - before)) -v ns=$(($(date +%s%N) - start)) \
		-v payload="$PAYLOAD" 'BEGIN { printf "%.4f", bytes * 8 / ns * payload }'
	kill "$client" "$server"
	wait "$client" "$server" 2>/dev/null
}

# Of each packet, the part that is neither IP, UDP, RDMA nor checksum.
PAYLOAD=$(awk 'BEGIN { print 4096 / (4096 + 20 + 8 + 12 + 4) }')

verbs() {
	local count
	qperf_begin || die "qperf does not listen"
	figure bulk_gbps "$(qperf_field rc_rdma_write_bw bw -t "$BULK_SECONDS" -m 64K |
		awk '{ printf "%.4f", $1 * 8 / 1e9 }')"
	# qperf tells the time of one way.
	figure pingpong_64b_us "$(qperf_field rc_lat latency -t 2 -m 64 | awk '{ printf "%.1f", $1 * 2e6 }')"
	qperf_end
	for count in $MANY; do
		figure "many_gbps.$count" "$(sends "$count")"
	done
}

# Two sockets for each of a thousand connections.
ulimit -n 8192
: >"$OUT/figures"
case $SYSTEM in
ours_iwarp) RDMA=siw ;;
*) RDMA=rxe ;;
esac
load_rdma && load_siw && up_netns && "up_$RDMA" || die "cannot set up the network"
case $SYSTEM in
ours | ours_iwarp | c_module)
	load_smc && common_eid || die "cannot load the module"
	FAMILY=smc PREFIX="smc run"
	sockets
	# The C module keeps its link groups for many seconds more.
	[ "$MODULE" = c ] || within 20 unload_smc || die "the module does not unload"
	;;
tcp)
	FAMILY=tcp PREFIX=
	sockets
	;;
verbs)
	verbs
	;;
*)
	die "no such system"
	;;
esac
