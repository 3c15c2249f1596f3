#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 120
# The management interface: enterprise IDs, and what they do to connections.

. "$LIB"

has_eids() {
	[ "$("$BIN/smc" ueid show | sort | tr -d ' ' | tr '\n' ' ')" = "$*${*:+ }" ]
}

ueid() {
	"$BIN/smc" ueid "$@"
}

as_nobody() {
	setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all "$BIN/smc" "$@"
}

require "RDMA modules load" load_rdma
require "module loads" load_smc
require "network" up_netns
require "soft RoCE" up_rxe

check "there is a default ID" has_eids "$EID"
check "it makes SMC-R" smctest --expect smc path
check_not "an ID is not added twice" ueid add "$EID"
check_not "small letters are no ID" ueid add small
check "IDs are added" ueid add A.B-C
check "more of them" ueid add D
check "a fourth" ueid add E1
check_not "a fifth is refused" ueid add F
check "they are all there" has_eids A.B-C D E1 "$EID"
check "anybody may look" as_nobody ueid show
check_not "not everybody may add" as_nobody ueid add G
check "an ID is removed" ueid del "$EID"
check_not "but not twice" ueid del "$EID"
check "another ID in common makes SMC-R" smctest --expect smc path
check "all IDs are removed" ueid flush
check "none is left" has_eids
check "without one it is TCP" smctest --expect tcp path
check "the default is added again" ueid add "$EID"
check "and it is SMC-R again" smctest --expect smc path
check "module unloads" within 20 unload_smc
finish
