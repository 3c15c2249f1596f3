#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 240
# Two ends that connect to each other at the same time (RFC 9293, simultaneous open): neither is the server of an SMC
# handshake, and both go on over TCP, with no byte more or less.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/moment.bash"

# Arguments: own address, the peer's, port, protocol. Connects when nobody writes to /tmp/go any more. Exit code 2: the
# peer was not there yet.
cat >/tmp/end.py <<'P'
import errno, select, socket, sys, time
own, peer, port, proto = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, proto)
s.bind((own, port))
s.setblocking(False)
with open("/tmp/go") as go:
    open("/tmp/ready." + own, "w").close()
    go.read()
e = s.connect_ex((peer, port))
select.select([], [s], [], 20)
error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
print("#", own, "connect", e, "SO_ERROR", error)
if error == errno.ECONNREFUSED:
    sys.exit(2)
s.settimeout(10)
s.send(b"from " + own.encode())
# All that comes, with what should not.
time.sleep(1)
got = s.recv(100)
print("#", own, "got", got)
sys.exit(got != b"from " + peer.encode())
P

IPPROTO_SMC=256
# Another one each time: an end may still wait for what its predecessor sent last.
PORT=7770

# at_once PROTOCOL: both ends connect, each before the other's SYN arrives, and exchange data. 2: the SYN of one arrived
# before the other one connected, and both were refused. A SYN that was late before does not count.
at_once() {
	local one other codes
	forget || return 1
	PORT=$((PORT + 1))
	rm -f /tmp/go /tmp/ready.*
	mkfifo /tmp/go && exec 9<>/tmp/go || return
	in_ns a python3 /tmp/end.py "$IP_A" "$IP_B" $PORT "$1" 9>&- &
	one=$!
	in_ns b python3 /tmp/end.py "$IP_B" "$IP_A" $PORT "$1" 9>&- &
	other=$!
	within 30 test -e "/tmp/ready.$IP_A" && within 30 test -e "/tmp/ready.$IP_B"
	exec 9>&-
	wait $one
	codes=$?
	wait $other
	codes+=$?
	case $codes in
	00) ;;
	22) return 2 ;;
	*) return 1 ;;
	esac
}

# repeated: how many SYNs a has sent again.
repeated() {
	in_ns a nstat -asz TcpExtTCPSynRetrans | awk '$1 ~ /SynRetrans/ { print $2 }'
}

# sent_twice: SMC for a client whose SYN is sent twice; there is another client if the answer was first.
sent_twice() {
	local before attempt
	for attempt in {1..6}; do
		before=$(repeated)
		forget && smctest --deadline 60 --expect smc path || return
		[ "$(repeated)" = "$before" ] || break
	done
	echo "# attempt $attempt"
	[ "$(repeated)" -gt "$before" ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
# known: both ends know the other's hardware address for good.
known() {
	ip -n a neighbor replace "$IP_B" lladdr "$(mac b)" dev wire_a nud permanent &&
		ip -n b neighbor replace "$IP_A" lladdr "$(mac a)" dev wire_b nud permanent
}

# Longer than the first wait for a SYN-ACK, which is a second: TCP counts what it sends again. Not as long as the 1.8 s
# after which the client gives the option up.
require "addresses are known" known
require "a very slow wire" ip netns exec a tc qdisc add dev wire_a root netem delay 600ms
require "in both directions" ip netns exec b tc qdisc add dev wire_b root netem delay 600ms
check "a client whose SYN was sent twice is none of these: SMC" sent_twice
require "the wire is fast again" ip netns exec a tc qdisc del dev wire_a root
require "both ways again" ip netns exec b tc qdisc del dev wire_b root
require "shared memory" same_host on
require "a slow wire" ip netns exec a tc qdisc add dev wire_a root netem delay 300ms
require "both ways" ip netns exec b tc qdisc add dev wire_b root netem delay 300ms
check "TCP" caught at_once 6
check "SMC, which could be by shared memory" caught at_once $IPPROTO_SMC
require "no shared memory" same_host off
check "SMC, which could be by RDMA" caught at_once $IPPROTO_SMC
# A DECLINE crosses a PROPOSAL, then another DECLINE.
require "one end is left without a device" del_rdma rxe b
check "SMC, for which one end has no device" caught at_once $IPPROTO_SMC
require "none is left" del_rdma rxe a
check "SMC, for which neither end has a device" caught at_once $IPPROTO_SMC
check "module unloads" within 30 unload_smc
finish
