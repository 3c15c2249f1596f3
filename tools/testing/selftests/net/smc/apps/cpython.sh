#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 3600
# mem: 3G
# CPython's own socket tests over TCP, over SMC-R, and over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

DIFFERENCES=$APPS/cpython.differences
MODULES="test.test_selectors test.test_socket test.test_ssl test.test_asyncio"

up_ways
for module in ${*:-$MODULES}; do
	three_ways "$module"
done
end_ways 300 100
