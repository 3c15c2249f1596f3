#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 2 days
# timeout: 300
# cpus: 1
# The tables of semantics.sh over iWARP.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "module loads" load_smc
require "network" up_netns
require "soft iWARP" up_siw
require "enterprise ID" common_eid
suite "SMC" smctest --expect smc --deadline 250 semantics
check "module unloads" within 30 unload_smc
finish
