#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# timeout: 900
# cpus: 1
# clock: instructions
# leaks: no
# The referee: one system (`ours`, `c_module` or `tcp`) between two network namespaces with soft RoCE, where
# each instruction takes a nanosecond and is counted. With SAME_HOST, `ours` goes by shared memory, without an RDMA
# device, and `tcp_lo` is TCP within one namespace.
#   referee.sh SYSTEM SECONDS PROGRAM...
# Writes "PROGRAM NANOSECONDS [BYTES]" lines to $OUT/windows, for each program's time in which QEMU's plugin
# counted (its file counts.N belongs to line (N + 1) / 2, if N is odd), and the kernel's symbols to $OUT/kallsyms.
# `make bench ARGS=--referee` runs it; see Documentation/performance.md.

. "$LIB"

SYSTEM=$1 WINDOW=$2
shift 2

die() {
	echo "$SYSTEM: $*"
	tail -n 3 /tmp/server /tmp/sockperf 2>/dev/null
	exit 1
}

# read_programs: keeps the programs and their libraries in memory. While the guest waits for this machine to read a
# file, its clock leaps from timer to timer, and timeouts and test durations are over before the file is there.
read_programs() {
	local program path
	for program in "$BIN/smctest" "$BIN/smc" sockperf iperf3 ip ss awk sed grep cat sleep setsid sh bash; do
		path=$(command -v "$program") && ldd "$path" | grep -o '/[^ ]*' | xargs cat "$path" >/dev/null || return
	done
	cat "$BIN/libsmc_preload.so" >/dev/null
}

# Windows ------------------------------------------------------------------------------------

# mark: the plugin writes what it counted, and counts anew.
mark() {
	echo referee >/proc/sys/kernel/domainname
}

# pass SECONDS: lets them pass, without another process.
exec {SILENCE}<> <(:)
pass() {
	read -r -t "$1" -u "$SILENCE" || :
}

# packets: how many the network device of a has sent. A process that sleeps there shows them without a new one.
DEVICE=wire_a
packets() {
	local words
	while read -r -a words; do
		[ "${words[0]}" != "$DEVICE:" ] || echo "${words[10]}"
	done <"/proc/$SLEEPER/net/dev"
}

# flowing COUNT: so many packets were sent.
flowing() {
	[ "$(packets)" -ge "$1" ]
}

# busy PID: it has used the processor for a third of a second, in ticks of 10 ms. What goes by shared memory shows
# nowhere else.
busy() {
	local words
	read -r -a words <"/proc/$1/stat"
	[ $((words[13] + words[14])) -ge 33 ]
}

# amid PROGRAM PID: counts for $ELAPSED ns in the middle of what that process runs for, once it sends; $BEFORE packets
# were sent before it. The guest must not read files meanwhile: this machine takes its own time for that, during which
# the guest's clock leaps.
amid() {
	local start end
	if [ -n "${SAME_HOST:-}" ]; then
		within 20 busy "$2" || die "$1: does nothing"
	else
		within 20 flowing $((BEFORE + 200)) || die "$1: sends nothing"
	fi
	pass 0.3
	mark
	start=${EPOCHREALTIME/./}
	pass "$WINDOW"
	end=${EPOCHREALTIME/./}
	mark
	kill -0 "$2" || die "$1: over too early"
	ELAPSED=$((end - start))000
}

# Programs -----------------------------------------------------------------------------------

# by_device COMMAND...: the command's data go the way they are meant to go: over TCP, by at least 100 kB over the RDMA
# device, or within the kernel.
by_device() {
	if [ -n "${SAME_HOST:-}" ] && [ "$SYSTEM" = ours ]; then
		off_the_wire "$@"
	elif [ "$FAMILY" = tcp ]; then
		"$@"
	else
		by_rdma 100000 "$@"
	fi
}

# off_the_wire COMMAND...: the command's data do not go over the wire.
off_the_wire() {
	local before
	before=$(packets)
	"$@" && [ $(($(packets) - before)) -lt 1000 ]
}

# fallbacks: connections of a that were opened by SMC sockets and go over TCP.
fallbacks() {
	in_ns a "$BIN/smc" stats --json | awk '/"end"/ { is_client = /"client"/ }
		/"count"/ && is_client { gsub(/[^0-9]/, ""); n += $0 }
		END { print n + 0 }'
}

# after_fallback COMMAND...: the command's sockets are SMC sockets without an RDMA device, or TCP's.
after_fallback() {
	local before
	[ "$FAMILY" = tcp ] || before=$(fallbacks)
	"$@"
	[ "$FAMILY" = tcp ] || [ "$(fallbacks)" -gt "$before" ] || die "$1: no SMC socket fell back"
}

# sockperf_amid PROGRAM MODE BYTES: its report is in /tmp/sockperf. It warms up for 0.4 s.
sockperf_amid() {
	local program=$1 mode=$2 bytes=$3 server client
	# The prefix is a command, or nothing.
	# shellcheck disable=SC2086
	ip netns exec b $PREFIX sockperf server --tcp -i "$IP_B" -p 11111 >/tmp/server 2>&1 &
	server=$!
	await_port b 11111 || die "$program: sockperf does not listen"
	BEFORE=$(packets)
	# shellcheck disable=SC2086
	ip netns exec a $PREFIX sockperf "$mode" --tcp -i "$IP_B" -p 11111 -t "$RUN_SECONDS" -m "$bytes" \
		>/tmp/sockperf 2>&1 &
	client=$!
	amid "$program" "$client"
	wait "$client" || die "$program: $(tail -3 /tmp/sockperf)"
	grep -E 'percentile 50|Message Rate' /tmp/sockperf
	echo "$program $ELAPSED" >>"$OUT/windows"
	kill "$server" && { wait "$server" || :; } 2>/dev/null
}

pingpong() {
	by_device sockperf_amid "$1" ping-pong "$2" || die "$1: not by RDMA"
	grep -q '# dropped messages = 0; # duplicated messages = 0; # out-of-order messages = 0' /tmp/sockperf ||
		die "$1: messages are lost, twice or out of order"
}

iperf3_amid() {
	local program=$1
	BEFORE=$(packets)
	iperf3_begin "$PREFIX" "$PREFIX" "$RUN_SECONDS" || die "iperf3 does not listen"
	amid "$program" "$IPERF_CLIENT"
	iperf3_end || die "iperf3: $(tail -2 "$IPERF_JSON")"
	echo "$program $ELAPSED $(awk -v ns="$ELAPSED" -v bits="$(iperf3_field sum_received bits_per_second)" \
		'BEGIN { printf "%.0f", ns / 1e9 * bits / 8 }')" >>"$OUT/windows"
}

# connect PROGRAM EXPECTED: connections one after another, until the window is over. Those before it have read
# all files.
connect() {
	local client
	smctest --family "$FAMILY" --expect "$2" connrate --count 20 >/dev/null || die "$1: no connections"
	BEFORE=$(packets)
	setsid ip netns exec a "$BIN/smctest" "${ENDS[@]}" --family "$FAMILY" --expect "$2" connrate --count 1000000 &
	client=$!
	amid "$1" "$client"
	echo "$1 $ELAPSED" >>"$OUT/windows"
	kill -- "-$client" && { wait "$client" || :; } 2>/dev/null
}

# run PROGRAM
run() {
	case $1 in
	fallback) connect fallback tcp ;;
	connections) connect connections "$EXPECTED" ;;
	pingpong_64b) pingpong "$1" 64 ;;
	pingpong_4k) pingpong "$1" 4096 ;;
	stream_64b) by_device sockperf_amid "$1" throughput 64 || die "$1: not by RDMA" ;;
	stream_4k) by_device sockperf_amid "$1" throughput 4096 || die "$1: not by RDMA" ;;
	bulk) by_device iperf3_amid "$1" || die "$1: not by RDMA" ;;
	fallback_pingpong_64b) after_fallback sockperf_amid "$1" ping-pong 64 ;;
	fallback_stream_64b) after_fallback sockperf_amid "$1" throughput 64 ;;
	fallback_bulk) after_fallback iperf3_amid "$1" ;;
	*) die "no program $1" ;;
	esac
}

# Time for the start and the window; programs take whole seconds.
RUN_SECONDS=$(awk -v s="$WINDOW" -v more="${SAME_HOST:-0}" 'BEGIN { printf "%d", s + 1.999 + more }')
: >"$OUT/windows"
read_programs || die "programs are missing"
load_rdma && up_netns || die "cannot set up the network"
case $SYSTEM in
ours | c_module)
	load_smc && common_eid || die "cannot load the module"
	FAMILY=smc PREFIX="smc run" EXPECTED=smc
	;;
tcp) FAMILY=tcp PREFIX='' EXPECTED=tcp ;;
tcp_lo)
	# Both names are of one namespace, which reaches its own address by the loopback device. The other one stays,
	# with its end of the wire.
	ip netns exec a sleep infinity &
	umount /run/netns/a && mount --bind /run/netns/b /run/netns/a || die "cannot be in one namespace"
	FAMILY=tcp PREFIX='' EXPECTED=tcp DEVICE=lo
	;;
*) die "no such system" ;;
esac
ip netns exec a sleep infinity &
SLEEPER=$!
within 10 sh -c "grep -q $DEVICE /proc/$SLEEPER/net/dev" || die "nobody sleeps"
# A fallback is what there is before there is a device.
for program in "$@"; do
	case $program in fallback*) run "$program" ;; esac
done
if [ -z "${SAME_HOST:-}" ]; then
	up_rxe || die "no soft RoCE"
elif [ "$SYSTEM" = ours ]; then
	same_host on
	EXPECTED=smcd
fi
for program in "$@"; do
	case $program in fallback*) ;; *) run "$program" ;; esac
done
cat /proc/kallsyms >"$OUT/kallsyms"
