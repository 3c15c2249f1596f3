#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: debian-7.3
# every: 5 days
# timeout: 480
# cpus: 1
# Connections whose addresses are translated, as containers, virtual addresses of a cluster and transparent proxies have
# them, and firewalls that know connections (conntrack).

. "${LIB:=${0%/*}/lib.sh}"

# The server's other names: its end translates the first, the client's the second, as kube-proxy does.
NAME=10.9.0.100
CLUSTER=10.96.0.1
# A client behind a router with one address for all (masquerade).
INNER=10.8.0.1

# rules END RULES
rules() {
	in_ns "$1" nft "table ip translated { $2; }"
}

names() {
	ip -n a route add "$CLUSTER/32" via "$IP_B" && ip -n a neighbor add "$NAME" lladdr "$(mac b)" dev wire_a &&
		rules b "chain in { type nat hook prerouting priority -100; ip daddr $NAME dnat to $IP_B; }" &&
		rules a "chain out { type nat hook output priority -100; ip daddr $CLUSTER dnat to $IP_B; }"
}

# stateful: what is not of a known connection gets in to few ports only, and nothing else gets out than answers.
stateful() {
	in_ns b nft "table ip filter {
		chain in { type filter hook input priority 0; policy drop; ct state established,related accept;
			tcp dport 7000-7999 accept; udp dport 4791 accept; iif lo accept; };
		chain out { type filter hook output priority 0; policy drop; ct state established,related accept;
			udp dport 4791 accept; oif lo accept; }; }"
}

open() {
	in_ns b nft delete table ip filter
}

# to ADDRESS ARGUMENT...: smctest with the server under that name.
to() {
	ip netns exec a "$BIN/smctest" --family "${FAMILY:-smc}" --addr "$1" --remote "${@:2}"
}

# original PROTOCOL [MODE]: the server of a translated connection, which is of that mode (SMC_INFO_MODE_*), learns the
# address that its client has asked for.
SERVER="
import socket, struct, sys
protocol, mode = int(sys.argv[1]), sys.argv[2]
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('0.0.0.0', 8000))
s.listen()
c, peer = s.accept()
c.recv(1)
if mode:
    # SOL_SMC, SMC_INFO
    info = struct.unpack('6I', c.getsockopt(286, 0x5201, 24))
    assert info[0] == int(mode), info
port, address = struct.unpack('!2xH4s8x', c.getsockopt(socket.SOL_IP, 80, 16))
print('#', peer, c.getsockname(), 'asked for', socket.inet_ntoa(address), port)
assert (socket.inet_ntoa(address), port) == ('$NAME', 8000)
"
original() {
	local server code
	in_ns b python3 -c "$SERVER" "$1" "${2:-}" &
	server=$!
	await_port b 8000 && in_ns a python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, $1)
s.connect(('$NAME', 8000))
print('#', s.getsockname(), s.getpeername())
assert s.getpeername() == ('$NAME', 8000)
s.send(b'x')
s.recv(1)"
	code=$?
	wait "$server" && [ $code = 0 ]
}

# up_inner: a client's namespace behind a, which lends it its address.
up_inner() {
	ip netns add inner && ip link add veth_in netns inner type veth peer name veth_out netns a &&
		ip -n inner address add "$INNER/24" dev veth_in && ip -n inner link set veth_in up && ip -n inner link set lo up &&
		ip -n a address add 10.8.0.254/24 dev veth_out && ip -n a link set veth_out up &&
		ip -n inner route add default via 10.8.0.254 && in_ns a sh -c "echo 1 >/proc/sys/net/ipv4/ip_forward" &&
		in_ns a nft "table ip lent { chain post { type nat hook postrouting priority 100;
			ip saddr $INNER/24 oif wire_a masquerade; }; }"
}

# from_inner ADDRESS ARGUMENT...: smctest behind the router.
from_inner() {
	ip netns exec inner "$BIN/smctest" --family "${FAMILY:-smc}" --addr "$1" --remote "${@:2}"
}

# A connection whose translation is forgotten when TCP is idle for five seconds, with keepalive (TCP_KEEPIDLE) of two:
# it is used for longer than that, then idle, then used again.
KEPT="
import socket, sys, time
address, protocol = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
s.connect((address, 8001))
s.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in ((4, 2), (5, 1), (6, 2)):
    s.setsockopt(socket.IPPROTO_TCP, option, value)
s.settimeout(20)
def talk():
    s.send(b'x')
    assert s.recv(1) == b'x'
for _ in range(25):
    talk()
    time.sleep(0.5)
time.sleep(8)
talk()
"
ECHO="
import socket, sys, time
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1]))
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(('0.0.0.0', 8001))
listener.listen()
connection = listener.accept()[0]
while data := connection.recv(10):
    connection.send(data)
time.sleep(int(sys.argv[2]))
"
# echoed CLIENT PROTOCOL SECONDS: that client, of a server that answers, and closes so long after the end of its stream.
echoed() {
	local echo code
	in_ns b python3 -c "$ECHO" "$2" "$3" &
	echo=$!
	await_port b 8001 && in_ns a python3 -c "$1" "$CLUSTER" "$2"
	code=$?
	kill "$echo" 2>/dev/null
	wait "$echo"
	return "$code"
}

# A connection without keepalive, used for longer than TCP may be idle: its end is known to the network, too, and the
# other end still comes.
HALF="
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[2]))
s.connect((sys.argv[1], 8001))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3000)
s.settimeout(20)
end = time.monotonic() + 70
while time.monotonic() < end:
    s.send(b'x')
    assert s.recv(1) == b'x'
    time.sleep(0.5)
s.shutdown(socket.SHUT_WR)
time.sleep(8)
assert s.recv(10) == b''
"

# The same of a client that waits for space all the time, in one call.
BLOCKED="
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[2]))
s.connect((sys.argv[1], 8002))
start = time.monotonic()
assert s.send(bytes(64 << 20)) == 64 << 20
print('# %.1f s' % (time.monotonic() - start))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 3000)
s.shutdown(socket.SHUT_WR)
time.sleep(8)
assert s.recv(10) == b''
"
LAZY="
import socket, sys, time
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[1]))
listener.bind(('0.0.0.0', 8002))
listener.listen()
connection = listener.accept()[0]
time.sleep(70)
while connection.recv(1 << 20):
    pass
time.sleep(7)
"
blocked() {
	local server code
	ip netns exec b python3 -c "$LAZY" "$1" &
	server=$!
	await_port b 8002 && in_ns a python3 -c "$BLOCKED" "$CLUSTER" "$1"
	code=$?
	kill "$server" 2>/dev/null
	wait "$server"
	return "$code"
}

forgetful() {
	in_ns a sh -c 'echo 5 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established &&
		echo 0 >/proc/sys/net/netfilter/nf_conntrack_tcp_loose'
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "names that are translated" names
require "a server" start_server 7000
for family in smc ipproto; do
	FAMILY=$family
	check "$family, no device: a name that the server's end translates" to $NAME --expect tcp integrity --mib 1
	check "$family, no device: one that the client's end translates" to $CLUSTER --expect tcp integrity --mib 1
done
require "soft RoCE" up_rxe
for family in smc ipproto; do
	FAMILY=$family
	check "$family, RDMA: a name that the server's end translates" to $NAME --expect smc integrity --mib 1
	check "$family, RDMA: one that the client's end translates" to $CLUSTER --expect smc integrity --mib 1
done
check "TCP: the server learns the name" original 0
check "RDMA: the server learns the name" original 256 0
require "idle connections are forgotten" forgetful
check "TCP: keepalive has the translation kept" echoed "$KEPT" 0 0
check "RDMA: and so it has of a connection that is in use" echoed "$KEPT" 256 0
require "after 40 seconds" in_ns a sh -c 'echo 40 >/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established'
check "RDMA: without keepalive, too: half a close goes through" echoed "$HALF" 256 7
check "RDMA: and after one call of more than a minute" blocked 256
require "a firewall that knows connections" stateful
check "RDMA: through that firewall" to $NAME --expect smc integrity --mib 1
require "no firewall" open
require "a client behind a router" up_inner
check "behind a router: data go over TCP" from_inner $NAME --expect tcp integrity --mib 1
require "shared memory is on" same_host on
check "shared memory: a name that the server's end translates" to $NAME --expect smcd integrity --mib 1
check "shared memory: one that the client's end translates" to $CLUSTER --expect smcd integrity --mib 1
check "shared memory: a client behind a router" from_inner $NAME --expect smcd integrity --mib 1
check "shared memory: the server learns the name" original 256 2
require "the server ends" stop_servers
check "module unloads" within 20 unload_smc
finish
