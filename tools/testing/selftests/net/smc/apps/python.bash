# SPDX-License-Identifier: GPL-2.0
# What scripts share that run Python's unit tests over TCP, over SMC, and over SMC sockets that fall back. What differs
# has to be in the table $DIFFERENCES, with the reason, and the other way round.

. "${LIB%/*}/apps/apps.bash"

APPS=${LIB%/*}/apps
PYTHON=$(ls /usr/bin/python3.[0-9]* | grep -x '.*3\.[0-9]*' | tail -1)

# What makes the sockets of a program SMC's.
USE_SMC=("$SMC" run)

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
	in_ns "$way" "$@" "$PYTHON" "$APPS/unittests.py" run "$OUT/$way/$module" "$module"
}

# three_ways MODULE: at the same time, as the tests mostly wait.
three_ways() {
	local module=$1 tcp smc fallback
	tests tcp "$module" &
	tcp=$!
	tests smc "$module" "${USE_SMC[@]}" &
	smc=$!
	tests fallback "$module" "${USE_SMC[@]}" &
	fallback=$!
	check "$module over TCP comes to its end" wait "$tcp"
	check "$module over SMC comes to its end" wait "$smc"
	check "$module over SMC sockets that fall back comes to its end" wait "$fallback"
	check "$module over SMC as the table says" differences smc "$module"
	check "$module over SMC sockets that fall back as the table says" differences fallback "$module"
}

# differences WAY MODULE: what came of it there, compared with TCP.
differences() {
	"$PYTHON" "$APPS/unittests.py" compare "$DIFFERENCES" "$1" "$OUT/tcp/$2" "$OUT/$1/$2"
}

# connections WAY: how many used SMC there; fallbacks WAY: how many SMC sockets TCP.
connections() {
	metric "$1" "^smc_connections_total{technology=\"$CARRIER\",end=\"client\""
}

fallbacks() {
	metric "$1" '^smc_fallbacks_total{end="client"'
}

# no_io_uring: the kernel's, which libuv and libev use instead of epoll_ctl(2), loses track of its pages in User-Mode
# Linux.
no_io_uring() {
	require "no io_uring" sh -c 'echo 2 >/proc/sys/kernel/io_uring_disabled'
}

# up_ways: a namespace for each.
up_ways() {
	local way
	require "RDMA modules load" load_rdma
	require "module loads" load_smc
	for way in tcp smc fallback; do
		require "namespace $way" up_way "$way"
	done
	case $CARRIER in
	smcr) require "a device for lo" up_device smc ;;
	smcd)
		require "shared memory is allowed" same_host on
		require "but not for those who fall back" \
			in_ns fallback sh -c 'echo 0 >/proc/sys/net/smc/smcd_loopback'
		;;
	esac
}

# end_ways LEAST MOST: so many connections at least were over SMC, or fell back where there was no device; of
# those where there was one, less than that went over TCP.
end_ways() {
	echo "# connections over SMC: $(connections smc), SMC sockets over TCP beside them: $(fallbacks smc)"
	check "the tests went over SMC" [ "$(connections smc)" -gt "$1" ]
	check "no TCP connection fell back without need" [ "$(fallbacks smc)" -lt "$2" ]
	check "without a device all fell back" [ "$(connections fallback)" = 0 -a "$(fallbacks fallback)" -gt "$1" ]
	reasons smc
	reasons fallback
	check "module unloads" within 20 unload_smc
	finish
}
