#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 300
# cpus: 1
# `smc why` names the cause of TCP: each is prepared, one after the other.

. "${LIB:=${0%/*}/lib.sh}"

RAW=10.9.0.50
DIAL_C=$(dirname "$(readlink -f "$0")")/dial.c
TCP_PORT=7001
IDLE_PORT=7002

mac() {
	ip -n "$1" -o link show "wire_$1" | sed 's/.*link\/ether \([0-9a-f:]*\).*/\1/'
}

# says CODE ID SENTENCE COMMAND...: the command ends so, with this finding among those that it prints.
says() {
	local code=$1 id=$2 sentence=$3 got
	shift 3
	"$@" >/tmp/why 2>&1
	got=$?
	cat /tmp/why
	[ "$got" = "$code" ] || return
	grep -F -A1 ": TCP. $sentence" /tmp/why | grep -q "^  id:     $id\( (\|\$\)"
}

# why ID SENTENCE [ADDRESS:PORT]: a connection from a is TCP for this.
why() {
	says 3 "$1" "$2" in_ns a "$BIN/smc" why "${3:-$IP_B:7000}"
}

# held ID SENTENCE OPTION...: connections of smctest are TCP for this, which is among what is said of
# their process; OPTION are those of smctest, and --fast-open and --keys those of its command.
held() {
	local id=$1 sentence=$2 hold=()
	shift 2
	case ${1:-} in --fast-open | --keys) hold=("$1") && shift ;; esac
	says 0 "$id" "$sentence" smctest "$@" --port 7010 hold --seconds 0 "${hold[@]}" \
		--then "ip netns exec b '$BIN/smc' why --pid \$PPID; [ \$? = 3 ]"
}

# listed SENTENCE: that is what `smc ss` says of a connection at the server's end.
listed() {
	smctest --port 7010 hold --seconds 0 --then "ip netns exec b '$BIN/smc' ss" >/tmp/ss
	cat /tmp/ss
	grep -qF "TCP: ${1%.} (0x" /tmp/ss
}

# of_program ID SENTENCE COMMAND...: what is said of a connection of a program, which connects to the listener that
# takes none, and stays.
of_program() {
	local id=$1 sentence=$2 program code
	shift 2
	ip netns exec a "$@" &
	program=$!
	within 20 is_connected && says 3 "$id" "$sentence" in_ns a "$BIN/smc" why --pid "$program"
	code=$?
	kill "$program"
	wait "$program" 2>/dev/null
	return $code
}

is_connected() {
	in_ns a ss -Htn "dport = :$IDLE_PORT" | grep -q '^ESTAB'
}

build_dial() {
	gcc -O1 -static -nostdlib -ffreestanding -fno-stack-protector -DRAW -o /tmp/dial "$DIAL_C"
}

idle_listener() {
	ip netns exec b python3 -c "import socket, time
s = socket.create_server(('$IP_B', $IDLE_PORT))
time.sleep(1000)" &
	STARTED+=($!)
	await_port b $IDLE_PORT
}

# dials library|kernel: Python that connects with a socket that it gets by socket(2) of the C library, or past it.
dials() {
	local socket="socket.socket()"
	[ "$1" = library ] || socket="socket.socket(fileno=ctypes.CDLL(None).syscall(41, 2, 1, 0))"
	echo "import ctypes, socket, time; s = $socket; s.connect(('$IP_B', $IDLE_PORT)); time.sleep(100)"
}

# refused ID SENTENCE [CODE]: a peer that is not of our kernel declines for this reason.
refused() {
	says 0 "$1" "$2" in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" refuse \
		--raw-addr $RAW --device wire_a --peer-mac "$(mac b)" --decline "$3" \
		--run "'$BIN/smc' why \$PEER; [ \$? = 3 ]"
}

# no_peer CODE OPTION...: what is said, with that exit code, of a server that is none of SMC though the SYN-ACK has its
# option.
no_peer() {
	in_ns a "$BIN/smctest" --server-netns=b --addr="$IP_B" refuse "${@:2}" \
		--raw-addr $RAW --device wire_a --peer-mac "$(mac b)" --run "'$BIN/smc' why \$PEER; [ \$? = $1 ]" >/tmp/why
	local code=$?
	cat /tmp/why
	return $code
}

# A middlebox that echoes the option of TCP before a mail server, which knows nothing of SMC.
middlebox() {
	no_peer 3 && grep -q "The server offered SMC but did not answer the handshake" /tmp/why &&
		grep -q "id:     TIMEOUT_CL/no-answer (" /tmp/why
}

breaks() {
	no_peer 1 --reset && grep -q "TCP reaches it, but the handshake of SMC fails" /tmp/why &&
		grep -q "id:     NO_HANDSHAKE$" /tmp/why
}

# services_family: a filter that refuses AF_SMC, as systemd's RestrictAddressFamilies=AF_INET AF_INET6, leaves
# IPPROTO_SMC, by which SMC works.
services_family() {
	says 3 NOSMCDEV/no-device "This machine has no RDMA device." \
		in_ns a "$BIN/smctest" refusing --number 43 "$BIN/smc" why "$IP_B:7000"
}

nobody_listens() {
	in_ns a "$BIN/smc" why "$IP_B:7099" >/tmp/why
	local code=$?
	cat /tmp/why
	[ $code = 1 ] && grep -q "id:     NO_TCP$" /tmp/why
}

pnet_in() {
	in_ns "$1" "$BIN/smc" pnet "${@:2}"
}

# no_networks: no physical network has a name.
no_networks() {
	"$BIN/smc" pnet flush && pnet_in a flush && pnet_in b flush
}

# up_other ADDRESS/LEN: another RDMA device for a, on a network device that leads nowhere.
up_other() {
	ip link add other netns a type dummy && ip -n a address add "$1" dev other noprefixroute &&
		ip -n a link set other up && in_ns a rdma link add rxe_other type rxe netdev other
}

down_other() {
	in_ns a rdma link delete rxe_other && ip -n a link delete other
}

is_smc() {
	in_ns a "$BIN/smc" why "$IP_B:7000" | tee /tmp/why | grep -q "id:     SMC$"
}

# unanswered: the queue of a listener is full, so that it does not answer; a connection waits for its turn.
unanswered() {
	says 0 TIMEOUT_CL/no-answer "The server offered SMC but did not answer the handshake" \
		smctest --expect smc --port 7011 full-backlog --then "ip netns exec a '$BIN/smc' why --pid \$PPID; [ \$? = 3 ]"
}

# Without a device a connection is one of TCP from the start: it counts as a fallback, and is shown as connected, when
# there is one.
COUNTED="
import json, socket, subprocess
def smc(*words):
    out = subprocess.run(['$BIN/smc', *words, '--json'], capture_output=True, check=True).stdout
    return json.loads(out)
def count():
    return smc('stats')['fallbacks']['client']
def states(port):
    return [s['state'] for s in smc('ss', '-a') if s['peer'].endswith(':%d' % port)]
def make():
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
before = count()
s = make()
assert s.connect_ex(('$IP_B', 7099)) == 111
assert count() == before, 'a refused one counts'
pending = make()
pending.setblocking(False)
assert pending.connect_ex(('${IP_A%.*}.99', 7098)) == 115
assert states(7098) == ['INIT'], states(7098)
assert count() == before, 'one that is pending counts'
s = make()
s.connect(('$IP_B', 7000))
assert states(7000) == ['ACTIVE'], states(7000)
assert count() == before + 1, (before, count())
"

# A listener with Fast Open, whose SYN has room for no other option, is one of TCP.
LISTENS="
import json, os, socket, subprocess
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.IPPROTO_TCP, 23, 16)
s.bind(('$IP_A', 7097))
s.listen()
out = subprocess.run(['$BIN/smc', 'ss', '-a', '--json'], capture_output=True, check=True).stdout
[line] = [line for line in json.loads(out) if line['local'].endswith(':7097')]
print('#', line)
assert line['state'] == 'LISTEN' and line['reason'] == [0x03060000, 0], line
out = subprocess.run(['$BIN/smc', 'why', '--pid', str(os.getpid())], capture_output=True).stdout.decode()
print('# ', out)
assert 'It listens for TCP alone' in out, out
"

json_is_good() {
	in_ns a "$BIN/smc" why --json "$IP_B:$TCP_PORT" >/tmp/why.json
	[ $? = 3 ] && cat /tmp/why.json && grep -q '"id": "PEERNOSMC"' /tmp/why.json &&
		grep -q '"smc": false' /tmp/why.json && grep -q '"reason": "0x03010000"' /tmp/why.json
}

NO_OTHER="No RDMA device belongs to the network device that the connection uses."
NO_PORT="No port of an RDMA device is on the physical network"
PEER_NO_PORT="The peer declined: it found no active RDMA port for this connection"
PAST_LIBRARY="The program runs under smc run, but got this socket past the C library's socket(2)"

require "a program without a C library" build_dial
require "RDMA modules load" load_rdma
require "network" up_netns
require "a server without SMC" start_server $TCP_PORT --server-family tcp
require "a listener that takes no connection" idle_listener
check "no module" why NO_MODULE "This machine gives no SMC sockets" "$IP_B:$TCP_PORT"
check "no module, under smc run" of_program NOT_SMC/no-module \
	"The program runs under smc run, but this machine gives no SMC sockets" \
	"$BIN/smc" run python3 -c "$(dials library)"

require "module loads" load_smc
require "a server" start_server 7000 --server-family smc
check "nobody listens" nobody_listens
check "a service that has families of IP only" services_family
check "no RDMA device" why NOSMCDEV/no-device "This machine has no RDMA device."
check "what is refused, or waits, is no connection over TCP" in_ns a python3 -c "$COUNTED"
check "a listener that does not offer SMC" in_ns a python3 -c "$LISTENS"
require "an RDMA device elsewhere" up_other 10.7.0.1/24
check "no RDMA device on this way" why NOSMCDEV/other-interface "$NO_OTHER"
require "the network has a name" pnet_in a add NET1 -I wire_a
check "no RDMA device on this network" why NOSMCDEV/empty-network "$NO_PORT"
require "now one is" "$BIN/smc" pnet add NET1 -D rxe_other
check "but in another subnet" why NOSMCDEV/wrong-subnet "No address of the RDMA port on that physical network"
ip -n a address flush dev other
check "without an IPv4 address" why NOSMCDEV/no-address "The port of the RDMA device has no RoCE v2 address"
ip -n a link set other down
check "its port is down" why NOSMCDEV/port-down "The port of the RDMA device is not active."
check "the other device goes" down_other

require "soft RoCE" up_rxe
require "a device that reaches nobody" up_other 10.9.0.77/24
require "whose address is answered for" in_ns b ping -c 1 -W 5 10.9.0.77
require "its packets have no way back" in_ns b ip route add unreachable 10.9.0.77
check "the server sees that" held NOSMCRDEV/no-path-to-peer \
	"The port of the RDMA device has no route to the peer's RDMA address"
require "they have one again" in_ns b ip route del unreachable 10.9.0.77
check "no packet comes through" held TIMEOUT_CL/path-silent \
	"RDMA packets to or from the peer did not get through, though TCP did."
check "the client sees that it declined" grep -q "id:     PEERDECL/TIMEOUT_CL" /tmp/why
check "and the next connection does not try" why TIMEOUT_CL/path-failed \
	"RDMA packets to or from the peer did not get through a moment ago"
check "it goes" down_other
check "no network has a name" no_networks
check "nothing is missing" is_smc
check "a queue that is full" unanswered

require "no enterprise ID" "$BIN/smc" ueid flush
check "no enterprise ID here" why NOSMCDEV/no-own-eid "This machine has no enterprise ID"
require "the enterprise ID" "$BIN/smc" ueid add "$EID"
check "a peer without SMC" why PEERNOSMC "The peer does not speak SMC" "$IP_B:$TCP_PORT"
check "the same as JSON" json_is_good
check "a client without SMC" held PEERNOSMC "The peer does not speak SMC" --family tcp --server-family smc
check "which nobody made SMC" held NOT_SMC/not-run "Nothing turned this TCP socket into an SMC socket" \
	--family tcp --server-family smc
check "a system call past the library" of_program NOT_SMC/own-call "$PAST_LIBRARY" \
	"$BIN/smc" run python3 -c "$(dials kernel)"
check "the same under a filter" of_program NOT_SMC/filter \
	"The program runs under smc run, but its system calls are filtered (seccomp)" \
	"$BIN/smctest" refusing --number 43 "$BIN/smc" run python3 -c "$(dials kernel)"
check "a program that loads no library" of_program NOT_SMC/no-library \
	"The program runs under smc run, but did not load the library" \
	"$BIN/smc" run /tmp/dial call "$IP_B" $IDLE_PORT 8192
check "keys of both ends" held IPSEC/tcp-keys "The TCP connection is protected by keys" --keys
check "Fast Open" held OPTUNSUPP "The socket uses TCP Fast Open" --fast-open
check "handshakes are limited" with_sysctl b net/smc/limit_smc_hs 1 held PEERNOSMC/or-limited \
	"The client does not speak SMC, or this machine had enough handshakes" --family tcp --server-family smc

require "the server's device is on another network" pnet_in b add NET2 -I wire_b
check "the server sees why" held NOSMCRDEV/empty-network "$NO_PORT"
check "the client sees that it declined" held PEERDECL/NOSMCRDEV "$PEER_NO_PORT"
check "no network has a name" no_networks
require "the server's device goes" in_ns b rdma link delete rxe_b
check "the server has no device on this way" held NOSMCRDEV/other-interface "$NO_OTHER"
check "smc ss says so, too" listed "$NO_OTHER"
check "the client sees that it declined" why PEERDECL/NOSMCRDEV "$PEER_NO_PORT"
require "it comes back" in_ns b rdma link add rxe_b type rxe netdev wire_b
check "nothing is missing again" is_smc

require "a peer of no kernel" ip -n b neighbor add $RAW lladdr "$(mac a)" dev wire_b
check "no enterprise ID in common" refused PEERDECL/no-common-eid \
	"The peer declined: none of this machine's enterprise IDs is one of its own." 0x03030000
check "limit of connections" refused PEERDECL/MAXCONNERR \
	"The peer declined, and says: The limit of connections per link group is below 16" 0x0303000a
check "limit of links" refused PEERDECL/MAXLINKERR \
	"The peer declined, and says: The limit of links per link group is out of range" 0x0303000b
check "memory of the peer" refused PEERDECL/MEM "The peer declined, and says: Memory for the handshake" 0x01010000
check "subnet, of version 1" refused PEERDECL/DIFFPREFIX \
	"The peer declined, and says: The client is in another IP subnet" 0x03070000
check "IPsec at the peer" refused PEERDECL/IPSEC \
	"The peer declined, and says: The TCP connection is protected by IPsec" 0x03020000
check "a reason that nobody knows" refused PEERDECL/0x12345678 "The peer declined for a reason" 0x12345678
check "a middlebox that echoes" middlebox
check "one that resets connections of SMC" breaks

stop_servers
down_netns
check "module unloads" within 20 unload_smc
finish
