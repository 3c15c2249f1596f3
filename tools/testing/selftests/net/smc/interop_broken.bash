# SPDX-License-Identifier: GPL-2.0
# RDMA packets stop between our module and the C module: guest a is the client, guest b the server. What counts is
# what our application gets.

. "$LIB"
. "${LIB%/*}/pair.bash"
. "${LIB%/*}/broken.bash"

if [ "$ROLE$MODULE" = aours ] || [ "$ROLE$MODULE" = bc ]; then
	TABLE="RDMA packets stop, ours is the client"
else
	TABLE="RDMA packets stop, ours is the server"
fi
PORT=7100

# Each time another server, so that no answer of the one before gets among them.
serve_greetings() {
	"$BIN/smctest" --addr="$LOCAL_IP" --port="$1" --deadline 1000 greet --serve --first "$2" &
	GREETER=$!
	within 10 sh -c "ss -Htln 'sport = :$1' | grep -q ."
}

# unserve_greetings: says whether our application got what it should. The C module's may not.
unserve_greetings() {
	kill "$GREETER"
	wait "$GREETER" 2>/dev/null
	true
}

greet() {
	local peer=()
	[ "$MODULE" = ours ] && peer=(--peer-may-fail)
	"$BIN/smctest" --remote --addr="$PEER_IP" --port="$PORT" greet "${peer[@]}" "$@"
}

# fresh_end: to the other end this one is another machine than before. The C module may keep a group for long whose link
# is dead, and so it is not asked to give it up.
fresh_end() {
	heal || return
	[ "$MODULE" = c ] || { within 20 unload_smc && load_smc && settings; }
}

# settings: a dead link is noticed soon.
settings() {
	setting smcr_testlink_time 2
}

fresh() {
	fresh_end && far fresh_end
}

# between SERVER_GETS CLIENT_GETS FIRST: the path breaks between two connections of a group, after so many packets to
# each end or not (-). The second connection after that does not try it.
between() {
	local code
	PORT=$((PORT + 1))
	fresh && far serve_greetings "$PORT" "$3" && greet --first "$3" --expect smc && stop "$1" "$2" &&
		greet --first "$3" --expect tcp && again "$3"
	code=$?
	far unserve_greetings
	return $code
}

# stop SERVER_GETS CLIENT_GETS: of the packets to each end so many arrive, or all (-).
stop() {
	[ "$1" = - ] || far lose "$1" || return
	[ "$2" = - ] || lose "$2"
}

# A connection that stays, from a port by which it is known.
HELD_PORT=7301
HELD="
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('$LOCAL_IP', $HELD_PORT))
s.connect(('$PEER_IP', int(sys.argv[1])))
time.sleep(100)
"

# not_tried: one more connection is over TCP because an earlier one has failed, and our end does not try the path or the
# link.
not_tried() {
	local code client
	python3 -c "$HELD" "$PORT" &
	client=$!
	at_ours within 20 is_avoided "$client"
	code=$?
	at_ours sed 's/^/# /' /tmp/why
	kill "$client"
	wait "$client" 2>/dev/null
	return $code
}

# is_avoided PID: our end of that connection says so, of that process or of the server here.
is_avoided() {
	local pid=$1
	[ "$ROLE" = a ] || pid=$GREETER
	"$BIN/smc" why --pid "$pid" >/tmp/why 2>&1
	grep -A1 ":$HELD_PORT[ :]" /tmp/why | grep -q "^  id:     [A-Z_]*/path-failed "
}

# again FIRST: one more connection does not try, and neither does the next one, whose data are compared.
again() {
	local code
	rm -f /tmp/next
	not_tried && greet --first "$1" --expect tcp >/tmp/next 2>&1
	code=$?
	[ ! -e /tmp/next ] || sed 's/^/# next: /' /tmp/next
	return $code
}

# stopped SERVER_GETS CLIENT_GETS FIRST [OPTION...]: of the packets to each end so many arrive, or all (-). The next
# connection does not try.
stopped() {
	local server=$1 client=$2 first=$3 code
	shift 3
	PORT=$((PORT + 1))
	fresh && far serve_greetings "$PORT" "$first" || return
	stop "$server" "$client" && greet --first "$first" --expect tcp "$@" && again "$first"
	code=$?
	far unserve_greetings
	return $code
}

# The C module waits without end for what it has sent over a dead link.
let_c_hang() {
	[ "$MODULE" = ours ] || echo 0 >/proc/sys/kernel/hung_task_timeout_secs
}

up() {
	let_c_hang && load_rdma && load_smc && common_eid && up_wire
}

run_pair() {
	if [ "$ROLE" = b ]; then
		require "module and wire" up
		tell ready
		check "orders" obey
		finish
	fi
	require "module and wire" up
	require "the other guest" await ready
	cell "none arrives" "at the server" stopped 0 - client
	cell "none arrives" "at the client" stopped - 0 server
	cell "none arrives" "at both" stopped 0 0 server
	cell "after CONFIRM_LINK" "at the server" stopped 1 - server
	cell "after CONFIRM_LINK" "at the client" stopped - 1 client
	cell "after CONFIRM_LINK" "at both" stopped 1 1 client
	cell "after its answer" "at the server" stopped 2 - server
	cell "after its answer" "at the client" stopped - 2 client
	cell "after its answer" "at both" stopped 2 2 server
	cell "after its answer, bound, without waiting" "at both" stopped 2 2 server --bind "$LOCAL_IP:7300"
	cell "many at once" "at both" stopped 0 0 client --connections 64
	cell "between two connections" "at the server" between 0 - client
	cell "between two connections" "at the client" between - 0 server
	cell "between two connections" "at both" between 0 0 client
	cell "between two connections, greeting first" "at both" between 0 0 server
	dismiss
	finish
}

run_pair
