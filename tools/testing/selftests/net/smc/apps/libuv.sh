#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 600
# mem: 3G
# tests: libuv
# libuv's own tests of streams and of polling, over TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/libuv.differences
PATTERNS=(
	'tcp6?_.*' '.*_tcp(_.*)?' 'connect(ion)?_.*' 'delayed_accept' 'multiple_listen' 'not_.*'
	'poll_.*' 'readable_on_eof' 'shutdown_.*' 'socket_buffer_size' 'callback_stack' 'emfile'
	'handle_fileno' 'has_ref' 'ipc_listen_.*' 'ipc_heavy_.*'
)

# As root it wants to be asked for; and this kernel is slow.
export UV_RUN_AS_ROOT=1 UV_TEST_TIMEOUT_MULTIPLIER=4

# tests WAY MODULE [PREFIX...]: its sockets of the file system have fixed names, so each way has such a folder.
tests() {
	local way=$1 module=$2
	shift 2
	mkdir "/tmp/for_$way" && cp -r /tmp/smc "/tmp/for_$way" &&
		programs "$way" "$module" libuv "$SUITE" "${PATTERNS[@]}" -- \
			sh -c "mount --bind /tmp/for_$way /tmp && exec \"\$@\"" sh "$@"
}

# up_nowhere WAY: the way to addresses where nobody is, and nobody finds out, to which connections stay pending.
up_nowhere() {
	ip -n "$1" link add nowhere arp off type veth peer name nobody arp off &&
		ip -n "$1" address add 10.9.0.1/24 dev nowhere && ip -n "$1" link set nobody up &&
		ip -n "$1" link set nowhere up && ip -n "$1" route add default dev nowhere
}

no_io_uring
up_ways
for way in tcp smc fallback; do
	require "nowhere in $way" up_nowhere "$way"
done
three_ways libuv
end_ways 100 20
