# SPDX-License-Identifier: GPL-2.0
# What scripts for a pair of guests share: orders from guest a to guest b, a capture of the wire that
# a third party, tshark, dissects, and a table of what works in which role.

# Orders -------------------------------------------------------------------------------------

ORDER=0

# far COMMAND...: the command in guest b, with the functions and variables of this script there.
far() {
	ORDER=$((ORDER + 1))
	printf '%q ' "$@" >"$OUT/order.new"
	mv "$OUT/order.new" "$OUT/order.$ORDER"
	within 120 test -e "$OUT/answer.$ORDER" || return 124
	return "$(cat "$OUT/answer.$ORDER")"
}

# obey: what guest b does, until it gets the order `dismiss`.
obey() {
	local next=1 order code
	while within 300 test -e "$OUT/order.$next"; do
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
	mv "$OUT/order.new" "$OUT/order.$((ORDER + 1))"
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

# The wire -----------------------------------------------------------------------------------

# All that is sent as a message: handshakes over TCP, and over RDMA what is not written to memory.
SENDS='tcp or (udp port 4791 and udp[8] = 4)'

# The columns of $OUT/wire.txt, one line a message of SMC.
FIELDS=(ip.src tcp.port smc.clc_msg smc.llc_msg smc.proposal.smc.version.relnum
	smc.accept.smc.version.relnum smc.confirm.smc.version.relnum
	smc.accept.server.tcp.conn.index smc.confirm.client.tcp.conn.index
	data.data smc.test.link.response _ws.malformed _ws.expert.severity frame.number)

start_capture() {
	dumpcap -q -i "$WIRE" -s 1000 -f "$SENDS" -w "$OUT/wire.pcapng" 2>/dev/null &
	CAPTURE=$!
	within 20 test -s "$OUT/wire.pcapng"
}

# stop_capture: ends it and dissects it. SMC gets the messages first: other dissectors claim ports
# and RDMA messages that are not theirs.
stop_capture() {
	sleep 1
	kill -INT "$CAPTURE"
	wait "$CAPTURE"
	tshark -o tcp.try_heuristic_first:TRUE --disable-protocol rpcordma \
		--disable-protocol smb_direct --disable-protocol nvme-rdma --disable-protocol lnet \
		--disable-protocol iser --disable-protocol infiniband_sdp \
		-r "$OUT/wire.pcapng" -Y 'smc || infiniband.bth.opcode == 4' \
		-T fields -E separator='|' "${FIELDS[@]/#/-e}" 2>/dev/null >"$OUT/wire.txt"
}

# messages CONDITION: how many lines of the capture awk's CONDITION takes. It has the columns by
# the names below. Accepts and confirms have a release in a first contact only; `raw` is a message
# that tshark leaves alone, in hex: the C module writes the length of its LLC messages the other way
# round, which tshark does not take for LLC.
messages() {
	awk -F'|' "{
		src = \$1; port = \$2; clc = \$3; llc = \$4; proposed = \$5; accepted = \$6; confirmed = \$7
		server_index = \$8; client_index = \$9; raw = \$10
		answered = \$11; bad = (\$12 != \"\" || \$13 ~ /8388608/)
		if ($1) n++
	} END { print n + 0 }" "$OUT/wire.txt"
}

# seen LEAST CONDITION
seen() {
	local found
	found=$(messages "$2")
	echo "# $found messages with $2"
	[ "$found" -ge "$1" ]
}

# unseen CONDITION
unseen() {
	! seen 1 "$1" || {
		grep -m 5 . "$OUT/wire.txt"
		false
	}
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
