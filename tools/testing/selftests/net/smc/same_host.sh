#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: arm64
# timeout: 400
# SMC-D within one kernel, without any RDMA device: both ends share memory, across network namespaces.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "shared memory is allowed" same_host on

check "the path is SMC-D" smctest --expect smcd path
check "data is whole" smctest --expect smcd integrity --mib 4
check "small chunks" smctest --expect smcd integrity --mib 1 --chunk 700
check "chunks beyond the buffers" smctest --expect smcd integrity --mib 4 --chunk 1000000
check "over IPv6" smctest6 --expect smcd integrity --mib 1
check "link-local addresses" add_link_local
check "between them" smctest_local --expect smcd integrity --mib 1
check "round trips" smctest --expect smcd pingpong --count 5000
suite "gather" smctest --expect smcd gather
suite "SMC" smctest --expect smcd semantics --module "$MODULE"
suite "IPPROTO_SMC" smctest --family ipproto --expect smcd semantics --module "$MODULE"
suite "TCP_ULP" smctest --family ulp --expect smcd semantics --module "$MODULE" --race "$(scale 2 60)"
suite "SMC over IPv6" smctest6 --expect smcd semantics --module "$MODULE"
check "module unloads" within 20 unload_smc
finish
