#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# CPython's own socket tests over TCP, over SMC-R, and over SMC sockets that fall back. What differs has
# to be in cpython.differences, with the reason, and the other way round.

. "${LIB%/*}/apps/apps.bash"

APPS=${LIB%/*}/apps
PYTHON=$(ls /usr/bin/python3.[0-9]* | grep -x '.*3\.[0-9]*' | tail -1)
MODULES="test_selectors test_socket test_ssl test_asyncio"

# up_way WAY: a namespace of that name. Everything there happens over its loopback device.
up_way() {
	ip netns add "$1" && ip -n "$1" link set lo up
}

# up_device WAY: gives it soft RDMA, on the loopback device itself.
up_device() {
	in_ns "$1" rdma link add rxe_lo type rxe netdev lo
}

# tests WAY MODULE [PREFIX...]: runs it there.
tests() {
	local way=$1 module=$2
	shift 2
	in_ns "$way" "$@" "$PYTHON" "$APPS/cpython.py" run "$OUT/$way/$module" "$module"
}

# three_ways MODULE: at the same time, as the tests mostly wait.
three_ways() {
	local module=$1 tcp smc fallback
	tests tcp "$module" &
	tcp=$!
	tests smc "$module" "$SMC" run &
	smc=$!
	tests fallback "$module" "$SMC" run &
	fallback=$!
	check "$module over TCP comes to its end" wait "$tcp"
	check "$module over SMC-R comes to its end" wait "$smc"
	check "$module over SMC sockets that fall back comes to its end" wait "$fallback"
	check "$module over SMC-R as the table says" differences smc "$module"
	check "$module over SMC sockets that fall back as the table says" differences fallback "$module"
}

# differences WAY MODULE: what came of it there, compared with TCP.
differences() {
	"$PYTHON" "$APPS/cpython.py" compare "$APPS/cpython.differences" "$1" "$OUT/tcp/$2" "$OUT/$1/$2"
}

# connections WAY: how many used SMC-R there; fallbacks WAY: how many SMC sockets TCP.
connections() {
	metric "$1" '^smc_connections_total{technology="smcr",end="client"'
}

fallbacks() {
	metric "$1" '^smc_fallbacks_total{end="client"'
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
for way in tcp smc fallback; do
	require "namespace $way" up_way "$way"
done
require "a device for lo" up_device smc

for module in ${*:-$MODULES}; do
	three_ways "$module"
done
echo "# connections over SMC-R: $(connections smc), SMC sockets over TCP beside them: $(fallbacks smc)"
check "the tests went over SMC-R" [ "$(connections smc)" -gt 300 ]
check "no TCP connection fell back without need" [ "$(fallbacks smc)" -lt 100 ]
check "without a device all fell back" [ "$(connections fallback)" = 0 -a "$(fallbacks fallback)" -gt 300 ]
reasons smc
reasons fallback
check "module unloads" within 20 unload_smc
finish
