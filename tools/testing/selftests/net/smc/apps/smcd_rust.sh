#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 1800
# mem: 3G
# tests: rust
# As rust.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/rust.sh"
