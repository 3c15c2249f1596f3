#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 400
# What administrators read: every list and every request, answered by our module as by the C module.

. "$LIB"

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

answer_of() {
	grep -v "beyond ASCII" "$ANSWERS/$2.$1"
}

# one_link: no second link between two devices that are both here, which only the C module would add.
one_link() {
	local end
	for end in a b; do
		in_ns "$end" sh -c "echo 1 >/proc/sys/net/smc/smcr_max_links_per_lgr" || return
	done
}

# steady LIST CONNECTIONS COMMAND OPTION...: a list that does not fit into one message, while the command
# changes what it lists.
steady() {
	with_sysctl b net/smc/smcr_max_conns_per_lgr 16 smctest --expect smc hold \
		--connections "$2" \
		--then "$BIN/smctest admin steady $1 --between '$3'" "${@:4}"
}

another_group() {
	echo "$BIN/smctest ${ENDS[*]} --port 7100 --expect smc path"
}

ask_all() {
	load_smc && up_netns && up_rxe && one_link && "$BIN/smc" ueid flush || return
	answers requests smctest admin requests
	answers nobody nobody "$BIN/smctest" admin requests
	answers guest_root guest_root "$BIN/smctest" admin requests
	answers pnet smctest admin pnet
	answers pnet_nobody nobody "$BIN/smctest" admin pnet
	answers pnet_netns in_ns a "$BIN/smctest" admin pnet
	"$BIN/smc" ueid flush && "$BIN/smc" ueid add "$EID" || return
	answers lists smctest --expect smc admin lists
	answers lists_ipproto smctest --family ipproto admin lists
	down_netns && within 20 no_devices && within 20 unload_smc
}

require "RDMA modules load" load_rdma
check "our module is asked" with ours ask_all
check "the C module is asked" with c ask_all
check "requests of an administrator" same requests
check "requests of an ordinary user" same nobody
check "requests of a namespace's administrator" same guest_root
check "physical networks" same pnet
check "physical networks, of an ordinary user" same pnet_nobody
check "physical networks, of another namespace" same pnet_netns
check "lists with connections" same lists
check "lists with connections of IPPROTO_SMC" same lists_ipproto
MODULE=ours
require "our module again" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
check "groups, and one comes" steady groups 256 "$(another_group)"
# The group that came has room for 16.
check "links, and one comes" steady links 272 "$(another_group)"
check "physical networks, and half of them go" \
	smctest admin steady pnet --between "$BIN/smctest admin thin"
check "links, and all go" steady links 256 "ip netns exec a rdma link delete rxe_a" \
	--ends ECONNABORTED,ECONNRESET --seconds 20
down_netns
check "module unloads" within 20 unload_smc
finish
