#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# timeout: 400
# cpus: 2
# RMBEs grow with use up to SO_RCVBUF, beyond that in a bulk transfer, and shrink when idle, over RoCE and over iWARP;
# where there is no memory for a larger one a connection goes on with what it has; smcr_rmem_min says what they begin
# with, smcr_rmem_max how far they grow.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

# idle_kib MOST: what an idle connection takes.
idle_kib() {
	smctest --expect smc idle --connections 400 --most "$1"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_two_each
require "idle groups end soon" set_sysctl smcr_lgr_idle_time 10

suite "RoCE" smctest --expect smc resize
check "an idle connection needs less than two RMBEs of 64 KiB" idle_kib 100
check "calls with 30 % of page allocations failing" smctest failing --pages --percent 30 --rounds 30
check "and data afterwards" smc_back 40

require "64 KiB from the beginning" set_sysctl smcr_rmem_min 65536
require "no more in a bulk transfer" set_sysctl smcr_rmem_max 65536
suite "RoCE, smcr_rmem_min and smcr_rmem_max of 64 KiB" smctest --expect smc resize --fixed --bulk 65536
require "512 KiB as before" set_sysctl smcr_rmem_max 524288
require "more than SO_RCVBUF" set_sysctl smcr_rmem_min 1048576
suite "RoCE, smcr_rmem_min of 1 MiB" smctest --expect smc resize --fixed
require "32 KiB" set_sysctl smcr_rmem_min 32768
require "at most 128 KiB" set_sysctl rmem 131072
require "and in a bulk transfer" set_sysctl smcr_rmem_max 131072
suite "RoCE, 32 to 128 KiB" smctest --expect smc resize --min 32768 --max 131072 --bulk 131072
require "512 KiB as before" set_sysctl smcr_rmem_max 524288
require "16 KiB as before" set_sysctl smcr_rmem_min 16384
require "64 KiB as before" set_sysctl rmem 65536

if has_siw; then
	require "no group over RoCE" within 30 no_groups
	require "soft iWARP" iwarp_instead
	suite "iWARP" smctest --expect smc resize
fi
check "no large RMBE was cleared in softirq context" sh -c '! dmesg | grep "smc: a large RMBE is cleared"'
check "no groups in the end" within 30 no_groups
check "module unloads" within 20 unload_smc
finish
