# SPDX-License-Identifier: GPL-2.0
# Power loss: guest b is killed while connections wait and transfer in both directions, and says nothing any more.
# What guest a, with our module, makes of that: each call ends with an error, soon, and nothing is left.

. "${LIB%/*}/pair_ours.bash"

# Connections of each kind that either end opens.
EACH=8

# Seconds: what a link is silent before it is tested, and what it takes then until it counts as lost (three tests
# of two seconds); beyond that, what a loaded machine needs. Links with the default settings would take 36.
TESTED=1 LOST=6 LOADED=15

# returns WHAT MOST: of that there is not more than so many KiB more than before.
returns() {
	local grown
	level after
	grown=$(($(cat "/tmp/$1.after") - $(cat "/tmp/$1.before")))
	echo "# $1: $grown KiB more, at most $2 allowed"
	[ "$grown" -le "$2" ]
}

# no_streams: TCP has given up what it had with the peer, at any of its addresses.
no_streams() {
	[ -z "$(ss -Htan state connected exclude time-wait "dst 10.0.0.0/16")" ]
}

# victim: in guest b, the client of connections that guest a accepts.
victim() {
	"$BIN/smctest" --remote --addr="$PEER_IP" --port=$((PORT + 1)) --deadline 1000 --expect smc \
		powerloss --victim --each $EACH &
}

# kill_peer: the runner kills guest b.
kill_peer() {
	printf '\nsmc-vm: kill peer\n'
}
export -f kill_peer

# survive KIND...: the loss of guest b, by links over these kinds of devices, and what is left of it.
survive() {
	local bound=$((TESTED + LOST + LOADED))
	require "RDMA devices" both with "$@"
	require "a server there" far serve $PORT
	check "connections before" talk $PORT --expect smc many --connections 60 --kib 64
	check "their groups go" within 20 no_groups
	level before
	# A close that nobody acknowledges is said twice.
	echo 1 >/proc/sys/net/ipv4/tcp_orphan_retries
	require "SMC works" talk $PORT --expect smc integrity --mib 1
	require "links" linked
	require "a client there" far victim
	check "each call ends with an error, within $bound s" talk $PORT --deadline 100 --expect smc \
		powerloss --each $EACH --local "$LOCAL_IP" --within $bound --lose kill_peer
	check "groups go" within 10 no_groups
	check "TCP gives up" within 60 no_streams
	# Each of 80 connections has taken 128 KiB of rings, and some KiB of objects: what differs by chance is less.
	check "objects of the kernel are as before" within 30 returns objects 400
	check "pages of the kernel are as before" within 30 returns pages 4000
	check "the module unloads" within 10 unload_smc
}
