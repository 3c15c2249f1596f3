#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# cpus: 1
# roce: limits
# timeout: 900
# RDMA devices with the limits of hardware: each alone, at the least that a driver has and below what a link needs, and
# all together. The connection is over SMC-R, or over TCP for a reason that names the limit; the data are whole.

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

# why_at END: the causes of the connections over TCP at that end.
why_at() {
	smctest --port 7010 hold --seconds 0 --then "ip netns exec $1 '$BIN/smc' why --pid \$PPID; true" >/tmp/why || return
	sed -n 's/^ *id: *//p' /tmp/why | sort -u | xargs
}

# is_for END CAUSE: the connection is over TCP for that cause at that end.
is_for() {
	local said
	said=$(why_at "$1")
	echo "# $said"
	case "$said " in */"$2 "*) ;; *) sed 's/^/# /' /tmp/why && return 1 ;; esac
}

# row END OUTCOME NAME=VALUE...: with these limits at that end (ab: both), connections are over SMC-R (smc), or over TCP
# for that cause.
row() {
	local ends=$1 want=$2 end=${1:0:1} name before=$FAILED outcome
	shift 2
	name="$* at $ends"
	check "$name: devices" devices "$ends" "$@"
	if [ "$want" = smc ]; then
		outcome=SMC-R
		check "$name: data is whole over SMC-R" smctest --expect smc integrity --mib 1
	else
		outcome="TCP: $want"
		check "$name: data is whole over TCP" smctest --expect tcp integrity --mib 1
		check "$name: the cause is $want" is_for "$end" "$want"
	fi
	check "$name: the devices go" within 20 no_devices_left
	[ "$FAILED" = "$before" ] || outcome=failed
	echo "# table | limits of RDMA devices | $* | $ends | $outcome"
}

# each OUTCOME NAME=VALUE...: the same at the client alone, and at the server alone.
each() {
	row a "$@"
	row b "$@"
}

# logged_once WORDS: the log says that of the devices of a and b, once each.
logged_once() {
	local end
	for end in a b; do
		[ "$(dmesg | grep -c "smc: RDMA device rxe_$end cannot be used: $1")" = 1 ] || return
	done
}

# checked END LINE: one of smc check there begins so.
checked() {
	in_ns "$1" "$BIN/smc" check >/tmp/said 2>&1
	sed 's/^/# /' /tmp/said
	grep -q "^$2 " /tmp/said
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
mapfile -t DEFAULTS < <(grep -H . "$LIMITS"/* | sed 's,.*/\([^:]*\):,\1=,' | grep -v '^inline_wrs\|^lose\|^fail\|^wc_')
require "network" up_netns 9000
require "module loads" load_smc

# The least that a driver has (Documentation/hardware.md), the least that a link needs, and less.
each smc max_send_sge=3
each smc max_send_sge=2
each device-sge max_send_sge=1
check "the log names the limit once for each device" logged_once "SGEs to send: 1, 2 needed"
check "smc check: devices" devices a max_send_sge=1
check "smc check names the device that is left out" checked a "FAIL  rdma/left-out"
check_not "smc check does not name that of the other end" checked b "FAIL  rdma/left-out"
check "smc check: the devices go" within 20 no_devices_left
each smc max_recv_sge=1
each device-sge max_recv_sge=0
each smc max_qp_wr=6
each device-queue max_qp_wr=5
each smc max_cqe=6
each device-queue max_cqe=5
each smc num_comp_vectors=1
each device-queue num_comp_vectors=0
each smc max_fast_reg_page_list_len=32
each smc max_fast_reg_page_list_len=8
each device-fast-reg max_fast_reg_page_list_len=7
each device-fast-reg no_fast_reg=1
each device-rc no_rc=1
# One is the core's own, for management datagrams.
each smc max_qp=2
each device-qps max_qp=1
each smc max_cq=2 num_comp_vectors=1
each device-cqs max_cq=1
# One for the protection domain of the core, one for that of a link, one for its RMB.
each smc max_mr=3
each device-mrs max_mr=2
each device-mrs max_mr=1

LEAST=(max_send_sge=2 max_recv_sge=1 max_inline=0 max_qp=2 max_qp_wr=6 max_cqe=6 num_comp_vectors=1
	max_fast_reg_page_list_len=8)
row ab smc "${LEAST[@]}"
check "all at once: devices" devices ab "${LEAST[@]}"
check "all at once: many connections in the group" smctest --expect smc many --connections 20 --kib 32
check "all at once: large transfers both ways" smctest --expect smc integrity --mib 8 --chunk 1000000
check "all at once: the devices go" within 20 no_devices_left
row ab device-sge max_send_sge=1 max_recv_sge=0 max_inline=0 max_qp=1 max_qp_wr=5 max_cq=1 max_cqe=5 max_mr=1 \
	num_comp_vectors=0 max_fast_reg_page_list_len=7

# What a device that refuses 128 bytes grants is used.
for most in 128 101 96 80 48; do
	check "inline data of $most bytes are used" uses_inline yes max_inline=$most
done
check "no inline data are used if the device has none" uses_inline no max_inline=0

check "module unloads" within 20 unload_smc
finish
