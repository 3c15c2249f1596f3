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

# paths NAME PORT: which way each connection to that port goes, as the kernel tells it. Sockets that are no
# SMC sockets are not in its list.
paths() {
	local name=$1 port=$2 said
	said=$(in_ns a smc sockets | awk -v port=":$port" 'NR > 1 && index($2, port) {
		path = $0; sub(/^[^ ]+ +[^ ]+ +/, "", path); count[path]++
	} END {
		for (path in count) printf "  %d connection(s): %s\n", count[path], path
	}')
	echo "${said:=  $(in_ns a ss -Htn "dport = :$port" | wc -l) connection(s): TCP, on a TCP socket}"
	case $name,$said in
	SMC,*": TCP"* | TCP,*SMC-R* | "SMC client"*,*SMC-R*) die "that is not the way that was wanted" ;;
	esac
}

# iperf NAME CLIENT_PREFIX SERVER_PREFIX
iperf() {
	local name=$1 client=$2 server=$3 before bits rdma bytes
	before=$(rdma_bytes a)

	say "iperf3, $name"
	echo "  b: ${server:+$server }iperf3 -s"
	echo "  a: ${client:+$client }iperf3 -c $IP_B -t $SECONDS_EACH"
	iperf3_begin "$client" "$server" "$SECONDS_EACH" || die "iperf3 does not listen"
	sleep 1.5
	paths "$name" 5201
	iperf3_end || die "iperf3: $(tail -2 "$IPERF_JSON")"

	bits=$(iperf3_field sum_received bits_per_second)
	bytes=$(iperf3_field sum_sent bytes)
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
	await_port b 6379 || die "redis does not listen: $(tail -2 /tmp/redis.log)"
	# shellcheck disable=SC2086
	ip netns exec a $client redis-benchmark -h "$IP_B" -t set,get -c 16 -d 1024 -n "$REQUESTS" --csv \
		>/tmp/redis.csv 2>/dev/null &
	bench_pid=$!
	sleep 1
	paths "$name" 6379
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
	qperf_begin || die "qperf does not listen"
	RESULT[verbs]=$(qperf_field rc_rdma_write_bw bw -t 2 -m 64K | awk '{ printf "%.2f Gb/s", $1 * 8 / 1e9 }')
	[ -n "${RESULT[verbs]}" ] || die "no raw RDMA"
	qperf_end
	echo "  64 KiB writes: ${RESULT[verbs]}"
}

say "Two machines on one wire: network namespaces a and b"
load_rdma && load_smc && up_netns && up_rxe && common_eid || die "cannot set up the guest"
echo "  Linux $(uname -r); smc.ko: $(modinfo -F description "$SMC_KO")"
echo "  a: $IP_A on wire_a, soft RDMA device rxe_a"
echo "  b: $IP_B on wire_b, soft RDMA device rxe_b"
echo "  \`smc run PROGRAM\` makes the TCP sockets of a program SMC sockets. If both ends have SMC and RDMA,"
echo "  the bytes go into the other one's memory by RDMA; else everything goes on over TCP."

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
printf '  %-9s %-24s %s\n' verbs "raw RDMA writes" "${RESULT[verbs]}"
echo "  Soft RDMA cuts, copies and checksums every packet with the CPU, so raw RDMA writes are the bound of"
echo "  SMC here. TCP passes whole pages on this wire, without a checksum. RDMA hardware moves the bound."

say "The RDMA devices' own counters"
rdma statistic show | tr ' ' '\n' | awk '
	/^rxe_/ { device = $0 }
	name != "" { if (name ~ /^(sent|rcvd)_(pkts|bytes)$/) printf "  %s %s %s\n", device, name, $0; name = ""; next }
	/^(sent|rcvd)_(pkts|bytes)$/ { name = $0 }'

within 10 unload_smc || die "the module does not unload"
say "The module is unloaded again; nothing failed."
