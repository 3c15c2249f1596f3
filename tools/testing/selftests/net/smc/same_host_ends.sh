#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# memory: short
# timeout: 500
# SMC-D within one kernel: the switch, every way to end, processes that are killed, many connections, and failing
# allocations.

. "${LIB:=${0%/*}/lib.sh}"

ulimit -n 8192

SEQUENCES=$(scale 15 300)

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "shared memory is allowed" same_host on

# is_smcd and is_tcp: connections go that way.
is_smcd() {
	smctest --expect smcd path
}

is_tcp() {
	smctest --expect tcp path
}

# off_the_wire COMMAND...: fewer than 100,000 bytes go over the wire while the command runs.
off_the_wire() {
	local before after
	before=$(in_ns a cat /sys/class/net/wire_a/statistics/tx_bytes)
	"$@" || return
	after=$(in_ns a cat /sys/class/net/wire_a/statistics/tx_bytes)
	echo "# $((after - before)) bytes on the wire"
	[ $((after - before)) -lt 100000 ]
}

# rings_made: how many rings sockets of b have had to read from.
rings_made() {
	in_ns b "$BIN/smc" stats --json | python3 -c 'import json, sys
print(json.load(sys.stdin)["smcd"]["received"]["buffers_made"])'
}

# rings_are CONNECTIONS BYTES: so many connections have so many bytes of rings together.
rings_are() {
	"$BIN/smc" lgr --json | python3 -c 'import json, sys
group, = json.load(sys.stdin)
sys.exit([group["connections"], group["receive_bytes"]] != [int(word) for word in sys.argv[1:]])' "$@"
}

# Two threads send 400,000 bytes each in one call, for which there is room: arguments are the address and the protocol.
# The bytes are in pages that are mapped anew, so that the call takes long enough for the other one to begin.
TOGETHER="
import itertools, mmap, socket, sys, tempfile, threading
LEN = 400000
address, protocol = (sys.argv[1], 7303), int(sys.argv[2])
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
def make():
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, protocol)
    for option in SO_SNDBUFFORCE, SO_RCVBUFFORCE:
        s.setsockopt(socket.SOL_SOCKET, option, 1 << 20)
    return s
listener, client = make(), make()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(address)
listener.listen()
client.connect(address)
server = listener.accept()[0]
begin, most, short = threading.Barrier(2), 0, 0
def file_of(letter):
    file = tempfile.TemporaryFile()
    file.write(letter * LEN)
    file.flush()
    return file
files = [file_of(letter) for letter in (b'a', b'b')]
def send(file):
    global short
    with mmap.mmap(file.fileno(), LEN, prot=mmap.PROT_READ) as data:
        begin.wait()
        short += client.send(data, socket.MSG_DONTWAIT) != LEN
for _ in range(100):
    threads = [threading.Thread(target=send, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = server.recv(2 * LEN, socket.MSG_WAITALL)
    most = max(most, len([letter for letter, _ in itertools.groupby(got)]))
print('# at most', most, 'runs of one letter,', short, 'short calls')
sys.exit(most != 2 or short != 0)
"

together() {
	in_ns a python3 -c "$TOGETHER" "$IP_A" "$1"
}

# no_pages: no memory is charged to SMC sockets.
no_pages() {
	[ "$(awk '$1 == "SMC" { print $4; exit }' /proc/net/protocols)" = 0 ]
}

# made_and_gone BEFORE: three connections have had rings, which go while they stay.
made_and_gone() {
	[ "$(rings_made)" = $(($1 + 3)) ] && within 10 rings_are 3 0 && within 10 no_pages
}

# idle_rings_go: those of connections that are used, left alone, and used again, which makes new ones.
idle_rings_go() {
	local before
	before=$(rings_made)
	HOLD=--used beside 3 made_and_gone "$before" && [ "$(rings_made)" = $((before + 6)) ]
}

# stays: the ring with a byte that nobody reads is there for several times as long.
stays() {
	sleep 4 && rings_are 1 16384
}

check "it is used" is_smcd
check "data do not go over the wire" off_the_wire smctest --expect smcd integrity --mib 4
check "off at the client: TCP" with_sysctl a net/smc/smcd_loopback 0 is_tcp
check "off at the server: TCP" with_sysctl b net/smc/smcd_loopback 0 is_tcp
same_host off
check "off in the initial namespace: TCP" is_tcp
same_host on
check "and on again" is_smcd
check "a server of TCP" smctest --server-family tcp --expect tcp integrity --mib 1
check "a client of TCP" smctest --family tcp --server-family smc integrity --mib 1
suite "clients of TCP and SMC" smctest mixed

suite "endings" smctest --deadline 300 --family tcp --expect smcd endings
suite "urgent" smctest --family tcp --expect smcd endings --urgent "$SEQUENCES"
suite "forms" smctest --expect smcd forms
suite "reset" smctest --expect smcd reset
suite "killed" smctest --expect smcd killed

check "processes open and close" smctest --deadline 300 --expect smcd churn --processes 8 --opens "$(scale 50 500)"
check "TCP: what each of two threads sends in one call lies together" together 0
check "SMC-D: what each of two threads sends in one call lies together" together 256
check "1000 connections at once" smctest --expect smcd many --connections 1000 --kib 8
check "connections in a row" smctest --expect smcd connrate --processes 2 --count 100 --least 20
check "idle connections" smctest --expect smcd idle --connections 300
check "what a sender leaves unread is memory of the receiver" smctest --expect smcd charged --left
check "a ring of a connection that is undone is charged as long as it is there" smctest --expect smcd charged --undone
check "a peer that reads nothing has its own memory charged" smctest --expect smcd charged --greedy
check "an idle ring is given back, and made again" idle_rings_go
check "rings are given back just when they are written to" \
	smctest --expect smcd bursts --idle --connections 100 --rounds "$(scale 5 100)"
HOLD=--unread check "a ring with unread data stays" beside 1 stays

check "a send without memory for a ring waits" smctest --expect smcd failing --sends --percent 100
check "calls with 30 % of allocations failing" smctest failing --percent 30 --rounds 60
check "calls and workers with 30 % of page allocations failing" \
	smctest failing --pages --workers --percent 30 --rounds 60
check "all tasks, with 1 % of allocations failing" smctest failing --everywhere --percent 1 --rounds 60
check "it is used afterwards" is_smcd
down_netns
check "the namespaces go" within 20 sh -c '[ -z "$(ls /sys/class/net | grep wire)" ]'
check "module unloads" within 20 unload_smc
finish
