#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# memory: short
# timeout: 500
# SMC-D within one kernel: the switch, every way to end, processes that are killed, many connections, and failing
# allocations.

. "${LIB:=${0%/*}/lib.sh}"

ulimit -n 8192

SEQUENCES=$(scale 15 300)

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "shared memory is allowed" same_host on

# is_smcd and is_tcp: connections go that way.
is_smcd() {
	smctest --expect smcd path
}

is_tcp() {
	smctest --expect tcp path
}

# off_the_wire COMMAND...: fewer than 100,000 bytes go over the wire while the command runs.
off_the_wire() {
	local before after
	before=$(in_ns a cat /sys/class/net/wire_a/statistics/tx_bytes)
	"$@" || return
	after=$(in_ns a cat /sys/class/net/wire_a/statistics/tx_bytes)
	echo "# $((after - before)) bytes on the wire"
	[ $((after - before)) -lt 100000 ]
}

check "it is used" is_smcd
check "data do not go over the wire" off_the_wire smctest --expect smcd integrity --mib 4
check "off at the client: TCP" with_sysctl a net/smc/smcd_loopback 0 is_tcp
check "off at the server: TCP" with_sysctl b net/smc/smcd_loopback 0 is_tcp
same_host off
check "off in the initial namespace: TCP" is_tcp
same_host on
check "and on again" is_smcd
check "a server of TCP" smctest --server-family tcp --expect tcp integrity --mib 1
check "a client of TCP" smctest --family tcp --server-family smc integrity --mib 1
suite "clients of TCP and SMC" smctest mixed

suite "endings" smctest --deadline 300 --family tcp --expect smcd endings
suite "urgent" smctest --family tcp --expect smcd endings --urgent "$SEQUENCES"
suite "forms" smctest --expect smcd forms
suite "reset" smctest --expect smcd reset
suite "killed" smctest --expect smcd killed

check "processes open and close" smctest --deadline 300 --expect smcd churn --processes 8 --opens "$(scale 50 500)"
check "1000 connections at once" smctest --expect smcd many --connections 1000 --kib 8
check "connections in a row" smctest --expect smcd connrate --processes 2 --count 100
check "idle connections" smctest --expect smcd idle --connections 300

check "a send without memory for a ring waits" smctest --expect smcd failing --sends --percent 100
check "calls with 30 % of allocations failing" smctest failing --percent 30 --rounds 60
check "calls and workers with 30 % of page allocations failing" \
	smctest failing --pages --workers --percent 30 --rounds 60
check "all tasks, with 1 % of allocations failing" smctest failing --everywhere --percent 1 --rounds 60
check "it is used afterwards" is_smcd
down_netns
check "the namespaces go" within 20 sh -c '[ -z "$(ls /sys/class/net | grep wire)" ]'
check "module unloads" within 20 unload_smc
finish
