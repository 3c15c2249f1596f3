#!/bin/bash
# SPDX-License-Identifier: GPL-2.0
# guest: um-debug
# timeout: 1800
# mem: 3G
# tests: go
# As go.sh, within one kernel.

CARRIER=smcd
. "${LIB%/*}/apps/go.sh"
