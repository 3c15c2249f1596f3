#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
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
	smctest --deadline "$(scale 400 4000)" --expect smc churn --processes 8 --opens "$(scale 1250 12500)"
suite "killed" smctest --expect smc killed
check "connections in a row" smctest --expect smc connrate --processes 2 --count 100
check "idle connections" smctest --expect smc idle --connections 300
check "data is whole after all that" smctest --deadline "$(scale 400 4000)" --expect smc integrity --mib "$(scale 256 2560)"
check "module unloads" within 20 unload_smc
finish
