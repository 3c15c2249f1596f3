#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: debian-7.3
# timeout: 3600
# cpus: 1
# clock: instructions
# leaks: no
# What the SMC option costs TCP connections that are not ours, on a kernel whose TCP has no hooks for it, where each
# instruction takes a nanosecond.
#   option_cost.sh ROUNDS SECONDS
# In each round all programs run in each state of the module. Writes "PROGRAM STATE UNITS NANOSECONDS" lines to
# $OUT/figures. `make bench ARGS=--option-cost` runs it; see Documentation/performance.md.

. "$LIB"
# For die.
# shellcheck disable=SC2034
SYSTEM=option_cost
. "${0%/*}/figures.bash"

ROUNDS=$1 WINDOW=$2

# States -------------------------------------------------------------------------------------

# From the first on that has nothing to the last that has all.
STATES=(no_module empty_chain loaded listener connected)
HELPERS=()

# helper OPTION...: smctest, until the state changes.
helper() {
	setsid "$BIN/smctest" --deadline 1000000 "$@" >/dev/null 2>&1 &
	HELPERS+=($!)
}

# empty_chain END: a netfilter hook that does nothing, for comparison.
empty_chain() {
	in_ns "$1" nft add table inet empty &&
		in_ns "$1" nft add chain inet empty output '{ type filter hook output priority 0; }'
}

# An SMC listener at that end has netfilter's hook registered in its namespace.
listen() {
	helper --server-netns="$1" --addr="$2" --port 7100 serve
	await_port "$1" 7100
}

reset() {
	local pid
	for pid in "${HELPERS[@]}"; do
		kill -KILL -- "-$pid" && { wait "$pid" || :; } 2>/dev/null
	done
	HELPERS=()
	in_ns a nft delete table inet empty 2>/dev/null
	in_ns b nft delete table inet empty 2>/dev/null
	! grep -q '^smc ' /proc/modules || within 20 unload_smc
}

# enter STATE: whatever was before. Those who hold the sockets sleep then.
enter() {
	local pid
	reset && set_up "$1" || return
	for pid in "${HELPERS[@]}"; do
		kill -STOP -- "-$pid" || return
	done
}

set_up() {
	case $1 in
	no_module) ;;
	empty_chain) empty_chain a && empty_chain b ;;
	loaded) load_smc ;;
	listener) load_smc && listen a "$IP_A" && listen b "$IP_B" ;;
	connected)
		load_smc && listen a "$IP_A" && listen b "$IP_B" && rm -f /tmp/held || return
		helper --client-netns=a --server-netns=b --addr="$IP_B" --port 7200 --expect smc hold --connections 16 \
			--then "touch /tmp/held; exec sleep infinity"
		within 20 test -e /tmp/held
		;;
	esac
}

# Windows ------------------------------------------------------------------------------------

# While the guest waits for this machine to read a file, its clock would leap from timer to timer, and timeouts would be
# over before the file is there. This one lets it never wait, and stops for the windows.
chrt --idle 0 bash -c 'while :; do :; done' &
HOG=$!

# pass SECONDS: lets them pass, without another process.
exec {SILENCE}<> <(:)
pass() {
	read -r -t "$1" -u "$SILENCE" || :
}

# counted FILE GROUP NAME: what b counts under that name. The process that sleeps there shows it without a new one.
counted() {
	local names values i
	{
		while read -r -a names && read -r -a values; do
			[ "${names[0]}" = "$2" ] || continue
			for i in "${!names[@]}"; do
				[ "${names[i]}" != "$3" ] || COUNTED=${values[i]}
			done
		done
	} <"/proc/$SLEEPER/net/$1"
}

# count PROGRAM: what it has done so far, in $COUNTED. On the loopback device b counts both ends.
count() {
	case $1 in
	connections*) counted snmp Tcp: PassiveOpens ;;
	requests*) counted netstat TcpExt: TCPOrigDataSent ;;
	bulk*) counted netstat IpExt: InOctets ;;
	esac
	case $1 in requests_lo) COUNTED=$((COUNTED / 2)) ;; esac
}

# has_done PROGRAM COUNT: that much.
has_done() {
	count "$1"
	[ "$COUNTED" -ge "$2" ]
}

# measure PROGRAM STATE COMMAND...: in the middle of what the command runs for, once it has begun. Nobody reads files
# then.
measure() {
	local program=$1 state=$2 process start end from to
	shift 2
	count "$program"
	setsid "$@" >/tmp/program 2>&1 &
	process=$!
	within 20 has_done "$program" $((COUNTED + 100)) || die "$program: does nothing: $(tail -n 3 /tmp/program)"
	kill -STOP "$HOG"
	pass 0.2
	start=${EPOCHREALTIME/./}
	count "$program"
	from=$COUNTED
	pass "$WINDOW"
	end=${EPOCHREALTIME/./}
	count "$program"
	to=$COUNTED
	kill -CONT "$HOG"
	kill -- "-$process" || die "$program: over too early: $(tail -n 3 /tmp/program)"
	wait "$process" 2>/dev/null
	echo "$program $state $((to - from)) $((end - start))000" | tee -a "$OUT/figures"
}

# Programs -----------------------------------------------------------------------------------

PROGRAMS=(connections requests bulk)

# run PROGRAM STATE: over the wire between the namespaces, and in one of them.
run() {
	local command
	case $1 in
	connections) command=(connrate --count 100000000) ;;
	requests) command=(pingpong --size 64 --count 10000000) ;;
	bulk) command=(flood --connections 1 --seconds 1000000) ;;
	esac
	measure "$1" "$2" "$BIN/smctest" "${ENDS[@]}" --family tcp --deadline 1000000 "${command[@]}"
	measure "$1_lo" "$2" "$BIN/smctest" --client-netns=b --server-netns=b --family tcp --deadline 1000000 "${command[@]}"
}

# round STATE...: in this order.
round() {
	local state program
	for state in "$@"; do
		enter "$state" || die "$state: cannot be set up"
		for program in "${PROGRAMS[@]}"; do
			run "$program" "$state"
		done
	done
}

: >"$OUT/figures"
cp "$SMC_KO" /tmp/smc.ko && SMC_KO=/tmp/smc.ko
load_rdma && up_netns && up_rxe || die "cannot set up the network"
# Else the ports of connections that ended, thousands a second, are soon all in use.
each_end sh -c "echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets" || die "connections that ended stay"
ip netns exec b sleep infinity &
SLEEPER=$!
within 10 sh -c "grep -q wire_b /proc/$SLEEPER/net/dev" || die "nobody sleeps"
REVERSED=()
for state in "${STATES[@]}"; do
	REVERSED=("$state" "${REVERSED[@]}")
done
# What drifts is not to look like a difference between states.
for ((i = 0; i < ROUNDS; i++)); do
	if [ $((i % 2)) = 0 ]; then round "${STATES[@]}"; else round "${REVERSED[@]}"; fi
done
reset || die "the module does not unload"
kill "$HOG" "$SLEEPER"
