# SPDX-License-Identifier: GPL-2.0
# What the scripts that take links away share: devices on one bridge, how they go and come back.
#
# A device is named with its namespace, `-` for that of the guest itself.

# in_place NAMESPACE COMMAND...
in_place() {
	local name=$1
	shift
	if [ "$name" = - ]; then "$@"; else ip netns exec "$name" "$@"; fi
}

# up_bridge: any two devices on it may be the ends of a link.
up_bridge() {
	ip link add fabric type bridge && ip link set fabric up
}

# up_ends: the namespaces a and b, and the bridge for their devices.
up_ends() {
	ip netns add a && ip netns add b && up_bridge && ip -n a link set lo up && ip -n b link set lo up
}

# up_device DEVICE NAMESPACE ADDRESS MTU: with soft RoCE on it. The addresses are of one subnet, as the C module
# wants it, so each device has to answer for its own only.
up_device() {
	up_port "$@" && device_add "$1" "$2"
}

# up_port DEVICE NAMESPACE ADDRESS MTU: without.
up_port() {
	local conf=/proc/sys/net/ipv4/conf/all
	ip link add "p_$1" mtu "$4" type veth peer name "$1" mtu "$4" || return
	[ "$2" = - ] || ip link set "$1" netns "$2" || return
	ip link set "p_$1" master fabric up &&
		in_place "$2" sh -c "echo 1 >$conf/arp_ignore && echo 2 >$conf/arp_announce" &&
		in_place "$2" ip address add "$3/24" dev "$1" &&
		in_place "$2" ip link set "$1" up
}

# link_down DEVICE NAMESPACE and link_up DEVICE NAMESPACE
link_down() {
	in_place "$2" ip link set "$1" down
}

link_up() {
	in_place "$2" ip link set "$1" up
}

# device_del DEVICE NAMESPACE and device_add DEVICE NAMESPACE
device_del() {
	in_place "$2" rdma link delete "rxe_$1"
}

device_add() {
	in_place "$2" rdma link add "rxe_$1" type rxe netdev "$1"
}

# rdma_add KIND_DEVICE NAMESPACE and rdma_del KIND_DEVICE NAMESPACE: soft RoCE or soft iWARP, by that name, on the
# device.
rdma_add() {
	in_place "$2" rdma link add "$1" type "${1%%_*}" netdev "${1#*_}"
}

rdma_del() {
	in_place "$2" rdma link delete "$1"
}

# silence DEVICE NAMESPACE... and noise DEVICE NAMESPACE...: nothing leaves there any more, and nobody says so.
silence() {
	while [ $# -gt 0 ]; do
		in_place "$2" tc qdisc add dev "$1" root netem loss 100% || return
		shift 2
	done
}

noise() {
	while [ $# -gt 0 ]; do
		in_place "$2" tc qdisc del dev "$1" root || return
		shift 2
	done
}

export -f in_place link_down link_up device_del device_add rdma_add rdma_del silence noise

# up_two_each: two devices for each end, of one subnet; a group is to have a link on each (LINKED).
up_two_each() {
	up_ends &&
		up_device wire_a a "$IP_A" 9000 && up_device wire2_a a 10.9.0.11 9000 &&
		up_device wire_b b "$IP_B" 9000 && up_device wire2_b b 10.9.0.12 9000
}

# iwarp_instead: one device of soft iWARP at each end instead of the two of up_two_each.
iwarp_instead() {
	local device
	for device in wire_a wire2_a wire_b wire2_b; do
		device_del "$device" "${device##*_}" || return
	done
	link_down wire2_a a && link_down wire2_b b && load_siw && rdma_add siw_wire_a a && rdma_add siw_wire_b b
}

# up_fabric: two devices of this guest of a pair, on a bridge with the wire. The first one's address is the guest's.
up_fabric() {
	local mtu
	mtu=$(cat "/sys/class/net/$WIRE/mtu") &&
		up_bridge && ip link set "$WIRE" master fabric up &&
		up_device near - "$LOCAL_IP" "$mtu" && up_device near2 - "${LOCAL_IP%.*}.1${LOCAL_IP##*.}" "$mtu" &&
		within 20 ping -c 1 -W 1 "$PEER_IP" >/dev/null
}

# hold [OPTION...]: a connection, or more by an option, so that the link group stays until hold_end.
hold() {
	hold_begin --expect smc --port 7020 hold --seconds 0 "$@"
}

LINKED=(--linked "rxe_wire_a rxe_wire2_a" --linked "rxe_wire_b rxe_wire2_b")

# both_ways LOSE RESTORE DEVICE...: the options of `smctest failover` for the two commands, with each device.
both_ways() {
	local lose=$1 restore=$2 device
	shift 2
	for device in "$@"; do
		OPTIONS+=(--lose "$lose $device" --restore "$restore $device")
	done
}
