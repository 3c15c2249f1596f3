#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: x86_64
# every: 5 days
# timeout: 500
# cpus: 1
# net.smc.hs_ctrl: BPF programs that decide about the SMC option of a SYN and of a SYN-ACK, in each network namespace.
# With the C module first, and with ours: all is as there.

. "${LIB:=${0%/*}/lib.sh}"

SOURCE=$(dirname "$(readlink -f "$0")")/hs_ctrl.c
OBJECTS=$(mktemp -d)
SETTING=/proc/sys/net/smc/hs_ctrl

# control FILE NAME OPTION...: compiles a control of that name, into that file.
control() {
	local file=$1 name=$2 clang
	shift 2
	for clang in "${SMC_CLANG:-clang}" clang-{22..16}; do
		! command -v "$clang" >/dev/null || break
	done
	"$clang" -target bpf -O2 -g -Wall -Werror "-DNAME=\"$name\"" "$@" -c "$SOURCE" -o "$OBJECTS/$file.o"
}

controls() {
	control ports ports -DSYN_PORT=7001 -DSYNACK_PORT=7002 &&
		control ports_again ports &&
		control addresses addresses -DSYN_ADDRESS=0x0a090002 -DSYNACK_ADDRESS=0x0a090001 &&
		control inherited inherited.1_ -DFLAGS=1 -DSYN_PORT=7001 &&
		control fifteen fifteen_bytes_x && control sixteen sixteen_bytes_xy &&
		control nameless '' && control blank 'a b' && control flags flags -DFLAGS=2 &&
		control link link '-DSECTION=".struct_ops.link"'
}

hs_ctrl() {
	"$BIN/smc" hs-ctrl "$@"
}

load() {
	hs_ctrl load "$OBJECTS/$1.o"
}

# used END NAME: that end uses this control, or none.
used() {
	[ "$(in_ns "$1" cat "$SETTING")" = "$2" ]
}

# uses NAME: the namespace of this process.
uses() {
	[ "$(cat "$SETTING")" = "$1" ]
}

# listed NAME...: just these are loaded, or still used.
listed() {
	local names
	names=$(hs_ctrl list --json | sed -n 's/.*"name": "\(.*\)".*/\1/p' | xargs)
	echo "# $names"
	[ "$names" = "$*" ]
}

# is_unloaded NAME: it is, and still used.
is_unloaded() {
	hs_ctrl list | grep -Eq "^$1 .* unloaded$"
}

# written: what the setting says to each of these texts, in namespace a, and which control that has afterwards. Last it
# has none.
written() {
	local text error now
	for text in ports nobody addresses port portsx fifteen_bytes_x fifteen_bytes_xy ' ports' 'ports ' $'ports\nnobody' \
		$'\nports' ports ' ' $'\n'; do
		error=
		printf %s "$text" | in_ns a sh -c "cat >$SETTING" 2>/tmp/error || read -r error </tmp/error
		now=$(in_ns a cat "$SETTING")
		echo "${text@Q}: ${error##*: } $now"
	done >"$OBJECTS/written.$MODULE"
	sed 's/^/# /' "$OBJECTS/written.$MODULE"
	used a ''
}

to_tcp() {
	smctest --expect tcp "$@" integrity --mib 1
}

# The C module waits at most two seconds for a message of a new link, which is not always enough on an emulated machine.
to_smc() {
	if [ "$MODULE" = c ]; then within 15 smctest --expect smc "$@" path; else smctest --expect smc "$@" path; fi
}

# mode: whoever it is may read the setting, but not write it.
mode() {
	[ "$(in_ns a stat -c %a "$SETTING")" = 644 ] && as_nobody cat "$SETTING" >/dev/null &&
		! as_nobody sh -c "echo >$SETTING" 2>/dev/null
}

# new_namespaces: have the control of the initial one, if that is to be inherited, and whatever others have.
new_namespaces() {
	uses '' && unshare --net cat "$SETTING" | grep -qx '' && hs_ctrl use ports &&
		unshare --net cat "$SETTING" | grep -qx '' && hs_ctrl use inherited.1_ &&
		[ "$(unshare --net cat "$SETTING")" = inherited.1_ ] &&
		in_ns a sh -c "echo ports >$SETTING && unshare --net cat $SETTING" | grep -qx inherited.1_
}

# ends_with_namespace: a control that was unloaded goes with the last namespace that uses it.
ends_with_namespace() {
	ip netns add c && [ "$(ip netns exec c cat "$SETTING")" = inherited.1_ ] && hs_ctrl off &&
		hs_ctrl unload inherited.1_ && within 10 is_unloaded inherited.1_ && ip netns del c &&
		within 20 is_gone inherited.1_
}

is_gone() {
	! hs_ctrl list --json | grep -qF "\"$1\""
}

# changing: controls come and go while connections are made, which are SMC or TCP.
changing() {
	local end=$((SECONDS + $(scale 8 60))) code
	while [ "$SECONDS" -lt "$end" ]; do
		load addresses && in_ns a "$BIN/smc" hs-ctrl use addresses && hs_ctrl unload addresses &&
			in_ns a "$BIN/smc" hs-ctrl off || return
	done &
	local changer=$!
	while kill -0 $changer 2>/dev/null; do
		smctest integrity --mib 1 || return
	done
	wait $changer
}

# trials: of this module.
trials() {
	require "$MODULE: module loads" load_smc
	require "$MODULE: enterprise ID" common_eid
	check "$MODULE: nothing is loaded" listed
	check "$MODULE: no namespace uses any" used a ''
	check "$MODULE: who may read and write" mode
	check "$MODULE: none is found" fails_saying "no control ports" hs_ctrl use ports

	check "$MODULE: controls are loaded" load ports
	check "$MODULE: a second one" load addresses
	check "$MODULE: one with a long name" load fifteen
	check "$MODULE: they are listed" listed addresses fifteen_bytes_x ports
	check "$MODULE: not to everybody" fails_saying "needs root" as_nobody "$BIN/smc" hs-ctrl list
	check "$MODULE: a name that is taken" fails_saying "loaded already" load ports_again
	check "$MODULE: a name that is too long" fails_saying "wrong name" load sixteen
	check "$MODULE: no name" fails_saying "wrong name" load nameless
	check "$MODULE: a name with a blank" fails_saying "wrong name" load blank
	check "$MODULE: a flag that is none" fails_saying "wrong name or flags" load flags
	check "$MODULE: a link" fails_saying "no BPF link" load link
	check "$MODULE: no object file" fails_saying "no such file" load nothing
	check "$MODULE: what is not loaded cannot be unloaded" fails_saying "no control nobody" hs_ctrl unload nobody
	check "$MODULE: what was refused is not listed" listed addresses fifteen_bytes_x ports
	check "$MODULE: texts that the setting takes" written
	check "$MODULE: a control of that length" in_ns a "$BIN/smc" hs-ctrl use fifteen_bytes_x
	check "$MODULE: none is unloaded while unused" hs_ctrl unload fifteen_bytes_x
	check "$MODULE: off" in_ns a "$BIN/smc" hs-ctrl off

	check "$MODULE: SMC, as none is used" to_smc
	check "$MODULE: a client uses one" in_ns a "$BIN/smc" hs-ctrl use ports
	check "$MODULE: the server does not" used b ''
	check "$MODULE: the port that it refuses to open is TCP" to_tcp --port 7001
	check "$MODULE: another is SMC" to_smc
	check "$MODULE: what it refuses to accept, too" to_smc --port 7002
	check "$MODULE: the server uses it" in_ns b "$BIN/smc" hs-ctrl use ports
	check "$MODULE: the port that it refuses to accept is TCP" to_tcp --port 7002
	check "$MODULE: another is SMC again" to_smc
	check "$MODULE: the server uses another" in_ns b "$BIN/smc" hs-ctrl use addresses
	check "$MODULE: TCP for the client's address" to_tcp
	# The C module has no version 2 for IPv6, and the devices no version 1.
	[ "$MODULE" = c ] ||
		check "$MODULE: SMC for IPv6, which it does not know" smctest6 --expect smc path
	check "$MODULE: the server uses none" in_ns b "$BIN/smc" hs-ctrl off
	check "$MODULE: SMC" to_smc
	check "$MODULE: the client uses that one" in_ns a "$BIN/smc" hs-ctrl use addresses
	check "$MODULE: TCP for the server's address" to_tcp
	check "$MODULE: the client uses the first again" in_ns a "$BIN/smc" hs-ctrl use ports
	check "$MODULE: an unused one is unloaded" hs_ctrl unload addresses
	check "$MODULE: and gone" within 20 is_gone addresses

	check "$MODULE: one that is used is unloaded" hs_ctrl unload ports
	check "$MODULE: and shown as such" is_unloaded ports
	check "$MODULE: it still decides" to_tcp --port 7001
	check "$MODULE: its name is still told" used a ports
	check "$MODULE: and not found" fails_saying "no control ports" in_ns b "$BIN/smc" hs-ctrl use ports
	check "$MODULE: another takes its name" load ports_again
	check "$MODULE: which is another" to_tcp --port 7001
	check_not "$MODULE: the module is busy" rmmod smc
	check "$MODULE: the client uses that one" in_ns a "$BIN/smc" hs-ctrl use ports
	check "$MODULE: which refuses nothing" to_smc --port 7001
	check "$MODULE: the first is gone" within 20 listed ports
	check "$MODULE: controls come and go" changing
	check "$MODULE: SMC after that" to_smc

	check "$MODULE: one for new namespaces is loaded" load inherited
	check "$MODULE: they inherit it" new_namespaces
	check "$MODULE: it goes with the last of them" ends_with_namespace
	check "$MODULE: the client uses none" in_ns a "$BIN/smc" hs-ctrl off
	check_not "$MODULE: the module is busy while one is loaded" rmmod smc
	check "$MODULE: the last is unloaded" hs_ctrl unload ports
	check "$MODULE: and gone" within 20 listed
	require "$MODULE: the module unloads" within 20 unload_smc
}

require "controls compile" controls
require "RDMA modules load" load_rdma
require "network" up_netns
require "soft RoCE" up_rxe
check "without the module there are none" fails_saying "module is not loaded" hs_ctrl list
for MODULE in c ours; do
	trials
done
check "both modules take the same texts" diff "$OBJECTS"/written.{c,ours}
check "texts were taken and refused" grep -q "^'nobody': Invalid argument" "$OBJECTS/written.ours"
finish
