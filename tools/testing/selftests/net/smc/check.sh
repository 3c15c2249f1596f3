#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 800
# cpus: 1
# `smc check` has nothing to say of a healthy pair, names each of the faults that are prepared, one after the other,
# with what to type, and has nothing to say again once that was done.

. "${LIB:=${0%/*}/lib.sh}"

SAID=/tmp/said
PORT=37373

# The command under which smc check runs.
UNDER=()

# looks_over NAMESPACE CODE OPTION...: smc check ends so there, or in the first namespace.
looks_over() {
	local where=(in_ns "$1") wanted=$2 code
	[ "$1" != first ] || where=()
	shift 2
	"${where[@]}" "${UNDER[@]}" "$BIN/smc" check "$@" >$SAID 2>&1
	code=$?
	sed 's/^/# /' $SAID
	[ $code = "$wanted" ]
}

# names_only STATUS ID HINT: it says so once, with a hint that has these words, and has nothing more serious to say.
names_only() {
	[ "$(grep -c "^$1  $2 " $SAID)" = 1 ] && grep -A1 "^$1  $2 " $SAID | grep -qF -e "$3" &&
		! grep "^FAIL" $SAID | grep -vq "^$1  $2 "
}

# fails ID HINT [OPTION...]: that fails in a, and nothing else does.
fails() {
	local id=$1 hint=$2
	shift 2
	looks_over a 1 "$@" && names_only FAIL "$id" "$hint"
}

# warns ID HINT [OPTION...]: it warns of that in a, and nothing fails.
warns() {
	local id=$1 hint=$2
	shift 2
	looks_over a 0 "$@" && names_only warn "$id" "$hint"
}

# is_well [NAMESPACE [OPTION...]]: all is well.
is_well() {
	local ns=${1:-a}
	shift
	looks_over "$ns" 0 "$@" && ! grep -v "^ok" $SAID
}

# refusing NUMBER COMMAND...: smc check runs under a filter that refuses sockets of that family.
refusing() {
	local UNDER=("$BIN/smctest" refusing --number "$1")
	shift
	"$@"
}

# mended COMMAND...: the command, after which all is well, soon.
mended() {
	"$@" && within 10 is_well a
}

# says_same_host WORDS: whether connections within this machine may use shared memory.
says_same_host() {
	is_well first && grep -q "^ok .*shared memory (SMC-D): $1" $SAID
}

smc_in() {
	in_ns "$1" "$BIN/smc" "${@:2}"
}

# listening COMMAND...: the command, while the other end waits for one connection in b; how that one ended is
# $PEER_CODE. PEER_PREFIX is put before its command.
PEER_PREFIX=()
listening() {
	local code
	ip netns exec b timeout 200 "${PEER_PREFIX[@]}" "$BIN/smc" check --listen --once >/tmp/peer 2>&1 &
	local peer=$!
	await_port b $PORT 60 && "$@"
	code=$?
	wait $peer
	PEER_CODE=$?
	sed 's/^/# peer: /' /tmp/peer
	return $code
}

# both_well: a connection is over RDMA, and both ends say so.
both_well() {
	listening is_well a "$IP_B" && [ "$PEER_CODE" = 0 ] && grep -q "^ok    path .*bytes in each direction were right" $SAID &&
		grep -q "^ok    path .*were right" /tmp/peer && ! grep -q "^warn\|^FAIL" /tmp/peer
}

# tcp_for WHY PEER_WHY HINT: a connection is TCP, for this reason here and this one there.
tcp_for() {
	local why=$1 peer_why=$2 hint=$3
	listening looks_over a 1 "$IP_B" --json && [ "$PEER_CODE" = 1 ] &&
		python3 - "$why" "$peer_why" "$hint" $SAID <<-'PYTHON'
			import json, sys
			why, peer_why, hint, path = sys.argv[1:]
			failed = [line for line in json.load(open(path)) if line["status"] == "fail"]
			line, = failed
			assert line["id"] == "path/tcp" and hint in line["hint"], line
			assert (line["why"], line["peer_why"]) == (why, peer_why), line
		PYTHON
}

# json_of_a_listener: it prints one array with --once, of this machine and its only client, else one on each line.
json_of_a_listener() {
	local peer
	timeout 60 ip netns exec b "$BIN/smc" check --listen --once --json --port $((PORT + 1)) >/tmp/once &
	peer=$!
	timeout 60 ip netns exec b "$BIN/smc" check --listen --json --port $PORT >/tmp/lines &
	await_port b $PORT && await_port b $((PORT + 1)) || return
	is_well a "$IP_B" && is_well a "$IP_B" --port $((PORT + 1)) && wait $peer
	kill %%
	wait %% 2>/dev/null
	python3 -c 'import json
once = json.load(open("/tmp/once"))
assert len(once) > 8 and once[-1]["id"].startswith("path"), once
machine, client = map(json.loads, open("/tmp/lines"))
assert machine + client, (machine, client)
assert [line["id"] for line in machine + client] == [line["id"] for line in once], (machine, client, once)'
}

json_is_good() {
	in_ns a "$BIN/smc" check --json | python3 -c 'import json, sys
lines = json.load(sys.stdin)
assert len(lines) > 8 and all(line["status"] == "ok" and line["sentence"] for line in lines), lines
assert len([line for line in lines if line["id"] == "port"]) == 1, lines'
}

usage() {
	"$BIN/smc" check "$@" 2>/dev/null
	[ $? = 2 ]
}

# filter RULE...: a rule of a chain for what comes in to namespace a.
filter() {
	in_ns a nft add table inet f &&
		in_ns a nft add chain inet f in "{ type filter hook input priority 0; policy ${POLICY:-accept}; }" &&
		in_ns a nft add rule inet f in "$@"
}

# A way that loses large packets only, as where a switch has a smaller MTU.
lose_large() {
	in_ns b nft add table netdev f &&
		in_ns b nft add chain netdev f in "{ type filter hook ingress device wire_b priority 0; }" &&
		in_ns b nft add rule netdev f in udp dport 4791 meta length ">" 1200 drop
}

# forget: that packets got lost a moment ago.
forget() {
	smc_in a pnet add FORGET -I lo && smc_in b pnet add FORGET -I lo && smc_in a pnet flush && smc_in b pnet flush
}

# up_first: an RDMA device in the first namespace.
up_first() {
	ip link add first type dummy && ip address add 10.6.0.1/24 dev first && ip link set first up &&
		rdma link add rxe_first type rxe netdev first
}

down_first() {
	rdma link delete rxe_first && ip link delete first
}

# new_group: no link group is left, so that the next connection begins one.
new_group() {
	within 30 no_groups
}

address() {
	ip -n a address add "$IP_A/24" dev wire_a
}

# RDMA devices that belong to one namespace each: the kernel changes that while there are no other namespaces.
require "RDMA modules load" load_rdma
require "devices belong to namespaces" rdma system set netns exclusive
require "network" up_netns
require "soft RoCE" up_rxe
require "it belongs to a" rdma dev set rxe_a netns a
check "no module" fails module/not-loaded "modprobe smc"
require "module loads" load_smc
check "which mends it" is_well
require "the device is elsewhere" in_ns a rdma dev set rxe_a netns b
check "RDMA device of another namespace" fails rdma/other-namespace "rdma dev set rxe_"
check "mended" mended in_ns b rdma dev set rxe_a netns a
check "the namespaces go" down_netns
require "no RDMA device is left" within 20 no_devices
require "devices are shared" within 20 rdma system set netns shared

require "network again" up_netns
check "no RDMA device" fails rdma/none "rdma link add rxe0 type rxe netdev wire_a"
require "soft RoCE again" up_rxe
require "groups without connections end at once" set_sysctl smcr_lgr_idle_time 0
check "mended" mended true
check "and the other end is well" is_well b
check "so are they together" both_well
# As in services with RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK, and without the last one.
check "and where AF_SMC is refused" listening refusing 43 is_well a "$IP_B"
check "and where netlink is, but for what is not known then" refusing 16 warns module/unread AF_NETLINK
check "over IPv6, too" listening is_well a "$IP6_B"
check "as JSON" json_is_good
check "and of a listener" json_of_a_listener
check "wrong usage" usage --once
check "wrong usage" usage --kib 0

require "the network device is down" ip -n a link set wire_a down
check "network device down" fails netdev/down "ip link set wire_a up"
check "mended" mended ip -n a link set wire_a up
require "the other end is down" ip -n b link set wire_b down
check "no carrier" fails netdev/no-carrier "Look at the cable"
check "mended" mended ip -n b link set wire_b up
require "no address" ip -n a -4 address flush dev wire_a
check "no IPv4 address" fails address/none "ip address add ADDRESS/LENGTH dev wire_a"
check "mended" mended address
require "no enterprise ID" "$BIN/smc" ueid flush
check "no enterprise ID" fails eid/none "smc ueid add $EID"
check "mended" mended "$BIN/smc" ueid add "$EID"

require "a name for a network device that is not there" smc_in a pnet add NET1 -I eth7
check "missing network device" fails pnet/missing-netdev "smc pnet del NET1"
check "mended" mended smc_in a pnet flush
require "an RDMA device in the first namespace" up_first
require "a name for an RDMA device that is not there" "$BIN/smc" pnet add NET1 -D mlx5_7
check "missing RDMA device" eval 'looks_over first 1 && names_only FAIL pnet/missing-device "rdma link show"'
check "mended" eval '"$BIN/smc" pnet flush && is_well first'
check "shared memory within the machine is off" says_same_host "off for all"
same_host on
check "it is on" says_same_host "on\."
same_host off
check "it goes" down_first
require "a name for the network device alone" smc_in a pnet add NET1 -I wire_a
check "no RDMA port on that network" fails pnet/no-port "smc pnet add NET1 -D"
check "mended" mended "$BIN/smc" pnet add NET1 -D rxe_a
check "the names go" eval 'smc_in a pnet flush && "$BIN/smc" pnet flush'

require "a rule for all" smc_in a policy add deny --server
check "rule for all" fails policy/denied "smc policy del 1"
check "mended" mended smc_in a policy flush
require "a rule for one host" smc_in a policy add deny --client --peer "$IP_B"
check "rule for some" warns policy/some-denied "smc policy show"
check "rule for this host" listening fails policy/denied "smc policy del 1" "$IP_B"
check "mended" mended smc_in a policy flush
check "handshakes are limited" with_sysctl a net/smc/limit_smc_hs 1 warns handshake/limited "net.smc.limit_smc_hs=0"
check "small buffers" with_sysctl a net/smc/rmem 16384 warns handshake/small-buffers "net.smc.rmem=65536"
require "a small MTU" ip -n a link set wire_a mtu 900
check "small MTU" warns mtu/small "ip link set wire_a mtu 1500"
check "mended" mended ip -n a link set wire_a mtu 9000

require "a rule of the firewall" filter udp dport 4791 drop
check "firewall: a rule" fails firewall/roce "udp dport 4791 accept"
check "mended" mended in_ns a nft flush ruleset
POLICY=drop require "a firewall with a policy" filter tcp dport "{ 22, $PORT }" accept
check "firewall: a policy" fails firewall/roce "firewall-cmd --permanent --add-port=4791/udp"
check "mended" mended in_ns a nft add rule inet f in udp dport 4791 accept
in_ns a nft flush ruleset
require "a rule against TCP's option" filter tcp option 254 exists drop
check "firewall: TCP's option" fails firewall/option "nft delete rule"
check "mended" mended in_ns a nft flush ruleset
require "a rule that may apply" filter udp dport 4791 limit rate over 10/second drop
check "firewall: perhaps" warns firewall/roce-maybe "udp dport 4791 accept"
check "mended" mended in_ns a nft flush ruleset

require "another namespace" ip netns add c
check "its network device is elsewhere" eval 'looks_over c 1 && names_only FAIL rdma/netdev-elsewhere "macvlan"'
check "mended" eval 'ip -n a link add mac_c link wire_a netns c type macvlan mode bridge &&
	ip -n c address add 10.9.0.11/24 dev mac_c && ip -n c link set mac_c up && within 10 is_well c'
ip netns del c

require "a way without RDMA" eval 'ip link add way_a netns a type veth peer name way_b netns b &&
	ip -n a address add 10.8.0.1/24 dev way_a && ip -n b address add 10.8.0.2/24 dev way_b &&
	ip -n a link set way_a up && ip -n b link set way_b up && ip -n a link set way_a arp on'
check "a host that is reached by it" listening fails route/no-port "smc pnet add NET1 -I way_a" 10.8.0.2
check "mended" eval 'ip -n a link del way_a && both_well'

check "nobody listens" fails path/unreachable "smc check --listen" "$IP_B"
PEER_PREFIX=("$BIN/smctest" refusing --number 43 --protocol 256)
check "a peer without SMC" tcp_for PEERNOSMC NO_MODULE "At $IP_B: Load the module (modprobe smc)"
PEER_PREFIX=()
check "mended" both_well
require "a rule at the peer" smc_in b policy add deny --server --peer "$IP_A"
check "rule at the peer" tcp_for PEERDECL/PEERNOSMC PEERNOSMC/denied-by-rule "At $IP_B: Nothing is wrong. To let it use SMC"
check "mended" eval 'smc_in b policy flush && both_well'
require "the peer's RDMA device goes" del_rdma rxe b
check "no RDMA device at the peer" tcp_for PEERDECL/NOSMCRDEV NOSMCRDEV/other-interface "At $IP_B: Route the connection"
check "mended" eval 'add_rdma rxe b && within 10 both_well'
# A link group keeps the MTU with which it began.
require "the groups go" new_group
require "the peer's MTU is another one" ip -n b link set wire_b mtu 1500
check "MTUs differ" listening warns path/mtu-differs "ip link set DEVICE mtu N" "$IP_B"
check "mended" eval 'new_group && ip -n b link set wire_b mtu 9000 && both_well'
require "a firewall at the peer" in_ns b nft -f - <<-'NFT'
	table inet f {
		chain in {
			type filter hook input priority 0
			udp dport 4791 drop
		}
	}
NFT
check "firewall at the peer" tcp_for PEERDECL/TIMEOUT_CL TIMEOUT_CL/path-silent "At $IP_B: Let RDMA through all firewalls"
check "mended" eval 'in_ns b nft flush ruleset && forget && both_well'
require "large packets get lost" lose_large
check "large packets get lost" listening fails path/broken "compare the MTUs" "$IP_B"
check "mended" eval 'in_ns b nft flush ruleset && forget && within 60 both_well'

check "module unloads" within 60 unload_smc
require "the C module" eval 'MODULE=c load_smc && "$BIN/smc" ueid add $EID'
check "the C module" warns module/c-module "modprobe smc"
check "it unloads" eval 'MODULE=c unload_smc'
down_netns
finish
