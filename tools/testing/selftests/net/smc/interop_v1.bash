# SPDX-License-Identifier: GPL-2.0
# What interop.bash needs for version 1: RoCE v1 addresses in place of enterprise IDs, and its phases.

RXE_KO=$ROCE_V1_RXE_KO
TABLE_NAME="with the C module, version 1"

common_eid() {
	"$BIN/smc" ueid flush
}

LOCAL_IP6=fd00:7::${LOCAL_IP##*.}
PEER_IP6=fd00:7::${PEER_IP##*.}

# up_wire: this guest's end of the wire, for IPv6, too.
up_wire() {
	ip link set "$WIRE" up &&
		ip address add "$LOCAL_IP/24" dev "$WIRE" &&
		ip address add "$LOCAL_IP6/64" dev "$WIRE" nodad &&
		within 20 link_local_noted &&
		rdma link add "rxe_$ROLE" type rxe netdev "$WIRE" &&
		within 60 ping -c 1 -W 1 "$PEER_IP" >/dev/null &&
		within 60 ping -c 1 -W 1 "$PEER_IP6" >/dev/null
}

# link_local_noted: the link-local address of this end of the wire, from which RoCE v1 sends, is in a file that both
# guests have.
link_local_noted() {
	local address
	address=$(link_local "$WIRE") && echo "$address" >"$OUT/link_local.$MODULE"
}

v1_basics() {
	transfers
	comes_and_goes
	line "IPv6"
	# While there is a group of IPv4, with the same ports.
	check "a server for IPv6" far LOCAL_IP="$PEER_IP6" serve 7010
	PEER_IP=$PEER_IP6 check "first contact over IPv6" talk 7010 --expect smc path
	PEER_IP=$PEER_IP6 check "data over IPv6" talk 7010 --expect smc integrity --mib 4
	check "IPv4 goes on" smc_works
	far unserve 7010
}

# What the client and the server offer, and what the connection is; in an order that exchanges soft RoCE seldom.
OFFERS="1 1 version 1
1 both version 1
both both version 2
both 1 version 1
both 2 version 2
1 2 TCP
2 2 version 2
2 1 TCP
2 both version 2"

# offers WHAT: this guest offers version 1, 2 or both. Version 1 needs RoCE v1 addresses, version 2 an enterprise ID.
offers() {
	case $1 in
	2) roce "$FINITE_RXE_KO" ;;
	*) roce "$ROCE_V1_RXE_KO" ;;
	esac || return
	case $1 in
	1) eid ;;
	*) eid "$EID" ;;
	esac
}

# roce MODULE: this guest has that soft RoCE.
roce() {
	[ "$1" != "$RXE_KO" ] || return 0
	RXE_KO=$1
	within 20 unload_smc && remove_device && rmmod rdma_rxe && insmod "$1" && load_smc && add_device
}

# each_offer FUNCTION: with each line's number, and its words.
each_offer() {
	local number=0 client server agreed
	while read -r client server agreed <&3; do
		line "client: $client, server: $server, so $agreed"
		"$1" "$number" "$client" "$server" "$agreed"
		number=$((number + 1))
	done 3<<<"$OFFERS"
}

v1_versions() {
	far unserve $PORT
	each_offer agree
	line "another subnet, both versions possible: version 2"
	check "the client offers both" offers both
	check "another mask" far mask 25
	far serve 7031
	check "data by version 2" talk 7031 --expect smc integrity --mib 1
	far unserve 7031
	check "the same mask" far mask 24
	line "IPv6 has version 1 alone"
	far LOCAL_IP="$PEER_IP6" serve 7030
	PEER_IP=$PEER_IP6 check "SMC over IPv6" talk 7030 --expect smc integrity --mib 1
	far unserve 7030
	check "the client offers version 1" offers 1
	check "the server offers version 1" far offers 1
	far serve $PORT
}

# agree NUMBER CLIENT SERVER AGREED
agree() {
	local expect=smc
	[ "$4" != TCP ] || expect=tcp
	check "the client offers $2" offers "$2"
	check "the server offers $3" far offers "$3"
	far serve "702$1"
	check "data by $4" talk "702$1" --expect $expect integrity --mib 1
	# Whatever one of them lacks, the server has no device for the other's version.
	[ $expect = smc ] || check "the reason" says "(0x03030000)" talk "702$1" --expect tcp path
	far unserve "702$1"
}

# v1_older: as older, in this version.
v1_older() {
	asks_often
	line "first contact"
	check "first contact" talk $PORT --expect smc integrity --mib 2
	idles
}

# v1_subnets: a mask of another length at one end or the other.
v1_subnets() {
	local at
	line "decline: another subnet"
	for at in at_c at_ours; do
		check "another mask $at" $at mask 25
		check "that is another subnet" says "0x03070000" talk $PORT --expect tcp path
		check "the same mask" $at mask 24
	done
	# A link goes with the address of its port, and the other end finds out when it is used.
	check "SMC is back" smc_returns
}

# mask LENGTH: of this guest's address, which is away in between: with one of two masks its GID would go.
mask() {
	ip address del "$LOCAL_IP/$((49 - $1))" dev "$WIRE" && ip address add "$LOCAL_IP/$1" dev "$WIRE"
}

judge_v1_basics() {
	line "first contact"
	check "wire: first contacts" seen 2 'clc == 2 && first && eid == ""'
	check "wire: ours confirms links" seen 1 "src == \"$(rdma_ip ours)\" && llc == \"0x01\""
	check "wire: the C module confirms links" seen 1 "src == \"$(rdma_ip c)\" && llc == \"0x01\""
	line "link group used again"
	check "wire: accepts of a group that is there" seen 10 'clc == 2 && !first && eid == ""'
	judge_elements
}

judge_v1_versions() {
	each_offer judge_agreed
	line "another subnet, both versions possible: version 2"
	check "wire: version 2" seen 1 'clc == 2 && eid != "" && port ~ /(^|,)7031(,|$)/'
	line "IPv6 has version 1 alone"
	check "wire: version 1" seen 1 'clc == 2 && eid == "" && port ~ /(^|,)7030(,|$)/'
	check "wire: not version 2" unseen 'clc == 2 && eid != "" && port ~ /(^|,)7030(,|$)/'
}

# judge_agreed NUMBER CLIENT SERVER AGREED
judge_agreed() {
	local there="port ~ /(^|,)702$1(,|\$)/"
	case $4 in
	"version 1") check "wire: $4" seen 1 "clc == 2 && eid == \"\" && $there" ;;
	"version 2") check "wire: $4" seen 1 "clc == 2 && eid != \"\" && $there" ;;
	TCP) check "wire: no accept" unseen "clc == 2 && $there" ;;
	esac
}

judge_v1_older() {
	line "first contact"
	check "wire: first contacts" seen 2 'clc == 2 && first && eid == ""'
	line "keep-alive of an idle link"
	check "wire: the C module tests links" seen 2 "src == \"$(rdma_ip c)\" && llc == \"0x07\" && !answered"
	check "wire: ours answers" seen 2 "src == \"$(rdma_ip ours)\" && llc == \"0x07\" && answered"
	line "idle link group deleted by the C module"
	check "wire: the C module deletes groups in good order" seen 1 \
		"src == \"$(rdma_ip c)\" && llc == \"0x04\" && orderly"
}
