#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 500
# cpus: 1
# What sockets say after every way in which a connection ends or never begins, and of urgent data, is what TCP says.

. "${LIB:=${0%/*}/lib.sh}"

SEQUENCES=$(scale 15 300)
DESTROYED=$(scale 1 40)

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

# Nobody answers for some address: that is known soon.
short_neighbour() {
	in_ns a sh -c '
		echo 100 >/proc/sys/net/ipv4/neigh/wire_a/retrans_time_ms
		echo 1 >/proc/sys/net/ipv4/neigh/wire_a/mcast_solicit
	'
}

# The server ends its stream, or closes the connection, and the client closes when it sees that: arguments are the
# address, the protocol, the role, how often, and how the server ends.
ENDING="
import socket, sys
address, protocol, role, count, how = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
def make():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
if role == 'server':
    listener = make()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, 7300))
    listener.listen(8)
    for _ in range(count):
        connection = listener.accept()[0]
        connection.recv(1)
        if how == 'half':
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        connection.close()
else:
    for _ in range(count):
        connection = make()
        connection.connect((address, 7300))
        connection.send(b'x')
        assert connection.recv(1) == b''
        connection.close()
"

# waiting END: connections in TIME_WAIT there.
waiting() {
	in_ns "$1" ss -Htan state time-wait "( sport = :7300 or dport = :7300 )" | wc -l
}

# end_first PROTOCOL COUNT half|close: TIME_WAIT is at the server's end only, which ends first.
end_first() {
	local before server
	before=$(waiting b)
	in_ns b python3 -c "$ENDING" "$IP_B" "$1" server "$2" "$3" &
	server=$!
	await_port b 7300 && in_ns a timeout 60 python3 -c "$ENDING" "$IP_B" "$1" client "$2" "$3" && wait "$server" &&
		echo "# TIME_WAIT: $(waiting a) at the client, $(($(waiting b) - before)) at the server" &&
		[ "$(waiting a)" = 0 ] && within 5 eval '[ $(($(waiting b) - before)) = '"$2"' ]'
}

require "addresses without a machine are found out" short_neighbour
check "TCP: who ends the stream first has TIME_WAIT" end_first 0 5 half
check "TCP: who closes first has it" end_first 0 20 close
suite "fallback" smctest --family tcp --expect tcp endings
suite "fallback, urgent" smctest --family tcp --expect tcp endings --urgent "$((SEQUENCES / 5))"
require "soft RoCE" up_rxe
check "RDMA: who ends the stream first has TIME_WAIT" end_first 256 5 half
check "RDMA: who closes first has it" end_first 256 20 close
# gone_after_half: a client that has ended its stream loses its device, and with it the connection: the server's end,
# which has nothing to send, hears of that.
HALF="
import os, select, socket, sys, time
role = sys.argv[1]
def make():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
if role == 'server':
    listener = make()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('$IP_B', 7301))
    listener.listen()
    s = listener.accept()[0]
    assert s.recv(1) == b'x' and s.recv(1) == b''
    os.close(os.open('/tmp/half', os.O_CREAT))
    poll = select.poll()
    poll.register(s, select.POLLERR)
    start = time.monotonic()
    assert poll.poll(60000)
    print('# after %.1f s' % (time.monotonic() - start), flush=True)
    assert time.monotonic() - start < 20
else:
    s = make()
    s.connect(('$IP_B', 7301))
    s.send(b'x')
    s.shutdown(socket.SHUT_WR)
    time.sleep(100)
"
gone_after_half() {
	local server client code
	rm -f /tmp/half
	in_ns b python3 -c "$HALF" server &
	server=$!
	await_port b 7301
	in_ns a python3 -c "$HALF" client &
	client=$!
	within 20 test -e /tmp/half && in_ns a rdma link delete rxe_a && wait "$server"
	code=$?
	kill "$client" "$server" 2>/dev/null
	wait "$client" "$server" 2>/dev/null
	in_ns a rdma link add rxe_a type rxe netdev wire_a
	return "$code"
}

# Nothing of TCP leaves the client's namespace any more.
NO_TCP="table inet lost { chain out { type filter hook output priority 0; meta l4proto tcp drop; }; }"

# A server sends much and closes, and its end of TCP is gone when the client, which reads slowly, ends its own stream.
# The client reads all of it; `lost`: also if nothing answers its end, as a firewall has forgotten TCP's connection.
SLOWLY="
import socket, subprocess, sys, time
role, protocol, is_lost = sys.argv[1], int(sys.argv[2]), sys.argv[3:] == ['lost']
SIZE = 280000
def make():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    # Most of it waits at the server.
    s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 262144)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
    return s
if role == 'server':
    listener = make()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('$IP_B', 7302))
    listener.listen()
    s = listener.accept()[0]
    s.sendall(bytes(SIZE))
    s.close()
else:
    s = make()
    s.connect(('$IP_B', 7302))
    start, done = time.monotonic(), 0
    while time.monotonic() < start + 5:
        done += len(s.recv(8000))
        time.sleep(0.25)
    if is_lost:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000)
        subprocess.run(['nft', '$NO_TCP'], check=True)
    s.shutdown(socket.SHUT_WR)
    time.sleep(8 if is_lost else 0.5)
    while data := s.recv(100000):
        done += len(data)
    print('#', done)
    assert done == SIZE
"
slowly() {
	local server code
	in_ns b python3 -c "$SLOWLY" server "$1" &
	server=$!
	await_port b 7302 && in_ns a timeout 60 python3 -c "$SLOWLY" client "$@" && wait "$server"
	code=$?
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	return "$code"
}

slowly_lost() {
	local code
	slowly 256 lost
	code=$?
	in_ns a nft delete table inet lost
	return "$code"
}

# A writer waits for space at a peer that does not read, and keepalive finds out that TCP does not get there any more.
BLOCKED="
import errno, socket, subprocess, sys, time
role = sys.argv[1]
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
if role == 'server':
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind(('$IP_B', 7303))
    s.listen()
    peer = s.accept()[0]
    time.sleep(100)
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in (socket.TCP_KEEPIDLE, 15), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2):
    s.setsockopt(socket.IPPROTO_TCP, option, value)
s.connect(('$IP_B', 7303))
subprocess.run(['nft', '$NO_TCP'], check=True)
start = time.monotonic()
try:
    s.sendall(bytes(64 << 20))
    error = 0
except OSError as e:
    error = e.errno
print('# %.1f s, error %d' % (time.monotonic() - start, error))
assert error == errno.ETIMEDOUT
"
blocked() {
	local server code
	in_ns b python3 -c "$BLOCKED" server &
	server=$!
	await_port b 7303 && in_ns a timeout 60 python3 -c "$BLOCKED" client
	code=$?
	kill "$server" 2>/dev/null
	wait "$server" 2>/dev/null
	in_ns a nft delete table inet lost
	return "$code"
}

check "TCP: a client that reads slowly, ends its stream and reads on" with_sysctl b net/ipv4/tcp_fin_timeout 2 slowly 0
check "RDMA: the same" with_sysctl b net/ipv4/tcp_fin_timeout 2 slowly 256
check "RDMA: and nothing answers TCP's end" with_sysctl b net/ipv4/tcp_fin_timeout 2 slowly_lost
check "RDMA: keepalive, while a writer waits" blocked
check "RDMA: a client whose device goes after half a close" gone_after_half
suite "RDMA" smctest --deadline 300 --family tcp --expect smc endings
# The peer's answer races with what looks at TCP.
for _ in $(seq "$DESTROYED"); do
	busy suite "RDMA, while others compute" smctest --deadline 300 --family tcp --expect smc endings \
		--only "administrator destroys it"
done
suite "RDMA, urgent" smctest --family tcp --expect smc endings --urgent "$SEQUENCES"
check "module unloads" within 20 unload_smc
finish
