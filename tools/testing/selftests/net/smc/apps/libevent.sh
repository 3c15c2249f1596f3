#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 600
# mem: 3G
# tests: libevent
# libevent's own tests of sockets, HTTP, RPC and TLS, over TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/libevent.differences
PATTERNS=(
	'bufferevent/.*' 'dns/bufferevent_.*' 'et/.*' 'evbuffer/add_.*file.*' 'http/.*' 'listener/.*' 'rpc/.*' 'ssl/.*'
	'main/(combined|event_closed_fd_poll|multiple|persistent|simple.*)'
)

tests() {
	local way=$1 module=$2
	shift 2
	programs "$way" "$module" libevent "$SUITE" "${PATTERNS[@]}" -- "$@"
}

up_ways
three_ways libevent
end_ways 100 20
