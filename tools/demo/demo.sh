#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um
# timeout: 300
# cpus: 1
# Unmodified programs over SMC: iperf3 and redis between two network namespaces, as two containers of
# one machine, by shared memory; then each with a soft RDMA device, over TCP, with a peer that has no SMC,
# and at last over soft iWARP instead of soft RoCE. Shows which way each connection went and why, and the
# counters of what is below as the proof.

. "$LIB"

SECONDS_EACH=3
# The kind of RDMA device, and what programs over SMC are called with it.
RDMA=none SMC="SMC on one machine"
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

# connected PORT COUNT: there are so many connections to that port.
connected() {
	[ "$(in_ns a ss -Htn state established "dport = :$1" | wc -l)" -ge "$2" ]
}

# paths NAME PORT COUNT: which way each of the connections to that port goes, as the kernel tells it, once there are so
# many: an emulated machine takes its time to start a program. Sockets that are no SMC sockets are not in its list.
paths() {
	local name=$1 port=$2 said
	within 30 connected "$port" "$3" || die "$name: fewer than $3 connections"
	sleep 0.5
	said=$(in_ns a smc sockets | awk -v port=":$port" 'NR > 1 && index($2, port) {
		path = $0; sub(/^[^ ]+ +[^ ]+ +/, "", path); sub(/ \(token .*/, "", path); count[path]++
	} END {
		for (path in count) printf "  %d connection(s): %s\n", count[path], path
	}')
	echo "${said:=  $(in_ns a ss -Htn "dport = :$port" | wc -l) connection(s): TCP, on a TCP socket}"
	case $name,$said in
	"SMC over"*,*": TCP"* | TCP,*SMC-* | "SMC client"*,*SMC-*) die "that is not the way that was wanted" ;;
	"SMC on one machine",*SMC-D*) ;;
	"SMC on one machine",*) die "that is not the way that was wanted" ;;
	esac
}

# sent_bytes PORT: what the RDMA device of a has sent, for programs that use this port.
sent_bytes() {
	case $RDMA in
	none) echo 0 ;;
	rxe) rdma_bytes a ;;
	siw) stream_bytes a "$1" ;;
	esac
}

# iperf NAME CLIENT_PREFIX SERVER_PREFIX
iperf() {
	local name=$1 client=$2 server=$3 before bits rdma bytes
	before=$(sent_bytes 5201)

	say "iperf3, $name"
	echo "  b: ${server:+$server }iperf3 -s"
	echo "  a: ${client:+$client }iperf3 -c $IP_B -t $SECONDS_EACH"
	iperf3_begin "$client" "$server" "$SECONDS_EACH" || die "iperf3 does not listen"
	paths "$name" 5201 2
	iperf3_end || die "iperf3: $(tail -2 "$IPERF_JSON")"

	bits=$(iperf3_field sum_received bits_per_second)
	bytes=$(iperf3_field sum_sent bytes)
	rdma=$(($(sent_bytes 5201) - before))
	RESULT[iperf $name]=$(awk -v bits="$bits" 'BEGIN { printf "%.2f Gb/s", bits / 1e9 }')
	echo "  ${RESULT[iperf $name]}"
	check_rdma "$name" "$bytes" "$rdma"
}

# check_rdma NAME BYTES RDMA_BYTES: SMC means all of it by RDMA, TCP next to nothing.
check_rdma() {
	[ "$RDMA" != none ] || return 0
	echo "  the program sent $(megabytes "$2"), the RDMA device of a $(megabytes "$3")"
	case $1 in
	"SMC over"*) [ "$3" -ge "$2" ] || die "the data did not go by RDMA" ;;
	*) [ "$3" -lt $(($2 / 10 + 10000)) ] || die "the RDMA device sent what should go by TCP" ;;
	esac
}

# redis NAME CLIENT_PREFIX SERVER_PREFIX
redis() {
	local name=$1 client=$2 server=$3 before server_pid bench_pid requests
	before=$(sent_bytes 6379)

	say "redis, $name"
	echo "  b: ${server:+$server }redis-server"
	echo "  a: ${client:+$client }redis-benchmark -t set,get -c 16 -d 1024"
	# shellcheck disable=SC2086
	ip netns exec b $server redis-server --bind "$IP_B" --save '' --protected-mode no >/tmp/redis.log 2>&1 &
	server_pid=$!
	await_port b 6379 || die "redis does not listen: $(tail -2 /tmp/redis.log)"
	# So many as take some seconds.
	# shellcheck disable=SC2086
	requests=$(ip netns exec a $client redis-benchmark -h "$IP_B" -t set -c 16 -d 1024 -n 2000 --csv |
		tr -d '"' | awk -F, -v s="$SECONDS_EACH" '/^SET/ { printf "%d", s * $2 }')
	[ "${requests:-0}" -gt 0 ] || die "redis-benchmark says nothing"
	# shellcheck disable=SC2086
	ip netns exec a $client redis-benchmark -h "$IP_B" -t set,get -c 16 -d 1024 -n "$requests" --csv \
		>/tmp/redis.csv 2>/dev/null &
	bench_pid=$!
	paths "$name" 6379 16
	wait "$bench_pid" || die "redis-benchmark: $(tail -2 /tmp/redis.csv)"
	kill "$server_pid"
	wait "$server_pid" 2>/dev/null

	RESULT[redis $name]=$(tr -d '"' </tmp/redis.csv | awk -F, '/^(SET|GET)/ {
		printf "%s%s %.0f/s, median %s ms", separator, $1, $2, $5; separator = "; "
	}')
	echo "  ${RESULT[redis $name]}"
	check_rdma "$name" $((requests * 1024)) $(($(sent_bytes 6379) - before))
}

pingpong() {
	RESULT[pingpong $1]=$("$BIN/smctest" "${ENDS[@]}" --family "$2" pingpong --count 2000 |
		sed 's/.*trips: //')
}

# verbs: what the soft RDMA device can do at best, without any socket.
verbs() {
	say "raw RDMA writes over the same soft device, for comparison"
	qperf_begin || die "qperf does not listen"
	RESULT[verbs $SMC]=$(qperf_field rc_rdma_write_bw bw -t 2 -m 64K | awk '{ printf "%.2f Gb/s", $1 * 8 / 1e9 }')
	[ -n "${RESULT[verbs $SMC]}" ] || die "no raw RDMA"
	qperf_end
	echo "  64 KiB writes: ${RESULT[verbs $SMC]}"
}

# over_iwarp: soft iWARP instead of soft RoCE.
over_iwarp() {
	del_rdma rxe a && del_rdma rxe b && load_siw && up_siw || return
	RDMA=siw SMC="SMC over iWARP"
}

counters() {
	rdma statistic show | tr ' ' '\n' | awk '
		/^rxe_/ { device = $0 }
		name != "" { if (name ~ /^(sent|rcvd)_(pkts|bytes)$/) printf "  %s %s %s\n", device, name, $0; name = ""; next }
		/^(sent|rcvd)_(pkts|bytes)$/ { name = $0 }'
}

# Whether QEMU emulates the processors.
is_emulated() {
	[ "$FLAVOUR" != um ] && ! grep -q kvm-clock /sys/devices/system/clocksource/clocksource0/available_clocksource
}

say "Two containers of one machine: network namespaces a and b"
load_rdma && load_smc && up_netns && same_host on || die "cannot set up the guest"
echo "  Linux $(uname -r); smc.ko: $(modinfo -F description "$SMC_KO")"
echo "  a: $IP_A on wire_a"
echo "  b: $IP_B on wire_b"
echo "  \`smc run PROGRAM\` makes the TCP sockets of a program SMC sockets. If both are on one machine, the bytes go"
echo "  through memory that they share; there is no RDMA device."

iperf "$SMC" "smc run" "smc run"
iperf TCP "" ""
redis "$SMC" "smc run" "smc run"
redis TCP "" ""
pingpong "$SMC" smc
pingpong TCP tcp

say "As if they were two machines: a soft RDMA device at each end of the wire"
same_host off && up_rxe && common_eid || die "no soft RoCE"
RDMA=rxe SMC="SMC over RoCE"
echo "  soft RDMA devices rxe_a on wire_a and rxe_b on wire_b. If both ends have SMC and RDMA, the bytes go into the"
echo "  other one's memory by RDMA; else everything goes on over TCP."

iperf "$SMC" "smc run" "smc run"
iperf TCP "" ""
iperf "SMC client, TCP server" "smc run" ""
redis "$SMC" "smc run" "smc run"
redis TCP "" ""
redis "SMC client, TCP server" "smc run" ""
pingpong "$SMC" smc
pingpong TCP tcp
verbs
say "The RDMA devices' own counters"
counters

say "The same over iWARP, which is RDMA over TCP"
if has_siw; then
	over_iwarp || die "no soft iWARP"
	echo "  soft RDMA devices siw_a on wire_a and siw_b on wire_b; those of soft RoCE are gone"
	iperf "$SMC" "smc run" "smc run"
	redis "$SMC" "smc run" "smc run"
	pingpong "$SMC" smc
	echo
	echo "  the stream that all of these shared, as TCP of a tells it:"
	in_ns a ss -HtnO | sed "s/^/  /"
else
	echo "  not shown: this kernel has no soft iWARP (CONFIG_RDMA_SIW)"
fi

say "Side by side"
for what in iperf redis pingpong verbs; do
	for name in "SMC on one machine" "SMC over RoCE" "SMC over iWARP" TCP "SMC client, TCP server"; do
		[ -z "${RESULT[$what $name]:-}" ] ||
			printf '  %-9s %-24s %s\n' "$what" "$name" "${RESULT[$what $name]}"
	done
done
echo "  verbs are raw RDMA writes on soft RoCE, the bound of SMC over it: that cuts, copies and checksums every packet"
echo "  with the CPU. Soft iWARP leaves the packets to TCP, which is its bound, and copies once more. RDMA hardware"
echo "  moves both."
! is_emulated || echo "  QEMU emulates the processors here: compare these figures with each other only."

within 10 unload_smc || die "the module does not unload"
say "The module is unloaded again; nothing failed."
