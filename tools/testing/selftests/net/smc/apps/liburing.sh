#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: debian-7.3
# timeout: 3600
# mem: 3G
# tests: liburing
# The tests of liburing that use stream sockets of IP, with the kernel's io_uring, over TCP, over SMC-R, and over SMC
# sockets that fall back.

. "${LIB%/*}/apps/programs.bash"

DIFFERENCES=$APPS/liburing.differences
# The preloaded library does not reach sockets that io_uring makes.
USE_SMC=(env IO_URING_SMC=1 "$SMC" run)
# An emulated processor is slow.
export LIMIT=300

tests() {
	local way=$1 module=$2
	shift 2
	programs "$way" "$module" codes "$SUITE"/*.t -- "$@"
}

up_ways
three_ways liburing
end_ways 100 20
