#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 540
# cpus: 1
# What administrators read: every list and every request, answered by our module as by the C module.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

ANSWERS=/tmp/answers
mkdir -p $ANSWERS

# with MODULE COMMAND...: the command with that module.
with() {
	MODULE=$1
	shift
	"$@"
}

nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$@"
}

# An administrator of a namespace of his own is none for these families.
guest_root() {
	unshare --user --map-root-user --net "$@"
}

# answers NAME COMMAND...: keeps what it prints.
answers() {
	local to=$ANSWERS/$1.$MODULE
	shift
	"$@" >"$to" 2>&1
	local code=$?
	[ $code = 0 ] || tail -5 "$to"
	return $code
}

# same NAME: both modules gave the same answers, line by line. Left out is what the C module is known
# to get wrong: it takes letters beyond ASCII for those of an enterprise ID.
same() {
	[ -s "$ANSWERS/$1.ours" ] &&
		diff <(answer_of c "$1") <(answer_of ours "$1") >/tmp/differences ||
		{ head -100 /tmp/differences && false; }
}

# groups_of_ends: our groups are of the namespaces in which their connections are. The C module says which one the RDMA
# device is in.
groups_of_ends() {
	[ "$(awk '$1 == "2.2" { role = $2 } $1 == "2.9" { print role, $NF }' $ANSWERS/lists.ours | sort -u | xargs)" = \
		"00 1 01 2" ]
}

# counts_agree: our module says of each reason for TCP in eight bytes what it says in two, as long as that has room.
counts_agree() {
	awk '$1 == "8.82" { total = $2 } $1 == "8.5" { if ($2 "000000000000" != total) exit 1; count++ }
		END { exit count == 0 }' "$ANSWERS/lists.ours"
}

# Without what only ours says (linux/smc_rs.h): who adds the SMC option (SMC_NLA_SYS_SYN_OPTION), the traffic class of a
# link (SMC_NLA_LINK_TRAFFIC_CLASS), the MTU of a port (SMC_NLA_DEV_PORT_MTU), the VLAN of a group (SMC_NLA_LGR_R_VLAN),
# the count of a reason (SMC_NLA_FBACK_STATS_RSN_TOTAL).
answer_of() {
	sed 's/^\( *2\.9 8 bytes\), namespace [12]$/\1/' "$ANSWERS/$2.$1" |
		grep -v "beyond ASCII\|^ *1\.82 0[12]$\|^ *3\.82 00$\|^ *6\.[89]\.82 00[0-9]*0000$" |
		grep -v "^ *2\.82 0000$\|^ *8\.82 [0-9a-f]\{4\}0\{12\}$"
}

# as_c: what the C module has no setting for is as with it: RMBEs of one size.
as_c() {
	[ "$MODULE" = c ] || set_sysctl smcr_rmem_min 65536
}

# one_link: no second link between two devices that are both here, which only the C module would add.
one_link() {
	set_sysctl smcr_max_links_per_lgr 1
}

# steady LIST CONNECTIONS COMMAND OPTION...: a list that does not fit into one message, while the command
# changes what it lists.
steady() {
	with_sysctl b net/smc/smcr_max_conns_per_lgr 16 smctest --expect smc hold \
		--connections "$2" \
		--then "$BIN/smctest admin steady $1 --between '$3'" "${@:4}"
}

# steady_in NAMESPACE LIST CONNECTIONS COMMAND: as above, for a list of that namespace.
steady_in() {
	smctest --expect smc hold --connections "$3" \
		--then "ip netns exec $1 $BIN/smctest admin steady $2 --between '$4'"
}

# More connections, which stay until the list has been read.
more_connections() {
	echo "rm -f /tmp/held; $BIN/smctest ${ENDS[*]} --port 7100 --expect smc hold --connections 32" \
		"--then \"touch /tmp/held; sleep 5\" >/dev/null & until [ -e /tmp/held ]; do sleep 0.1; done"
}

another_group() {
	echo "$BIN/smctest ${ENDS[*]} --port 7100 --expect smc path"
}

# up_two: two devices for each end. They stay while one module after the other is asked: the numbers of network
# devices are compared, too.
up_two() {
	ip netns add a && ip netns add b && up_bridge &&
		up_device wire_a a "$IP_A" 9000 && up_device wire2_a a 10.9.0.11 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.12 9000
}

down_two() {
	ip link delete fabric && down_netns && within 20 no_devices
}

# name_networks: the devices of an end are on a network of its own. The C module does not look whose device it
# takes for a second link, and without names would take one of the other end.
name_networks() {
	local end device
	for end in a b; do
		for device in wire_$end wire2_$end; do
			in_ns $end "$BIN/smc" pnet add "NET$end" -I $device &&
				"$BIN/smc" pnet add "NET$end" -D rxe_$device || return
		done
	done
}

down_all() {
	down_netns && within 20 no_devices && within 20 unload_smc
}

ask_links() {
	load_smc && as_c && name_networks && common_eid || return
	answers links smctest --expect smc admin lists --links 2 && within 20 unload_smc
}

ask_all() {
	load_smc && up_netns && up_rxe && as_c && one_link && "$BIN/smc" ueid flush || return
	answers requests smctest admin requests &&
		answers nobody nobody "$BIN/smctest" admin requests &&
		answers guest_root guest_root "$BIN/smctest" admin requests &&
		answers pnet smctest admin pnet &&
		answers pnet_nobody nobody "$BIN/smctest" admin pnet &&
		answers pnet_netns in_ns a "$BIN/smctest" admin pnet &&
		"$BIN/smc" ueid flush && "$BIN/smc" ueid add "$EID" &&
		answers lists smctest --expect smc admin lists &&
		answers lists_ipproto smctest --family ipproto admin lists &&
		down_all
}

require "RDMA modules load" load_rdma
check "our module is asked" with ours ask_all
check "the C module is asked" with c ask_all
require "two devices each" up_two
check "our module is asked about two links" with ours ask_links
check "the C module is asked about two links" with c ask_links
check "these devices go" down_two
check "requests of an administrator" same requests
check "requests of an ordinary user" same nobody
check "requests of a namespace's administrator" same guest_root
check "physical networks" same pnet
check "physical networks, of an ordinary user" same pnet_nobody
check "physical networks, of another namespace" same pnet_netns
check "lists with connections" same lists
check "each group is of the namespace of its end" groups_of_ends
check "reasons for TCP are counted in eight bytes, too" counts_agree
check "lists with connections of IPPROTO_SMC" same lists_ipproto
check "lists of groups with two links" same links
MODULE=ours
require "our module again" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
check "groups, and one comes" steady groups 256 "$(another_group)"
# The group that came has room for 16.
check "links, and one comes" steady links 272 "$(another_group)"
check "sockets, and more come" steady_in b sockets 256 "$(more_connections)"
check "physical networks, and half of them go" \
	smctest admin steady pnet --between "$BIN/smctest admin thin"
check "links, and all go" steady links 256 "ip netns exec a rdma link delete rxe_a" \
	--ends ECONNABORTED,ECONNRESET --seconds 20
down_netns
check "module unloads" within 20 unload_smc
finish
