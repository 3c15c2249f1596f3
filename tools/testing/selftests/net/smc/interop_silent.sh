#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# timeout: 400
# mem: 4G
# Applications here close connections that those at the other end never close: a C peer's kernel says nothing for
# them, not even to an abort. What they hold goes after a while all the same, and other connections live on.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/pair.bash"

# So many connections; of 64 KiB each, with what else they need.
COUNT=$(scale 120 20000)
LIVE=$(scale 12 60)

# Four files for each process, and some.
ulimit -n $((COUNT + 1000))

# What is left then of each, at most, KiB: an element is 64.
MOST=6

# What the kernel itself holds more or less of from one second to the next, KiB: stacks, freed objects that KASAN keeps.
NOISE=16384

# The peer may do nothing for so long, seconds.
FIN_TIMEOUT=2

# hold PORT OPTION...: the other end of the connections, in this guest.
hold() {
	local port=$1
	shift
	"$BIN/smctest" --addr="$PEER_IP" --port="$port" --deadline 3000 --expect smc crowd "$@" hold &
	HOLDER=$!
}

unhold() {
	kill -9 "$HOLDER"
	wait "$HOLDER" 2>/dev/null
	true
}

# used NAME: kernel memory in use, KiB.
used() {
	echo 3 >/proc/sys/vm/drop_caches
	awk '{ kib[$1] = $2 } END {
		print kib["MemTotal:"] - kib["MemFree:"] - kib["Buffers:"] - kib["Cached:"] - kib["AnonPages:"]
	}' /proc/meminfo >"/tmp/used.$1"
	"$BIN/smc" lgr --json >"/tmp/groups.$1"
	echo "# $1: kernel memory $(cat "/tmp/used.$1") KiB, of buffers $(buffers "$1") KiB," \
		"of $(sum connections <"/tmp/groups.$1") connections"
}

# sum NAME: of this member in all link groups.
sum() {
	tr ',{}' '\n' | awk -F: -v name="\"$1\"" '{ gsub(/[ \t]/, "", $1) } $1 == name { sum += $2 } END { print sum + 0 }'
}

# buffers NAME: of all link groups, KiB.
buffers() {
	echo $((($(sum send_bytes <"/tmp/groups.$1") + $(sum receive_bytes <"/tmp/groups.$1")) / 1024))
}

# grown FROM TO: by how much it is more, KiB.
grown() {
	echo $(($(cat "/tmp/used.$2") - $(cat "/tmp/used.$1")))
}

# is_back NAME: of what the connections held all but a little is free again: what one RMB has.
is_back() {
	used "$1"
	[ "$(sum connections <"/tmp/groups.$1")" -le $((COUNT / 20)) ] &&
		[ "$(buffers "$1")" -le $((COUNT * MOST + 4096)) ] &&
		[ "$(grown before "$1")" -le $((COUNT * MOST + NOISE)) ]
}

shunned() {
	grep -q '^# shunned' /tmp/shunned
}

# crowd NAME PORT OPTION...
crowd() {
	local name=$1 port=$2 shunner start
	shift 2
	set -- --connections "$COUNT" "$@"
	used before
	"$BIN/smctest" --addr="$LOCAL_IP" --port="$port" --deadline 3000 --expect smc crowd "$@" \
		shun --seconds "$LIVE" >/tmp/shunned 2>&1 &
	shunner=$!
	check "$name: a server" within 20 sh -c "ss -Htln 'sport = :$port' | grep -q ."
	check "$name: connections" far hold "$port" "$@"
	check "$name: all were closed here" within "$(scale 100 2000)" shunned
	start=$SECONDS
	used closed
	check "$name: memory returns" within "$(scale 40 100)" is_back after
	echo "# $name: $COUNT connections held $(grown before closed) KiB when they had been closed," \
		"$(grown before after) KiB $((SECONDS - start)) s later"
	echo "# table | closed here, and not at the other end | $name | buffers, KiB | $(buffers closed)," \
		"then $(buffers after)"
	check "$name: another connection lives on" wait "$shunner"
	sed 's/^/# /' /tmp/shunned
	check "$name: a new connection" talk 7000 --expect smc path
	check "$name: the other end goes" far unhold
}

require_pair
follow
echo $FIN_TIMEOUT >/proc/sys/net/ipv4/tcp_fin_timeout
# So that memory is enough for all of them at both ends.
for name in rmem wmem; do
	check "$name here" setting $name "$(scale 65536 16384)"
	check "$name there" far setting $name "$(scale 65536 16384)"
done
check "a server" far serve 7000
check "SMC works" talk 7000 --expect smc path
crowd "open" 7001
# Fewer: a guest with the C module does not live through as many again (its stack overflows).
COUNT=$(scale 120 5000)
crowd "half-closed by both, and aborted" 7002 --half
dismiss
finish
