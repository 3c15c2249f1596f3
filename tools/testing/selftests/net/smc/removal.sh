#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 3 days
# timeout: 400
# What a connection uses goes away under it, with soft RoCE.

RDMA=rxe COUNTER="rdma_bytes a" MIB=96
: "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/removal.bash"
check "module unloads" within 20 unload_smc
finish
