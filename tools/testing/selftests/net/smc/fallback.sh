#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc, debian-7.3
# timeout: 400
# cpus: 1
# Without an RDMA device, after a decline, or with a peer that does not speak SMC, every call works as TCP's.

. "${LIB:=${0%/*}/lib.sh}"

# path_says WORDS [OPTION...]: the path of a connection is TCP for the reason in these words.
path_says() {
	local words=$1 said
	shift
	said=$(smctest --expect tcp "$@" path) || return
	echo "$said"
	grep -q "0x$words" <<<"$said"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

# server_counts REASON: how many connections the server's side had over TCP for that reason.
server_counts() {
	in_ns b "$BIN/smc" stats --json | awk -v reason="$1" '
		/"end"/ { is_server = /"server"/ }
		/"reason"/ { is_it = $0 ~ "\\(0x" reason "\\)" }
		/"count"/ && is_server && is_it { gsub(/[^0-9]/, ""); n += $0 }
		END { print n + 0 }'
}

check "no RDMA device: the reason is 0x03030000" path_says 03030000
check "IPPROTO_SMC falls back as well" smctest --family ipproto --expect tcp path
check "data" smctest --expect tcp integrity --mib 4
check "connections come and go" smctest churn --processes 4 --opens 20
suite "calls" smctest --expect tcp semantics --module "$MODULE"
suite "calls, TCP_ULP: what was set before" smctest --family ulp --expect tcp semantics --module "$MODULE" --only "set before"
check "the server is not asked for SMC" [ "$(server_counts 03010000)" -gt 0 ]
check "and nobody declines" [ "$(server_counts 05000000)" = 0 ]

# From here on the server declines what the client proposes.
require "an RDMA device at the client only" add_rdma rxe a
check "the server declines: the reason is 0x05000000" path_says 05000000
check "a server that has only TCP: the reason is 0x03010000" path_says 03010000 --server-family tcp
check "a client that has only TCP" smctest --family tcp --server-family smc --expect tcp path
check "a decline: data" smctest --expect tcp integrity --mib 4
check "a decline: data over IPv6" smctest6 --expect tcp integrity --mib 4
check "data to a server that has only TCP" smctest --server-family tcp integrity --mib 4
check "data from a client that has only TCP" \
	smctest --family tcp --server-family smc integrity --mib 4
check "a decline: many connections" smctest many --connections 50 --kib 32
check "a decline: connections come and go" smctest churn --processes 4 --opens 20
suite "killed" smctest killed
suite "calls after a decline" smctest --expect tcp semantics --module "$MODULE"
suite "calls, server TCP" smctest --server-family tcp --expect tcp semantics --module "$MODULE"

# Fast open for all listeners, without cookies.
FAST_OPEN=$((0x1 | 0x2 | 0x4 | 0x200 | 0x400))
fast_open() {
	with_sysctl a net/ipv4/tcp_fastopen "$FAST_OPEN" \
		with_sysctl b net/ipv4/tcp_fastopen "$FAST_OPEN" "$@"
}

# netstat END NAME: a counter of that namespace's TCP.
netstat() {
	in_ns "$1" awk -v name="$2" '
		/^TcpExt:/ && !n { n = split($0, names); next }
		/^TcpExt:/ { split($0, values); for (i = 1; i <= n; i++) if (names[i] == name) print values[i] }
	' /proc/net/netstat
}

suite "fast open" fast_open smctest --expect tcp semantics --module "$MODULE" --only "fast open"
check "data went with the SYN" [ "$(netstat b TCPFastOpenPassive)" -gt 0 ]
check "SYN cookies make it TCP" with_sysctl b net/ipv4/tcp_syncookies 2 \
	smctest --expect tcp integrity --mib 1
check "module unloads" within 10 unload_smc
finish
