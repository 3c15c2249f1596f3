#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# Many connections at once, connections that come and go, processes that die, and what memory is left.

. "${LIB:=${0%/*}/lib.sh}"

# Both ends of a thousand connections are in one process.
ulimit -n 8192

# Connections that each of eight processes opens.
OPENS=$(scale 1250 12500)

# Groups go soon, and TCP keeps nothing of connections that are closed.
short_memory() {
	set_sysctl smcr_lgr_idle_time 5 && each_end sh -c "echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets"
}

# level NAME: kernel memory in use, once nothing is there any more that goes by itself: link groups that were idle
# for their time, objects that KASAN keeps back, slabs without objects, caches of files. It is told apart into
# objects and pages; of these, pages at hand for each CPU are free, and the checkers keep stack traces for good and have
# objects of their own.
level() {
	local cache
	within 60 no_groups || return
	for cache in /sys/kernel/slab/*/shrink; do echo 1 >"$cache"; done
	echo 3 >/proc/sys/vm/drop_caches
	grep -vwE 'kmemleak_object|debug_objects_cache' /proc/slabinfo >"/tmp/slabs.$1"
	awk '$2 ~ /^[0-9]+$/ { bytes += $2 * $4 } END { print int(bytes / 1024) }' "/tmp/slabs.$1" >"/tmp/objects.$1"
	cat /proc/meminfo /proc/zoneinfo /sys/kernel/debug/stackdepot/stats | awk '
		$1 == "count:" { at_hand += 4 * $2 }
		$1 == "pools:" { traces = 16 * $2 }
		{ kib[$1] = $2 }
		END {
			used = kib["MemTotal:"] - kib["MemFree:"] - kib["Buffers:"] - kib["Cached:"] - kib["AnonPages:"]
			print used - kib["Slab:"] - at_hand - traces
		}' >"/tmp/pages.$1"
	echo "# kernel memory $1: $(cat "/tmp/objects.$1") KiB in objects, $(cat "/tmp/pages.$1") KiB in pages;" \
		"$(awk '/^(Slab|KernelStack|Percpu|VmallocUsed):/ { printf "%s %d KiB ", $1, $2 }' /proc/meminfo)"
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

check "1000 connections at once" smctest --expect smc many --connections 1000 --kib 8
check "connections in every way, to begin with" smctest --expect smc churn --processes 8 --opens 50
check "memory before" level before
check "processes open and close" \
	smctest --deadline "$(scale 400 4000)" --expect smc churn --processes 8 --opens "$OPENS"
check "memory after" level after
# An object has 8 bytes at least: one that stays for each connection is seen, and a page for each tenth.
check "objects are as before" returned objects before after 7
check "pages are as before" returned pages before after 400
suite "killed" smctest --expect smc killed
check "connections in a row" smctest --expect smc connrate --processes 2 --count 100
check "idle connections" smctest --expect smc idle --connections 300
check "data is whole after all that" smctest --deadline "$(scale 400 4000)" --expect smc integrity --mib "$(scale 256 2560)"
check "no RMBE came with data of another connection" sh -c '! dmesg | grep "smc: an RMBE holds data"'
check "module unloads" within 20 unload_smc
finish
