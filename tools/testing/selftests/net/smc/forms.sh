#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# timeout: 300
# cpus: 1
# Every socket call in every form, with every argument given and left out: answered as TCP does, in the same run.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
suite "socket commands, fallback" smctest --expect tcp forms --only "io_uring: command"
suite "fallback" smctest --expect tcp forms --only "fast open"
require "shared memory is allowed" same_host on
suite "socket commands, shared memory" smctest --expect smcd forms --only "io_uring: command"
suite "shared memory" smctest --expect smcd forms --only "fast open"
require "shared memory is forbidden again" same_host off
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

suite "forms" smctest --expect smc forms
require "no fast open" in_ns a sh -c 'echo 0 >/proc/sys/net/ipv4/tcp_fastopen'
suite "without fast open" smctest --expect smc forms --only "fast open"
require "fast open again" in_ns a sh -c 'echo 1 >/proc/sys/net/ipv4/tcp_fastopen'
suite "forms, smc run" smc run "$BIN/smctest" "${ENDS[@]}" --expect smc forms --kinds tcp

# PYTHON serves with the plain accept(), which asks for the peer's address; whether it got the right one.
python_accepts() {
	local server code
	ip netns exec b timeout 60 python3 - "$IP_A" "$IP_B" "$1" <<-'END' &
		import socket, sys
		listener = socket.socket()
		if sys.argv[3] == 'ulp':
		    listener.setsockopt(socket.IPPROTO_TCP, 31, b'smc')
		listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
		listener.bind((sys.argv[2], 7100))
		listener.listen()
		for _ in range(20):
		    connection, address = listener.accept()
		    assert address == connection.getpeername() and address[0] == sys.argv[1], address
		    data = connection.recv(100)
		    connection.sendall(data)
		    connection.close()
	END
	server=$!
	await_port b 7100 && in_ns a timeout 60 python3 - "$IP_B" <<-'END'
		import socket, sys
		for n in range(20):
		    client = socket.create_connection((sys.argv[1], 7100))
		    client.sendall(b'hello')
		    assert client.recv(100) == b'hello'
		    client.close()
	END
	code=$?
	wait "$server" && [ "$code" = 0 ]
}

check "CPython, a listener by TCP_ULP" python_accepts ulp
check "CPython, smc run" smc run bash -c "$(declare -f python_accepts await_port within in_ns)
	IP_A=$IP_A IP_B=$IP_B; python_accepts plain"
check "module unloads" within 20 unload_smc
finish
