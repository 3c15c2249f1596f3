#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 400
# cpus: 1
# What the tables of semantics.sh say of the C module is what it answers.

MODULE=c
. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
suite "SMC" smctest --expect smc --deadline 250 semantics --module c
check "module unloads" within 30 unload_smc
finish
