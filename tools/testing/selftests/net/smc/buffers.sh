#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 7 days
# timeout: 800
# cpus: 1
# The kinds of buffers that smcr_buf_type chooses: where they lie, also when large contiguous memory is short, and every
# byte in them, over RoCE and iWARP, in elements that are used again, and when links are lost.

. "${LIB:=${0%/*}/lib.sh}"
. "${LIB%/*}/failover.bash"

FAIL=/sys/kernel/debug/fail_page_alloc

# types A B: of the buffers of link groups that the two ends begin from now on.
types() {
	within 30 no_groups && in_ns a sh -c "echo $1 >/proc/sys/net/smc/smcr_buf_type" &&
		in_ns b sh -c "echo $2 >/proc/sys/net/smc/smcr_buf_type"
}

# groups_say CLIENT SERVER: the kind of their buffers, by the ends of the one group.
groups_say() {
	local said
	said=$("$BIN/smc" lgr --json) || return
	said=$(paste -d' ' <(sed -n 's/^ *"role": "\([a-z]*\)".*/\1/p' <<<"$said") \
		<(sed -n 's/^ *"buffers": "\([a-z]*\)".*/\1/p' <<<"$said") | sort)
	echo "# ${said//$'\n'/, }"
	[ "$said" = "client $1"$'\n'"server $2" ]
}

# virtual: how many of the module's buffers are not contiguous, by the kernel's own list, and their sizes with the page
# that is left free behind each. Asked while a connection has some, as idle ones may go at any time.
virtual() {
	local sizes
	sizes=$(awk '/smc_helper_ib_block_valloc/ { print $2 / 1024 - 4 }' /proc/vmallocinfo | sort -n | uniq -c)
	echo "# not contiguous (number, KiB): ${sizes//$'\n'/,}"
	[ -n "$sizes" ]
}

none_virtual() {
	! virtual
}

# short COMMAND...: while it runs no 64 pages are contiguous, so no buffer of 256 KiB or more.
short() {
	local code
	echo 6 >$FAIL/min-order && echo 0 >$FAIL/ignore-gfp-wait && echo 0 >$FAIL/task-filter && echo 1 >$FAIL/interval &&
		echo -1 >$FAIL/times && echo 0 >$FAIL/space && echo 0 >$FAIL/verbose && echo 100 >$FAIL/probability || return
	"$@"
	code=$?
	echo 0 >$FAIL/probability
	return "$code"
}

# data NAME: every byte is right.
data() {
	check "$1: data" smctest --expect smc integrity --mib "$(scale 4 64)"
	check "$1: small and large chunks" smctest --expect smc integrity --mib 1 --chunk 9001 --rounds 3
	check "$1: connections at once" smctest --expect smc many --connections 40 --kib 64
}

# unused_of_each_size: send buffers that were used, of four sizes: of each, a few are kept.
unused_of_each_size() {
	local bytes before
	before=$(in_ns a cat /proc/sys/net/smc/wmem)
	for bytes in 16384 65536 262144 524288; do
		set_sysctl wmem "$bytes" && smctest --expect smc many --connections 8 --kib 64 || return
	done
	set_sysctl wmem "$before"
}

# goes_at_once DEVICE NAMESPACE: its removal waits for nothing.
goes_at_once() {
	local begin=$SECONDS
	device_del "$1" "$2" || return
	echo "# gone after $((SECONDS - begin)) s"
	[ $((SECONDS - begin)) -le 8 ]
}

# losses NAME NUMBER LOSE RESTORE DEVICE...: under connections that send all they can.
losses() {
	local name=$1 number=$2
	shift 2
	OPTIONS=()
	both_ways "$@"
	check "$name" smctest --deadline 200 --expect smc failover --saturate --connections 6 --losses "$number" \
		"${LINKED[@]}" "${OPTIONS[@]}"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "two devices each" up_two_each
require "idle groups end soon" set_sysctl smcr_lgr_idle_time 15

data "0"
check "0: the groups say contiguous" groups_say contiguous contiguous
check "0: and they are" beside 1 none_virtual
require "unused send buffers of several sizes" unused_of_each_size
check "a device goes for which they are mapped" beside 1 goes_at_once wire_a a
require "it comes back" device_add wire_a a
require "types 0 and 1" types 0 1
data "0 and 1"
check "0 and 1: the groups say so" groups_say contiguous virtual
require "type 1" types 1 1
data "1"
check "1: the groups say virtual" groups_say virtual virtual
check "1: and they are" beside 1 virtual
suite "1: urgent data" smctest --expect smc semantics --only "urgent: "
suite "1: splice" smctest --expect smc semantics --only "splice"
suite "1: peek" smctest --expect smc semantics --only "peek"
losses "1: links go down" "$(scale 4 100)" link_down link_up "wire_a a" "wire2_b b" "wire_b b" "wire2_a a"
losses "1: devices are removed" "$(scale 2 100)" device_del device_add "wire_a a" "wire2_b b"
require "large buffers" set_sysctl wmem 1048576
require "of both kinds" set_sysctl rmem 1048576
data "1, of a megabyte"
check "1, of a megabyte: they are" beside 1 virtual
require "small ones" set_sysctl wmem 16384
require "of both kinds again" set_sysctl rmem 16384
data "1, of 16 KiB"
check "1: calls with 30 % of page allocations failing" smctest failing --pages --percent 30 --rounds 30
check "1: and data afterwards" smc_back 40
require "large ones" set_sysctl wmem 524288
require "of both kinds in the end" set_sysctl rmem 524288

require "type 2" types 2 2
data "2"
check "2: the groups say mixed" groups_say mixed mixed
check "2: while there is contiguous memory they are contiguous" beside 1 none_virtual
require "type 2 again" types 2 2
short data "2, short of contiguous memory"
check "2, short of contiguous memory: they are not contiguous" virtual
losses "2, both kinds: links go down" 2 link_down link_up "wire_a a" "wire2_b b"
require "type 0" types 0 0
short data "0, short of contiguous memory"
check "0, short of contiguous memory: they are contiguous all the same" none_virtual

if has_siw; then
	require "soft iWARP" iwarp_instead
	require "type 1 over iWARP" types 1 1
	data "1 over iWARP"
	check "1 over iWARP: many short writes, and around the ring" smctest --expect smc integrity --mib 2 \
		--rounds "$(scale 12 200)"
	check "1 over iWARP: links" links_on "siw_wire_a siw_wire_b"
	check "1 over iWARP: the buffers are" beside 1 virtual
fi
check "no groups in the end" within 30 no_groups
check "nor buffers" within 5 none_virtual
check "module unloads" within 20 unload_smc
finish
