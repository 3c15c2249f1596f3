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

# v1_versions: both offer both.
v1_versions() {
	line "both versions are possible: version 2"
	check "an enterprise ID at c" at_c eid "$EID"
	check "an enterprise ID at ours" at_ours eid "$EID"
	far serve 7011
	check "SMC with both" talk 7011 --expect smc integrity --mib 1
	far unserve 7011
	line "no enterprise ID in common: version 1"
	check "another enterprise ID at c" at_c eid OTHER
	far serve 7012
	check "SMC with neither in common" talk 7012 --expect smc integrity --mib 1
	far unserve 7012
	check "no enterprise ID at c" at_c eid
	check "no enterprise ID at ours" at_ours eid
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
	check "SMC is back" within 20 smc_works
}

# mask LENGTH: of this guest's address.
mask() {
	ip address add "$LOCAL_IP/$1" dev "$WIRE" && ip address del "$LOCAL_IP/$((49 - $1))" dev "$WIRE"
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
	line "both versions are possible: version 2"
	check "wire: version 2" seen 1 'clc == 2 && eid != "" && port ~ /(^|,)7011(,|$)/'
	line "no enterprise ID in common: version 1"
	check "wire: version 1" seen 1 'clc == 2 && eid == "" && port ~ /(^|,)7012(,|$)/'
}
