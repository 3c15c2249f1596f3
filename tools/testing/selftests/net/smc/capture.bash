# SPDX-License-Identifier: GPL-2.0
# A capture of the wire, which a third party, tshark, dissects.

# All that is sent as a message: handshakes over TCP, and over RDMA, between IPv4 or IPv6 addresses, what is not written
# to memory.
SENDS='tcp or (udp port 4791 and udp[8] = 4) or (ip6 and ip6[6] = 17 and ip6[42:2] = 4791 and ip6[48] = 4)'

# The columns of $OUT/wire.txt, one line a message of SMC.
FIELDS=(ip.src tcp.port smc.clc_msg smc.llc_msg smc.proposal.smc.version.relnum
	smc.accept.smc.version.relnum smc.confirm.smc.version.relnum
	smc.accept.server.tcp.conn.index smc.confirm.client.tcp.conn.index
	data.data smc.test.link.response _ws.malformed _ws.expert.severity
	smc.delete.link.reason.code smc.delete.link.orderly frame.number
	ipv6.src smc.accept.flags smc.accept.eid
	smc.add.link.cont.rkey.number smc.confirm.rkey.number.qp
	smc.delete.rkey.response smc.delete.rkey.negative.response
	smc.add.link.response smc.add.link.response.rejected smc.add.link.sender.qp.number)

# start_capture [DEVICE [PROGRAM...]]: the program runs another one where the device is.
start_capture() {
	local device=${1:-$WIRE}
	shift || :
	rm -f "$OUT/wire.pcapng"
	# dumpcap lets go of what root may do before it opens a file, which may be in another user's folder. Its buffer of
	# 32 MiB holds what an emulated machine sends before it runs.
	"$@" dumpcap -q -B 32 -i "$device" -s 1000 -f "$SENDS" -w - 2>"$OUT/capture.txt" >"$OUT/wire.pcapng" &
	CAPTURE=$!
	within 20 test -s "$OUT/wire.pcapng"
}

# end_capture: fails if packets were lost to the capture.
end_capture() {
	sleep 1
	kill -INT "$CAPTURE"
	wait "$CAPTURE"
	sed -n 's/^Packets received/# capture: received/p' "$OUT/capture.txt"
	grep -q '^Packets received/dropped on .*: [0-9]*/0 ' "$OUT/capture.txt"
}

# stop_capture: ends it and dissects it. SMC gets the messages first: other dissectors claim ports
# and RDMA messages that are not theirs.
stop_capture() {
	end_capture || return
	tshark -o tcp.try_heuristic_first:TRUE -o udp.ignore_ipv6_zero_checksum:TRUE --disable-protocol rpcordma \
		--disable-protocol smb_direct --disable-protocol nvme-rdma --disable-protocol lnet \
		--disable-protocol iser --disable-protocol infiniband_sdp \
		-r "$OUT/wire.pcapng" -Y 'smc || infiniband.bth.opcode == 4' \
		-T fields -E separator='|' "${FIELDS[@]/#/-e}" 2>/dev/null >"$OUT/wire.txt"
}

# messages CONDITION: how many lines of the capture awk's CONDITION takes. It has the columns by
# the names below. Accepts and confirms have a release in a first contact only; `raw` is a message
# that tshark leaves alone, in hex: the C module writes the length of its LLC messages the other way
# round in version 2, which tshark does not take for LLC.
messages() {
	awk -F'|' "{
		src = \$1 \$17; port = \$2; clc = \$3; llc = \$4; proposed = \$5; accepted = \$6; confirmed = \$7
		server_index = \$8; client_index = \$9; raw = \$10
		answered = (\$11 ~ /1|True/); bad = (\$12 != \"\" || \$13 ~ /8388608/)
		reason = \$14; orderly = (\$15 ~ /1|True/)
		first = (\$18 ~ /^0x.[89a-f]/); eid = \$19
		new_keys = \$20; others = \$21
		key_answer = (\$22 ~ /1|True/); key_refused = (\$23 ~ /1|True/)
		link_answer = (\$24 ~ /1|True/); link_refused = (\$25 ~ /1|True/); invites = (\$26 ~ /^0x0+$/)
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

# said LEAST CONDITION COMMAND...: the command succeeds, and so many messages go over the wire of b meanwhile.
said() {
	local least=$1 condition=$2 code
	shift 2
	start_capture wire_b ip netns exec b || return
	"$@"
	code=$?
	stop_capture && seen "$least" "$condition" && return "$code"
}

# said_none CONDITION COMMAND...: none goes.
said_none() {
	local condition=$1
	shift
	said 0 "$condition" "$@" && unseen "$condition"
}

# count_llc COMMAND...: the command succeeds; how many LLC messages go over the wire of b meanwhile is in LLC.
# They are all that is sent but those of connections, which begin with 0xfe.
count_llc() {
	local SENDS='udp port 4791 and (udp[8] = 0 or udp[8] = 4) and udp[20] != 0xfe' code
	start_capture wire_b ip netns exec b || return
	"$@"
	code=$?
	end_capture || return
	LLC=$(capinfos -cM "$OUT/wire.pcapng" | awk '/Number of packets/ { print $NF }')
	return "$code"
}
