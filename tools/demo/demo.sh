#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um
# timeout: 300
# cpus: 1
# Unmodified programs over SMC: iperf3 and redis between two network namespaces, each with a soft
# RDMA device, then the same over TCP, then with a peer that has no SMC. Shows which way each
# connection went and why, and the RDMA devices' own counters as the proof.

. "$LIB"

SECONDS_EACH=3
REQUESTS=20000
declare -A RESULT

say() {
	printf '\n\033[1m%s\033[0m\n' "$*"
}

die() {
	say "The demo failed: $*"
	exit 1
}

megabytes() {
	awk -v bytes="$1" 'BEGIN { printf "%.1f MB", bytes / 1e6 }'
}

# paths PORT: the path of each connection to that port, as the kernel tells it.
paths() {
	in_ns a smc sockets | awk -v port=":$1" 'NR > 1 && index($2, port) {
		path = $0; sub(/^[^ ]+ +[^ ]+ +/, "", path); count[path]++
	} END {
		for (path in count) printf "  %d connection(s): %s\n", count[path], path
	}'
}

# wait_port PORT: until somebody listens there.
wait_port() {
	within 10 sh -c "ip netns exec b ss -Htln 'sport = :$1' | grep -q ."
}

# iperf NAME CLIENT_PREFIX SERVER_PREFIX
iperf() {
	local name=$1 client=$2 server=$3 before client_pid bits rdma bytes
	before=$(rdma_bytes a)

	say "iperf3, $name"
	echo "  b: ${server:+$server }iperf3 -s"
	echo "  a: ${client:+$client }iperf3 -c $IP_B -t $SECONDS_EACH"
	# shellcheck disable=SC2086
	ip netns exec b $server iperf3 -s -1 >/tmp/iperf.server 2>&1 &
	wait_port 5201 || die "iperf3 does not listen"
	# shellcheck disable=SC2086
	ip netns exec a $client iperf3 -c "$IP_B" -t "$SECONDS_EACH" -J >/tmp/iperf.json &
	client_pid=$!
	sleep 1.5
	paths 5201 | grep . || echo "  2 connection(s): TCP"
	wait "$client_pid" || die "iperf3: $(tail -2 /tmp/iperf.json)"

	bits=$(sed -n '/"sum_received"/,/}/s/.*"bits_per_second":[^0-9]*\([0-9.e+]*\).*/\1/p' /tmp/iperf.json)
	bytes=$(sed -n '/"sum_sent"/,/}/s/.*"bytes":[^0-9]*\([0-9]*\).*/\1/p' /tmp/iperf.json)
	rdma=$(($(rdma_bytes a) - before))
	RESULT[iperf $name]=$(awk -v bits="$bits" 'BEGIN { printf "%.2f Gb/s", bits / 1e9 }')
	echo "  ${RESULT[iperf $name]}"
	check_rdma "$name" "$bytes" "$rdma"
}

# check_rdma NAME BYTES RDMA_BYTES: SMC means all of it by RDMA, TCP next to nothing.
check_rdma() {
	echo "  the program sent $(megabytes "$2"), the RDMA device of a $(megabytes "$3")"
	case $1 in
	SMC) [ "$3" -ge "$2" ] || die "the data did not go by RDMA" ;;
	*) [ "$3" -lt $(($2 / 10 + 10000)) ] || die "the RDMA device sent what should go by TCP" ;;
	esac
}

# redis NAME CLIENT_PREFIX SERVER_PREFIX
redis() {
	local name=$1 client=$2 server=$3 before server_pid bench_pid
	before=$(rdma_bytes a)

	say "redis, $name"
	echo "  b: ${server:+$server }redis-server"
	echo "  a: ${client:+$client }redis-benchmark -t set,get -c 16 -d 1024"
	# shellcheck disable=SC2086
	ip netns exec b $server redis-server --bind "$IP_B" --save '' --protected-mode no >/tmp/redis.log 2>&1 &
	server_pid=$!
	wait_port 6379 || die "redis does not listen: $(tail -2 /tmp/redis.log)"
	# shellcheck disable=SC2086
	ip netns exec a $client redis-benchmark -h "$IP_B" -t set,get -c 16 -d 1024 -n "$REQUESTS" --csv \
		>/tmp/redis.csv 2>/dev/null &
	bench_pid=$!
	sleep 1
	paths 6379 | grep . || echo "  16 connection(s): TCP"
	wait "$bench_pid" || die "redis-benchmark: $(tail -2 /tmp/redis.csv)"
	kill "$server_pid"
	wait "$server_pid" 2>/dev/null

	RESULT[redis $name]=$(tr -d '"' </tmp/redis.csv | awk -F, '/^(SET|GET)/ {
		printf "%s%s %.0f/s, median %s ms", separator, $1, $2, $5; separator = "; "
	}')
	echo "  ${RESULT[redis $name]}"
	check_rdma "$name" $((REQUESTS * 1024)) $(($(rdma_bytes a) - before))
}

pingpong() {
	RESULT[pingpong $1]=$("$BIN/smctest" "${ENDS[@]}" --family "$2" pingpong --count 2000 |
		sed 's/.*trips: //')
}

# verbs: what the soft RDMA device can do at best, without any socket.
verbs() {
	say "raw RDMA writes over the same soft device, for comparison"
	ip netns exec b qperf >/dev/null 2>&1 &
	local server=$!
	sleep 1
	RESULT[verbs]=$(in_ns a timeout 30 qperf -cm1 -uu -t 2 -m 64K "$IP_B" rc_rdma_write_bw 2>&1 |
		awk '/^ *bw/ { printf "%.2f Gb/s", $3 * 8 / 1e9 }')
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	echo "  64 KiB writes: ${RESULT[verbs]:-not measured}"
}

load_rdma && load_smc && up_netns && up_rxe && common_eid || die "cannot set up the guest"
say "Linux $(uname -r), $(modinfo -F description "$SMC_KO" 2>/dev/null || echo smc)"
echo "  a: $IP_A on wire_a, soft RDMA device rxe_a"
echo "  b: $IP_B on wire_b, soft RDMA device rxe_b"

iperf SMC "smc run" "smc run"
iperf TCP "" ""
iperf "SMC client, TCP server" "smc run" ""
redis SMC "smc run" "smc run"
redis TCP "" ""
redis "SMC client, TCP server" "smc run" ""
pingpong SMC smc
pingpong TCP tcp
verbs

say "Side by side"
for what in iperf redis pingpong; do
	for name in SMC TCP "SMC client, TCP server"; do
		[ -z "${RESULT[$what $name]:-}" ] ||
			printf '  %-9s %-24s %s\n' "$what" "$name" "${RESULT[$what $name]}"
	done
done
printf '  %-9s %-24s %s\n' verbs "raw RDMA writes" "${RESULT[verbs]:-not measured}"
echo "Soft RDMA moves every byte with the CPU, TCP here does not even checksum: the first line is"
echo "bounded by the last one, and real RDMA hardware changes that, not the sockets."

say "The RDMA devices' own counters"
rdma statistic show | tr ' ' '\n' | awk '
	/^rxe_/ { device = $0 }
	name != "" { if (name ~ /^(sent|rcvd)_(pkts|bytes)$/) printf "  %s %s %s\n", device, name, $0; name = ""; next }
	/^(sent|rcvd)_(pkts|bytes)$/ { name = $0 }'

within 10 unload_smc || die "the module does not unload"
say "The module is unloaded again; nothing failed."
