#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# also: debian-7.3, arm64
# timeout: 400
# cpus: 1
# Every socket call in every state, in SMC mode; TCP beside it keeps the tables honest.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

suite "TCP" smctest --family tcp semantics
suite "SMC" smctest --expect smc semantics --module "$MODULE"
suite "IPPROTO_SMC" smctest --family ipproto --expect smc semantics --module "$MODULE"
suite "TCP_ULP" smctest --family ulp --expect smc semantics --module "$MODULE" --race "$(scale 2 60)"
suite "TCP_ULP over IPv6" smctest6 --family ulp --expect smc semantics --module "$MODULE" --only "converted"
suite "SMC over IPv6" smctest6 --expect smc semantics --module "$MODULE"
check "module unloads" within 20 unload_smc
finish
