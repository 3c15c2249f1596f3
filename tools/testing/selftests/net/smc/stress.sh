#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 600
# Many connections at once, connections that come and go, processes that die.

. "$LIB"

# Both ends of a thousand connections are in one process.
ulimit -n 8192

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

check "1000 connections at once" smctest --expect smc many --connections 1000 --kib 8
check "processes open and close" \
	smctest --expect smc churn --processes 8 --opens "$(scale 40 1250)"
suite "killed" smctest --expect smc killed
check "connections in a row" smctest --expect smc connrate --processes 2 --count 100
check "idle connections" smctest --expect smc idle --connections 300
check "data is whole after all that" smctest --expect smc integrity --mib "$(scale 16 256)"
check "module unloads" within 20 unload_smc
finish
