#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# What two machines say about a link group: tests of the link, and its end.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/capture.bash"

# fresh: no link groups, and short times for those to come.
fresh() {
	within 20 unload_smc && load_smc && common_eid &&
		set_sysctl smcr_testlink_time 1 && set_sysctl smcr_lgr_idle_time 1
}

# hold OPTIONS...: idle connections between the namespaces.
hold() {
	smctest --expect smc hold "$@"
}

TEST_LINK='llc == "0x27"' CONFIRM_RKEY='llc == "0x26"' DELETE_RKEY='llc == "0x29"'
# told REASON ORDERLY: a server or a client that deletes the link group.
told() {
	printf 'llc == "0x24" && reason == "0x%08x" && orderly == "%s"' "$1" "$2"
}
OPERATOR=0x20000 PROGRAM=0x30000

# deaf: what each end sends goes to an address that nobody has, as if both machines had died.
DEAF="ip -n a neighbor replace $IP_B lladdr 02:00:00:00:00:77 dev wire_a &&
	ip -n b neighbor replace $IP_A lladdr 02:00:00:00:00:77 dev wire_b"
hearing() {
	ip -n a neighbor del "$IP_B" dev wire_a
	ip -n b neighbor del "$IP_A" dev wire_b
}

has_group() {
	! no_groups
}

# no_rmbs: both ends have given up all RMBs, of which each has told the other one by then.
no_rmbs() {
	! "$BIN/smc" lgr --json | grep -q '"receive_bytes": [1-9]'
}

# not_tested: while a connection idles. The link was tested when the group began.
not_tested() {
	hold --seconds 12 &
	local idle=$!
	within 20 has_group && sleep 1 && said_none "$TEST_LINK" sleep 2
	local code=$?
	wait "$idle" && return "$code"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

check "a link that is silent for a short time is not tested" not_tested
require "short times" fresh
check "a silent link is tested, and lives" said 10 "$TEST_LINK" hold --seconds 12
check "a peer that died is noticed" hold --seconds 20 --ends ECONNABORTED --then "$DEAF"
hearing
check "its link group is not used any more" hold --seconds 1
check "an idle link group is deleted in order" \
	said 1 "$(told $PROGRAM 1)" eval "hold --seconds 1 && within 20 no_groups"
check "the peer is told that the module goes" \
	said 1 "$(told $OPERATOR 0)" eval "set_sysctl smcr_lgr_idle_time 100 && hold --seconds 0 && fresh"
# Soft RoCE does not hear that its messages arrive while its device is removed.
check "both ends hear of a device that goes" \
	hold --ends ECONNABORTED,ECONNRESET --seconds 20 --then "ip netns exec a rdma link delete rxe_a"
# From the next group on: a group keeps the times that it began with.
require "RMBs that go after four seconds" set_sysctl smcr_lgr_idle_time 40
require "the device is back" in_ns a rdma link add rxe_a type rxe netdev wire_a
# The other end keeps the group until its tests of the link are over, and offers it to the next client.
require "SMC is back" within 20 smctest --expect smc path

check "the peer is told of each RMB, and that it is gone" \
	said 4 "$DELETE_RKEY" eval "hold --connections 8 --seconds 0 && within 20 no_rmbs"
check "a new RMB is told of and used" \
	said 4 "$CONFIRM_RKEY" smctest --expect smc integrity --mib 1
check "all connections of a group at once" \
	hold --connections 255 --groups 1 --seconds 0
check "one more has another group" hold --connections 256 --groups 2 --seconds 0

require "groups that end at once" set_sysctl smcr_lgr_idle_time 0
check "a group for each connection" smctest --expect smc churn --processes 2 --opens 15
check "module unloads" within 20 unload_smc
finish
