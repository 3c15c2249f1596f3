#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# every: 3 days
# timeout: 300
# Rules of a firewall that ask who owns the socket of a packet (`meta skuid` of nftables, xt_owner) get for SMC sockets
# the answer that they get for TCP's: nobody avoids them by the other family, and nobody loses what they allow.

. "${LIB:=${0%/*}/lib.sh}"

CLIENT=1234
SERVER=4321

# rules: count what the users' sockets send, and all of it. What ends a connection is counted apart, as the answer to
# the peer's end comes from the kernel itself when the socket has been closed.
rules() {
	each_end sh -c "nft delete table inet owners 2>/dev/null; nft '
		table inet owners {
			chain out {
				type filter hook output priority 0;
				tcp dport 7000-7999 tcp flags & (fin|rst) != 0 meta skuid $CLIENT counter comment \"end\"
				tcp dport 7000-7999 tcp flags & (fin|rst) != 0 counter comment \"all ends\"
				tcp flags & (fin|rst) != 0 accept
				tcp dport 7000-7999 tcp flags & (syn|ack) == syn meta skuid $CLIENT counter comment \"syn\"
				tcp dport 7000-7999 meta skuid $CLIENT counter comment \"client\"
				tcp dport 7000-7999 counter comment \"to server\"
				tcp sport 7000-7999 tcp flags & (syn|ack) == (syn|ack) meta skuid $SERVER \
					counter comment \"syn-ack\"
				tcp sport 7000-7999 meta skuid $SERVER counter comment \"server\"
			}
		}'"
}

# counted END RULE: packets.
counted() {
	in_ns "$1" nft list table inet owners | sed -n "s/.*counter packets \([0-9]*\) .*comment \"$2\".*/\1/p"
}

# owned FAMILY EXPECTED: client and server as different users, and a connection used both ways.
owned() {
	local family=$1 expected=$2 server code syn of_client all syn_ack of_server ends all_ends
	rules || return
	serve "$family" &
	server=$!
	await_port b 7000 && client $CLIENT "$family" --expect "$expected" integrity --mib 1
	code=$?
	kill "$server"
	wait "$server" 2>/dev/null
	syn=$(counted a syn) of_client=$(counted a client) all=$(counted a "to server")
	syn_ack=$(counted b syn-ack) of_server=$(counted b server)
	ends=$(counted a end) all_ends=$(counted a "all ends")
	echo "# SYNs $syn; of the client's $all packets $of_client, of $all_ends that end a connection $ends;" \
		"SYN-ACKs $syn_ack, of the server $of_server"
	# Each of two connections may answer the peer's end when it has been closed.
	[ $code = 0 ] && [ "$syn" -ge 1 ] && [ $((all - of_client)) -le 2 ] && [ "$of_client" -ge 4 ] &&
		[ "$syn_ack" -ge 1 ] && [ "$of_server" -ge "$syn_ack" ] || return
	[ "$expected" = smc ] || { [ "$of_server" -gt $((2 * syn_ack)) ] && [ "$all_ends" -ge 1 ] && [ "$ends" = "$all_ends" ]; }
}

# as_user USER END COMMAND...
as_user() {
	exec ip netns exec "$2" setpriv --reuid "$1" --clear-groups "${@:3}"
}

# client USER FAMILY ARGUMENT...: smctest in a.
client() {
	(as_user "$1" a "$BIN/smctest" --family "$2" --addr "$IP_B" --remote "${@:3}")
}

# serve FAMILY: as the user SERVER.
serve() {
	as_user $SERVER b "$BIN/smctest" --family "$1" --addr "$IP_B" serve
}

# refusal: what that user sends to the server's ports is refused.
refusal() {
	in_ns a nft "delete table inet owners; table inet owners { chain out {
		type filter hook output priority 0;
		meta skuid $CLIENT tcp dport 7000-7999 counter reject with tcp reset comment \"refused\"
	}; }"
}

# refused FAMILY: a user who may not connect does not, and another one does.
refused() {
	local family=$1 server code
	refusal || return
	serve "$family" &
	server=$!
	await_port b 7000 && ! client $CLIENT "$family" path && [ "$(counted a refused)" -ge 1 ] &&
		client $SERVER "$family" path
	code=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return $code
}

# refused_early PROTOCOL: nor by data that connect (MSG_FASTOPEN), whatever the socket was told before.
refused_early() {
	refusal || return
	(as_user $CLIENT a python3 -c "
import errno, socket
TCP_FASTOPEN_NO_COOKIE = 34
for option in (None, TCP_FASTOPEN_NO_COOKIE):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, $1)
    if option:
        s.setsockopt(socket.IPPROTO_TCP, option, 1)
    try:
        s.sendto(b'x', socket.MSG_FASTOPEN, ('$IP_B', 7000))
        # With data in the SYN the call does not wait for the answer.
        s.recv(1)
        raise SystemExit('it was sent')
    except OSError as e:
        print('#', option, e)
        assert e.errno == errno.ECONNREFUSED, e") && [ "$(counted a refused)" -ge 2 ]
}

# closed PROTOCOL: the end of the stream and the reset that close(2) sends are its socket's.
closed() {
	local server code ends
	rules || return
	in_ns b python3 -c "
import socket
s = socket.create_server(('$IP_B', 7100))
for _ in range(4):
    c = s.accept()[0]
    c.send(b'y')
    try:
        while c.recv(1):
            pass
    except ConnectionResetError as e:
        print('#', e)" &
	server=$!
	await_port b 7100 && (as_user $CLIENT a python3 -c "
import socket, struct
def connected():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, $1)
    s.connect(('$IP_B', 7100))
    assert s.recv(1, socket.MSG_PEEK) == b'y'
    return s
def linger(seconds):
    return struct.pack('ii', 1, seconds)
# Nothing special, unread data, and SO_LINGER of no time and of some.
s = connected(); s.recv(1); s.close()
s = connected(); s.close()
s = connected(); s.recv(1); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger(0)); s.close()
s = connected(); s.recv(1); s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger(5)); s.close()")
	code=$?
	wait "$server" && [ $code = 0 ] || return
	ends=$(counted a end)
	echo "# of $(counted a "all ends") that end a connection $ends"
	[ "$ends" = 4 ] && [ "$(counted a "all ends")" = 4 ]
}

# all EXPECTED NAME: each way to a socket.
all() {
	local family
	for family in smc ipproto ulp; do
		check "$family, $2: packets are of the user who has the socket" owned $family "$1"
		check "$family, $2: who may not connect does not" refused $family
	done
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns

check "TCP: packets are of the user who has the socket" owned tcp tcp
check "TCP: who may not connect does not" refused tcp
check "TCP: nor by data that connect" refused_early 0
check "TCP: what close(2) sends is the user's" closed 0
all tcp "after a fallback"
check "IPPROTO_SMC: nor by data that connect" refused_early 256
check "IPPROTO_SMC: what close(2) sends is the user's" closed 256
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
all smc "over RDMA"
check "module unloads" within 20 unload_smc
finish
