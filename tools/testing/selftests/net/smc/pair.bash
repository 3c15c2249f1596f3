# SPDX-License-Identifier: GPL-2.0
# What scripts for a pair of guests share: orders from guest a to guest b, and a table of what works in
# which role.

. "${LIB%/*}/capture.bash"

# Orders -------------------------------------------------------------------------------------

# next_order: its number, in all processes of guest a; they give orders one after another.
next_order() {
	local number
	number=$(($(cat /tmp/orders 2>/dev/null || echo 0) + 1))
	echo "$number" | tee /tmp/orders
}

# far COMMAND...: the command in guest b, with the functions and variables of this script there.
far() {
	local order
	order=$(next_order)
	printf '%q ' "$@" >"$OUT/order.new"
	mv "$OUT/order.new" "$OUT/order.$order"
	within 120 test -e "$OUT/answer.$order" || return 124
	return "$(cat "$OUT/answer.$order")"
}

# For the commands that smctest runs.
export -f within next_order far

# obey: what guest b does, until it gets the order `dismiss`.
obey() {
	local next=1 order code
	while within "$(scale 300 3000)" test -e "$OUT/order.$next"; do
		order=$(cat "$OUT/order.$next")
		echo "# order: $order"
		[ "$order" != "dismiss " ] || return 0
		eval "$order"
		code=$?
		echo "$code" >"$OUT/answer.new"
		mv "$OUT/answer.new" "$OUT/answer.$next"
		next=$((next + 1))
	done
	return 1
}

dismiss() {
	echo "dismiss " >"$OUT/order.new"
	mv "$OUT/order.new" "$OUT/order.$(next_order)"
}

# follow: guest b does nothing else from here on; guest a goes on.
follow() {
	[ "$ROLE" = b ] || return 0
	check "orders until the dismissal" obey
	finish
}

# require_pair: this guest's modules, and its end of the wire.
require_pair() {
	require "RDMA modules load" load_rdma
	require "module loads" load_smc
	require "wire" up_wire
	require "enterprise ID" common_eid
}

# at_c COMMAND... and at_ours COMMAND...: in the guest with that module.
at_c() {
	if [ "$MODULE" = c ]; then "$@"; else far "$@"; fi
}

at_ours() {
	if [ "$MODULE" = ours ]; then "$@"; else far "$@"; fi
}

# setting NAME VALUE: of net.smc, in this guest.
setting() {
	echo "$2" >"/proc/sys/net/smc/$1"
}

# Servers and clients ------------------------------------------------------------------------

declare -A SERVERS

# serve PORT [OPTION...]: a server in this guest.
serve() {
	local port=$1
	shift
	"$BIN/smctest" --addr="$LOCAL_IP" --port="$port" --deadline 1000 "$@" serve &
	SERVERS[$port]=$!
}

# unserve PORT: kills it.
unserve() {
	kill -9 "${SERVERS[$1]}"
	wait "${SERVERS[$1]}" 2>/dev/null
	unset "SERVERS[$1]"
}

# talk PORT OPTION...: smctest as the client of the server in the other guest.
talk() {
	local port=$1
	shift
	"$BIN/smctest" --remote --addr="$PEER_IP" --port="$port" "$@"
}

# The table ----------------------------------------------------------------------------------

TABLE=
COLUMN=
LINE=
declare -A VERDICTS

cell() {
	VERDICTS[$LINE]=$1
	echo "# table | $TABLE | $LINE | $COLUMN | $1"
}

# table NAME COLUMN LINE...: begins one, with nothing run in its lines.
table() {
	TABLE=$1 COLUMN=$2
	shift 2
	for LINE; do
		cell "not run"
	done
	LINE=
}

# line NAME: the checks from here on are this line's, which may be taken up again later.
line() {
	end_line
	LINE=$1
	[ -n "${VERDICTS[$LINE]+known}" ] || not_ok "the table has no line $LINE"
	BEFORE=${VERDICTS[$LINE]-} FAILED_BEFORE=$FAILED SINCE=$SECONDS
	cell "failed"
}

end_line() {
	[ -n "$LINE" ] || return 0
	if [ "$FAILED" = "$FAILED_BEFORE" ] && [ "$BEFORE" != failed ]; then
		cell "passed"
	fi
	echo "# $LINE: $((SECONDS - SINCE)) s"
	LINE=
}

# not_run LINE WHY
not_run() {
	end_line
	LINE=$1
	cell "not run: $2"
	LINE=
}
