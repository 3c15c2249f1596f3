# SPDX-License-Identifier: GPL-2.0
# Our module and the C module on one wire: guest a is the client, guest b the server. With VERSION=1 they have RoCE v1
# addresses, and no enterprise IDs; with LINKS=2 besides, two devices each.

. "$LIB"
. "${LIB%/*}/pair.bash"
. "${LIB%/*}/outcome.bash"
TABLE_NAME="with the C module"
[ "${VERSION:=2}" = 2 ] || . "${LIB%/*}/interop_v1.bash"

# The phases, and the lines of the table that each has.
declare -A LINES_OF=(
	[basics]="first contact
link group used again
version 2.1
limits: the lower ones hold
transfers both ways, checked by hash
many connections in one RMB
unused RMBs given up
connections come and go"
	[endings]="urgent data
half close
abort"
	[fallbacks]="fallback: the server has only TCP
fallback: the client has only TCP
fallback: the server limits handshakes"
	[eids]="decline: no enterprise ID in common"
	[devices]="device of the C module removed
our device removed
decline: the client has no device
decline: the server has no device"
	[iwarp]="ours has iWARP alone: TCP
ours has iWARP beside RoCE: RoCE"
	[older]="release 0 of version 2
keep-alive of an idle link
idle link group deleted by the C module"
	[c_goes]="C module removed"
	[ours_goes]="our module removed"
	[all]="tshark finds nothing malformed"
	[v1_basics]="first contact
link group used again
transfers both ways, checked by hash
many connections in one RMB
connections come and go
IPv6"
	[v1_older]="first contact
keep-alive of an idle link
idle link group deleted by the C module"
	[v1_versions]="client: 1, server: 1, so version 1
client: 1, server: both, so version 1
client: both, server: both, so version 2
client: both, server: 1, so version 1
client: both, server: 2, so version 2
client: 1, server: 2, so TCP
client: 2, server: 2, so version 2
client: 2, server: 1, so TCP
client: 2, server: both, so version 2
another subnet, both versions possible: version 2
IPv6 has version 1 alone"
	[v1_subnets]="decline: another subnet"
)
[ "${LINKS:=1}" = 1 ] || . "${LIB%/*}/interop_v1_links.bash"

PORT=7000

# Who is where.
if [ "$ROLE$MODULE" = aours ] || [ "$ROLE$MODULE" = bc ]; then
	COLUMN_NAME="ours is the client" OUR_IP=10.0.0.1 C_IP=10.0.0.2
else
	COLUMN_NAME="ours is the server" OUR_IP=10.0.0.2 C_IP=10.0.0.1
fi
if [ "$FLAVOUR" != "$PEER_FLAVOUR" ]; then
	case $FLAVOUR+$PEER_FLAVOUR in
	*um-6.12*) COLUMN_NAME+=" of Linux 6.12" ;;
	*) COLUMN_NAME+=" on $([ "$MODULE" = ours ] && echo "$FLAVOUR" || echo "$PEER_FLAVOUR")" ;;
	esac
fi

# unload_if_there: a phase may have unloaded it.
unload_if_there() {
	! grep -q '^smc ' /proc/modules || unload_smc
}

# eid [NAME]: the only enterprise ID of this guest, or none.
eid() {
	"$BIN/smc" ueid flush
	[ $# = 0 ] || "$BIN/smc" ueid add "$1"
}

remove_device() {
	rdma link delete "rxe_$ROLE"
}

add_device() {
	rdma link add "rxe_$ROLE" type rxe netdev "$WIRE"
}

# Soft iWARP at our end, which the C module does not know.
add_iwarp() {
	load_siw && rdma link add "siw_$ROLE" type siw netdev "$WIRE"
}

remove_iwarp() {
	rdma link delete "siw_$ROLE"
}

# says WORDS COMMAND...: the command succeeds and prints the words.
says() {
	local words=$1 said
	shift
	said=$("$@")
	local code=$?
	echo "$said"
	[ "$code" = 0 ] && grep -q "$words" <<<"$said"
}

# smc_works [PORT]
smc_works() {
	talk "${1:-$PORT}" --expect smc integrity --mib 1
}

# smc_returns: connections are over SMC soon, and then data are whole at once.
smc_returns() {
	within 20 talk "$PORT" --expect smc path && smc_works
}

basics() {
	line "limits: the lower ones hold"
	check "C module's limit of connections" at_c setting smcr_max_conns_per_lgr 16
	transfers
	line "unused RMBs given up"
	sleep 6
	check "connections at once again" talk $PORT --expect smc many --connections 20 --kib 32
	comes_and_goes
}

# transfers: the first contact, and data of all kinds by its link group.
transfers() {
	line "first contact"
	check "first contact" talk $PORT --expect smc path
	line "link group used again"
	check "reuse" smc_works
	line "transfers both ways, checked by hash"
	check "random chunks" talk $PORT --expect smc integrity --mib 8
	check "small chunks" talk $PORT --expect smc integrity --mib 1 --chunk 700
	check "chunks beyond the buffers" talk $PORT --expect smc integrity --mib 2 --chunk 1000000
	check "round trips" talk $PORT --expect smc pingpong --count 50
	line "many connections in one RMB"
	check "connections at once" talk $PORT --expect smc many --connections 30 --kib 32
}

comes_and_goes() {
	line "connections come and go"
	check "churn" talk $PORT --expect smc churn --processes 3 --opens 12
}

endings() {
	local name
	for name in "urgent data" "half close" "abort"; do
		line "$name"
		suite "$name" talk $PORT --expect smc apart --only "${name%% data}:"
	done
	# The C module sends nothing to a peer that has closed, so that an end of ours is not reset by its data.
	[ "$MODULE" = c ] || suite "shut both ways" talk $PORT --expect smc apart --only "is shut both ways"
	far serve 7001
	talk 7001 --expect smc apart --server-dies >/tmp/survivor &
	survivor=$!
	check "a server is about to be killed" within 20 grep -q ready /tmp/survivor
	far unserve 7001
	check "the client of a killed server hears of it" wait $survivor
	cat /tmp/survivor
}

fallbacks() {
	far serve 7002 --server-family tcp
	line "fallback: the server has only TCP"
	check "a server with TCP" talk 7002 --expect tcp integrity --mib 1
	far unserve 7002
	line "fallback: the client has only TCP"
	check "a client with TCP" talk $PORT --family tcp integrity --mib 1
	line "fallback: the server limits handshakes"
	check "the limit is on" far setting limit_smc_hs 1
	far serve 7003
	check "a burst of connections" talk 7003 churn --processes 4 --opens 5
	far unserve 7003
	check "the limit is off" far setting limit_smc_hs 0
	check "SMC is back" smc_works
}

eids() {
	line "decline: no enterprise ID in common"
	declines at_c OTHER
	declines at_ours OTHER
	declines at_c
	declines at_ours
	check "SMC is back" smc_works
}

# declines SIDE [NAME]: with this enterprise ID at one side, or none, it is TCP.
declines() {
	check "enterprise ID ${2:-none} $1" "$1" eid "${@:2}"
	check "no ID in common" says "0x0303000[02]\|0x03010001" talk $PORT --expect tcp path
	[ "$MODULE" != ours ] || check "smc why names it" says "id: *\(PEERDECL/no-common-eid\|NOSMCDEV/no-own-eid\) " \
		sh -c "'$BIN/smc' why $PEER_IP:$PORT; [ \$? = 3 ]"
	check "the common ID" "$1" eid "$EID"
}

# device_is_missing SIDE LINE: the device of near or far was removed, and comes back.
device_is_missing() {
	local at=$1
	line "$2"
	check "TCP without the device" talk $PORT --expect tcp integrity --mib 1
	check "the reason" says "0x0303000[02]" talk $PORT --expect tcp path
	check "the device comes back" $at add_device
	check "SMC comes back" smc_returns
}

reload_smc() {
	within 20 unload_smc && load_smc
}

# iwarp: our end has soft iWARP, first alone and then beside soft RoCE.
iwarp() {
	line "ours has iWARP alone: TCP"
	# A module that goes tells its peers, and a device does not: the C module would use the group again.
	far unserve $PORT
	check "no group is left" at_ours reload_smc
	check "soft iWARP at ours" at_ours add_iwarp
	check "no soft RoCE at ours" at_ours remove_device
	far serve $PORT
	check "TCP with iWARP alone" within 10 talk $PORT --expect tcp path
	check "data over that" talk $PORT --expect tcp integrity --mib 1
	far serve 7005
	check "no wait for that" says "0x0303000[02]\|0x05000000" talk 7005 --deadline 5 --expect tcp path
	far unserve 7005
	line "ours has iWARP beside RoCE: RoCE"
	check "soft RoCE at ours" at_ours add_device
	check "SMC with both" smc_returns
	check "no soft iWARP at ours" at_ours remove_iwarp
}

# device_goes SIDE LINE: the device of near or far is removed under a transfer.
device_goes() {
	local at=$1
	line "$2"
	check "a transfer is under way" transfer_begins "rdma_bytes $ROLE" \
		talk $PORT --deadline 60 --expect smc integrity --mib 96
	check "the device is removed" $at remove_device
	check "the transfer ends, whole or with an error" transfer_ends
	tail -1 /tmp/transfer
}

devices() {
	local of_client="decline: the client has no device"
	local of_server="decline: the server has no device"
	if [ "$MODULE" = ours ]; then
		device_goes "" "our device removed"
		device_is_missing "" "$of_client"
		device_goes far "device of the C module removed"
		device_is_missing far "$of_server"
	else
		device_goes far "our device removed"
		device_is_missing far "$of_server"
		device_goes "" "device of the C module removed"
		device_is_missing "" "$of_client"
	fi
}

# goes SIDE: the module of that side goes while the link group is idle; its peer goes on with TCP.
goes() {
	check "a link group is there" smc_works
	far unserve $PORT
	check "the module goes" "$1" within 20 unload_smc
	far serve $PORT --server-family "$(far_family "$1")"
	check "TCP is left" talk $PORT --family "$(near_family "$1")" --expect tcp integrity --mib 1
}

# near_family SIDE and far_family SIDE: TCP at the side whose module is gone.
near_family() {
	if is_near "$1"; then echo tcp; else echo smc; fi
}

far_family() {
	if is_near "$1"; then echo smc; else echo tcp; fi
}

is_near() {
	case $1 in
	at_ours) [ "$MODULE" = ours ] ;;
	at_c) [ "$MODULE" = c ] ;;
	esac
}

c_goes() {
	line "C module removed"
	goes at_c
}

ours_goes() {
	line "our module removed"
	goes at_ours
}

# older: the C module is one of release 0 that frees idle link groups after seconds.
older() {
	asks_often
	line "release 0 of version 2"
	check "first contact" talk $PORT --expect smc integrity --mib 2
	check "reuse" talk $PORT --expect smc pingpong --count 20
	idles
}

# asks_often: the C module tests idle links, and sooner than ours.
asks_often() {
	line "keep-alive of an idle link"
	check "C module's interval" at_c setting smcr_testlink_time 1
	check "our interval" at_ours setting smcr_testlink_time 2
}

# idles: so long that the link is tested, and then that the C module deletes the group.
idles() {
	line "keep-alive of an idle link"
	suite "idle" talk $PORT --expect smc apart --only "rest:"
	line "idle link group deleted by the C module"
	sleep 5
	check "a new first contact" talk $PORT --expect smc integrity --mib 1
}

# What the capture says of the lines of a phase.

# rdma_ip ours|c: the address from which the packets of that module's RDMA device come.
rdma_ip() {
	case $VERSION$1 in
	2ours) echo "$OUR_IP" ;;
	2c) echo "$C_IP" ;;
	1*) cat "$OUT/link_local.$1" ;;
	esac
}

# llc_type DIGIT: of a message, in this version.
llc_type() {
	case $VERSION in
	1) echo "0x0$1" ;;
	2) echo "0x2$1" ;;
	esac
}

judge_basics() {
	# The second group begins when the first is full.
	line "limits: the lower ones hold"
	check "wire: groups" seen 2 'clc == 2 && accepted != ""'
	line "first contact"
	check "wire: first contacts" seen 1 'clc == 2 && accepted != ""'
	line "link group used again"
	check "wire: accepts of a group that is there" seen 10 'clc == 2 && accepted == ""'
	line "version 2.1"
	check "wire: proposals of release 1" seen 1 "proposed == 1"
	check "wire: accepts of release 1" seen 1 "accepted == 1"
	check "wire: confirms of release 1" seen 1 "confirmed == 1"
	judge_elements
	line "unused RMBs given up"
	check "wire: ours deletes keys" seen 1 "src == \"$OUR_IP\" && llc == \"0x29\""
	check "wire: the C module answers" seen 1 "src == \"$C_IP\" && raw ~ /^29....8/"
}

judge_elements() {
	line "many connections in one RMB"
	check "wire: our elements beyond the first" seen 5 \
		"src == \"$OUR_IP\" && (server_index > 1 || client_index > 1)"
}

judge_iwarp() {
	local there='port ~ /(^|,)7005(,|$)/'
	line "ours has iWARP alone: TCP"
	check "wire: a proposal" seen 1 "clc == 1 && $there"
	check "wire: a decline" seen 1 "clc == 4 && $there"
	check "wire: nothing else" unseen "clc != 1 && clc != 4 && $there"
}

judge_c_goes() {
	line "C module removed"
	# What it is in hex, where tshark does not take it for LLC.
	check "wire: the C module deletes its groups" seen 1 \
		"src == \"$(rdma_ip c)\" && (raw ~ /^24....4/ || llc == \"$(llc_type 4)\")"
}

judge_ours_goes() {
	line "our module removed"
	check "wire: ours deletes its groups" seen 1 "src == \"$(rdma_ip ours)\" && llc == \"$(llc_type 4)\""
}

judge_older() {
	line "keep-alive of an idle link"
	check "wire: the C module tests links" seen 2 "src == \"$C_IP\" && raw ~ /^27....0/"
	check "wire: ours answers" seen 2 "src == \"$OUR_IP\" && llc == \"0x27\" && answered == 1"
	line "release 0 of version 2"
	check "wire: accepts of release 0" seen 2 "accepted == \"0\""
	check "wire: confirms of release 0" seen 2 "confirmed == \"0\""
	line "idle link group deleted by the C module"
	check "wire: the C module deletes groups in good order" seen 1 \
		"src == \"$C_IP\" && raw ~ /^24....6/"
}

judge_all() {
	line "tshark finds nothing malformed"
	check "wire: messages over TCP" seen 3 'clc'
	check "wire: messages over RDMA" seen 10 'llc'
	# How many keys our offer of a link has is written so that it reads the same in the byte order of the
	# C module; the other half of that number is beyond the message.
	check "wire: none malformed" unseen "bad && !(src == \"$OUR_IP\" && llc == \"0x22\")"
}

# matrix PHASE...
matrix() {
	local phase
	for phase in "$@" all; do
		mapfile -t lines <<<"${LINES_OF[$phase]}"
		table "$TABLE_NAME" "$COLUMN_NAME" "${lines[@]}"
	done
	check "the capture starts" start_capture
	# Ours gives up what a group does not use for a tenth of this.
	check "idle time of ours" at_ours setting smcr_lgr_idle_time 40
	far serve $PORT
	for phase; do
		$phase
	done
	far unserve $PORT
	check "the capture is whole" stop_capture
	for phase in "$@" all; do
		[ "$(type -t "judge_$phase")" != function ] || "judge_$phase"
	done
	end_line
	dismiss
}

# What a script runs by itself; words after its name are phases to run instead.
[ $# != 0 ] || set -- "${PHASES[@]}"

require_pair
case $ROLE in
a) matrix "$@" ;;
b) check "orders until the dismissal" obey ;;
esac
# The C module keeps a socket for ever that is closed at the moment when its device goes: a release
# that comes while smc_close_active_abort() has let go of the lock leaves a reference.
if [ "$MODULE" = ours ] || [[ " $* " != *" devices "* ]]; then
	check "module unloads" within 20 unload_if_there
fi
finish
