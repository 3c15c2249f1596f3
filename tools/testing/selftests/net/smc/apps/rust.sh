#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 1800
# mem: 3G
# tests: rust
# Rust: the network tests of the standard library, Tokio, async-io, async-std and polling, over TCP, over SMC-R, and
# over SMC sockets that fall back.

. "${LIB%/*}/apps/python.bash"

export RUNNER="$PYTHON $APPS/libtest.py"
DIFFERENCES=$APPS/rust.differences

up_ways
for module in ${*:-$(ls "$SUITE/bin" | sed 's/^/rust./')}; do
	three_ways "$module"
done
end_ways 300 100
