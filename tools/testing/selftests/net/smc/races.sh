#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64-kcsan
# timeout: 400
# What may happen at the same time: connections come and go in every way while rules, names and settings change, while
# others look, and while RDMA devices go and come. KCSAN finds what races meanwhile.

. "${LIB:=${0%/*}/lib.sh}"

# Connections that each of four processes opens in a phase.
OPENS=$(scale 40 400)

# meanwhile LOOP... -- COMMAND...: the command, while each of the loops runs; each of their calls has to succeed.
meanwhile() {
	local pids=() code=0 pid
	rm -f /tmp/over
	while [ "$1" != -- ]; do
		(until [ -e /tmp/over ]; do "$1" >/tmp/said 2>&1 || { cat /tmp/said && exit 1; }; done) &
		pids+=($!)
		shift
	done
	shift
	"$@" || code=1
	touch /tmp/over
	for pid in "${pids[@]}"; do wait "$pid" || code=1; done
	return "$code"
}

# Rules that a connection is compared with, and that forbid none.
change_rules() {
	in_ns a "$BIN/smc" policy add deny --client --peer 192.0.2.1 &&
		in_ns b "$BIN/smc" policy add deny --server --peer 192.0.2.1 &&
		in_ns a "$BIN/smc" policy flush && in_ns b "$BIN/smc" policy flush
}

change_settings() {
	set_sysctl wmem 131072 && set_sysctl rmem 131072 && set_sysctl autocorking_size 4096 &&
		set_sysctl smcr_testlink_time 1 && set_sysctl wmem 65536 && set_sysctl rmem 65536 &&
		set_sysctl autocorking_size 65536 && set_sysctl smcr_testlink_time 30
}

change_names() {
	"$BIN/smc" ueid add RACES && "$BIN/smc" pnet add RACES --interface lo && "$BIN/smc" pnet del RACES &&
		"$BIN/smc" ueid del RACES
}

look() {
	in_ns a "$BIN/smc" ss --all && in_ns b "$BIN/smc" ss && in_ns a "$BIN/smc" stats && "$BIN/smc" lgr &&
		"$BIN/smc" link && "$BIN/smc" dev && "$BIN/smc" policy show && in_ns a ss -tani && cat /proc/net/protocols
}

# Connections that were over the device go with it; others are plain TCP until it comes back.
replace_device() {
	del_rdma "$KIND" b && sleep 1 && add_rdma "$KIND" b && sleep 3
}

churn() {
	smctest "$@" churn --processes 4 --opens "$OPENS"
}

phases() {
	check "$1: connections come and go" meanwhile look -- churn --expect smc
	check "$1: rules and settings change" meanwhile change_rules change_settings -- churn --expect smc
	check "$1: names change" meanwhile change_names look -- churn --expect smc
	check "$1: data in both directions" meanwhile look -- smctest --expect smc integrity --mib 4 --rounds 2
	check "$1: many at once" meanwhile look change_settings -- smctest --expect smc many --connections 60 --kib 8
	suite "$1: processes are killed" smctest --expect smc killed
}

require "RDMA modules load" load_rdma
require "soft iWARP loads" load_siw
require "module loads" load_smc
for KIND in rxe siw; do
	require "network" up_netns
	require "$KIND" "up_$KIND"
	phases "$KIND"
	check "$KIND: devices go and come" meanwhile replace_device look -- churn
	check "$KIND: SMC afterwards" smc_back 30
	down_netns
	require "the namespaces go" within 60 no_devices
done
check "module unloads" within 60 unload_smc
finish
