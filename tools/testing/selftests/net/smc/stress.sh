#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# not in the run yet; guest: um-debug
# timeout: 400
# Many connections at once, connections that come and go, processes that die.

. "$LIB"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

check "100 connections at once" smctest --expect smc many --connections 100 --kib 64
check "300 connections at once" smctest --expect smc many --connections 300 --kib 8
check "processes open and close" smctest --expect smc churn --processes 4 --opens 40
suite "killed" smctest --expect smc killed
check "connections in a row" smctest --expect smc connrate --processes 2 --count 100
check "idle connections" smctest --expect smc idle --connections 100
check "data is whole after all that" smctest --expect smc integrity --mib 2
check "module unloads" within 20 unload_smc
finish
