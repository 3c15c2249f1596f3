#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 400
# RDMA packets stop, in one direction or both, at each message of a first contact or between two connections, and
# TCP does not: all data go on over TCP, and the path is not tried again at once.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/broken.bash"

TABLE="RDMA packets stop, both ends ours"

greet() {
	smctest greet "$@"
}

# fresh: nothing is known of the peer, and no group is left.
fresh() {
	heal in_ns a
	heal in_ns b
	forget && within 20 no_groups
}

# stopped SERVER_GETS CLIENT_GETS FIRST: of the packets to each end so many arrive, or all (-). A connection on
# which that side speaks first is over TCP.
stopped() {
	fresh || return
	[ "$1" = - ] || lose "$1" in_ns b || return
	[ "$2" = - ] || lose "$2" in_ns a || return
	greet --expect tcp --first "$3" --within $FOUND_OUT
}

# Many at once over a dead path.
many_at_once() {
	fresh && lose 0 in_ns a && lose 0 in_ns b &&
		greet --expect tcp --connections "$(scale 64 512)" --within "$(scale 15000 60000)"
}

# not_tried: the next connection is over TCP because an earlier one has failed, and does not try the path or the link.
not_tried() {
	says "/path-failed (" smctest --expect tcp --port 7011 hold --seconds 0 \
		--then "ip netns exec a '$BIN/smc' why --pid \$PPID; [ \$? = 3 ]"
}

# The first one after a path was found dead, beside TCP alone: it does what TCP does. To try takes two seconds.
as_fast_as_tcp() {
	local tcp smc try
	not_tried || return
	for try in 1 2 3; do
		tcp=$(slowest --family tcp) && smc=$(slowest) && echo "# TCP $tcp ms, after fallback $smc ms" || return
		[ "$smc" -gt $((tcp + 1000)) ] || return 0
	done
	return 1
}

slowest() {
	smctest "$@" --expect tcp greet --connections 1 | sed -n 's/.*slowest \([0-9]*\) ms/\1/p'
}

# kept COMMAND...: the command, whose group is not given up because it is idle for a moment.
kept() {
	set_sysctl smcr_lgr_idle_time 10 && "$@"
	local code=$?
	set_sysctl smcr_lgr_idle_time 1
	return $code
}

# between FIRST: the path breaks between two connections of a group.
between() {
	fresh && greet --expect smc && greet --expect smc && lose 0 in_ns a && lose 0 in_ns b &&
		greet --expect tcp --first "$1" --within $FOUND_OUT && not_tried && greet --expect tcp --first "$1"
}

# It is tried again when a port or the name of a network has changed.
again() {
	heal in_ns a
	heal in_ns b
	greet --expect tcp && forget && within 20 no_groups && greet --expect smc
}

groups() {
	"$BIN/smc" lgr --json | grep '"id"' | sort
}

# silent_link: a link that does not answer a connection that is to join is avoided, and used again once something
# arrives there: the group is the same all the time.
silent_link() {
	local before
	before=$(groups) && [ -n "$before" ] || return
	lose 0 in_ns a && lose 0 in_ns b && greet --expect tcp --within $FOUND_OUT && not_tried
	local code=$?
	heal in_ns a
	heal in_ns b
	[ $code = 0 ] && within 20 greet --expect smc && [ "$(groups)" = "$before" ]
}

# slow_wire and quick_wire: what is said to one end takes that long.
slow_wire() {
	in_ns a tc qdisc add dev wire_a root netem delay 300ms
}

quick_wire() {
	in_ns a tc qdisc del dev wire_a root
}

# tried_by_one: a while after it failed one of several connections tries the path, which takes longer than all of them
# need to begin, and the others are over TCP; then it is used again.
tried_by_one() {
	local code
	heal in_ns a
	heal in_ns b
	slow_wire && within 60 tries
	code=$?
	quick_wire
	cat /tmp/tries
	[ $code = 0 ] && grep -q ' 1 over SMC' /tmp/tries && greet --expect smc --connections 8
}

tries() {
	greet --expect any --connections 8 >/tmp/tries || return
	! grep -q ' 0 over SMC' /tmp/tries
}

# says WORDS COMMAND...: the command prints these.
says() {
	local words=$1
	shift
	"$@" >/tmp/said 2>&1
	sed 's/^/# /' /tmp/said
	grep -qF "$words" /tmp/said
}

# The most that a connection takes which finds out, ms: up to seven seconds after the client's answer, and TCP.
FOUND_OUT=12000
FIREWALL="Let RDMA through all firewalls between the two"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "groups end soon" set_sysctl smcr_lgr_idle_time 1
check "a healthy path" greet --expect smc

cell "none arrives" "at the server" stopped 0 - client
cell "none arrives" "at the client" stopped - 0 server
cell "none arrives" "at both" stopped 0 0 server
cell "after CONFIRM_LINK" "at the server" stopped 1 - server
cell "after CONFIRM_LINK" "at the client" stopped - 1 client
cell "after CONFIRM_LINK" "at both" stopped 1 1 client
cell "after its answer" "at the server" stopped 2 - client
cell "after its answer" "at the client" stopped - 2 server
cell "between two connections" "at both" kept between client
fresh
cell "a link is silent for a while" "at both" beside 1 silent_link
cell "many at once" "at both" many_at_once
check "the next one is as fast as TCP" as_fast_as_tcp
check "smc why sends to the firewall" says "$FIREWALL" in_ns a "$BIN/smctest" --addr="$IP_B" \
	--server-netns=b --port 7011 hold --seconds 0 --then "'$BIN/smc' why --pid \$PPID"
cell "after 40 s" "none is lost" kept tried_by_one
check "the path is dead again" many_at_once
cell "ports or networks changed" "none is lost" again

down_netns
check "module unloads" within 30 unload_smc
finish
