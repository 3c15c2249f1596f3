#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# cpus: 1
# The way of RDMA packets: through gateways that answer or do not, by rules for an address, within a VRF, by the
# active port of a bond.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

# For the connection that stays (`hold`).
ENDS=(--client-netns=a --server-netns=b --addr=10.9.1.2 --deadline 60)

# The router's address in each subnet ends so.
GATEWAY=254

# up_router: namespace r between a, in the subnets 10.9.0 and 10.9.2, and b, in 10.9.1 and 10.9.3.
up_router() {
	ip netns add a && ip netns add b && ip netns add r && ip -n a link set lo up && ip -n b link set lo up &&
		in_ns r sh -c "echo 1 >/proc/sys/net/ipv4/ip_forward" &&
		up_routed a wire_a 10.9.0.1 && up_routed b wire_b 10.9.1.2 &&
		up_routed a wire2_a 10.9.2.1 && up_routed b wire2_b 10.9.3.2 &&
		way a 10.9.1.0/24 wire_a 10.9.0 1 && way a 10.9.3.0/24 wire_a 10.9.0 1 &&
		way a 10.9.1.0/24 wire2_a 10.9.2 2 && way a 10.9.3.0/24 wire2_a 10.9.2 2 &&
		way b 10.9.0.0/24 wire_b 10.9.1 1 && way b 10.9.2.0/24 wire_b 10.9.1 1 &&
		way b 10.9.0.0/24 wire2_b 10.9.3 2 && way b 10.9.2.0/24 wire2_b 10.9.3 2
}

# up_routed END DEVICE ADDRESS: a wire from that end to the router.
up_routed() {
	ip link add "$2" mtu 9000 netns "$1" type veth peer name "to_$2" mtu 9000 netns r &&
		ip -n "$1" address add "$3/24" dev "$2" && ip -n "$1" link set "$2" up &&
		ip -n r address add "${3%.*}.$GATEWAY/24" dev "to_$2" && ip -n r link set "to_$2" up
}

# way END DESTINATION DEVICE SUBNET METRIC [TABLE]
way() {
	ip -n "$1" route add "$2" via "$4.$GATEWAY" dev "$3" metric "$5" table "${6:-main}"
}

# to ADDRESS ARGUMENT...: smctest with the server in b, at that address.
to() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$1" --deadline 60 "${@:2}"
}

# resolved END DEVICE ADDRESS: the neighbour has answered.
resolved() {
	ip -n "$1" neighbor show "$3" dev "$2" | sed 's/^/# /' || return
	ip -n "$1" neighbor show "$3" dev "$2" | grep -q lladdr
}

# mute DEVICE: the router neither answers nor asks for addresses there, and is forgotten. unmute DEVICE: it does.
mute() {
	ip -n r link set "to_$1" arp off && ip -n "${1##*_}" neighbor flush dev "$1"
}

unmute() {
	ip -n r link set "to_$1" arp on && ip -n "${1##*_}" neighbor flush dev "$1"
}

# is_tcp_for CAUSE ADDRESS [PORT]: a connection is over TCP for that cause, and the program did not wait long for it.
is_tcp_for() {
	local began took
	began=$(date +%s%N)
	to "$2" --expect tcp --port "${3:-7010}" hold --seconds 0 \
		--then "ip netns exec a '$BIN/smc' why --pid \$PPID; true" >/tmp/why || return
	took=$((($(date +%s%N) - began) / 1000000))
	sed 's/^/# /' /tmp/why
	echo "# after $took ms"
	grep -q "id: .*$1" /tmp/why
}

# reload: the module as it is at first, without groups.
reload() {
	within 20 unload_smc && load_smc && within 20 ports_up
}

ports_up() {
	local states
	states=$("$BIN/smc" dev --json | sed -n 's/^ *"active": \([a-z]*\).*/\1/p') && [ "$(sort -u <<<"$states")" = true ]
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "a router between two subnets at each end" up_router
require "soft RoCE" eval 'device_add wire_a a && device_add wire_b b'

# Links of a group ----------------------------------------------------------------------------

check "through the gateway" to 10.9.1.2 --expect smc integrity --mib 1
require "a connection stays" hold
require "each end gets a port whose gateway it has not spoken to" eval 'device_add wire2_a a && device_add wire2_b b'
check "they make another link" links_on "rxe_wire2_a rxe_wire2_b rxe_wire_a rxe_wire_b"
check "the gateway was asked for its address" eval 'resolved a wire2_a 10.9.2.$GATEWAY && resolved b wire2_b 10.9.3.$GATEWAY'
hold_end

require "the group and the second ports go" eval 'device_del wire2_a a && device_del wire2_b b && reload'
require "a connection stays" hold
require "the second gateway of the client does not answer" mute wire2_a
require "each end gets a second port" eval 'device_add wire2_a a && device_add wire2_b b'
check "the client's is not used" links_on "rxe_wire2_b rxe_wire_a rxe_wire_a rxe_wire_b"
require "the gateway answers" unmute wire2_a
check "it is" within 60 are_links_on "rxe_wire2_a rxe_wire2_b rxe_wire_a rxe_wire_b"
hold_end
require "the second ports go" eval 'device_del wire2_a a && device_del wire2_b b && reload'

# The first link ------------------------------------------------------------------------------

# An RDMA device of a's that TCP does not use, in the same subnet, with a gateway of its own by a rule.
up_beside() {
	device_del wire_a a && ip link add beside_a mtu 9000 netns a type veth peer name to_beside_a mtu 9000 netns r &&
		ip -n a address add 10.9.0.12/24 dev beside_a noprefixroute &&
		ip -n a link set beside_a up &&
		ip -n r address add 10.9.4.$GATEWAY/32 dev to_beside_a && ip -n r link set to_beside_a up &&
		ip -n r route add 10.9.0.12/32 dev to_beside_a &&
		ip -n a route add 10.9.1.0/24 via 10.9.4.$GATEWAY dev beside_a onlink table 7 &&
		ip -n a rule add from 10.9.0.12 lookup 7 &&
		device_add beside_a a && in_ns a "$BIN/smc" pnet add NETA -I wire_a && "$BIN/smc" pnet add NETA -D rxe_beside_a
}

down_beside() {
	"$BIN/smc" pnet flush && in_ns a "$BIN/smc" pnet flush && device_del beside_a a && ip -n a link del beside_a &&
		ip -n a rule del from 10.9.0.12 && device_add wire_a a
}

require "an RDMA device whose gateway TCP does not use" up_beside
require "which does not answer" mute beside_a
check "TCP, and soon" is_tcp_for NOROUTE 10.9.1.2
require "it answers" unmute beside_a
check "the first connection is over it" to 10.9.1.2 --expect smc integrity --mib 1
check "which asked for its address" resolved a beside_a 10.9.4.$GATEWAY
require "that device goes" eval 'down_beside && reload'

# VRF -----------------------------------------------------------------------------------------

up_vrf() {
	ip -n a link add vrf_a type vrf table 9 && ip -n a link set vrf_a up && ip -n a link set wire_a master vrf_a &&
		ip -n a route del 10.9.1.0/24 via 10.9.2.$GATEWAY dev wire2_a metric 2 &&
		way a 10.9.1.0/24 wire_a 10.9.0 1 9
}

down_vrf() {
	ip -n a link set wire_a nomaster && ip -n a link del vrf_a && way a 10.9.1.0/24 wire_a 10.9.0 1
}

# tries_in_vrf: a connection from the VRF finds a way for RDMA. Soft RoCE does not hear what comes to a VRF: the peer
# declines (0x05000000), as it has waited for the new link in vain (0x02010000).
tries_in_vrf() {
	in_ns b python3 -c "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind(('10.9.1.2', 7030))
s.listen()
c, _ = s.accept()
c.send(c.recv(1))
c.recv(1)" &
	local server=$! code
	await_port b 7030 && in_ns a python3 -c "
import socket, struct
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'vrf_a')
s.connect(('10.9.1.2', 7030))
s.send(b'x')
assert s.recv(1) == b'x'
mode, reason, peer, *_ = struct.unpack('6I', s.getsockopt(286, 0x5201, 24))
print('#', mode, hex(reason), hex(peer))
assert (mode, reason, peer) == (1, 0x05000000, 0x02010000)"
	code=$?
	wait "$server" && [ $code = 0 ]
}

# stays_in_vrf: TCP has bound a connection to a link-local address to a device of the VRF, where it stays when the
# result of connect(2) is asked for.
stays_in_vrf() {
	local router
	ip -n a link set wire_a addrgenmode eui64 && ip -n r link set to_wire_a addrgenmode eui64 &&
		within 10 has_link_local r to_wire_a && within 10 has_link_local a wire_a || return
	router=$(link_local r to_wire_a)
	in_ns r python3 -c "
import socket
s = socket.socket(socket.AF_INET6)
s.bind(('::', 7031))
s.listen()
c, _ = s.accept()
c.send(c.recv(1))
c.recv(1)" &
	local server=$! code
	await_port r 7031 && in_ns a timeout 20 python3 -c "
import select, socket
s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b'vrf_a')
s.setblocking(False)
place = ('$router', 7031, 0, socket.if_nametoindex('wire_a'))
s.connect_ex(place)
select.select([], [s], [], 10)
print('#', s.connect_ex(place))
s.settimeout(5)
s.send(b'x')
assert s.recv(1) == b'x'"
	code=$?
	kill "$server" 2>/dev/null
	wait "$server"
	[ $code = 0 ]
}

# link_local END DEVICE: prints the device's link-local address, once it can be used.
link_local() {
	ip -n "$1" -6 address show dev "$2" scope link -tentative | sed -n 's|.*inet6 \([^/]*\)/.*|\1|p' | grep .
}

has_link_local() {
	link_local "$@" >/dev/null
}

require "the client is in a VRF, whose table alone has the route" up_vrf
check "RDMA is tried within the VRF" tries_in_vrf
check "a connection in the VRF, by a link-local address, keeps its device" stays_in_vrf
require "no VRF" eval 'down_vrf && reload'

# Bonds ---------------------------------------------------------------------------------------

# up_bond END ADDRESS: a bond of two ports, each with soft RoCE.
up_bond() {
	ip -n "$1" link add "bond_$1" type bond mode active-backup miimon 100 &&
		ip -n "$1" link set "one_$1" master "bond_$1" && ip -n "$1" link set "two_$1" master "bond_$1" &&
		ip -n "$1" address add "$2/24" dev "bond_$1" && ip -n "$1" link set "bond_$1" up &&
		device_add "one_$1" "$1" && device_add "two_$1" "$1"
}

up_bonds() {
	ip link add one_a netns a type veth peer name one_b netns b &&
		ip link add two_a netns a type veth peer name two_b netns b && up_bond a 10.7.0.1 && up_bond b 10.7.0.2
}

# active END: the bond's active port.
active() {
	in_ns "$1" cat "/sys/class/net/bond_$1/bonding/active_slave"
}

both_use() {
	[ "$(active a) $(active b)" = "$1_a $1_b" ]
}

# tries_rdma: a connection has a port for RDMA; soft RoCE does not hear what comes by a bond.
tries_rdma() {
	is_tcp_for TIMEOUT_CL 10.7.0.2
}

require "bonds" up_bonds
require "the first ports are active" within 20 both_use one
check "RDMA is tried by them" tries_rdma
require "the first wire is cut" eval 'ip -n a link set one_a down && within 20 both_use two'
check "RDMA is tried by the second ports" within 10 tries_rdma
# What TCP answers in the value of IPV6_FLOWLABEL_MGR, a struct in6_flowlabel_req: a label of its choice.
LABEL="
import ctypes, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def label(protocol):
    s = socket.socket(socket.AF_INET6, socket.SOCK_STREAM, protocol)
    # IPV6_FL_A_GET, IPV6_FL_S_EXCL, IPV6_FL_F_CREATE
    value = ctypes.create_string_buffer(struct.pack('=16sIBBHHHI', socket.inet_pton(socket.AF_INET6, '::1'), 0, 0, 1, 1, 0, 0, 0), 32)
    assert libc.setsockopt(s.fileno(), 41, 32, value, 32) == 0, ctypes.get_errno()
    return struct.unpack_from('!I', value.raw, 16)[0]
assert label(0) and label(256)
"
check "IPv6: a flow label of the kernel's choice" in_ns a python3 -c "$LABEL"
check "module unloads" within 20 unload_smc
finish
