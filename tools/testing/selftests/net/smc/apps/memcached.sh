#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# memcached: the conformance test of libmemcached, load, and files that come back as they were stored.

. "${LIB%/*}/apps/apps.bash"

# capable OPTION...: every test of the protocol passes.
capable() {
	at a memccapable -h "$IP_B" -p 11211 -t 20 "$@" >/tmp/capable 2>&1
	local code=$?
	sed 's/^/# /' /tmp/capable
	[ $code = 0 ] && ! grep -qi fail /tmp/capable
}

# load TEST OPTION...
load() {
	local test=$1
	shift
	at a memcslap -s "$IP_B" -t "$test" -c 8 -e "$(scale 200 10000)" "$@"
}

# copies: what is stored comes back.
copies() {
	at a memccp -s "$IP_B" /tmp/value && same_sum /tmp/value at a memccat -s "$IP_B" --file /dev/stdout value
}

up_apps
mark
serve memcached b 11211 memcached -u root -l "$IP_B" -U 0 -m 256 -I 4m
check "its protocol" capable
check "sets" load set
check "gets" load get
check "gets of many" load mget
check "the binary protocol" load set --binary
check "sockets that do not block" load set --non-blocking
random_file /tmp/value 900000
check "a file is stored and comes back" copies
went_by_smc memcached $((2 << 20))
over
