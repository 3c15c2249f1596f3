#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 300
# All users who make namespaces of their own share the kernel threads that run handshakes. A user with thousands of
# handshakes that never end does not delay connections of others; these may have to go over TCP.

. "${LIB:=${0%/*}/lib.sh}"

ulimit -n 65536

# as_user UID PROGRAM...: in a user namespace and a network namespace of that user's own.
as_user() {
	local uid=$1
	shift
	setpriv --reuid="$uid" --regid="$uid" --clear-groups unshare --user --map-root-user --net "$@"
}

# Begins NUMBER connections to ADDRESS, on eight ports, and another one whenever one is established.
CROWD="
import select, socket, sys, time
address, number = sys.argv[1], int(sys.argv[2])
poll, socks, turn = select.epoll(), {}, 0
def begin():
    global turn
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK, 256)
    turn += 1
    sock.connect_ex((address, 7000 + turn % 8))
    socks[sock.fileno()] = sock
    poll.register(sock, select.EPOLLOUT | select.EPOLLONESHOT)
for _ in range(number):
    begin()
while True:
    for fd, _ in poll.poll():
        # Those without SMC stay for a while, to be counted.
        time.sleep(0.002)
        socks.pop(fd).close()
        begin()
"

SERVER="
import socket, sys, time
socks = []
for port in range(7000, 7008):
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    sock.bind(('0.0.0.0', port))
    sock.listen(4000)
    socks.append(sock)
time.sleep(1000)
"

# Connects, transfers a byte and closes, twenty times a second at most, for so many seconds, and three times at least.
# Prints how often, and the median of what connect and accept took, in ms.
VICTIM="
import socket, sys, time
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
listener.bind(('127.0.0.1', 7100))
listener.listen()
times, end = [], time.monotonic() + int(sys.argv[1])
while len(times) < 3 or time.monotonic() < end:
    begun = time.monotonic()
    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
    client.connect(('127.0.0.1', 7100))
    server = listener.accept()[0]
    times.append(time.monotonic() - begun)
    client.send(b'x')
    assert server.recv(1) == b'x'
    for sock in client, server:
        sock.close()
    time.sleep(0.05)
print(len(times), int(sorted(times)[len(times) // 2] * 1000))
"

# up_wire PID: a namespace of root's, with a wire to the one of that process.
up_wire() {
	ip netns add s && ip link add wire_s netns s type veth peer name wire_u netns "$1" &&
		ip -n s link set lo up && ip -n s address add 10.9.9.1/24 dev wire_s && ip -n s link set wire_s up &&
		nsenter -t "$1" -n ip address add 10.9.9.2/24 dev wire_u && nsenter -t "$1" -n ip link set wire_u up &&
		in_ns s sh -c 'echo 1 >/proc/sys/net/smc/smcd_loopback' &&
		nsenter -t "$1" -n sh -c 'echo 1 >/proc/sys/net/smc/smcd_loopback'
}

# others SECONDS: another user connects for so long; prints how often, and the median in ms.
others() {
	as_user 65533 sh -c 'ip link set lo up && echo 1 >/proc/sys/net/smc/smcd_loopback &&
		exec python3 -c "$1" "$2"' sh "$VICTIM" "$1"
}

# at_once: of the connections on standard input, most did not wait for a worker: one that is in a handshake which never
# ends comes back after six seconds.
at_once() {
	local number median
	read -r number median || return
	echo "# $number connections, which took $median ms (median)"
	[ "$number" -ge 3 ] && [ "$median" -lt 2000 ]
}

# crowded PID: as many clients as may be are in a handshake, so that some in the namespace of that process are TCP.
crowded() {
	local count
	count=$(nsenter -t "$1" -n "$BIN/smc" ss | grep -c "As many connections of this network namespace are in the handshake")
	echo "# $count connections are without SMC"
	[ "$count" -ge 1 ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
same_host on
check "nobody is in the way: connections are there at once" at_once < <(others 10)

touch /tmp/pid && chmod 666 /tmp/pid
as_user 65534 sh -c 'echo $$ >/tmp/pid; exec sleep 1000' &
require "a namespace of a user" within 10 test -s /tmp/pid
USER_PID=$(cat /tmp/pid)
require "a wire to it" up_wire "$USER_PID"
ip netns exec s python3 -c "$SERVER" &
SERVER_PID=$!
require "a server" within 10 sh -c 'ip netns exec s ss -ltn | grep -q :7007'
require "which hears nothing of a handshake" in_ns s nft 'table inet quiet { chain in {
	type filter hook input priority 0;
	tcp dport 7000-7007 tcp flags & (syn | fin | rst) == 0 meta length > 60 drop; }; }'
nsenter -t "$USER_PID" -U -n --preserve-credentials python3 -c "$CROWD" 10.9.9.1 4500 >/dev/null 2>&1 &
CROWD_PID=$!
check "a user with that many clients has some without SMC" within 60 crowded "$USER_PID"
check "and another user's connections are there at once" at_once < <(others 10)
kill "$CROWD_PID" "$SERVER_PID"
wait "$CROWD_PID" "$SERVER_PID" 2>/dev/null
kill "$USER_PID"
ip netns del s
check "module unloads" within 60 unload_smc
finish
