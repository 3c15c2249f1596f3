#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# also: um-no-smc
# timeout: 400
# Rules about which connections may use SMC: what they match, at either end, and that a connection which they deny is
# TCP with all its data.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/syn_option.bash"

policy() {
	in_ns "$1" "$BIN/smc" policy "${@:2}"
}

# rules END RULE...: these are the rules of that end.
rules() {
	local end=$1
	shift
	printf '%s\n' "$@" | policy "$end" load -
}

no_rules() {
	policy a flush && policy b flush
}

# to_tcp OPTION... and to_smc OPTION...: a connection is TCP, with all its data; or SMC.
to_tcp() {
	smctest --expect tcp "$@" integrity --mib 1
}

to_smc() {
	smctest --expect smc "$@" path
}

# to ADDRESS OPTION...: the client connects there.
to() {
	local address=$1
	shift
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$address" "$@"
}

# each_kind COMMAND...: with each kind of SMC socket.
each_kind() {
	local kind
	for kind in smc ipproto ulp; do
		"$@" --family "$kind" || return
	done
}

# why ID WORDS [END]: what `smc why` says of a process with both ends of a connection, in that namespace.
why() {
	smctest --expect tcp --port 7010 hold --seconds 0 \
		--then "ip netns exec ${3:-a} '$BIN/smc' why --pid \$PPID" >/tmp/why
	cat /tmp/why
	grep -q "^  id:     $1 " /tmp/why && grep -qF "  here:   $2" /tmp/why
}

# tried ID WORDS: what it says of a connection that it makes.
tried() {
	start_server 7011 --server-family smc
	in_ns a "$BIN/smc" why "$IP_B:7011" >/tmp/why
	local code=$?
	stop_servers
	cat /tmp/why
	[ $code = 3 ] && grep -q "^  id:     $1 " /tmp/why && grep -qF "  here:   $2" /tmp/why
}

# In a network namespace of its own, whose administrator it is.
as_own_root() {
	as_nobody unshare --user --map-root-user --net "$@"
}

own_rules() {
	as_own_root sh -c "'$BIN/smc' policy show | grep -c . | grep -qx 1 &&
		'$BIN/smc' policy add deny --client && '$BIN/smc' policy show | grep -q deny"
}

# shown END LINE...: the rules of an end as they are saved.
shown() {
	local end=$1
	shift
	diff <([ $# = 0 ] || printf '%s\n' "$@") <(policy "$end" save)
}

json_is() {
	policy a show --json | python3 -c 'import json, sys
assert json.load(sys.stdin) == [{"number": 1, "action": "allow", "role": "client", "peer": "10.9.0.0/24",
	"peer_port": "7000-7009", "local": None, "local_port": None}, {"number": 2, "action": "deny", "role": None,
	"peer": None, "peer_port": None, "local": None, "local_port": None}]'
}

# many COUNT: so many rules, none of which matches.
many() {
	seq "$1" | sed 's/.*/deny --peer 192.0.2.1 --peer-port &/' | policy a load -
}

# counts: how many connections of a used SMC, and how many did not because of a rule.
counts() {
	in_ns a "$BIN/smc" stats --prometheus | awk '
		/^smc_connections_total\{.*end="client"/ { smc += $2 }
		/^smc_fallback_reasons_total\{end="client"/ { tcp += $2 }
		END { print smc + 0, tcp + 0 }'
}

# changing: rules come and go at both ends, while connections are made, each of which compares every byte.
changing() {
	local before after changer code stop=/tmp/stop_changing
	rm -f "$stop"
	before=$(counts)
	(
		while [ ! -e "$stop" ]; do
			rules a "deny --client"
			sleep 0.2
			policy a flush
			rules b "deny --peer $IP_A"
			sleep 0.2
			policy b flush
			sleep 0.2
		done
	) &
	changer=$!
	smctest --expect any integrity --mib 1 --rounds 80
	code=$?
	# Not killed: a change on its way would come after the rules are removed.
	touch "$stop"
	wait "$changer"
	no_rules
	after=$(counts)
	echo "# over SMC and not: $before before, $after after"
	[ "$code" = 0 ] && [ "${after% *}" -gt "${before% *}" ] && [ "${after#* }" -gt "${before#* }" ]
}

# With TCP's own hooks the kernel does not say whose SYN it is: a SYN-ACK has the option if that matters to the rules,
# and the server declines the handshake.
SYNACK_BY_PEER=0
! grep -q ' tcp_have_smc$' /proc/kallsyms || SYNACK_BY_PEER=1

require "RDMA modules load" load_rdma
check "without the module it says so" fails_saying "not loaded" "$BIN/smc" policy show
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "a look at the options" watch_options

check "without rules it is SMC" options 1 1 to_smc
check "requests that are wrong change nothing" in_ns a "$BIN/smctest" admin rules

check "a client's rule" rules a "deny --client --peer $IP_B --peer-port 7000-7010"
check "TCP, and the SYN offers nothing" options 0 0 to_tcp
check "each kind of socket" each_kind to_tcp
check "smc why names the rule" why PEERNOSMC/denied-by-rule "Rule 1: deny --client --peer $IP_B --peer-port 7000-7010."
check "also of a connection that it makes itself" rules a allow\ --peer-port\ 7000 deny\ --client
check "it does" tried PEERNOSMC/denied-by-rule "Rule 2: deny --client."
check "the first rule that matches decides" to_smc
check "and not for another port" to_tcp --port 7012
check "a rule for the other role" rules a "deny --server"
check "leaves clients alone" to_smc
check "a rule about this end, which is known late" rules a "deny --client --local $IP_A"
check "SMC is offered, and given up" options 1 1 to_tcp
check "for each kind of socket" each_kind to_tcp
check "smc why names it" why PEERNOSMC/denied-by-rule "Rule 1: deny --client --local $IP_A."
check "no rules, no TCP" no_rules
check "it is SMC again" each_kind to_smc

check "a server's rule about its port" rules b "deny --server --local-port 7000"
check "TCP, and the SYN-ACK offers nothing" options 1 0 to_tcp
check "another port is SMC" to_smc --port 7012
check "a server's rule about the peer" rules b "deny --server --peer $IP_A"
check "TCP for it" options 1 "$SYNACK_BY_PEER" to_tcp
check "for each kind of socket" each_kind to_tcp
check "smc why names it" why PEERNOSMC/denied-by-rule "Rule 1: deny --server --peer $IP_A." b
check "a rule about another peer" rules b "deny --server --peer 10.9.0.77"
check "is none for this one" options 1 1 to_smc

check "a rule for IPv4" rules b "deny --peer 10.9.0.0/24"
check "IPv4 is TCP" to_tcp
check "IPv4 in IPv6 sockets, too" to "::ffff:$IP_B" --expect tcp integrity --mib 1
check "IPv6 is not" smctest6 --expect smc path
check "a rule for IPv6" rules b "deny --server --peer fd00::/16"
check "IPv6 is TCP" smctest6 --expect tcp integrity --mib 1
check "IPv4 is not" to_smc
check "IPv4 in IPv6 sockets neither" to "::ffff:$IP_B" --expect smc path
check "a client's rule for IPv6" rules a "deny --client --peer $IP6_B"
check "and for mapped addresses" policy a add deny --client --peer "::ffff:$IP_B"
check "which are IPv4" shown a "deny --client --peer $IP6_B" "deny --client --peer $IP_B"
check "IPv6 is TCP" smctest6 --expect tcp path
check "IPv4 is TCP" to "::ffff:$IP_B" --expect tcp path
check "no rules" no_rules

check "a rule is added" policy a add deny
check "and one before it" policy a add allow --at 1 --client --peer 10.9.0.0/24 --peer-port 7000-7009
check "JSON has them" json_is
check "the other namespace has none" shown b
check "rule 3 is none" fails_saying "no rule 3" policy a del 3
check "one is removed" policy a del 1
check "the other stays" shown a deny
check "a file with a wrong line" fails_saying "line 2: " rules a allow "deny --peer 10.9.0.1/24"
check "leaves the rules as they were" shown a deny
check "1024 rules" many 1024
check "have SMC as before" to_smc
check "1025 are too many" fails_saying "1024 rules at most" many 1025
check "this kernel has no handshake controls" fails_saying "CONFIG_SMC_HS_CTRL_BPF" in_ns a "$BIN/smc" hs-ctrl list
check "not everybody may change them" fails_saying "CAP_NET_ADMIN" as_nobody "$BIN/smc" policy add deny
check "but look" as_nobody "$BIN/smc" policy show
check "under headings" as_nobody sh -c "'$BIN/smc' policy show | grep -q '^Rule  Action  Role '"
check "the administrator of a namespace has rules of its own" own_rules
check "no rules" no_rules

check "rules change while connections are made" changing
check "then it is SMC" to_smc
check "rules stay" rules a deny
check "module unloads" within 20 unload_smc
require "module loads" load_smc
check "until then" shown a
check "module unloads" within 20 unload_smc
finish
