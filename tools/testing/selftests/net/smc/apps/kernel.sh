#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 900
# mem: 3G
# tests: kernel
# The kernel's own selftests of TCP sockets, with the programs that transfer files for those of MPTCP, over TCP, over
# SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/kernel.differences

# Programs that are a test each.
PROGRAMS="
bind_timewait
bind_wildcard
epoll_busy_poll
getsockopt_iter
mptcp_inq -t tcp -r tcp
mptcp_inq -6 -t tcp -r tcp
reuseaddr_conflict
reuseport_addr_any
reuseport_bpf
reuseport_bpf_cpu
reuseport_dualstack
sk_connect_zero_addr
so_incoming_cpu
so_netns_cookie
tcp_inq
tcp_inq -6
tcp_port_share
"

# Transfers: address, bytes, options.
TRANSFERS="
127.0.0.1 3000000 -m poll
127.0.0.1 3000000 -m mmap
127.0.0.1 3000000 -m sendfile
127.0.0.1 3000000 -m splice
::1 3000000 -6 -m poll
::1 3000000 -6 -m mmap
::1 3000000 -6 -m sendfile
::1 3000000 -6 -m splice
127.0.0.1 1023 -c TCPINQ
127.0.0.1 3000000 -c TIMESTAMPNS
127.0.0.1 300000 -m poll -S 65536 -R 65536
127.0.0.1 300000 -m splice -S 65536 -R 65536
127.0.0.1 3000000 -P saveWithPeek
127.0.0.1 3000000 -P saveAfterPeek
127.0.0.1 3000000 -m splice -P saveWithPeek
127.0.0.1 3000000 -w 1
127.0.0.1 3000000 -M 5
127.0.0.1 3000000 -o TRANSPARENT
::1 3000000 -6 -o TRANSPARENT
127.0.0.1 3000000 -o MPTFO
"

# A test each: a script with that name, and its command. Names have no spaces.
SCRIPTS=/tmp/scripts
test_of() {
	local name=${1// /_}
	printf '#!/bin/bash\nexec %s\n' "$2" >"$SCRIPTS/$name" && chmod +x "$SCRIPTS/$name"
}

make_tests() {
	local line
	mkdir "$SCRIPTS" || return
	while read -r line; do
		[ -z "$line" ] || test_of "$line" "$SUITE/$line" || return
	done <<<"$PROGRAMS"
	while read -r line; do
		[ -z "$line" ] || test_of "transfer $line" "$APPS/kernel/transfer $SUITE $line" || return
	done <<<"$TRANSFERS"
	for line in 127.0.0.1 ::1; do
		test_of "reconnect $line" "$APPS/kernel/reconnect $SUITE $line 500000" || return
	done
}

tests() {
	local way=$1 module=$2
	shift 2
	programs "$way" "$module" codes "$SCRIPTS"/* -- "$@"
}

require "tests" make_tests
up_ways
three_ways kernel
end_ways 20 20
