#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# roce: limits
# timeout: 900
# RDMA devices with the limits of hardware.

RXE_KO=$ROCE_LIMITS_RXE_KO
. "${LIB:=${0%/*}/lib.sh}"

LIMITS=/sys/module/rdma_rxe/parameters

# set_limits NAME=VALUE...: for soft RoCE devices that are made from now on.
set_limits() {
	local setting
	for setting; do
		echo "${setting#*=}" >"$LIMITS/${setting%%=*}" || return
	done
}

limit() {
	cat "$LIMITS/$1"
}

# device END NAME=VALUE...: soft RoCE at that end, with these limits.
device() {
	local end=$1 code
	shift
	set_limits "$@" && add_rdma rxe "$end"
	code=$?
	set_limits "${DEFAULTS[@]}"
	return $code
}

# devices END NAME=VALUE...: soft RoCE at both ends, with these limits at one, or at both if END is ab.
devices() {
	local ends=$1 end
	shift
	for end in a b; do
		case $ends in
		*$end*) device $end "$@" || return ;;
		*) device $end || return ;;
		esac
	done
}

no_devices_left() {
	del_rdma rxe a && del_rdma rxe b && no_devices
}

# uses_inline YES|NO NAME=VALUE...: with these limits, so does the device use inline data.
uses_inline() {
	local want=$1 count
	shift
	set_limits inline_wrs=0 && devices ab "$@" && smctest --expect smc integrity --mib 1 || return
	count=$(limit inline_wrs)
	echo "# $count work requests with inline data"
	no_devices_left && case $want in yes) [ "$count" -gt 20 ] ;; no) [ "$count" = 0 ] ;; esac
}

require "RDMA modules load" load_rdma
mapfile -t DEFAULTS < <(grep -H . "$LIMITS"/* | sed 's,.*/\([^:]*\):,\1=,' | grep -v '^inline_wrs\|^lose\|^fail')
require "network" up_netns 9000
require "module loads" load_smc

# What a device that refuses 128 bytes grants is used.
for most in 128 101 96 80 48; do
	check "inline data of $most bytes are used" uses_inline yes max_inline=$most
done
check "no inline data are used if the device has none" uses_inline no max_inline=0

check "module unloads" within 20 unload_smc
finish
