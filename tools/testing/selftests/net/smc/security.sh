#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 300
# cpus: 1
# What protects TCP sockets, confines and binds them does so with SMC: keys, TLS, VRFs by control group, filters.

. "${LIB:=${0%/*}/lib.sh}"

# up_vrf END TABLE: the wire's device belongs to a VRF, so nothing outside of it is reached by that wire.
up_vrf() {
	ip -n "$1" link add "vrf_$1" type vrf table "$2" && ip -n "$1" link set "vrf_$1" up &&
		ip -n "$1" link set "wire_$1" master "vrf_$1"
}

# vrf_path: client and server as `ip vrf exec` starts them: a program of their control group binds sockets when they are
# made.
vrf_path() {
	local code
	ip netns exec b ip vrf exec vrf_b "$BIN/smctest" --family ipproto --addr "$IP_B" serve &
	server=$!
	ip netns exec a ip vrf exec vrf_a "$BIN/smctest" --family ipproto --addr "$IP_B" --remote path
	code=$?
	kill "$server"
	wait "$server" 2>/dev/null
	return $code
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

suite "TCP" smctest --family tcp semantics --only "security: "
suite "SMC" smctest --expect smc semantics --only "security: "
suite "IPPROTO_SMC" smctest --family ipproto --expect smc semantics --only "security: "

# AF_SMC is 43.
check "a program that may not have AF_SMC gets SMC by smc run" smctest refusing --number 43 \
	"$BIN/smc" run "$BIN/smctest" "${ENDS[@]}" --family tcp --expect smc path

# Nor AF_INET6, which is 10, as on a machine without IPv6: neither TCP nor SMC has it then, and SMC over IPv4 is there
# all the same.
V4_AFTER_V6='import errno, socket
try:
    socket.socket(socket.AF_INET6)
except OSError as e:
    assert e.errno == errno.EAFNOSUPPORT, e
else:
    raise SystemExit("IPv6 is not refused")
s = socket.socket(socket.AF_INET)
assert s.getsockopt(socket.SOL_SOCKET, 38) == 256, "TCP"'
check "a socket of IPv6 that is refused does not turn off SMC over IPv4" smctest refusing --number 10 \
	"$BIN/smctest" refusing --number 43 "$BIN/smc" run python3 -c "$V4_AFTER_V6"

require "VRFs" up_vrf a 100
require "VRFs, the other end" up_vrf b 100
check "sockets made by ip vrf exec are in the VRF" vrf_path
check "module unloads" within 20 unload_smc
finish
