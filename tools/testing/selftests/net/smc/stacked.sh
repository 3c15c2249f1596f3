#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 540
# cpus: 1
# Which RDMA device serves a TCP address on a VLAN, a bond or a bridge, or on a named network with several of them:
# the same as with the C module.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

ANSWERS=/tmp/answers
mkdir -p $ANSWERS

# up_fabric: RDMA devices in the subnet of the first, in another one, below a bridge and below a bond, and on a
# bridge itself; VLANs on the first.
up_fabric() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 && up_device wire_b b "$IP_B" 9000 &&
		up_device far_a a 10.9.7.1 9000 && up_device far_b b 10.9.7.2 9000 &&
		up_device near_a a 10.9.0.11 9000 && up_device near_b b 10.9.0.12 9000 &&
		up_device port_a a 10.9.8.1 9000 && up_device port_b b 10.9.8.2 9000 &&
		up_device slave_a a 10.9.12.1 9000 && up_device slave_b b 10.9.12.2 9000 &&
		up_device plain_a a 10.9.13.1 9000 && up_device plain_b b 10.9.13.2 9000 &&
		up_vlan wire_a 5 10.9.5.1 && up_vlan wire_b 5 10.9.5.2 &&
		up_vlan wire_a 6 10.9.6.1 && up_vlan wire_b 6 10.9.6.2 &&
		up_vlan wire_a 300 10.9.22.1 && up_vlan wire_b 300 10.9.22.2 &&
		up_vlan wire_a 8 10.9.18.1 && up_vlan wire_b 8 10.9.18.2 &&
		up_vlan wire_a 9 10.9.19.1 && up_vlan wire_b 9 10.9.19.2 &&
		up_vlan wire_a 10 10.9.20.1 && up_vlan wire_b 10 10.9.20.2 &&
		up_bridge_on port_a 10.9.9.1 && up_bridge_on port_b 10.9.9.2 &&
		up_bond_on slave_a 10.9.14.1 && up_bond_on slave_b 10.9.14.2 &&
		up_vlan on_slave_a 3 10.9.21.1 && up_vlan on_slave_b 3 10.9.21.2 &&
		up_soft_bridge_on plain_a 10.9.15.1 && up_soft_bridge_on plain_b 10.9.15.2 &&
		up_vlan wire_a 7 10.9.10.1 && up_vlan wire_b 7 10.9.10.2 &&
		up_bridge_on wire_a.7 10.9.11.1 && up_bridge_on wire_b.7 10.9.11.2
}

# end_of DEVICE: the namespace that it is in.
end_of() {
	local name=${1%.*}
	echo "${name##*_}"
}

# up_vlan DEVICE ID ADDRESS
up_vlan() {
	local end
	end=$(end_of "$1")
	ip -n "$end" link add link "$1" name "$1.$2" type vlan id "$2" &&
		ip -n "$end" address add "$3/24" dev "$1.$2" && ip -n "$end" link set "$1.$2" up
}

# up_bridge_on DEVICE ADDRESS: a bridge over the device, with an address of its own.
up_bridge_on() {
	local end
	end=$(end_of "$1")
	ip -n "$end" link add "on_$1" type bridge && ip -n "$end" link set "$1" master "on_$1" &&
		ip -n "$end" address add "$2/24" dev "on_$1" && ip -n "$end" link set "on_$1" up
}

# up_soft_bridge_on DEVICE ADDRESS: the same with soft RoCE on the bridge, not on the device.
up_soft_bridge_on() {
	local end
	end=$(end_of "$1")
	device_del "$1" "$end" && up_bridge_on "$1" "$2" && device_add "on_$1" "$end"
}

# up_bond_on DEVICE ADDRESS: a bond of the one device.
up_bond_on() {
	local end
	end=$(end_of "$1")
	ip -n "$end" link add "on_$1" type bond mode active-backup miimon 100 && ip -n "$end" link set "$1" down &&
		ip -n "$end" link set "$1" master "on_$1" &&
		ip -n "$end" address add "$2/24" dev "on_$1" && ip -n "$end" link set "on_$1" up
}

# named NETWORK NETDEV... -- RDMA_DEVICE...: the devices of an end that are on it.
named() {
	local network=$1
	shift
	while [ "$1" != -- ]; do
		in_ns "$(end_of "$1")" "$BIN/smc" pnet add "$network" -I "$1" || return
		shift
	done
	shift
	while [ $# -gt 0 ]; do
		"$BIN/smc" pnet add "$network" -D "rxe_$1" || return
		shift
	done
}

unnamed() {
	local end
	"$BIN/smc" pnet flush
	for end in a b; do
		in_ns $end "$BIN/smc" pnet flush || return
	done
}

field() {
	sed -n "s/^ *\"$1\": \"\{0,1\}\([^\",]*\)\"\{0,1\},\{0,1\}\$/\1/p"
}

# show: what carries the one connection that there is.
show() {
	local groups links
	groups=$("$BIN/smc" lgr --json) && links=$("$BIN/smc" link --json) || return
	paste -d' ' <(field connections <<<"$groups") <(field role <<<"$groups") <(field vlan <<<"$groups") \
		<(field pnetid <<<"$groups") | sed -n 's/^1 /group: /p' | sort
	paste -d' ' <(field connections <<<"$links") <(field device <<<"$links") <(field gid <<<"$links") \
		<(field peer_gid <<<"$links") | sed -n 's/^1 /link: /p' | sort
}

declare -f field show >/tmp/show
echo show >>/tmp/show

# fallbacks [END ROLE]: how many connections of the client, or of that end, went over TCP, and why.
fallbacks() {
	in_ns "${1:-a}" "$BIN/smc" stats | grep "^[0-9]* *${2:-client} .*(0x[0-9a-f]*)\$"
}

# asked NAME ADDRESS: connects to the address, and notes what carries the connection. The C module waits at most two
# seconds for a message of a new link, which on a busy machine is not enough now and then. So it is asked again where
# it answers something else than ours did before, up to three times; ours is asked once.
asked() {
	local trial
	for trial in 1 2 3; do
		ask "$@" || return
		[ "$MODULE" = ours ] || same "$1" >/dev/null || continue
		return 0
	done
}

# ask NAME ADDRESS: the same, once.
ask() {
	local to=$ANSWERS/$1.$MODULE
	fallbacks >/tmp/before
	fallbacks b server >/tmp/before.server
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$2" hold --seconds 0 --then "bash /tmp/show" \
		>"$to.log" 2>&1
	local code=$?
	{
		grep -E '^(group|link): ' "$to.log"
		fallbacks | grep -vxFf /tmp/before | sed 's/^[0-9]* */fallback: /'
	} >"$to"
	fallbacks b server | grep -vxFf /tmp/before.server >"$to.server"
	sed "s/^/# $MODULE, $1: /" "$to" "$to.server"
	return $code
}

# one_link: the C module does not look whose device it takes for a second one.
one_link() {
	set_sysctl smcr_max_links_per_lgr 1
}

# ports_up: the module knows that all ports are active. The C module learns it some time after it is loaded.
ports_up() {
	local states
	states=$("$BIN/smc" dev --json | field active) && [ "$(sort -u <<<"$states")" = true ]
}

# ask_all: with that module.
ask_all() {
	MODULE=$1
	load_smc && within 20 ports_up && common_eid && one_link || return
	asked plain "$IP_B" && asked vlan 10.9.5.2 && asked vlan_again 10.9.5.2 && asked other_vlan 10.9.6.2 || return
	ask wide_vlan 10.9.22.2 || return
	asked bridge 10.9.9.2 && asked bond 10.9.14.2 && asked vlan_on_bond 10.9.21.2 &&
		asked bridge_over_vlan 10.9.11.2 && asked soft 10.9.15.2 || return
	ask_named && unnamed && within 20 unload_smc
}

# ask_named: with networks that have names. A link group keeps the one of its first connection, so each address is
# a new one.
ask_named() {
	unnamed && named NETA wire_a -- wire_a && named NETB wire_b -- wire_b && asked named_base 10.9.18.2 || return
	unnamed && named NETA wire_a.9 -- wire_a && named NETB wire_b.9 -- wire_b &&
		asked named_vlan 10.9.19.2 || return
	unnamed && named NETA wire_a -- wire_a && named NETB wire_b -- wire_b &&
		named OTHER wire_a.10 wire_b.10 -- far_a && asked base_before_vlan 10.9.20.2 || return
	unnamed && named NETA wire_a -- far_a near_a && named NETB wire_b -- far_b near_b &&
		asked several "$IP_B" || return
	link_down near_a a && asked none_active "$IP_B" && link_up near_a a || return
	unnamed && named NETA wire_a -- far_a && named NETB wire_b -- wire_b && asked other_subnet "$IP_B" || return
	near add 10.9.9 && unnamed && named NETA on_port_a -- near_a && named NETB on_port_b -- near_b &&
		asked two_subnets 10.9.9.2 && near del 10.9.0 && asked named_bridge 10.9.9.2 || return
	near add 10.9.0 && near del 10.9.9
}

# near VERB SUBNET: an address of these two devices.
near() {
	ip -n a address "$1" "$2.11/24" dev near_a && ip -n b address "$1" "$2.12/24" dev near_b
}

# same NAME: both modules gave the same answers. Where the link does not work, either end may be the first to give it
# up.
same() {
	diff <(without_order "$ANSWERS/$1.c") <(without_order "$ANSWERS/$1.ours")
}

without_order() {
	sed -E 's/^(fallback: [a-z]+) .*\((0x02010000|0x05000000)\)$/\1  no link, or so says the peer/' "$1"
}

# gave_up NAME: with our module one end was the first to have no link in time (TIMEOUT_CL), and told the other one
# (PEERDECL), unless that was no later.
gave_up() {
	local reasons
	reasons=$(sed -n 's/.*(\(0x[0-9a-f]*\))$/\1/p' "$ANSWERS/$1.ours" "$ANSWERS/$1.ours.server" | sort | xargs)
	echo "# $1: $reasons"
	case $reasons in "0x02010000 0x05000000" | "0x02010000 0x02010000") ;; *) return 1 ;; esac
}

# uses NAME DEVICE...: the connection used these, or none; with both modules.
uses() {
	ours_uses "$@" && same "$1"
}

# ours_uses NAME DEVICE...: so with our module.
ours_uses() {
	local name=$1
	shift
	[ "$(sed -n 's/^link: \([^ ]*\) .*/\1/p' "$ANSWERS/$name.ours" | xargs)" = "$*" ]
}

# serves NAME CLIENT SERVER: our module used these addresses for the connection, by their last half.
serves() {
	grep -q "^link: rxe_near_a [^ ]*:$2 [^ ]*:$3\$" "$ANSWERS/$1.ours"
}

# groups_are NAME VLAN NETWORK_A NETWORK_B: so say both modules.
groups_are() {
	module_says ours "$@" && same "$1"
}

# module_says MODULE NAME VLAN NETWORK_A NETWORK_B
module_says() {
	[ "$(sed -n 's/^group: //p' "$ANSWERS/$2.$1")" = "client $3 $4"$'\n'"server $3 $5" ]
}

require "RDMA modules load" load_rdma
require "devices" up_fabric
check "our module is asked" ask_all ours
check "the C module is asked" ask_all c

check "an address of the device itself" uses plain rxe_wire_a rxe_wire_b
check "a VLAN on it" uses vlan rxe_wire_a rxe_wire_b
check "the group has its id" groups_are vlan 5 "" ""
check "and the next connection" groups_are vlan_again 5 "" ""
check "another VLAN has another group" groups_are other_vlan 6 "" ""
check "all bits of a VLAN's id are told" module_says ours wide_vlan 300 "" ""
check "of which the C module's attribute has eight" module_says c wide_vlan 44 "" ""
# Soft RoCE does not hear what comes by these.
check "a bridge" same bridge
check "one end gives it up, and tells the other" gave_up bridge
check "a bond" same bond
check "here, too" gave_up bond
check "a VLAN on a bond" same vlan_on_bond
check "and here" gave_up vlan_on_bond
check "soft RoCE on a bridge itself" ours_uses soft rxe_on_plain_a rxe_on_plain_b
check "a bridge over a VLAN" uses bridge_over_vlan
check "the lowest device is named: VLAN" groups_are named_base 8 NETA NETB
check "the VLAN is named" groups_are named_vlan 9 NETA NETB
check "both are, and the lowest counts" groups_are base_before_vlan 10 NETA NETB
check "of several, the first in the subnet" uses several rxe_near_a rxe_near_b
check "which has to be active" uses none_active
check "none is in the subnet" uses other_subnet
check "a bridge is named" uses named_bridge rxe_near_a rxe_near_b
# The C module takes the first address of a device that has one in the subnet.
check "and the device has an address of another subnet first" serves two_subnets 0a09:090b 0a09:090c
finish
