#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# memory: short
# timeout: 400
# Allocations fail: calls may fail, connections may become TCP, nothing may break or leak.

. "${LIB:=${0%/*}/lib.sh}"

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid

# new_groups COMMAND...: the command, while a group of which nobody has need goes at once, so that the next connection
# makes one again, with all its memory.
new_groups() {
	with_sysctl a net/smc/smcr_lgr_idle_time 0 with_sysctl b net/smc/smcr_lgr_idle_time 0 "$@"
}

in_turn() {
	new_groups smctest --deadline 280 --expect smc failing --in-turn "$@"
}

# Before there is a group that stays.
check "small allocations of workers for a new link, each in turn" in_turn
check "pages that workers take for a new link, each in turn" in_turn --pages
# A path that was taken for broken before is not used for half a minute: there would be no group to make.
require "SMC works between" new_groups smc_back 40
check "calls and workers with 30 % of page allocations failing" \
	new_groups smctest failing --pages --workers --percent 30 --rounds 60
require "SMC works then" new_groups smc_back 40
[ "$MODULE" = c ] || check "a send without memory for a buffer waits" \
	new_groups smctest --expect smc failing --sends --percent 100
check "calls with 5 % of allocations failing" smctest failing --percent 5 --rounds 60
check "calls with 30 % of allocations failing" smctest failing --percent 30 --rounds 60
check "all tasks, with 1 % of allocations failing" \
	smctest failing --everywhere --percent 1 --rounds 60
check "SMC works afterwards" smc_back 40
check "module unloads" within 20 unload_smc

# Loading is a chain of registrations: each fails in turn, and what was done has to be undone.
case $MODULE in
ours) file=$SMC_KO ;;
*) file=$C_SMC_KO ;;
esac
check "loading with 1 % of allocations failing" \
	smctest failing --percent 1 --rounds 40 --load "$file"
check "loading with 10 % of allocations failing" \
	smctest failing --percent 10 --rounds 40 --load "$file"
check "loading with 5 % of page allocations failing" \
	smctest failing --pages --percent 5 --rounds 40 --load "$file"
require "module loads afterwards" load_smc
require "enterprise ID afterwards" common_eid
check "SMC works in the end" smctest --expect smc integrity --mib 1
check "module unloads in the end" within 20 unload_smc
finish
