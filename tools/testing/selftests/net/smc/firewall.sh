#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: um-no-smc
# timeout: 180
# Rules of a firewall that ask who owns the socket of a packet (`meta skuid` of nftables, xt_owner) get for SMC sockets
# the answer that they get for TCP's: nobody avoids them by the other family, and nobody loses what they allow.

. "${LIB:=${0%/*}/lib.sh}"

CLIENT=1234
SERVER=4321

# rules: count what the users' sockets send, and all that carries no end of a connection: for a socket that was closed
# the kernel itself sends.
rules() {
	each_end sh -c "nft delete table inet owners 2>/dev/null; nft '
		table inet owners {
			chain out {
				type filter hook output priority 0;
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

# owned FAMILY EXPECTED [ARGUMENT...]: client and server as different users, and a connection used both ways.
owned() {
	local family=$1 expected=$2 server code syn of_client all syn_ack of_server
	shift 2
	rules || return
	ip netns exec b setpriv --reuid $SERVER --clear-groups "$BIN/smctest" --family "$family" --addr "$IP_B" serve &
	server=$!
	ip netns exec a setpriv --reuid $CLIENT --clear-groups \
		"$BIN/smctest" --family "$family" --addr "$IP_B" --remote --expect "$expected" integrity --mib 1
	code=$?
	kill "$server"
	wait "$server" 2>/dev/null
	syn=$(counted a syn) of_client=$(counted a client) all=$(counted a "to server")
	syn_ack=$(counted b syn-ack) of_server=$(counted b server)
	echo "# SYNs $syn; of the client's $all packets $of_client; SYN-ACKs $syn_ack, of the server $of_server"
	# Each of two connections may answer the peer's end when it has been closed.
	[ $code = 0 ] && [ "$syn" -ge 1 ] && [ $((all - of_client)) -le 2 ] && [ "$of_client" -ge 4 ] && [ "$syn_ack" -ge 1 ] &&
		[ "$of_server" -ge "$syn_ack" ] || return
	[ "$expected" = smc ] || [ "$of_server" -gt $((2 * syn_ack)) ]
}

# refused FAMILY: a user who may not connect does not, and another one does.
refused() {
	local family=$1 server code
	in_ns a nft "delete table inet owners; table inet owners { chain out {
		type filter hook output priority 0;
		meta skuid $CLIENT tcp dport 7000-7999 reject with tcp reset
	}; }" || return
	smctest_server "$family" &
	server=$!
	ip netns exec a setpriv --reuid $CLIENT --clear-groups \
		"$BIN/smctest" --family "$family" --addr "$IP_B" --remote path
	[ $? != 0 ] && ip netns exec a setpriv --reuid $SERVER --clear-groups \
		"$BIN/smctest" --family "$family" --addr "$IP_B" --remote path
	code=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return $code
}

smctest_server() {
	exec ip netns exec b "$BIN/smctest" --family "$1" --addr "$IP_B" serve
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
all tcp "after a fallback"
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
all smc "over RDMA"
check "module unloads" within 20 unload_smc
finish
