#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 1800
# mem: 3G
# tests: go
# Go: the tests of its packages for sockets, HTTP, TLS, RPC and SMTP over TCP, over SMC-R, and over SMC sockets that
# fall back.

. "${LIB%/*}/apps/python.bash"

export RUNNER="$PYTHON $APPS/gotest.py"
DIFFERENCES=$APPS/go.differences
# Go's runtime makes its system calls itself.
USE_SMC=(env GO_NET_SMC=1)

up_ways
for module in ${*:-$(ls "$SUITE/bin" | sed 's/^/go./')}; do
	three_ways "$module"
done
end_ways 300 100
