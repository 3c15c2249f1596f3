#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 300
# TCP packets of established connections stop, and RDMA or shared memory does not: data go on, and what is closed goes
# soon. endings.sh has keepalive on such a connection.

. "${LIB:=${0%/*}/lib.sh}"

PORT=7040
MIB=32

# silence: TCP packets of connections to the port do not come any more, to either end.
silence() {
	each_end nft "add table inet silent; \
		add chain inet silent in { type filter hook input priority 0; }; \
		add rule inet silent in tcp dport $PORT drop; \
		add rule inet silent in tcp sport $PORT drop"
}

speech() {
	each_end nft delete table inet silent
}

sent_since() {
	[ $(($(rdma_bytes a) - $1)) -ge $(($2 << 20)) ]
}

# goes_on: most of a transfer is made while TCP is silent, as the counter of the RDMA device shows.
goes_on() {
	local transfer before code
	before=$(rdma_bytes a)
	smctest --expect smc --port "$PORT" integrity --mib "$MIB" &
	transfer=$!
	within 20 sent_since "$before" 1 && silence
	before=$(rdma_bytes a)
	wait "$transfer"
	code=$?
	[ $code = 0 ] && sent_since "$before" $((MIB / 4))
}

# used PATH: connections that were used before TCP is silent are used afterwards.
used() {
	hold_begin --expect "$1" --port "$PORT" hold --connections 8 --used --seconds 1 && silence
	hold_end
}

ECHO='
import socket, sys
listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind((sys.argv[1], int(sys.argv[2])))
listener.listen()
connection, _ = listener.accept()
while data := connection.recv(100):
    connection.send(data)
'

# Data for several times as long as keepalive and TCP_USER_TIMEOUT allow, then nothing until keepalive ends that.
TALK='
import errno, os, socket, sys, time
connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
connection.connect((sys.argv[1], int(sys.argv[2])))
connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
for option, value in ((socket.TCP_KEEPIDLE, 2), (socket.TCP_KEEPINTVL, 1), (socket.TCP_KEEPCNT, 2)):
    connection.setsockopt(socket.IPPROTO_TCP, option, value)
if sys.argv[3] == "limited":
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 2000)
connection.send(b"x"), connection.recv(1)
os.close(os.open("/tmp/held", os.O_CREAT))
while not os.path.exists("/tmp/done"):
    time.sleep(0.1)
end = time.monotonic() + 10
while time.monotonic() < end:
    connection.send(b"x")
    if connection.recv(1) != b"x":
        sys.exit("it ended amid the data")
    time.sleep(0.2)
connection.settimeout(20)
try:
    sys.exit("%d bytes" % len(connection.recv(1)))
except OSError as error:
    if error.errno != errno.ETIMEDOUT:
        raise
'

# outlives unlimited|limited: a connection with keepalive, and with TCP_USER_TIMEOUT or without, is in use while TCP is
# silent, and ends when it is not.
outlives() {
	local echo talk code
	rm -f /tmp/held /tmp/done
	in_ns b python3 -c "$ECHO" "$IP_B" "$PORT" &
	echo=$!
	await_port b "$PORT"
	in_ns a python3 -c "$TALK" "$IP_B" "$PORT" "$1" &
	talk=$!
	within 20 test -e /tmp/held && silence
	touch /tmp/done
	wait "$talk"
	code=$?
	kill "$echo"
	wait "$echo"
	return $code
}

no_sockets() {
	[ "$("$BIN/smc" ss --json)" = "[]" ]
}

# tcp_waits: TCP of both ends has closed, and waits for an answer.
tcp_waits() {
	each_end sh -c "ss -Htn state fin-wait-1 '( sport = :$PORT or dport = :$PORT )' | grep ."
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "groups end soon" set_sysctl smcr_lgr_idle_time 1

check "RDMA: data go on" goes_on
check "RDMA: no connection is left" within 5 no_sockets
check "RDMA: no group is left" within 10 no_groups
check "RDMA: TCP still has no answer" tcp_waits
check "RDMA: TCP speaks again" speech
check "RDMA: 8 connections are used" used smc
check "RDMA: none of them is left" within 5 no_sockets
check "RDMA: nor their group" within 10 no_groups
check "RDMA: TCP speaks once more" speech
check "RDMA: keepalive leaves a connection alone that is in use" outlives unlimited
check "RDMA: TCP speaks for the third time" speech
check "RDMA: and so with TCP_USER_TIMEOUT" outlives limited
check "RDMA: TCP speaks for the last time" speech

require "shared memory is allowed" same_host on
check "shared memory: 8 connections are used" used smcd
check "shared memory: none of them is left" within 5 no_sockets
check "shared memory: TCP has no answer" tcp_waits

down_netns
check "module unloads" within 20 unload_smc
finish
