#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# mem: 6G
# timeout: 600
# SMC-D within one kernel: thousands of connections between fifty network namespaces, processes that are killed among
# them, and what is left after all that.

. "${LIB:=${0%/*}/lib.sh}"

ulimit -n 65536

NAMESPACES=50
CONNECTIONS=$(scale 10000 30000)
STORMS=$(scale 12 200)
# Neighbours, sockets in TIME_WAIT and routes are as many as with TCP: enough of them for all.
THRESH=8192

require "RDMA modules load" load_rdma
require "module loads" load_smc

# up_mesh: as many namespaces, all on one bridge.
up_mesh() {
	local i
	sysctl -qw net.ipv4.neigh.default.gc_thresh1=$THRESH net.ipv4.neigh.default.gc_thresh2=$THRESH \
		net.ipv4.neigh.default.gc_thresh3=$THRESH
	ip link add mesh type bridge && ip link set mesh up || return
	for ((i = 0; i < NAMESPACES; i++)); do
		ip netns add "n$i" &&
			ip link add "to_n$i" master mesh type veth peer name wire netns "n$i" &&
			ip link set "to_n$i" up &&
			ip -n "n$i" link set lo up &&
			ip -n "n$i" address add "10.50.0.$((i + 1))/24" dev wire &&
			ip -n "n$i" link set wire up || return
		echo 1 >"/proc/sys/net/smc/smcd_loopback"
		in_ns "n$i" sh -c 'echo 1 >/proc/sys/net/smc/smcd_loopback'
	done
}

down_mesh() {
	local i
	for ((i = 0; i < NAMESPACES; i++)); do
		ip netns del "n$i" || return
	done
	ip link del mesh
}

MESH=("$BIN/smctest" --addr 10.50.0.1 --expect smcd --deadline 300 mesh --namespaces $NAMESPACES)

# mesh CONNECTIONS
mesh() {
	"${MESH[@]}" --connections "$1"
}

# is_none_left: no connection within the kernel, in any namespace.
is_none_left() {
	local i
	for ((i = 0; i < NAMESPACES; i++)); do
		! in_ns "n$i" "$BIN/smc" ss --json 2>/dev/null | grep -q SMC-D || return
	done
}

# used_kib: memory of the kernel: objects of its caches, and pages that nothing else counts, such as rings.
used_kib() {
	give_up_memory
	echo "$(slabs | objects_kib) $(pages_kib KernelStack PageTables Percpu VmallocUsed)"
}

# storms: connections come, and the process with both ends of all of them is killed at some moment.
storms() {
	local round victim
	for ((round = 1; round <= STORMS; round++)); do
		"${MESH[@]}" --connections 100000 >/dev/null 2>&1 &
		victim=$!
		sleep "$((RANDOM % 3)).$((RANDOM % 10))"
		kill -9 "$victim" || return
		wait "$victim" 2>/dev/null
	done
	return 0
}

# crossed_storms: client and server are two processes, one of which is killed; the other one comes to an end.
crossed_storms() {
	local round server client code
	for ((round = 1; round <= STORMS; round++)); do
		ip netns exec n1 "$BIN/smctest" --addr 10.50.0.2 --port $((7100 + round)) serve >/dev/null 2>&1 &
		server=$!
		ip netns exec n0 "$BIN/smctest" --addr 10.50.0.2 --port $((7100 + round)) --remote --deadline 60 \
			many --connections 1000 --kib 64 >/dev/null 2>&1 &
		client=$!
		sleep "1.$((RANDOM % 10))"
		if ((round % 2)); then
			kill -9 "$server" || return
			wait "$client" 2>/dev/null
			code=$?
			[ $code -gt 0 ] && [ $code -lt 124 ] || {
				echo "# the client ended with $code"
				return 1
			}
		else
			kill -9 "$client" || return
			sleep 0.2
			kill -9 "$server" || return
		fi
		wait 2>/dev/null
	done
	return 0
}

# workers: of workqueues, which stay for five minutes when there is nothing to do.
workers() {
	cat /proc/[0-9]*/comm 2>/dev/null | grep -c ^kworker
}

# A listener that waits for data (TCP_DEFER_ACCEPT), and clients that send none.
SILENT="
import socket, sys
def sock():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
listener = sock()
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 1000)
listener.bind(('127.0.0.1', 7000))
listener.listen(1000)
clients = [sock() for _ in range(int(sys.argv[1]))]
for client in clients:
    client.connect(('127.0.0.1', 7000))
open(sys.argv[2], 'x').close()
sys.stdin.read()
"

# users_share: the namespaces of an ordinary user have as many workers together as one of them may have.
users_share() {
	local before more i
	rm -f /tmp/silent.*
	mkfifo /tmp/hold && exec 9<>/tmp/hold || return
	before=$(workers)
	for i in 1 2; do
		setpriv --reuid=65534 --regid=65534 --clear-groups unshare --user --map-root-user --net sh -c \
			"ip link set lo up && echo 1 >/proc/sys/net/smc/smcd_loopback && exec python3 -c \"\$1\" 700 /tmp/silent.$i" \
			sh "$SILENT" </tmp/hold 9>&- &
	done
	within 120 test -e /tmp/silent.1 && within 60 test -e /tmp/silent.2 && sleep 2
	more=$(($(workers) - before))
	exec 9>&-
	wait
	rm /tmp/hold
	echo "# $more workers more"
	# Some are of other queues.
	[ "$more" -ge 1000 ] && [ "$more" -le 1150 ]
}

# is_memory_back: less than 4 MiB more than before of either, but for the stacks of workers that came.
is_memory_back() {
	local now more
	read -r -a now < <(used_kib)
	more=$(($(workers) - WORKERS))
	echo "# KiB of objects and of other pages: ${BEFORE[*]} before, ${now[*]} and $more workers more now"
	[ "${now[0]}" -lt $((BEFORE[0] + 4096)) ] &&
		[ "${now[1]}" -lt $((BEFORE[1] + 4096 + (more > 0 ? more : 0) * 32)) ]
}

echo 1 >/proc/sys/net/smc/smcd_loopback
check "silent clients of a user take no more threads in two namespaces than in one" users_share
require "fifty namespaces on a bridge" up_mesh
# After this each namespace knows each other one as its neighbour.
check "a connection between any two" mesh $((NAMESPACES * (NAMESPACES - 1)))
read -r -a BEFORE < <(used_kib)
WORKERS=$(workers)
check "$CONNECTIONS connections at once" mesh "$CONNECTIONS"
check "processes that are killed" storms
check "clients and servers that are killed" crossed_storms
check "a few connections again" mesh 100
check "no connection is left" within 30 is_none_left
# TCP's sockets in TIME_WAIT take a minute.
check "memory is back" within 90 is_memory_back
down_mesh
check "the namespaces go" within 30 sh -c '! ls /sys/class/net | grep -q to_n'
check "module unloads" within 20 unload_smc
finish
