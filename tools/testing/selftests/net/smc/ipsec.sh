#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: debian-7.3
# every: 5 days
# timeout: 300
# cpus: 1
# What IPsec protects goes over TCP, as RDMA would bypass it: by policies of the machine, and of a socket. So does what
# MACsec encrypts, or a VXLAN carries, by a device on top of that with the RDMA port.

. "${LIB:=${0%/*}/lib.sh}"

PORT=7000
OWN_PORT=7001
KEY=0x000102030405060708090a0b0c0d0e0f10111213

load_ipsec() {
	local module
	for module in net/xfrm/xfrm_algo net/xfrm/xfrm_user net/ipv4/ah4; do
		insmod "$KMODS/$module.ko" || return
	done
}

# add_policy END FROM TO DIRECTION: TCP segments have to be signed (AH).
add_policy() {
	ip -n "$1" xfrm policy add src "$2" dst "$3" proto tcp dir "$4" tmpl proto ah mode transport
}

# protect END PEER_IP OWN_IP
protect() {
	ip -n "$1" xfrm state add src "$IP_A" dst "$IP_B" proto ah spi 1 mode transport auth "hmac(sha1)" $KEY &&
		ip -n "$1" xfrm state add src "$IP_B" dst "$IP_A" proto ah spi 2 mode transport auth "hmac(sha1)" $KEY &&
		add_policy "$1" "$3" "$2" out && add_policy "$1" "$2" "$3" in
}

unprotect() {
	each_end ip xfrm policy flush && each_end ip xfrm state flush
}

# up_hidden KIND: devices of that kind on the wire, with addresses of their own.
up_hidden() {
	local ns number=1 other=b
	for ns in a b; do
		case $1 in
		macsec)
			ip -n $ns link add link wire_$ns hidden type macsec encrypt on &&
				ip -n $ns macsec add hidden tx sa 0 pn 1 on key 00 0123456789abcdef0123456789abcdef &&
				ip -n $ns macsec add hidden rx port 1 address "$(mac $other)" &&
				ip -n $ns macsec add hidden rx port 1 address "$(mac $other)" sa 0 pn 1 on \
					key 00 0123456789abcdef0123456789abcdef || return
			;;
		vxlan)
			ip -n $ns link add hidden type vxlan id 7 dev wire_$ns dstport 4789 \
				remote "10.9.0.$((3 - number))" || return
			;;
		esac
		ip -n $ns link set hidden up && ip -n $ns address add fd00:77::$number/64 dev hidden nodad || return
		number=2 other=a
	done
	within 10 ip netns exec a ping -c 1 -W 1 fd00:77::2 >/dev/null && have_gids fd00:0077:0000:0000:0000:0000:0000
}

# have_gids GROUPS: the RDMA devices have the addresses 1 and 2 of that network, which are GIDs now.
have_gids() {
	within 10 grep -qsx "$1:0001" /sys/class/infiniband/rxe_a/ports/1/gids/* &&
		within 10 grep -qsx "$1:0002" /sys/class/infiniband/rxe_b/ports/1/gids/*
}

# The RDMA devices below have these addresses as well.
hidden_ipv4() {
	ip -n a address add 10.77.0.1/24 dev hidden && ip -n b address add 10.77.0.2/24 dev hidden &&
		within 10 ip netns exec a ping -c 1 -W 1 10.77.0.2 >/dev/null &&
		have_gids 0000:0000:0000:0000:0000:ffff:0a4d
}

down_hidden() {
	each_end ip link delete hidden
}

# hidden MODE ADDRESS: connections to that address are of this mode. If that is TCP, then because no port is one of that
# network (NOSMCDEV), not because RDMA packets were sent beside it, which soft RoCE does not receive everywhere.
hidden() {
	"$BIN/smctest" --client-netns=a --server-netns=b --addr="$2" --expect "$1" path | tee /tmp/path
	[ "${PIPESTATUS[0]}" = 0 ] && { [ "$1" != tcp ] || grep -q '(0x03030000)$' /tmp/path; } &&
		"$BIN/smctest" --client-netns=a --server-netns=b --addr="$2" --expect "$1" integrity --mib 1
}

# A device on top of the one that hides packets, of which the RDMA devices at the bottom have the address, too.
up_above() {
	local ns number=1
	for ns in a b; do
		ip -n $ns link add link hidden above type vlan id 5 && ip -n $ns link set above up &&
			ip -n $ns address add 10.78.0.$number/24 dev above || return
		number=2
	done
	within 10 ip netns exec a ping -c 1 -W 1 10.78.0.2 >/dev/null && have_gids 0000:0000:0000:0000:0000:ffff:0a4e
}

# A port of RDMA on the encrypted network itself.
rdma_within() {
	in_ns a rdma link add rxe_in_a type rxe netdev hidden && in_ns b rdma link add rxe_in_b type rxe netdev hidden
}

rdma_without() {
	in_ns a rdma link delete rxe_in_a && in_ns b rdma link delete rxe_in_b
}

# signed: segments of TCP were.
signed() {
	ip -n a -s xfrm state | grep -A4 'lifetime current' | tee /tmp/state
	grep -q ' [1-9][0-9]*(packets)' /tmp/state
}

# why ID [PORT]: a connection from a is TCP for this.
why() {
	in_ns a "$BIN/smc" why "$IP_B:${2:-$PORT}" >/tmp/why
	local code=$?
	cat /tmp/why
	[ $code = 3 ] && grep -q "^  id:     $1 (" /tmp/why
}

# Python with an SMC socket `s` that has a policy of its own, which lets all pass.
OWN_POLICY="
import os, socket, struct, subprocess, time
ALLOW_OUT = struct.pack('40xH122x2B2x', socket.AF_INET, 1, 0)
s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 256)
s.setsockopt(socket.SOL_IP, 17, ALLOW_OUT)"

client_has_policy() {
	in_ns a python3 -c "$OWN_POLICY
s.connect(('$IP_B', $PORT))
subprocess.run(['$BIN/smc', 'why', '--pid', str(os.getpid())])" >/tmp/why
	cat /tmp/why
	grep -q "^  id:     IPSEC (" /tmp/why
}

listener_has_policy() {
	ip netns exec b python3 -c "$OWN_POLICY
s.bind(('$IP_B', $OWN_PORT))
s.listen()
time.sleep(1000)" &
	STARTED+=($!)
	await_port b $OWN_PORT 30 && why PEERDECL/IPSEC $OWN_PORT
}

require "RDMA modules load" load_rdma
require "IPsec loads" load_ipsec
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "a server" start_server $PORT
check "without policies it is SMC" smctest --port 7010 --expect smc path

require "policies at one end" protect a "$IP_B" "$IP_A"
require "and at the other" protect b "$IP_A" "$IP_B"
check "data goes over TCP" by_tcp 1000 smctest --port 7010 --expect tcp integrity --mib 1
check "signed" signed
check "smc why names IPsec" why IPSEC
require "shared memory" same_host on
check "it does so on one machine, too" smctest --port 7010 --expect tcp path
same_host off
require "no policies" unprotect
check "SMC again" smctest --port 7010 --expect smc path

check "a policy of the client's socket" client_has_policy
check "a policy of the listener" listener_has_policy
stop_servers
for kind in macsec vxlan; do
	require "$kind" up_hidden $kind
	check "$kind: the device below has RDMA, which would bypass it" hidden tcp fd00:77::2
	require "IPv4" hidden_ipv4
	check "$kind: with IPv4, too" hidden tcp 10.77.0.2
	require "a VLAN on top" up_above
	check "$kind: and by that" hidden tcp 10.78.0.2
	require "a port on the device itself" rdma_within
	check "$kind: that is used" hidden smc 10.77.0.2
	require "it goes" rdma_without
	require "no $kind" down_hidden
done
check "SMC on the wire" smctest --port 7010 --expect smc path
check "module unloads" within 20 unload_smc
finish
