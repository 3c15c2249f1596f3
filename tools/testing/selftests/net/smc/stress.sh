#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 900
# Many connections at once, connections that come and go, processes that die, and what memory is left.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/quiet.bash"

# Both ends of a thousand connections are in one process.
ulimit -n 8192

# Connections that each of eight processes opens.
OPENS=$(scale 1250 12500)

# Groups go soon, and TCP keeps nothing of connections that are closed.
short_memory() {
	set_sysctl smcr_lgr_idle_time 5 && each_end sh -c "echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets"
}

# level_at_rest NAME: the level, once no link groups are left that were idle for their time.
level_at_rest() {
	within 60 no_groups && level "$1" || return
	awk '/^(Slab|KernelStack|Percpu|VmallocUsed):/ { printf "# %s %d KiB\n", $1, $2 }' /proc/meminfo
}

# returned WHAT BEFORE AFTER BYTES: there is less than so many bytes more of that for each connection.
returned() {
	local grown=$(($(cat "/tmp/$1.$3") - $(cat "/tmp/$1.$2"))) most=$((8 * OPENS * $4 / 1024))
	echo "# $1 after $((8 * OPENS)) connections: $grown KiB more, at most $most allowed"
	[ "$grown" -le "$most" ] && return
	awk 'NR == FNR { before[$1] = $2; next }
		($1 in before) && $2 > before[$1] {
			print "#", $1, "objects of", $4, "bytes:", before[$1], "then", $2
		}' "/tmp/slabs.$2" "/tmp/slabs.$3"
	false
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

require "short memory" short_memory

check "buffers in use are memory of their sockets" smctest --expect smc charged
check "those of IPPROTO_SMC, too" smctest --family ipproto --expect smc charged
check "1000 connections at once" smctest --expect smc many --connections 1000 --kib 8
check "connections in every way, to begin with" smctest --expect smc churn --processes 8 --opens 50
check "memory before" level_at_rest before
check "processes open and close" \
	smctest --deadline "$(scale 400 4000)" --expect smc churn --processes 8 --opens "$OPENS"
check "memory after" level_at_rest after
# An object has 8 bytes at least: one that stays for each connection is seen, and a page for each tenth.
check "objects are as before" returned objects before after 7
check "pages are as before" returned pages before after 400
suite "killed" smctest --expect smc killed
check "connections in a row" smctest --expect smc connrate --processes 2 --count 100 --least 20
# With KASAN, about 210.
check "idle connections" smctest --expect smc idle --connections 300 --most 320
check "data is whole after all that" smctest --deadline "$(scale 400 4000)" --expect smc integrity --mib "$(scale 256 2560)"
require "small rings" eval 'set_sysctl wmem 16384 && set_sysctl rmem 16384'
check "sequence numbers of CDC messages wrap" smctest --expect smc pingpong --count 70000
# Cursors count 65,536 of them, for which a daily run has no time.
check "rings are filled again and again" \
	smctest --deadline "$(scale 400 4000)" --expect smc integrity --mib "$(scale 32 1200)"
check "no RMBE came with data of another connection" sh -c '! dmesg | grep "smc: an RMBE holds data"'
check "the processors are idle in the end" within 30 idle
check "module unloads" within 20 unload_smc
finish
