#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# every: 5 days
# also: um-no-smc
# timeout: 400
# cpus: 1
# Every option of a socket, set and read in every state, and what it does: as TCP's in the same run, but for a table.

. "${LIB:=${0%/*}/lib.sh}"

# in_headers: the options that the kernel's headers have. Values of options have names like theirs.
in_headers() {
	local headers=$KMODS/source/include/uapi
	cat "$headers"/asm-generic/socket.h "$headers"/linux/{tcp,in,in6}.h |
		grep -oP '^#define\s+\K(SO|TCP|IP|IPV6)_[A-Z0-9_]+(?=\s+\d+\s*(/\*|$))' |
		grep -vE '^TCP_(MSS_|REPAIR_O|CC_|MD5SIG_(MAX|FLAG)|AO_MAX)|^IP_(PMTUDISC|DEFAULT)_' |
		grep -vE '^IPV6_(FL|PRIORITY|TLV|PMTUDISC|PREFER)_'
}

# all_known: each of them is compared.
all_known() {
	local name missing
	in_headers | grep -qx SO_DEBUG || return
	missing=$(in_headers | sed 's/_OLD$//' | sort -u | comm -23 - <(smctest sameness --names | grep -oE "[A-Z0-9_]+" | sort -u))
	for name in $missing; do
		echo "# not compared: $name"
	done
	[ -z "$missing" ]
}

# documented: the committed table is what the differences above are.
documented() {
	local renew='cargo run -p smctest -- sameness --document >Documentation/sameness.md'
	diff "$REPO/Documentation/sameness.md" <(smctest sameness --document) && return
	echo "# to renew it: $renew"
	return 1
}

if [ -e "$KMODS/source" ]; then
	check "no option of the kernel's headers is missing" all_known
else
	skip "no option of the kernel's headers is missing" "no kernel source"
fi
require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe
require "enterprise ID" common_eid
suite "options" smctest --deadline 240 --expect smc sameness --other-addr "$IP6_B"
if [ -n "${REPO:-}" ]; then
	check "Documentation/sameness.md is up to date" documented
else
	skip "Documentation/sameness.md is up to date" "no repository"
fi
check "module unloads" within 20 unload_smc
finish
