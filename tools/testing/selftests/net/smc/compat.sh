#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# every: 3 days
# timeout: 300
# cpus: 1
# A program of 32 bits: its calls return over SMC what they return over TCP.

. "${LIB:=${0%/*}/lib.sh}"

SAID=$(mktemp -d)
UAPI=/usr/include/$(uname -m)-linux-gnu
PORT=5000

# build: with the kernel's own nolibc, as a machine need have no C library of 32 bits.
build() {
	clang-19 -m32 -static -nostdlib -Os -fno-stack-protector -I "$KMODS/source/tools/include/nolibc" -include nolibc.h \
		-isystem "$UAPI" -o "$SAID/compat" "${LIB%/*}/compat.c"
}

# exchange CLIENT SERVER: both ends, by sockets of these kinds; what their calls returned is kept.
exchange() {
	PORT=$((PORT + 1))
	in_ns b timeout 60 "$SAID/compat" "$2" server "$IP_B" $PORT >"$SAID/server-$1-$2" &
	local server=$!
	await_port b $PORT 20 &&
		in_ns a timeout 60 "$SAID/compat" "$1" client "$IP_B" $PORT >"$SAID/client-$1-$2" &&
		wait $server
}

# same CLIENT SERVER: the calls returned what they do over TCP.
same() {
	local end
	for end in client server; do
		diff "$SAID/$end-tcp-tcp" "$SAID/$end-$1-$2" || return
	done
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
require "a program of 32 bits" build
require "over TCP" exchange tcp tcp
for kind in smc ipproto; do
	check "$kind, over RDMA" by_rdma $((1 << 20)) exchange $kind $kind
	check "$kind, over RDMA: as over TCP" same $kind $kind
done
check "a TCP client" exchange tcp smc
check "a TCP client: as over TCP" same tcp smc
check "a TCP server" exchange smc tcp
check "a TCP server: as over TCP" same smc tcp
check "module unloads" within 20 unload_smc
finish
