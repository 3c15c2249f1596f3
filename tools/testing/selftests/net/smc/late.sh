#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 400
# What comes late, or early: a handshake that gets no processor in time while others do, the worker of an earlier one,
# data that comes after the end of TCP, a shutdown(2) before the handshake is over. Nobody suffers.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/broken.bash"

PORT=7300

# serve, unserve: a server for the clients below.
serve() {
	ip netns exec b "$BIN/smctest" --addr="$IP_B" --port=$PORT --deadline 300 greet --serve &
	SERVER=$!
	within 10 in_ns b sh -c "ss -Htln 'sport = :$PORT' | grep -q ."
}

unserve() {
	kill -9 "$SERVER"
	wait "$SERVER" 2>/dev/null
	true
}

# clients NICE OPTION...: connections of such a priority.
clients() {
	nice -n "$1" ip netns exec a "$BIN/smctest" --remote --addr="$IP_B" --port=$PORT --expect smc greet "${@:2}"
}

# late_first: the first contact of a link group, beside connections that join it.
late_first() {
	local first code
	clients 19 &
	first=$!
	clients -10 --connections 16
	code=$?
	wait "$first" && [ $code = 0 ]
}

# each_time TIMES COMMAND...: for so many new groups the command succeeds.
each_time() {
	local i
	for ((i = 0; i < $1; i++)); do
		within 20 no_groups && "${@:2}" || return
	done
}

# reads_after_reset: accepts two connections, and reads from the second one, whose TCP asks for signs of life.
reads_after_reset() {
	timeout 60 python3 - "$IP_B" <<-'END'
		import socket, sys
		listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		listener.bind((sys.argv[1], 7301))
		listener.listen()
		first, _ = listener.accept()
		second, _ = listener.accept()
		second.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
		second.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
		open('/tmp/accepted', 'w')
		data = b''
		while chunk := second.recv(65536):
		    data += chunk
		assert data == b'x' * 10000, len(data)
	END
}

# closes_before_data: makes two connections of a group; on the second one sends and closes while RDMA packets get lost.
closes_before_data() {
	timeout 60 python3 - "$IP_B" <<-'END'
		import os, socket, subprocess, sys, time
		def connect():
		    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		    client.connect((sys.argv[1], 7301))
		    return client
		first, second = connect(), connect()
		while not os.path.exists('/tmp/accepted'):
		    time.sleep(0.05)
		subprocess.run(["bash", "-c", "lose 0 ip netns exec b"], check=True)
		second.sendall(b'x' * 10000)
		second.close()
		time.sleep(2.5)
		subprocess.run(["bash", "-c", "heal ip netns exec b"], check=True)
		first.close()
	END
}

# reset_overtakes: a host that keeps nothing of a closed TCP connection resets it when asked for a sign of life, while
# the data are on their way over RDMA.
reset_overtakes() {
	export -f lose heal
	rm -f /tmp/accepted
	serve_and_call 7301 reads_after_reset closes_before_data
}

# accepts_in_order: accepts eight connections at a time, and expects the number of each as its data.
accepts_in_order() {
	timeout 100 python3 - "$IP_B" "$(scale 40 400)" <<-'END'
		import socket, sys
		listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		listener.bind((sys.argv[1], 7302))
		listener.listen(64)
		wrong = 0
		for _ in range(int(sys.argv[2])):
		    accepted = [listener.accept()[0] for _ in range(8)]
		    numbers = [connection.recv(1)[0] for connection in accepted]
		    wrong += numbers != list(range(8))
		    for connection in accepted:
		        connection.sendall(b'x')
		    for connection in accepted:
		        connection.close()
		assert not wrong, f'{wrong} times in another order'
	END
}

# connects_in_order: makes eight connections at a time, one after the other, and sends the number of each.
connects_in_order() {
	timeout 100 python3 - "$IP_B" "$(scale 40 400)" <<-'END'
		import socket, sys
		def connect():
		    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		    client.connect((sys.argv[1], 7302))
		    return client
		for _ in range(int(sys.argv[2])):
		    clients = [connect() for _ in range(8)]
		    for number, client in enumerate(clients):
		        client.sendall(bytes([number]))
		    for client in clients:
		        assert client.recv(1) == b'x'
		        client.close()
	END
}

# answers_after_end PROTOCOL COUNT: accepts so many connections; each reads the end of the stream, and answers.
answers_after_end() {
	timeout 100 python3 - "$IP_B" "$1" "$2" <<-'END'
		import socket, sys
		listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, int(sys.argv[2]))
		listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		listener.bind((sys.argv[1], 7303))
		listener.listen(64)
		for _ in range(int(sys.argv[3])):
		    connection, _ = listener.accept()
		    connection.settimeout(10)
		    assert connection.recv(1) == b''
		    connection.sendall(b'y')
		    connection.close()
	END
}

# ends_early PROTOCOL MILLISECONDS COUNT: makes so many connections, and shuts writing down that time after TCP has
# connected, ten milliseconds later each time.
ends_early() {
	timeout 100 python3 - "$IP_B" "$1" "$2" "$3" <<-'END'
		import socket, sys, time
		protocol, first, count = map(int, sys.argv[2:])
		for wait in range(first, first + 10 * count, 10):
		    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
		    client.setblocking(False)
		    client.connect_ex((sys.argv[1], 7303))
		    while client.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1) != b'\x01':
		        time.sleep(0.001)
		    time.sleep(wait / 1000)
		    client.shutdown(socket.SHUT_WR)
		    client.settimeout(10)
		    assert client.recv(1) == b'y', wait
		    client.close()
	END
}

# half_closes_at_all_times [PROTOCOL]: during the first contacts of groups, and handshakes that follow, or a fallback;
# the server hears of it, and its answer is read, as over TCP (0).
half_closes_at_all_times() {
	local protocol=${1:-256} ms code=0
	ip netns exec a tc qdisc add dev wire_a root netem delay 20ms || return
	for ((ms = 0; ms < 240; ms += 40)); do
		within 20 no_groups && serve_and_call 7303 "answers_after_end $protocol 4" "ends_early $protocol $ms 4" || {
			code=1
			break
		}
	done
	ip netns exec a tc qdisc del dev wire_a root && [ $code = 0 ]
}

# in_order: accept(2) returns the connections of a client in the order in which its connect(2) did.
in_order() {
	serve_and_call 7302 accepts_in_order connects_in_order
}

# floods: connections to port 7304 from a, without end; the server has them handshake and accepts none.
floods() {
	ip netns exec a timeout 100 python3 - "$IP_B" <<-'END'
		import os, socket, sys
		clients = []
		while os.path.exists('/tmp/flooded'):
		    client = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		    client.setblocking(False)
		    client.connect_ex((sys.argv[1], 7304))
		    clients.append(client)
		    if len(clients) > 20:
		        clients.pop(0).close()
	END
}

# closed_amid_a_flood: the port of a listener that is closed can be bound at once, though connections came until then.
closed_amid_a_flood() {
	local flooder code
	touch /tmp/flooded
	floods &
	flooder=$!
	ip netns exec b timeout 100 python3 - "$IP_B" <<-'END'
		import random, socket, sys, time
		for number in range(200):
		    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		    try:
		        listener.bind((sys.argv[1], 7304))
		    except OSError:
		        sys.exit(f'# not free after {number} listeners')
		    listener.listen(100)
		    time.sleep(random.random() / 25)
		    listener.close()
	END
	code=$?
	[ $code = 0 ] || ip netns exec b ss -Htan 'sport = :7304' | sed 's/^/# /'
	rm /tmp/flooded
	wait "$flooder" && return $code
}

# closed_amid_lists: lists of sockets, which others ask for all the time, keep no port of a closed listener, nor of a
# socket that was bound.
closed_amid_lists() {
	ip netns exec b timeout 100 python3 - "$IP_B" "$(scale 8 60)" <<-'END'
		import os, socket, struct, sys, time
		def sock():
		    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
		idle = [sock() for _ in range(300)]
		# SOCK_DIAG_BY_FAMILY of AF_SMC, NLM_F_REQUEST | NLM_F_DUMP, with all that it can say of a socket.
		ask = struct.pack('IHHII', 16 + 56, 20, 0x301, 1, 0) + bytes([43, 0, 0, 0x1f]) + bytes(52)
		lists = []
		for _ in range(3):
		    if not (pid := os.fork()):
		        netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 4)
		        while True:
		            netlink.send(ask)
		            while struct.unpack('IH', netlink.recv(1 << 16)[:6])[1] != 3:
		                pass
		    lists.append(pid)
		end = time.monotonic() + int(sys.argv[2])
		failed = tried = 0
		while time.monotonic() < end:
		    for listens in (True, False):
		        one = sock()
		        tried += 1
		        try:
		            one.bind((sys.argv[1], 7305))
		            if listens:
		                one.listen(1)
		        except OSError:
		            failed += 1
		        one.close()
		for pid in lists:
		    os.kill(pid, 9)
		    os.waitpid(pid, 0)
		print(f'# {failed} of {tried} times the port was in use')
		sys.exit(failed > 0 or tried < 200)
	END
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "groups end soon" set_sysctl smcr_lgr_idle_time 1
check "a server" serve
check "a first contact is late, and connections join at once" each_time "$(scale 5 50)" busy late_first
unserve
check "accept returns connections in the order of connect" busy in_order
check "a half close during the handshake is one of the connection" half_closes_at_all_times
require "nothing is kept of closed TCP connections" each_end sh -c "echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets"
check "data that a reset of TCP overtakes is read" reset_overtakes
check "the port of a listener that is closed amid a flood is free" busy closed_amid_a_flood
check "and free while others list sockets" closed_amid_lists
check "the close of a listener waits for no call on another one" smctest blocked-listener
check "no worker waits for senders whose memory nobody serves" smctest --server-family tcp --expect tcp stuck-senders
check "a peek ends while SO_OOBINLINE is being set" smctest --expect smc half-set
require "shared memory is allowed" same_host on
check "over shared memory, accept returns connections in that order, too" busy in_order
check "nor is a half close during the handshake lost there" half_closes_at_all_times
check "nor does a peek wait there for an option" smctest --expect smcd half-set
require "no shared memory" same_host off
check "over TCP a half close is heard" half_closes_at_all_times 0
require "the server has no RDMA device" del_rdma rxe b
check "nor is one lost when the server declines" half_closes_at_all_times
check "that was TCP" smctest --expect tcp path
require "nor has the client" del_rdma rxe a
check "nor when the client does" half_closes_at_all_times
check "module unloads" within 20 unload_smc
finish
