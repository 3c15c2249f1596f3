#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: pair(ours,c)
# every: 5 days
# timeout: 300
# The C module beyond a router: its guest reaches our end through a gateway, and our end reaches it through another.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/pair.bash"

INNER_IP=10.8.0.1
GATEWAY=10.8.0.254

# up_inner: our end is in a namespace of this guest, which forwards for it.
up_inner() {
	local mtu
	mtu=$(cat "/sys/class/net/$WIRE/mtu") && ip netns add inner && ip -n inner link set lo up &&
		ip link add inner_dev mtu "$mtu" netns inner type veth peer name to_inner mtu "$mtu" &&
		ip address add "$GATEWAY/24" dev to_inner && ip link set to_inner up &&
		ip -n inner address add "$INNER_IP/24" dev inner_dev && ip -n inner link set inner_dev up &&
		ip -n inner route add default via "$GATEWAY" && echo 1 >/proc/sys/net/ipv4/ip_forward &&
		in_ns inner rdma link add rxe_inner type rxe netdev inner_dev &&
		far ip route add "${INNER_IP%.*}.0/24" via "$LOCAL_IP" && within 20 in_ns inner ping -c 1 -W 1 "$PEER_IP" >/dev/null
}

# serve_inner PORT and unserve_inner: our server.
serve_inner() {
	ip netns exec inner "$BIN/smctest" --addr="$INNER_IP" --port="$1" --deadline 200 serve &
	INNER=$!
	await_port inner "$1"
}

unserve_inner() {
	kill "$INNER"
	wait "$INNER" 2>/dev/null
	true
}

# talk_inner PORT OPTION...: a client in our end.
talk_inner() {
	in_ns inner "$BIN/smctest" --remote --addr="$PEER_IP" --port="$1" "${@:2}"
}

# talk_to_inner PORT OPTION...: a client of the C module's.
talk_to_inner() {
	"$BIN/smctest" --remote --addr="$INNER_IP" --port="$1" "${@:2}"
}

# by_inner: the links are those of our inner device.
by_inner() {
	links_on rxe_inner
}

require_pair
follow
require "our end behind a router" up_inner
check "a server of the C module" far serve 7000
check "ours is the client: data over SMC" talk_inner 7000 --expect smc integrity --mib 4
check "and many connections by one group" talk_inner 7000 --expect smc many --connections 20 --kib 32
check "by the inner device" by_inner
check "our server" serve_inner 7001
check "the C module is the client: data over SMC" far talk_to_inner 7001 --expect smc integrity --mib 4
check "our server ends" unserve_inner
dismiss
finish
